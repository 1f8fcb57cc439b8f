"""Pictures for chapter 14."""

from collections.abc import Callable

import torch

from puzzles_lib.drawing.colours import BLUE, FAINT, GREEN, INK, LINE, ORANGE, PALE, SKY, VERMILLION, YELLOW
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet

Cut = Callable[[torch.Tensor], torch.Tensor]


def quantised(x: torch.Tensor, cut: Cut = torch.round, per_tensor: bool = False) -> torch.Tensor:
    """Return x after quantizing to int8 and back, with a scale per row or one for all rows."""
    peak = x.abs().amax() if per_tensor else x.abs().amax(1, keepdim=True)
    return cut(x / (peak / 127)) * (peak / 127)


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- a row and its codes


def rows() -> Picture:
    """Draw rows of values, the peak of each, its scale and its codes."""
    x = torch.tensor(
        [[0.5, -1.27, 0.204, 1.0], [25.4, 3.0, -8.1, 0.09], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64
    )
    peak = x.abs().amax(1)
    scale = torch.where(peak > 0, peak / 127, 1.0)
    codes = (x / scale[:, None]).round().int().tolist()
    at = x.abs().argmax(1).tolist()
    fills = [[YELLOW if peak[m] and k == at[m] else SKY for k in range(4)] for m in range(3)]
    figure, ax = new_sheet(24, 5.6)
    left, top, width = 1.6, 1.5, 1.7
    names = [f"m={m}" for m in range(3)]
    grid = cells(
        ax, [[f"{v:g}" for v in row] for row in x.tolist()], x=left, y=top, width=width, colors=fills,
        row_index=names,
    )  # fmt: skip
    middle = grid.right + 1.6
    cells(ax, [[f"{s:g}"] for s in scale.tolist()], x=middle, y=top, width=2.0)
    right = middle + 2.0 + 1.6
    cells(ax, codes, x=right, y=top, width=width, colors=fills)
    for m in range(3):
        y = top + m + 0.5
        arrow(ax, (grid.right + 0.1, y), (middle - 0.1, y))
        arrow(ax, (middle + 2.1, y), (right - 0.1, y))
    for x0, name in ((left + 2 * width, "x"), (middle + 1.0, "scale"), (right + 2 * width, "codes")):
        label(ax, x0, top - 0.5, name, fontsize=11)
    foot = "yellow: the largest magnitude of the row, which becomes 127 or −127"
    label(ax, 12, top + 3.8, foot)
    told = "; ".join(
        f"row {m}: {[float(f'{v:g}') for v in x[m].tolist()]}, scale {scale[m]:g}, codes {codes[m]}"
        for m in range(3)
    )
    return Picture(
        figure,
        f"Three rows of four values. Each has its own scale: its largest magnitude divided by 127. {told}. A "
        f"row of zeros has scale 1.",
    )


def cuts() -> Picture:
    """Draw what truncation and rounding make of x / scale."""
    x = torch.linspace(-3.2, 3.2, 1281, dtype=torch.float64)
    figure = new_figure(7.4, 3.5)
    axes = figure.subplots(1, 2, sharey=True)
    told = []
    for ax, name, cut, color in (
        (axes[0], "truncated", torch.trunc, VERMILLION),
        (axes[1], "rounded half to even", torch.round, BLUE),
    ):
        codes = cut(x)
        ax.plot(x, x, color=LINE, linewidth=1)
        for code in codes.unique():
            part = x[codes == code]
            ax.plot([part.min(), part.max()], [code, code], color=color, linewidth=3, solid_capstyle="butt")
        if cut is torch.round:
            ties = torch.arange(-2.5, 3)
            ax.plot(ties, cut(ties), "o", color=INK, markersize=5)
            label(ax, 0.75, -2.1, "dots: the ties go\nto the even code", fontsize=9, align="left")
        size = float(x[codes == 0].max() - x[codes == 0].min())
        ax.set_title(f"{name}: the step at 0 is {size:.0f} wide", fontsize=10, color=INK)
        ax.set_xlabel("x / scale", fontsize=10)
        ax.set_xticks(range(-3, 4))
        ax.set_yticks(range(-3, 4))
        ax.tick_params(labelsize=9)
        ax.set_aspect("equal")
        ax.spines[["top", "right"]].set_visible(False)
        told.append(f"{name}: the step at 0 is {size:.0f} wide")
    told[-1] += "; the ties -2.5, -1.5, ..., 2.5 are at the even code"
    axes[0].set_ylabel("code", fontsize=10)
    return Picture(
        figure,
        f"Two staircases: the code of each x / scale, -3 to 3. {'; '.join(told)}. The truncated staircase "
        f"is always between the diagonal and zero; the rounded one is on both sides of the diagonal.",
    )


# ---- what a bias and an outlier do


def gains(layers: int = 12, tokens: int = 84, width: int = 256) -> dict[str, list[float]]:
    """Return, per layer, how much of the exact output survives if inputs are quantized."""
    x = _normal(tokens, width)
    weights = [_normal(width, width, seed=1 + layer) * (2 / width) ** 0.5 for layer in range(layers)]
    found = {}
    for name, cut, per_tensor in (
        ("rounded, per row", torch.round, False),
        ("rounded, per tensor", torch.round, True),
        ("truncated, per row", torch.trunc, False),
        ("truncated, per tensor", torch.trunc, True),
    ):
        exact = made = x
        found[name] = []
        for weight in weights:
            exact, made = (exact @ weight.T).relu(), (quantised(made, cut, per_tensor) @ weight.T).relu()
            found[name].append(float((made * exact).sum() / (exact * exact).sum()))
    return found


def layers() -> Picture:
    """Draw the gain that is left, layer by layer."""
    # torch's sums differ in their last bits from run to run; the figure should not
    found = {name: [round(value, 4) for value in values] for name, values in gains().items()}
    figure = new_figure(7.0, 3.3)
    ax = figure.subplots()
    looks = zip((BLUE, SKY, ORANGE, VERMILLION), ("o", "D", "s", "^"), strict=True)
    layers_ = len(next(iter(found.values())))
    names: dict[str, list[tuple[str, str]]] = {}  # by what is written beside the end of a line
    for (name, values), (color, mark) in zip(found.items(), looks, strict=True):
        ax.plot(range(1, len(values) + 1), values, marker=mark, color=color, linewidth=1.6, markersize=5)
        names.setdefault(f"{values[-1]:.2f}", []).append((name, color))
    for end, lines in names.items():
        text = " and ".join([lines[0][0], *(name.split(", ")[1] for name, _ in lines[1:])])
        label(ax, layers_ + 0.25, float(end), f"{text}: {end}", align="left", color=lines[0][1])
    ax.set_xlim(0.5, len(values) + 8.5)
    ax.set_xticks(range(1, len(values) + 1))
    ax.set_xlabel("layer", fontsize=10)
    ax.set_ylabel("gain", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.grid(axis="y", color=PALE)
    ax.spines[["top", "right"]].set_visible(False)
    told = "; ".join(f"{n}: {v[0]:.3f} after one layer, {v[-1]:.3f} after {len(v)}" for n, v in found.items())
    return Picture(
        figure,
        f"Gain against depth: how much of the exact output survives in its own direction, in a chain of 12 "
        f"linear layers of 256 with ReLU, for 84 tokens, if each layer's input is quantized to int8. {told}.",
    )


def outlier(tokens: int = 84, width: int = 256, where: int = 7, factor: float = 50.0) -> Picture:
    """Draw the error of each token of a linear layer, in which one token is 50 times as large."""
    x, weight = _normal(tokens, width), _normal(192, width, seed=1)
    x[where] *= factor
    exact = x @ weight.T
    figure = new_figure(7.2, 3.4)
    ax = figure.subplots()
    others = torch.arange(tokens) != where
    told = []
    for name, per_tensor, color, mark in (
        ("one scale for the tensor", True, VERMILLION, "^"),
        ("one scale per row", False, BLUE, "o"),
    ):
        off = (quantised(x, per_tensor=per_tensor) @ weight.T - exact).norm(dim=1) / exact.norm(dim=1)
        ax.plot(range(tokens), off, mark, color=color, markersize=4, label=name)
        size, fill = (11, "none") if per_tensor else (4, color)  # both are at the same place
        ax.plot([where], off[where : where + 1], mark, color=color, markersize=size, markerfacecolor=fill)
        told.append(f"{name}: {off[others].mean():.1%} on the others, {off[where]:.1%} on the large one")
    ax.axvline(where, color=LINE, linewidth=0.8, zorder=0)
    words = f"token {where}, {factor:.0f} times as large,\nis fine either way"
    label(ax, where + 0.8, 0.022, words, align="left bottom", fontsize=9)
    ax.set_yscale("log")
    ax.set_yticks([0.01, 0.1, 1], ["1%", "10%", "100%"])
    ax.set_ylim(0.003, 1)
    ax.set_xlabel("token", fontsize=10)
    ax.set_ylabel("error of a token's outputs", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.grid(axis="y", color=PALE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.62, 0.62))
    return Picture(
        figure,
        f"The relative error of each of {tokens} tokens after a linear layer of {width} with int8 inputs. "
        f"{'; '.join(told)}.",
    )


# ---- the fused layer


def fused(K: int = 8) -> Picture:
    """Draw one element: a row of codes, a row of weights, an exact sum, two scales and a bias."""
    xq = [127, -3, 40, 0, -90, 12, 7, 65]
    wq = [-20, 110, 31, 5, -127, 8, 64, 2]
    total = sum(a * b for a, b in zip(xq, wq, strict=True))
    x_scale, w_scale, bias = 0.02, 0.005, -1.25
    y = total * x_scale * w_scale + bias
    figure, ax = new_sheet(25, 6.6)
    left, width = 4.4, 1.35
    k = [f"k={i}" for i in range(K)]
    top = cells(ax, xq, x=left, y=0.9, width=width, colors=SKY, title="xq[m, :]", index=k)
    low = cells(ax, wq, x=left, y=2.5, width=width, colors=ORANGE, title="wq[n, :]")
    for row, words in ((top, "int8"), (low, "int8")):
        label(ax, row.right + 0.3, row.y + 0.5, words, align="left", color=FAINT)
    acc = cells(ax, [str(total)], x=low.center(2)[0] - 1.5, y=4.6, width=3.0, colors=YELLOW, title="acc")
    arrow(
        ax, (low.center(2)[0], low.bottom + 0.1), (acc.center(0)[0], acc.y - 0.1), "multiply and sum: exact"
    )
    out = box(ax, acc.right + 9.2, 4.6, 2.6, 1, f"{y:.4f}", color=GREEN)
    words = f"× {x_scale:g} × {w_scale:g} + ({bias:g})"
    arrow(ax, (acc.right + 0.15, 5.1), (out.x - 0.15, 5.1))
    label(ax, (acc.right + out.x) / 2, 4.75, words, align="bottom")
    names = "x_scale[m] · w_scale[n], bias[n]"
    label(ax, (acc.right + out.x) / 2, 5.45, names, align="top", fontsize=9, color=FAINT)
    label(ax, acc.center(0)[0], 6.1, "int32", color=FAINT)
    label(ax, out.center(0)[0], 6.1, "y[m, n], float32", color=FAINT)
    return Picture(
        figure,
        f"One element of the result. Codes {xq} times weights {wq}, summed in int32, make exactly {total}. "
        f"Times x_scale {x_scale:g}, times w_scale {w_scale:g}, plus bias {bias:g}: {y:.4f}, in float32.",
    )


def inside(K: int = 256, N: int = 192, BLOCK_K: int = 64, BLOCK_N: int = 64) -> Picture:
    """Draw quantizing before the matmul and inside it: where codes are made, and by how many programs."""
    across, steps = N // BLOCK_N, K // BLOCK_K
    figure, ax = new_sheet(30, 13.6, unit=0.3)
    cell, tall = 1.35, 1.1
    for panel, name in enumerate(("two launches", "inside the matmul")):
        left = 0.9 + 15.0 * panel
        label(ax, left, 0.7, name, align="left", fontsize=12)
        x = cells(ax, [""] * steps, x=left, y=2.0, width=cell, height=tall, colors=SKY)
        label(ax, x.right + 0.3, 2.0 + tall / 2, "x, float32", align="left")
        if panel == 0:
            middle = left + steps * cell / 2
            arrow(ax, (middle, 3.3), (middle, 4.5))
            label(ax, middle + 0.3, 3.9, "once: one program", align="left", fontsize=9)
            y = 4.7
            codes = cells(ax, [""] * steps, x=left, y=y, width=cell, height=tall, colors=YELLOW)
            label(ax, codes.right + 0.3, y + tall / 2, "codes, in memory", align="left")
        for program in range(across):
            top = 7.3 + 1.9 * program
            fill, words = YELLOW, "loads the codes"
            if panel:
                fill, words = SKY, "loads x; dashed: its own codes"
            for step in range(steps):
                box(ax, left + step * cell, top, cell, tall, color=fill, edge=INK, linewidth=0.9)
                if panel:
                    box(
                        ax, left + step * cell + 0.25, top + 0.25, cell - 0.5, tall - 0.5,
                        color=YELLOW, edge=INK, linewidth=0.6, dashed=True,
                    )  # fmt: skip
            label(ax, left + steps * cell + 0.3, top + tall / 2, f"program (0, {program})", align="left")
            label(ax, left, top - 0.3, words, align="left", fontsize=9, color=FAINT)
        start = 5.9 if panel == 0 else 3.3
        arrow(ax, (left + steps * cell / 2, start), (left + steps * cell / 2, 6.7))
        times = "once" if panel == 0 else "twice"
        reads = f"each of {across} programs reads it {times}"
        label(ax, left + steps * cell / 2 + 0.3, (start + 6.7) / 2, reads, align="left", fontsize=9)
    return Picture(
        figure,
        f"A row of tiles with {across} programs. Two launches: one program turns x into codes in memory, and "
        f"each of the {across} programs loads the codes once. Inside the matmul: each of the {across} "
        f"programs loads x twice and makes its own codes, {steps} tiles each, which are never in memory.",
    )


# ---- layouts


def orders(N: int = 4, K: int = 8, TILE_N: int = 2, TILE_K: int = 4) -> Picture:
    """Draw where wq[n, k] is in memory in three layouts, and what one tile reads."""

    def in_tiles(n: int, k: int) -> int:
        tile = n // TILE_N * (K // TILE_K) + k // TILE_K
        return (tile * TILE_N + n % TILE_N) * TILE_K + k % TILE_K

    layouts = (
        ("[K, N]: n innermost", lambda n, k: k * N + n),
        ("[N, K]: k innermost", lambda n, k: n * K + k),
        ("tiles, k innermost", in_tiles),
    )
    figure, ax = new_sheet(32, 11.2, unit=0.28)
    told, width = [], 1.0
    for number, (name, place) in enumerate(layouts):
        left = 2.2 + 10.4 * number
        address = [[place(n, k) for k in range(K)] for n in range(N)]
        mine = [[n < TILE_N and k < TILE_K for k in range(K)] for n in range(N)]
        cells(
            ax, address, x=left, y=2.2, width=width,
            colors=[[YELLOW if hit else PALE for hit in row] for row in mine],
            index=["k=0" if k == number == 0 else str(k) for k in range(K)],
            row_index=[f"n={n}" for n in range(N)] if number == 0 else [str(n) for n in range(N)],
        )  # fmt: skip
        label(ax, left + K / 2, 0.7, name, fontsize=12)
        tile = sorted(address[n][k] for n in range(TILE_N) for k in range(TILE_K))
        runs = 1 + sum(b - a != 1 for a, b in zip(tile, tile[1:], strict=False))
        for line in range(2):
            addresses = range(line * N * K // 2, (line + 1) * N * K // 2)
            cells(
                ax, [""] * len(addresses), x=left, y=7.2 + 0.9 * line, width=K * width / len(addresses),
                height=0.6, colors=[YELLOW if a in tile else PALE for a in addresses],
            )  # fmt: skip
        words = f"memory: {runs} run{'s' * (runs != 1)} of {len(tile) // runs} bytes"
        label(ax, left + K / 2, 9.4, words)
        told.append(f"{name}: the tile n = 0..{TILE_N - 1}, k = 0..{TILE_K - 1} is at {tile}, {words[8:]}")
    words = f"A number is the address of wq[n, k]. Yellow: one tile of {TILE_N} × {TILE_K}."
    label(ax, 2.2, 10.7, words, align="left")
    return Picture(
        figure,
        f"Addresses of the bytes of a {N} by {K} weight matrix in three layouts, with one tile marked. "
        f"{'. '.join(told)}.",
    )


# ---- the model


def digit(image: torch.Tensor, number: int) -> Picture:
    """Draw an image as the model reads it: a row of pixels is a token."""
    rows_, columns = image.shape
    shades = [[(1 - 0.85 * v,) * 3 for v in row] for row in image.double().tolist()]
    figure, ax = new_sheet(22, rows_ + 1.6)
    cells(ax, [[""] * columns] * rows_, x=1.0, y=0.8, colors=shades)
    for row in range(rows_):
        y = 0.8 + row
        arrow(ax, (columns + 1.2, y + 0.5), (columns + 3.4, y + 0.5))
        texts = [f"{v:.2g}".lstrip("0") or "0" for v in image[row].double().tolist()]
        cells(ax, texts, x=columns + 3.7, y=y + 0.06, width=1.05, height=0.88, colors=SKY, fontsize=9)
    label(ax, 1.0 + columns / 2, 0.4, f"a {number}", fontsize=11)
    title = f"{rows_} tokens of {columns} values"
    label(ax, columns + 3.7 + columns * 0.525, 0.4, title, fontsize=11)
    return Picture(
        figure,
        f"A handwritten {number} of {rows_} by {columns} pixels; each row of pixels is one token, so "
        f"the model reads {rows_} tokens of {columns} values between 0 and 1.",
    )


__all__ = [
    "cuts",
    "digit",
    "fused",
    "gains",
    "inside",
    "layers",
    "orders",
    "outlier",
    "quantised",
    "rows",
]
