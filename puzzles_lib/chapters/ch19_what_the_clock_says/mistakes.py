"""Wrong kernels of chapter 19: right ones with one slip each."""

from puzzles_lib.chapters.ch19_what_the_clock_says.puzzles import SPLIT_SUM, TILE_ORDER
from puzzles_lib.mistakes import Mistake

_ADD = "tl.atomic_add(z_ptr + m, tl.sum(x, axis=1), mask=m < M)"

MISTAKES = (
    Mistake(
        TILE_ORDER,
        "row_after_row",
        "One row of tiles, then the next: programs of one time share no columns.",
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
        "One column of tiles, then the next: now x is fetched again and again.",
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
        "Bands, but each walked along its rows: in a wave that is a row again.",
        {
            "pid_m = first + place % rows": "pid_m = first + place // tiles_n",
            "pid_n = place // rows": "pid_n = place % tiles_n",
        },
        kind="traffic",
        says="y is fetched 8.0 times",
    ),
    Mistake(
        TILE_ORDER,
        "every_band_is_full",
        "Counts GROUP rows in the last band too, where there are fewer.",
        {"rows = tl.minimum(tiles_m - first, GROUP)": "rows = GROUP"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "band_taken_for_row",
        "Takes the band's number for its first row of tiles.",
        {"pid // (GROUP * tiles_n) * GROUP": "pid // (GROUP * tiles_n)"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "place_in_all",
        "Divides the program's number in the grid, not its place in the band.",
        {"place = pid - first * tiles_n": "place = pid"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "bands_of_the_other_axis",
        "A band has GROUP rows, each of tiles_n tiles; here it is counted with tiles_m.",
        {"first = pid // (GROUP * tiles_n)": "first = pid // (GROUP * tiles_m)"},
        kind="never written",
        says="z",
    ),
    Mistake(
        TILE_ORDER,
        "quotient_and_remainder_swapped",
        "The remainder goes to the column, and the quotient to the row.",
        {"first + place % rows": "first + place // rows", "pid_n = place // rows": "pid_n = place % rows"},
        kind="never written",
        says="z",
    ),
    Mistake(
        SPLIT_SUM,
        "nothing_reset",
        "Each timed run adds to what the last one has left.",
        {'    reset_to_zero=["z_ptr"],\n': ""},
        kind="values",
        says="correct alone, but wrong on the results that other configurations leave",
    ),
    Mistake(
        SPLIT_SUM,
        "resets_the_input",
        "Clears an input as well: from the first timed run on, there is nothing to add.",
        {'["z_ptr"]': '["x_ptr", "z_ptr"]'},
        kind="values",
        says="reset_to_zero clears the input x_ptr",
    ),
    Mistake(
        SPLIT_SUM,
        "stores_its_part",
        "Stores where it should add: the last program of a row wins.",
        {_ADD: "tl.store(z_ptr + m, tl.sum(x, axis=1), mask=m < M)"},
        kind="race",
        says="write different values to z",
    ),
    Mistake(
        SPLIT_SUM,
        "loads_and_adds",
        "Loads, adds and stores: between the three, another program does the same.",
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
        "Adds for rows that there are none of.",
        {"tl.sum(x, axis=1), mask=m < M)": "tl.sum(x, axis=1))"},
        kind="out of bounds",
        says="z_ptr",
    ),
    Mistake(
        SPLIT_SUM,
        "lanes_unfilled",
        "What the mask switches off goes into the sum.",
        {", mask=mask, other=0.0": ", mask=mask"},
        kind="uninitialised",
        says="x_ptr",
    ),
)
