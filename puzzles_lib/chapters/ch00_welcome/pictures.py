"""Pictures of chapter 00: what a program is, and what each line of a kernel holds."""

from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.drawing import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.drawing.colours import FAINT, GREEN, LINE, PALE, PROGRAM_COLORS
from puzzles_lib.inputs import make_inputs


def programs(case: int = 2) -> Picture:
    """A tensor cut into blocks, and the programs that take one block each."""
    case = DOUBLE.cases[case]
    count, lanes = DOUBLE.programs(case)[0], DOUBLE.programs(case)[0] * case.BLOCK
    figure, ax = new_sheet(lanes + 4.6, 6.0, unit=0.265)
    inside = [lane < case.N for lane in range(lanes)]
    owner = [lane // case.BLOCK % len(PROGRAM_COLORS) for lane in range(lanes)]
    tensor = cells(
        ax,
        [lane if inside[lane] else "" for lane in range(lanes)],
        x=4,
        y=4,
        colors=[PROGRAM_COLORS[owner[lane]] if inside[lane] else None for lane in range(lanes)],
        hatch=[None if inside[lane] else "////" for lane in range(lanes)],
        title="x",
        fontsize=9,
    )
    label(ax, 3.75, 1.1, "programs", align="right")
    for pid in range(count):
        left = tensor.x + pid * case.BLOCK + 0.4
        size = (case.BLOCK - 0.8, 1.2)
        program = box(ax, left, 0.5, *size, f"program_id = {pid}", color=PROGRAM_COLORS[pid])
        for lane in (pid * case.BLOCK, (pid + 1) * case.BLOCK - 1):
            end = tensor.top(lane)
            arrow(ax, program.foot(0), (end[0], end[1] - 0.05), color=LINE)
    beyond = lanes - case.N
    return Picture(
        figure,
        f"""A tensor x of {case.N} elements, cut into {count} blocks of {case.BLOCK}. Each block belongs to
        one of the programs with program_id 0 to {count - 1}. The last block has only
        {case.BLOCK - beyond} elements: its last {beyond} lanes lie beyond the end and are hatched.""",
    )


def line_by_line(program: int = 3, case: int = 2) -> Picture:
    """What every name of the demonstration kernel holds in one program, from real inputs."""
    case = DOUBLE.cases[case]
    x = make_inputs(DOUBLE, case)["x"].tolist()
    offs = [program * case.BLOCK + lane for lane in range(case.BLOCK)]
    mask = [off < case.N for off in offs]
    loaded = [x[off] if off < case.N else None for off in offs]
    results = [2 * v if v is not None else None for v in loaded]
    on = [PALE if m else None for m in mask]
    off = [None if m else "////" for m in mask]
    figure, ax = new_sheet(5.2 + 1.6 * case.BLOCK + 0.3, 8.6, unit=0.42)

    def row(y: float, title: str, values: list, colors: object, hatch: object = None) -> None:
        cells(ax, values, x=5.2, y=y, width=1.6, title=title, colors=colors, hatch=hatch, index=y < 2)

    row(1.2, "tl.arange(0, BLOCK)", list(range(case.BLOCK)), PALE)
    row(2.7, "offs", offs, PROGRAM_COLORS[program % len(PROGRAM_COLORS)])
    row(4.2, "mask", mask, [GREEN if m else None for m in mask])
    row(5.7, "x", [_signed(v) for v in loaded], on, off)
    row(7.2, "2 * x", [_signed(v) for v in results], on, off)
    label(ax, 0.2, 0.5, f"pid = {program}", align="left", fontsize=11)
    label(ax, 4.95, 0.9, "lane", align="right", fontsize=9, color=FAINT)
    live = sum(mask)
    return Picture(
        figure,
        f"""Program {program} of the kernel on N = {case.N}, BLOCK = {case.BLOCK}, one column per lane. offs
        runs from {offs[0]} to {offs[-1]}; the mask is True in the first {live} lanes and False in the
        last {case.BLOCK - live}; x holds {", ".join(_signed(v) for v in loaded[:live])}; 2 * x is twice
        that.""",
    )


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
