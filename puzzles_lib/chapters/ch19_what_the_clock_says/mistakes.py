"""Wrong kernels of chapter 19: correct ones with one slip each."""

from puzzles_lib.chapters.ch19_what_the_clock_says.puzzles import SPLIT_SUM, TILE_ORDER
from puzzles_lib.mistakes import Mistake

_ADD = "tl.atomic_add(z_ptr + m, tl.sum(x, axis=1), mask=m < M)"

MISTAKES = (
    Mistake(
        TILE_ORDER,
        "row_after_row",
        "Goes row after row of tiles, so programs that run at the same time share no columns.",
        {
            "pid_m = first + place % rows": "pid_m = pid // tiles_n",
            "pid_n = place // rows": "pid_n = pid % tiles_n",
        },
        kind="traffic",
        says="x is fetched 1.0 times and y is fetched 8.0 times",
    ),
    Mistake(
        TILE_ORDER,
        "column_after_column",
        "Goes column after column of tiles, so x is fetched again and again.",
        {
            "pid_m = first + place % rows": "pid_m = pid % tiles_m",
            "pid_n = place // rows": "pid_n = pid // tiles_m",
        },
        kind="traffic",
        says="x is fetched 8.0 times and y is fetched 1.0 times",
    ),
    Mistake(
        TILE_ORDER,
        "along_the_band",
        "Walks each band along its rows, so a wave is a single row again.",
        {
            "pid_m = first + place % rows": "pid_m = first + place // tiles_n",
            "pid_n = place // rows": "pid_n = place % tiles_n",
        },
        kind="traffic",
        says="y is fetched 8.0 times",
    ),
    Mistake(
        TILE_ORDER,
        "bands_of_columns",
        "Makes bands of GROUP columns, each walked along its rows.",
        {
            "first = pid // (GROUP * tiles_n) * GROUP": "first = pid // (GROUP * tiles_m) * GROUP",
            "rows = tl.minimum(tiles_m - first, GROUP)": "rows = tl.minimum(tiles_n - first, GROUP)",
            "place = pid - first * tiles_n": "place = pid - first * tiles_m",
            "pid_m = first + place % rows": "pid_m = place // rows",
            "pid_n = place // rows": "pid_n = first + place % rows",
        },
        kind="traffic",
        says="your bands have 4 columns of tiles, but they should have 4 rows",
    ),
    Mistake(
        TILE_ORDER,
        "always_two_rows",
        "Has bands of 2 rows, whatever GROUP is.",
        {
            "GROUP * tiles_n) * GROUP": "2 * tiles_n) * 2",
            "tiles_m - first, GROUP": "tiles_m - first, 2",
        },
        kind="traffic",
        says="your bands have 2 rows of tiles, but GROUP is 4",
    ),
    Mistake(
        TILE_ORDER,
        "always_four_rows",
        "Has bands of 4 rows, whatever GROUP is.",
        {
            "GROUP * tiles_n) * GROUP": "4 * tiles_n) * 4",
            "tiles_m - first, GROUP": "tiles_m - first, 4",
        },
        kind="traffic",
        says="your bands have 4 rows of tiles, but GROUP is 2",
    ),
    Mistake(
        TILE_ORDER,
        "every_band_is_full",
        "Assumes GROUP rows in the last band too, which may have fewer.",
        {"rows = tl.minimum(tiles_m - first, GROUP)": "rows = GROUP"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "band_taken_for_row",
        "Uses the band's number as its first row of tiles.",
        {"pid // (GROUP * tiles_n) * GROUP": "pid // (GROUP * tiles_n)"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "place_in_all",
        "Divides the program's number in the grid instead of its place in the band.",
        {"place = pid - first * tiles_n": "place = pid"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "bands_of_the_other_axis",
        "Counts tiles_m tiles per row of a band, where there are tiles_n.",
        {"first = pid // (GROUP * tiles_n)": "first = pid // (GROUP * tiles_m)"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "quotient_and_remainder_swapped",
        "Swaps them: the remainder becomes the column and the quotient the row.",
        {"first + place % rows": "first + place // rows", "pid_n = place // rows": "pid_n = place % rows"},
        kind="never written",
        says="z",
    ),
    Mistake(
        SPLIT_SUM,
        "nothing_reset",
        "Each timed run adds to what the run before it left in z.",
        {'    reset_to_zero=["z_ptr"],\n': ""},
        kind="values",
        says="correct alone, but wrong on the results that other configurations leave",
    ),
    Mistake(
        SPLIT_SUM,
        "resets_the_input",
        "Clears an input as well, so from the first timed run on there's nothing to add.",
        {'["z_ptr"]': '["x_ptr", "z_ptr"]'},
        kind="values",
        says="reset_to_zero clears the input x_ptr",
    ),
    Mistake(
        SPLIT_SUM,
        "reset_by_a_text",
        "Gives reset_to_zero a text, which Triton reads letter by letter.",
        {'["z_ptr"]': '"z_ptr"'},
        kind="signature",
        says='reset_to_zero must be a list, such as ["z_ptr"]',
    ),
    Mistake(
        SPLIT_SUM,
        "prunes_all",
        "Keeps no configuration if all blocks are wider than a row.",
        {
            "    reset_to_zero=": (
                "    prune_configs_by={\n"
                '        "early_config_prune": lambda configs, arguments, **_: [\n'
                '            config for config in configs if config.kwargs["BLOCK_N"] <= arguments["N"]\n'
                "        ]\n"
                "    },\n"
                "    reset_to_zero="
            )
        },
        kind="signature",
        says="early_config_prune must keep at least one configuration",
    ),
    Mistake(
        SPLIT_SUM,
        "stores_its_part",
        "Stores instead of adding, so the last program of a row wins.",
        {_ADD: "tl.store(z_ptr + m, tl.sum(x, axis=1), mask=m < M)"},
        kind="race",
        says="write different values to z",
    ),
    Mistake(
        SPLIT_SUM,
        "loads_and_adds",
        "Loads, adds and stores in three steps; another program can do the same in between.",
        {
            _ADD: (
                "before = tl.load(z_ptr + m, mask=m < M, other=0.0)\n"
                "    tl.store(z_ptr + m, before + tl.sum(x, axis=1), mask=m < M)"
            )
        },
        kind="race",
        says="reads z[0], which program",
    ),
    Mistake(
        SPLIT_SUM,
        "rows_past_the_end",
        "Adds to rows past the end of z.",
        {"tl.sum(x, axis=1), mask=m < M)": "tl.sum(x, axis=1))"},
        kind="out of bounds",
        says="z_ptr",
    ),
    Mistake(
        SPLIT_SUM,
        "lanes_unfilled",
        "Lanes that the mask switches off go into the sum.",
        {", mask=mask, other=0.0": ", mask=mask"},
        kind="uninitialized",
        says="x_ptr",
    ),
)
