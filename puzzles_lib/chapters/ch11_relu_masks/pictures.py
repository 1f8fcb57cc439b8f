"""Pictures for chapter 11."""

import math
from collections.abc import Mapping, Sequence

from puzzles_lib.drawing.colours import INK, ORANGE, PALE, SKY, VERMILLION, YELLOW
from puzzles_lib.drawing.sheet import Picture, arrow, cells, label, new_figure, new_sheet

OPEN, SHUT = SKY, PALE  # the gradient passes; it does not
X = (0.5, -1.0, 0.0, 2.0, -0.5, 3.0, 1.5, -2.0)


def bits(x: Sequence[float] = X) -> Picture:
    """Draw x, its ReLU, the bits, and the word (its lowest eight bits)."""
    passes = [0 if v <= 0 else 1 for v in x]
    y = [0.0 if v <= 0 else v for v in x]
    word = sum(bit << i for i, bit in enumerate(passes))
    colors = [OPEN if bit else SHUT for bit in passes]
    figure, ax = new_sheet(20.5, 6.6)
    left, wide = 4.0, 1.2
    index = [f"i={i}" for i in range(len(x))]
    cells(ax, list(x), x=left, y=0.9, width=wide, colors=colors, title="x", index=index)
    cells(ax, y, x=left, y=2.4, width=wide, colors=colors, title="y = relu(x)")
    row = cells(ax, passes, x=left, y=3.9, width=wide, colors=colors, title="dy passes")
    texts = ["the next layer needs all of it", "one bit each: all that ReLU needs"]
    for top, text in zip((2.4, 3.9), texts, strict=True):
        label(ax, row.right + 0.4, top + 0.5, text, align="left", fontsize=9)
    parts = " + ".join(str(1 << i) for i, bit in enumerate(passes) if bit)
    foot = f"sum of bit · 2^i  =  {parts}  =  {word}"
    label(ax, left, 5.9, foot, align="left", fontsize=11)
    return Picture(
        figure,
        f"x = {_list(x)}; y = relu(x) = {_list(y)}; the bits show where the gradient passes: {passes}. "
        f"They are 1 if x > 0, and 0 if x is 0. Bit i counts 2^i, so the word is {word}.",
    )


BITS_KEPT = (  # what, bits per element
    ("y in bfloat16", 16.0),
    ("y in 2 bits, scale and minimum, and the mask", 2 + 2 * 16 / 256 + 1),
)
LAYER = (512 * 197, 3072)  # tokens of a batch, hidden width of an MLP


def saved(layers: int = 12) -> Picture:
    """Draw what a ViT-B with ReLU would keep of its hidden activations at batch 512."""
    elements = math.prod(LAYER)
    sizes = [(name, bits, elements * bits / 8 / 1e6) for name, bits in BITS_KEPT]
    figure = new_figure(8, 2.0)
    ax = figure.add_subplot()
    for number, (_, bits, size) in enumerate(sizes):
        ax.barh(number, size, color=(ORANGE, SKY)[number], edgecolor=INK, linewidth=0.8, height=0.6)
        each = f"{bits:g} bit{'s' * (bits != 1)} per value"
        text = f"{size:.0f} MB per layer, {layers * size / 1e3:.1f} GB in {layers} ({each})"
        inside = size > 400
        gap, align = (-8, "right") if inside else (8, "left")
        label(ax, size + gap, number, text, align=align)
    ax.set_yticks(range(len(sizes)), [name for name, _, _ in sizes])
    ax.invert_yaxis()
    ax.set_xlabel("megabytes kept for the backward pass")
    ax.set_title(f"hidden activations of one MLP: {LAYER[0]} tokens × {LAYER[1]}", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    told = "; ".join(f"{name}: {size:.0f} MB, {layers * size / 1e3:.1f} GB in all" for name, _, size in sizes)
    return Picture(
        figure,
        f"Bars of the memory kept for backward by the hidden activations of an MLP with {LAYER[0]} tokens of "
        f"{LAYER[1]} values, per layer and for {layers} layers. {told}.",
    )


def select(dy: Sequence[float] = (1.5, -2.0, math.inf, 0.25, -1.0, math.nan)) -> Picture:
    """Draw choosing dy or 0, and multiplying dy by the bit."""
    bits = (1, 0, 0, 1, 1, 0)
    chosen = [v if bit else 0.0 for v, bit in zip(dy, bits, strict=True)]
    times = [v * bit for v, bit in zip(dy, bits, strict=True)]
    gate = [OPEN if bit else SHUT for bit in bits]
    bad = [VERMILLION if math.isnan(t) else g for t, g in zip(times, gate, strict=True)]
    figure, ax = new_sheet(20, 6.9)
    left, wide = 6.2, 1.3
    cells(ax, list(dy), x=left, y=0.4, width=wide, colors=gate, title="dy")
    cells(ax, list(bits), x=left, y=1.8, width=wide, colors=gate, title="bit of the mask")
    row = cells(ax, chosen, x=left, y=3.7, width=wide, colors=gate, title="where(bit, dy, 0)")
    cells(ax, times, x=left, y=5.5, width=wide, colors=bad, title="dy · bit")
    for i in range(len(bits)):
        arrow(ax, (row.center(i)[0], 2.9), (row.center(i)[0], 3.6))
    label(ax, row.right + 0.4, 4.2, "correct", align="left")
    label(ax, row.right + 0.4, 6.0, "orange: 0 · inf and 0 · NaN are NaN", align="left")
    return Picture(
        figure,
        f"dy = {_list(dy)}, bits {list(bits)}. Chosen by the bit: {_list(chosen)}. Multiplied by the bit: "
        f"{_list(times)}: if the bit is 0 and dy is infinite or NaN, the product is NaN.",
    )


CASE = "100864x768"  # rows and values of the tensors whose times are drawn


def bandwidth(rows: Sequence[Mapping[str, object]], about: str) -> Picture:
    """Draw the recorded speed of the ReLU kernels and their baselines, compared with a copy of as many bytes.

    rows: recorded rows of bench "memory". about: where they come from.
    """
    kept = [row for row in rows if str(row["path"]).startswith("relu_") and row["case"] == CASE]
    groups = _shares(kept)
    if not groups:
        raise ValueError(f"bandwidth: no row of {CASE} has a path that starts with relu_")
    bars = sum(len(shares) for shares in groups.values())
    figure = new_figure(8, 0.8 + 0.3 * bars + 0.3 * len(groups))
    ax = figure.add_subplot()
    y, places, names, told = 0.0, [], [], []
    for (path, case), shares in groups.items():
        label(ax, 0.6, y, f"{path}, {case}", align="left")
        for name, share in shares.items():
            y += 1
            color = SKY if name == path else ORANGE if name == "torch.compile" else YELLOW
            ax.barh(y, share, color=color, edgecolor=INK, linewidth=0.8, height=0.8)
            right = max(share, 100.0) if share > 90 else share  # clear of the dashed line
            label(ax, right + 1, y, f"{share:.0f}%", align="left", fontsize=9)
            places.append(y)
            names.append("ours" if name == path else name)
        y += 1.3
        told.append(f"{path}, {case}: " + ", ".join(f"{name} {share:.0f}%" for name, share in shares.items()))
    ax.axvline(100, color=INK, linestyle="--", linewidth=1)
    ax.set_yticks(places, names, fontsize=9)
    ax.set_xlim(0, 112)
    ax.set_ylim(y - 0.6, -0.8)
    ax.set_xlabel(
        "speed, in % of a copy of the bytes that ours moves (dashed); blue: ours\n" + about, fontsize=9
    )
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(figure, f"Speed as a share of a copy of as many bytes, {about}. {'; '.join(told)}.")


def _shares(rows: Sequence[Mapping[str, object]]) -> dict[tuple[str, str], dict[str, float]]:
    """Return, per path and case, the copy's time in percent of the kernel's and of each other baseline's."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for copy in rows:
        if not str(copy["baseline"]).startswith("copy"):
            continue
        path, case = str(copy["path"]), str(copy["case"])
        shares = {path: 100 * copy["baseline_us"] / copy["us"]}
        for row in rows:
            if (row["path"], row["case"]) == (path, case) and row is not copy:
                shares[str(row["baseline"])] = 100 * copy["baseline_us"] / row["baseline_us"]
        found[path, case] = shares
    return found


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)


__all__ = ["bandwidth", "bits", "saved", "select"]
