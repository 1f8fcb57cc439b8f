"""Pictures for chapter 11."""

import math
from collections.abc import Mapping, Sequence

from puzzles_lib.drawing.colours import INK, ORANGE, PALE, SKY, YELLOW
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet

OPEN, SHUT = SKY, PALE  # the gradient passes; it does not
X = (0.5, -1.0, 0.0, 2.0, -0.5, 3.0, 1.5, -2.0)


def bits(x: Sequence[float] = X) -> Picture:
    """Draw x, its ReLU, the bits, and the word (its lowest eight bits), the lowest bit on the right."""
    order = range(len(x) - 1, -1, -1)
    passes = [0 if v <= 0 else 1 for v in x]
    y = [0.0 if v <= 0 else v for v in x]
    word = sum(bit << i for i, bit in enumerate(passes))
    colors = [OPEN if passes[i] else SHUT for i in order]
    figure, ax = new_sheet(20.5, 6.6)
    left, wide = 4.0, 1.2
    index = [f"i={i}" for i in order]
    cells(ax, [x[i] for i in order], x=left, y=0.9, width=wide, colors=colors, title="x", index=index)
    cells(ax, [y[i] for i in order], x=left, y=2.4, width=wide, colors=colors, title="y = relu(x)")
    row = cells(ax, [passes[i] for i in order], x=left, y=3.9, width=wide, colors=colors, title="dy passes")
    texts = ["all that the next layer needs", "all that the ReLU needs"]
    for top, text in zip((2.4, 3.9), texts, strict=True):
        label(ax, row.right + 0.4, top + 0.5, text, align="left", fontsize=9)
    shown = "".join(str(passes[i]) for i in order)
    foot = f"the lowest eight bits of the word:  {shown}  =  {word}"
    label(ax, left, 5.9, foot, align="left", fontsize=11)
    return Picture(
        figure,
        f"From i = {len(x) - 1} on the left to i = 0 on the right: x = {_list([x[i] for i in order])}; "
        f"y = relu(x) = {_list([y[i] for i in order])}; dy passes: {[passes[i] for i in order]}. Element 0 "
        "is "
        f"the lowest bit, so these bits of the word are {shown}, which is {word}.",
    )


LAYER = (512 * 197, 3072)  # tokens of a batch, values of a token in the hidden layer of an MLP
CODED = 2 + 2 * 16 / 256  # bits per value: a code, and its share of a scale and a minimum
KEPT = (  # what, bits per value for the linear layer, bits per value for the ReLU
    ("y in bfloat16, for both", 16.0, 0.0),
    ("y in 2 bits, and y in bfloat16", CODED, 16.0),
    ("y in 2 bits, and one bit per value", CODED, 1.0),
)


def saved() -> Picture:
    """Draw what an MLP keeps of the output of its ReLU, for the linear layer after it and for the ReLU."""
    figure = new_figure(8, 2.3)
    ax = figure.add_subplot()
    told = []
    for number, (name, linear, relu) in enumerate(KEPT):
        first, second = (math.prod(LAYER) * bits / 8 / 1e9 for bits in (linear, relu))
        look = {"edgecolor": INK, "linewidth": 0.8, "height": 0.6}
        if second:
            ax.barh(number, first, color=SKY, label="the linear layer" if number == 1 else None, **look)
            ax.barh(
                number, second, left=first, color=ORANGE, label="the ReLU" if number == 1 else None, **look
            )
        else:
            for color, place in ((SKY, number - 0.15), (ORANGE, number + 0.15)):
                ax.barh(place, first, height=0.3, linewidth=0, color=color)
            ax.barh(number, first, fill=False, **look)
        label(ax, first + second + 0.01, number, f"{first + second:.2f} GB", align="left")
        told.append(f"{name}: {first + second:.2f} GB")
    ax.set_yticks(range(len(KEPT)), [name for name, _, _ in KEPT])
    ax.invert_yaxis()
    ax.set_xlim(0, 0.8)
    ax.set_xlabel(f"GB kept for the backward pass: {LAYER[0]} tokens of {LAYER[1]} values")
    ax.legend(title="kept for", fontsize=9, title_fontsize=9, frameon=False, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"Bars of the memory kept for backward after a ReLU with {LAYER[0]} tokens of {LAYER[1]} values, for "
        f"the linear layer, the ReLU or both. {'; '.join(told)}.",
    )


def layer() -> Picture:
    """Draw what flows forward and backward through a ReLU and a linear layer; both keep something."""
    figure, ax = new_sheet(24, 9.4)
    relu, linear, wide = 5.0, 14.0, 5.0
    for y, title, names in ((0.8, "forward", ("x", "y", "z")), (6.6, "backward", ("dx", "dy", "dz"))):
        label(ax, 0.3, y - 0.4, title, align="left", fontsize=11)
        for x, name in ((relu, "ReLU"), (linear, "linear")):
            box(ax, x, y, wide, 1.6, name, color=SKY, edge=INK)
        places = ((1.6, relu), (relu + wide, linear), (linear + wide, 22.4))
        for (start, end), name in zip(places, names, strict=True):
            ends = ((start + 0.2, y + 0.8), (end - 0.2, y + 0.8))
            arrow(ax, *(ends if title == "forward" else ends[::-1]))
            label(ax, (start + end) / 2, y + 0.4, name, align="bottom", fontsize=11)
    for x, what in ((relu, "what for dx?"), (linear, "what for dW?  (and W)")):
        middle = x + wide / 2
        box(ax, x, 3.7, wide, 1.6, "?", color=YELLOW, edge=INK, fontsize=13)
        arrow(ax, (middle, 2.5), (middle, 3.6))
        arrow(ax, (middle, 5.4), (middle, 6.5))
        label(ax, x + wide + 0.3, 4.5, what, align="left", fontsize=9)
    label(ax, 0.3, 4.5, "kept", align="left", fontsize=11)
    arrow(ax, (linear + wide / 2, 8.3), (linear + wide / 2, 9.0))
    label(ax, linear + wide / 2 + 0.3, 8.8, "dW", align="left", fontsize=11)
    return Picture(
        figure,
        "Forward, x goes through the ReLU, which makes y, and y through the linear layer, which makes z. "
        "Backward, dz goes through the linear layer, which makes dW and dy, and dy through the ReLU, which "
        "makes dx. Each of the two keeps something from the forward pass: a question mark for dx, and one "
        "for dW, next to the weight W.",
    )


CASE = "100864x768"  # rows and values of the tensors whose times are drawn


def times(rows: Sequence[Mapping[str, object]], about: str) -> Picture:
    """Draw the recorded times of our ReLU kernels, of torch, and of a copy of as many bytes as ours move.

    rows: recorded rows of bench "memory". about: where they come from.
    """
    groups = _times(rows)
    if not groups:
        raise ValueError(f"times: no row of {CASE} has a path that starts with relu_")
    figure = new_figure(8, 0.9 + 0.32 * sum(len(bars) + 1 for bars in groups.values()))
    ax = figure.add_subplot()
    y, places, names, told = 0.0, [], [], []
    for path, bars in groups.items():
        label(ax, 0.6, y, path, align="left")
        for name, us in bars.items():
            y += 1
            color = SKY if name == "ours" else YELLOW if name.startswith("torch") else PALE
            ax.barh(y, us, color=color, edgecolor=INK, linewidth=0.8, height=0.8)
            of_ours = f", {us / bars['ours']:.2f}× ours" if name != "ours" else ""
            label(ax, us + 1, y, f"{us:.0f} µs{of_ours}", align="left", fontsize=9)
            places.append(y)
            names.append(name)
        y += 1.3
        told.append(f"{path}: " + ", ".join(f"{name} {us:.0f} µs" for name, us in bars.items()))
    ax.set_yticks(places, names, fontsize=9)
    ax.set_xlim(0, 1.3 * max(us for bars in groups.values() for us in bars.values()))
    ax.set_ylim(y - 0.6, -0.8)
    ax.set_xlabel(f"µs for {CASE.replace('x', ' × ')} values\n{about}", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(figure, f"Times for {CASE} values, {about}. {'; '.join(told)}.")


COPY = "a copy of as many bytes as ours"


def _times(rows: Sequence[Mapping[str, object]]) -> dict[str, dict[str, float]]:
    """Return, per kernel, its time, torch's and the copy's in µs. What torch.compile makes is left out."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        path, baseline = str(row["path"]), str(row["baseline"])
        if row["case"] != CASE or not path.startswith("relu_") or baseline == "torch.compile":
            continue
        name = COPY if baseline.startswith("copy") else baseline
        found.setdefault(path, {"ours": float(row["us"])})[name] = float(row["baseline_us"])
    return found


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)


__all__ = ["bits", "layer", "saved", "times"]
