"""Pictures for chapter 14."""

from collections.abc import Callable

import torch

from puzzles_lib.drawing.colours import BLUE, FAINT, GREEN, INK, LINE, ORANGE, PALE, SKY, VERMILLION, YELLOW
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet

Cut = Callable[[torch.Tensor], torch.Tensor]


def quantised(x: torch.Tensor, cut: Cut = torch.round, per_tensor: bool = False) -> torch.Tensor:
    """Return x after quantizing to int8 and back, with a scale per row or one for all rows."""
    peak = x.abs().amax() if per_tensor else x.abs().amax(1, keepdim=True)
    codes = cut(x / (peak / 127))
    codes = torch.where(x.abs() == peak, 127 * x.sign(), codes)  # on some processors 126.99..., cut to 126
    return codes * (peak / 127)


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


LAYERS, TOKENS, WIDTH = 12, 84, 256


def errors(layers: int = LAYERS, tokens: int = TOKENS, width: int = WIDTH) -> dict[str, list[float]]:
    """Return, per layer, the error of a chain of layers whose inputs are quantized, relative to its size."""
    x = _normal(tokens, width)
    weights = _weights(layers, width)
    found = {}
    for name, cut, per_tensor in (
        ("rounded, a scale per row", torch.round, False),
        ("rounded, one scale", torch.round, True),
        ("truncated, a scale per row", torch.trunc, False),
        ("truncated, one scale", torch.trunc, True),
    ):
        exact = made = x
        found[name] = []
        for weight in weights:
            exact, made = (exact @ weight.T).relu(), (quantised(made, cut, per_tensor) @ weight.T).relu()
            found[name].append(float((made - exact).norm() / exact.norm()))
    return found


def one_layer_alone() -> list[float]:
    """Return the error after the last layer if only the first, second, ... layer's input is rounded."""
    found = []
    for only in range(LAYERS):
        exact = made = _normal(TOKENS, WIDTH)
        for layer, weight in enumerate(_weights(LAYERS, WIDTH)):
            given = quantised(made) if layer == only else made
            exact, made = (exact @ weight.T).relu(), (given @ weight.T).relu()
        found.append(float((made - exact).norm() / exact.norm()))
    return found


def gains() -> list[float]:
    """Return the gain of each layer's truncation in a chain of layers that all truncate their input."""
    made, found = _normal(TOKENS, WIDTH), []
    for weight in _weights(LAYERS, WIDTH):
        cut = quantised(made, torch.trunc)
        found.append(float((cut * made).sum() / (made * made).sum()))
        made = (cut @ weight.T).relu()
    return found


def _weights(layers: int, width: int) -> list[torch.Tensor]:
    return [_normal(width, width, seed=1 + layer) * (2 / width) ** 0.5 for layer in range(layers)]


def layers() -> Picture:
    """Draw the error after each layer."""
    # torch's sums differ in their last bits from run to run; the figure should not
    found = {name: [round(100 * value, 2) for value in values] for name, values in errors().items()}
    figure = new_figure(6.6, 3.6)
    ax = figure.subplots()
    looks = zip((BLUE, SKY, ORANGE, VERMILLION), ("o", "D", "s", "^"), strict=True)
    deepest = len(next(iter(found.values())))
    for (name, values), (color, mark) in zip(found.items(), looks, strict=True):
        ax.plot(range(1, deepest + 1), values, marker=mark, color=color, linewidth=1.6, markersize=5)
        text = f"{name}: {values[-1]:.1f}%"
        shift = {"rounded, a scale per row": -0.25, "rounded, one scale": 0.35}.get(name, 0.0)
        label(ax, deepest + 0.3, values[-1] + shift, text, align="left", color=color, fontsize=10)
    ax.set_xlim(0.5, deepest + 9.5)
    ax.set_ylim(0, 17)
    ax.set_xticks(range(1, deepest + 1))
    ax.set_yticks(range(0, 17, 4), [f"{tick}%" for tick in range(0, 17, 4)])
    ax.set_title(f"{LAYERS} linear layers of {WIDTH} with ReLU, {TOKENS} tokens", fontsize=10, color=INK)
    ax.set_xlabel("layer", fontsize=10)
    ax.set_ylabel("error", fontsize=10)
    ax.tick_params(labelsize=10)
    ax.grid(axis="y", color=PALE)
    ax.spines[["top", "right"]].set_visible(False)
    told = "; ".join(
        f"{n}: {v[0]:.1f}% after one layer, {v[-1]:.1f}% after {len(v)}" for n, v in found.items()
    )
    return Picture(
        figure,
        f"The error after each of 12 linear layers of 256 with ReLU, for 84 tokens, if each layer's input is "
        f"quantized to int8. {told}.",
    )


def outlier(tokens: int = 84, width: int = 256, where: int = 7, factor: float = 50.0) -> Picture:
    """Draw the error of each token of a linear layer, in which one token is 50 times as large."""
    x, weight = _normal(tokens, width), _normal(192, width, seed=1)
    x[where] *= factor
    exact = x @ weight.T
    figure = new_figure(6.6, 3.6)
    ax = figure.subplots()
    others = torch.arange(tokens) != where
    told = []
    for name, per_tensor, color, mark in (
        ("one scale for the tensor", True, VERMILLION, "^"),
        ("one scale per row", False, BLUE, "o"),
    ):
        off = (quantised(x, per_tensor=per_tensor) @ weight.T - exact).norm(dim=1) / exact.norm(dim=1)
        ax.plot(range(tokens), off, mark, color=color, markersize=4)
        size, fill = (11, "none") if per_tensor else (4, color)  # both are at the same place
        ax.plot([where], off[where : where + 1], mark, color=color, markersize=size, markerfacecolor=fill)
        typical = f"{name}: {off[others].mean():.1%}"
        label(
            ax,
            42,
            float(off[others].mean()) * (0.6 if per_tensor else 1.7),
            typical,
            color=color,
            fontsize=11,
        )
        told.append(f"{name}: {off[others].mean():.1%} on the others, {off[where]:.1%} on the large one")
    words = f"token {where} is {factor:.0f} times as large:\nits own error is small with both"
    label(ax, where + 2, 0.055, words, align="left", fontsize=10)
    ax.annotate(
        "", (where, float(off[where]) * 1.25), (where, 0.07), arrowprops={"arrowstyle": "->", "color": INK}
    )
    ax.set_yscale("log")
    ax.set_yticks([0.01, 0.1, 1], ["1%", "10%", "100%"])
    ax.set_ylim(0.003, 1)
    ax.set_xlabel("token", fontsize=10)
    ax.set_ylabel("error of a token's outputs", fontsize=10)
    ax.tick_params(labelsize=10)
    ax.grid(axis="y", color=PALE)
    ax.spines[["top", "right"]].set_visible(False)
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
    for place in range(K):
        label(ax, low.center(place)[0], (top.bottom + low.y) / 2, "×", fontsize=11)
    words = "the sum of the products: exact"
    arrow(ax, (low.center(2)[0], low.bottom + 0.1), (acc.center(0)[0], acc.y - 0.1), words)
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
    figure, ax = new_sheet(20.6, 9.2)
    wide, gap = 2.9, 0.35
    for panel, name in enumerate(("two launches", "inside the matmul")):
        left = 0.2 + 10.6 * panel
        middle = left + (across * wide + (across - 1) * gap) / 2

        def strip(y: float, color: object, words: str, left: float = left, middle: float = middle) -> None:
            cells(ax, [""] * steps, x=middle - steps / 2, y=y, width=1, height=0.8, colors=color)
            label(ax, middle + steps / 2 + 0.25, y + 0.4, words, align="left")

        label(ax, left, 0.4, name, align="left", fontsize=12)
        strip(1.3, SKY, "x, float32")
        if panel == 0:
            arrow(ax, (middle, 2.2), (middle, 3.3))
            label(ax, middle + 0.3, 2.7, "one program,\nreads x twice", align="left")
            strip(3.4, YELLOW, "codes, int8")
        start = 4.3 if panel == 0 else 2.2
        for program in range(across):
            x = left + program * (wide + gap)
            arrow(ax, (middle + program - 1, start), (x + wide / 2, 6.1))
            fill = ORANGE if panel == 0 else YELLOW
            words = f"program\n(0, {program})" if panel == 0 else f"program (0, {program})\nmakes codes"
            box(ax, x, 6.2, wide, 1.6, words, color=fill, edge=INK, fontsize=9)
        told = "all codes once" if panel == 0 else "all of x twice"
        label(
            ax, middle, 8.4, f"each of {across} programs reads {told},\nand its own rows of the weights once"
        )
    return Picture(
        figure,
        f"A row of tiles with {across} programs. Two launches: one program reads x twice and turns it into "
        f"codes in memory, and each of the {across} programs reads all codes once. Inside the matmul: each "
        f"of the {across} programs reads all of x twice and makes its own codes, which are never in memory. "
        "Both times, each program reads its own rows of the weights once.",
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
    figure, ax = new_sheet(21, 18.6)
    told, width, small = [], 0.9, 0.66
    for number, (name, place) in enumerate(layouts):
        left, top = 1.4, 1.9 + 5.9 * number
        address = [[place(n, k) for k in range(K)] for n in range(N)]
        mine = [[n < TILE_N and k < TILE_K for k in range(K)] for n in range(N)]
        grid = cells(
            ax, address, x=left, y=top, width=width, height=0.8,
            colors=[[YELLOW if hit else PALE for hit in row] for row in mine],
            index=[f"k={k}" for k in range(K)],
            row_index=[f"n={n}" for n in range(N)],
        )  # fmt: skip
        label(ax, left, top - 1.2, name, align="left", fontsize=12)
        tile = sorted(address[n][k] for n in range(TILE_N) for k in range(TILE_K))
        runs = 1 + sum(b - a != 1 for a, b in zip(tile, tile[1:], strict=False))
        words = f"memory: the tile is {runs} run{'s' * (runs != 1)} of {len(tile) // runs} bytes"
        label(ax, grid.right + 0.9, top - 0.4, words, align="left")
        for line in range(2):
            addresses = range(line * N * K // 2, (line + 1) * N * K // 2)
            cells(
                ax, [str(a) for a in addresses], x=grid.right + 0.9, y=top + 0.4 + 1.3 * line, width=small,
                height=0.8, colors=[YELLOW if a in tile else PALE for a in addresses], fontsize=8,
            )  # fmt: skip
        told.append(f"{name}: the tile n = 0..{TILE_N - 1}, k = 0..{TILE_K - 1} is at {tile}: {words[21:]}")
    words = f"A number is the address of a byte, wq[n, k]. Yellow: one tile of {TILE_N} × {TILE_K}."
    label(ax, 1.4, 18.0, words, align="left")
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
    "errors",
    "fused",
    "gains",
    "inside",
    "layers",
    "one_layer_alone",
    "orders",
    "outlier",
    "quantised",
    "rows",
]
