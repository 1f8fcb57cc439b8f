"""Chapter 22: the kernels that a language model needs when it writes."""

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import torch
import triton
from jaxtyping import BFloat16, Float8e4m3fn, Float32, Int32, UInt8
from torch import Tensor
from torch.nn.functional import silu

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.chapters.ch18_attention.puzzles import (
    BFLOAT16,
    FAR_KEYS,
    around_minus_six,
    around_six,
    far_out,
    lengths,
)
from puzzles_lib.contract import Contract, Fill, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import (
    EVEN,
    FAINT,
    LIGHT,
    faint,
    falling,
    in_all_columns,
    mighty,
    ones,
    rising,
    unmoved,
    very_negative,
    whole,
    zeros,
)
from puzzles_lib.puzzle import Case, Puzzle

# ---- puzzle 66


def rope(
    x: BFloat16[Tensor, "T H D"],
    cos: Float32[Tensor, "P D//2"],
    sin: Float32[Tensor, "P D//2"],
    position: Int32[Tensor, " T"],
) -> BFloat16[Tensor, "T H D"]:
    """each pair (a, b) is rotated by the angle whose cosine and sine are c and s

    The pairs are a = x[t, h, i] and b = x[t, h, i + D/2]. c is cos[position[t], i],
    and s is sin[position[t], i]. D is a power of two, at least 2. Positions are from
    0 to P - 1, in any order. Load x once, compute in float32, and round once.
    """
    a, b = x.chunk(2, dim=2)
    c, s = cos[position.long(), None], sin[position.long(), None]  # [T, 1, D/2]
    z = torch.complex(a, b) * torch.complex(c, s)
    return torch.cat((z.real, z.imag), dim=2)


def _positions(x: Tensor, cos: Tensor) -> Tensor:
    """Return positions that jump about, with the last one among them."""
    return (len(cos) - 1 - 5 * torch.arange(len(x))) % len(cos)


def _neighbors(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    """Return `rope` of the pairs (2i, 2i + 1)."""
    a, b = x[..., 0::2], x[..., 1::2]
    c, s = cos[position.long(), None], sin[position.long(), None]
    return torch.stack((a * c - b * s, b * c + a * s), dim=3).flatten(2)


def _first_angle(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    """Return `rope` with the first pair's angle for all pairs."""
    return rope(x, cos[:, :1].expand_as(cos), sin[:, :1].expand_as(sin), position)


def _rounded_twice(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    """Return `rope` of products that are rounded to bfloat16."""
    a, b = x.chunk(2, dim=2)
    c, s = cos[position.long(), None], sin[position.long(), None]
    ac, bs, bc, as_ = (each.bfloat16().to(x.dtype) for each in (a * c, b * s, b * c, a * s))
    return torch.cat((ac - bs, bc + as_), dim=2)


def _halves_swapped(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    """Return `rope` with the second half of each head stored first."""
    return rope(x, cos, sin, position).roll(x.shape[2] // 2, 2)


def _one_after_the_other(first: int) -> Callable:
    """Return `rope` if one half is overwritten before the other is computed. first: its place, 0 or 1."""

    def spec(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=2)
        c, s = cos[position.long(), None], sin[position.long(), None]
        if first:
            b = b * c + a * s
            return torch.cat((a * c - b * s, b), dim=2)
        a = a * c - b * s
        return torch.cat((a, b * c + a * s), dim=2)

    return spec


def _with_signs(first: int, second: int) -> Callable:
    """Return `rope` with the halves multiplied by 1 or -1."""

    def spec(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
        a, b = rope(x, cos, sin, position).chunk(2, dim=2)
        return torch.cat((first * a, second * b), dim=2)

    return spec


def _with_sums(first: int, second: int) -> Callable:
    """Return `rope` with these signs of the sines' products: they are -1 and 1 in the correct one."""

    def spec(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=2)
        c, s = cos[position.long(), None], sin[position.long(), None]
        return torch.cat((a * c + first * b * s, b * c + second * a * s), dim=2)

    return spec


def _by_row(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    """Return `rope` with row t at position t, as far as there are positions."""
    return rope(x, cos, sin, torch.arange(len(x)) % len(cos))


ROPE = Puzzle(
    number="66",
    spec=rope,
    formula=(
        r"\begin{pmatrix} z_{t h i} \\ z_{t h, i + D/2} \end{pmatrix} = "
        r"\begin{pmatrix} \cos \theta & -\sin \theta \\ \sin \theta & \cos \theta \end{pmatrix} "
        r"\begin{pmatrix} x_{t h i} \\ x_{t h, i + D/2} \end{pmatrix} "
        r"\qquad \theta \text{ of position}_t \text{ and } i"
    ),
    grid=lambda s: (s.T, triton.cdiv(s.H, s.BLOCK_H)),
    cases=(
        Case(T=1, H=2, D=16, P=8, BLOCK_H=2),  # one program
        Case(T=4, H=8, D=32, P=12, BLOCK_H=4),  # several on both axes, all full
        Case(T=3, H=5, D=64, P=20, BLOCK_H=4),  # a block that ends after the heads
        Case(T=7, H=3, D=2, P=3, BLOCK_H=8),  # one pair; more rows than positions
        Case(T=5, H=1, D=128, P=40, BLOCK_H=1, fill={"x": around_six}),  # products that nearly cancel
    ),
    derived={"position": _positions},
    most_loads={
        "x": lambda s: s.T * s.H * s.D,
        "cos": lambda s: s.T * triton.cdiv(s.H, s.BLOCK_H) * s.D // 2,
        "sin": lambda s: s.T * triton.cdiv(s.H, s.BLOCK_H) * s.D // 2,
    },
    needed={name: lambda s: min(s.T, s.P) * s.D // 2 for name in ("cos", "sin")},
    slips={
        "you'd get these values from pairs of neighbors: i belongs to i + D/2": _neighbors,
        "you'd get these values by rotating the other way: the minus belongs in the first half": (
            lambda x, cos, sin, position: rope(x, cos, -sin, position)
        ),
        "you'd get these values with row t of the tables: token t needs row position[t]": _by_row,
        "all pairs rotate by the first pair's angle here: pair i has element i of its row of cos and sin": (
            _first_angle
        ),
        "the two halves of z are swapped: the new a belongs where a was": _halves_swapped,
        "the products are rounded to bfloat16 before they're added: compute in float32, and round once": (
            _rounded_twice
        ),
        "b's line takes the new a here: keep the old a for it": _one_after_the_other(first=0),
        "a's line takes the new b here: keep the old b for it": _one_after_the_other(first=1),
        "the first half has the wrong sign: it's a·c - b·s": _with_signs(-1, 1),
        "the second half has the wrong sign: it's b·c + a·s": _with_signs(1, -1),
        "the second half has a minus, too: only the first has one": _with_sums(first=-1, second=-1),
        "the first half has a plus, too: it's a·c - b·s": _with_sums(first=1, second=1),
        "cosine and sine are swapped": lambda x, cos, sin, position: rope(x, sin, cos, position),
    },
    hard={
        EVEN: Case(
            T=2,
            H=4,
            D=16,
            P=2,
            BLOCK_H=4,
            fill={"x": whole(-255, 255), "cos": unmoved(ones), "sin": unmoved(ones)},
        ),
        FAINT: Case(T=2, H=4, D=16, P=2, BLOCK_H=4, fill={"x": mighty, "cos": zeros, "sin": faint}),
    },
    contract=Contract(
        {"T": Size(20), "H": Size(40), "D": (4, 256), "P": Size(150), "BLOCK_H": (16, 64)},
    ),
)

# ---- puzzle 67


def paged_attention(
    q: BFloat16[Tensor, "B H D"],
    k: BFloat16[Tensor, "PAGES PAGE H_KV D"],
    v: BFloat16[Tensor, "PAGES PAGE H_KV D"],
    table: Int32[Tensor, "B W"],
    length: Int32[Tensor, " B"],
    PART: int,
) -> tuple[
    Float32[Tensor, " B H (W+PART-1)//PART D"],
    Float32[Tensor, " B H (W+PART-1)//PART"],
]:
    """o and lse of each part: attention of text b's newest token, over PART pages

    Text b has length[b] keys, and row b of q sees them all. Key j is in slot j % PAGE
    of page table[b, j // PAGE]. Part s has the keys of the pages s · PART to s · PART
    + PART - 1 of the text. A part without keys has o = 0 and lse = -inf. Head h of q
    uses head h // (H // H_KV) of k and v, and H // H_KV is a power of two.

    PAGE and D are powers of two, at least 16. Slots after a text's last key contain
    anything, even NaN. A program loads the table's entries for its own pages, once
    each; entries after the text's last page aren't pages. k and v can have 2^31
    elements or more. Round the weights to bfloat16 for the second tl.dot.
    """
    B, H, D = q.shape
    PAGE, W = k.shape[1], table.shape[1]
    parts = -(-W // PART)
    o, lse = q.new_zeros(B, H, parts, D), q.new_full((B, H, parts), -torch.inf)
    for b in range(B):
        j = torch.arange(int(length[b]))
        page, group = table[b, j // PAGE].long(), H // k.shape[2]
        keys = k[page, j % PAGE].repeat_interleave(group, 1)  # [length, H, D]
        values = v[page, j % PAGE].repeat_interleave(group, 1)
        scores = torch.einsum("hd,jhd->hj", q[b], keys) / D**0.5
        for s in j[:: PART * PAGE] // (PART * PAGE):  # parts that have keys
            part = slice(s * PART * PAGE, (s + 1) * PART * PAGE)
            weights = scores[:, part].softmax(1)  # [H, keys of the part]
            o[b, :, s] = torch.einsum("hj,jhd->hd", weights, values[part])
            lse[b, :, s] = scores[:, part].logsumexp(1)
    return o, lse


def _rounded_weights(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    o, lse = paged_attention(q, k, v.abs(), table, length, PART)
    return BFLOAT16 * o, torch.zeros_like(lse)


def spread(pages: int, page: int, *texts: int, first: int = 0) -> dict[str, Fill]:
    """Return fills for texts of these lengths: their lengths, and a table of pages out of order.

    The pages are ``pages`` in number, from ``first`` on. Entries after a text's last page are no page at all.
    """

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        order = torch.randperm(pages, generator=generator).tolist()
        found = torch.full(shape, 2**31 - 1, dtype=dtype)
        found[:, 0::2] = -7
        for row, text in enumerate(texts):
            used = -(-text // page)
            if used > len(order):
                raise ValueError(f"texts need more than {pages} pages")
            found[row, :used] = torch.tensor([first + order.pop() for _ in range(used)], dtype=dtype)
        return found

    def each(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.tensor(texts, dtype=dtype)

    fill.__name__ = "last_pages" if first else "out_of_order"
    each.__name__ = "_".join(map(str, texts))
    return {"table": fill, "length": each}


def unused_slots_nan(inner: Fill) -> Fill:
    """Return a fill with NaN in the last slot of each page."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        values = inner(shape, dtype, generator)
        values[:, -1] = torch.nan
        return values

    fill.__name__ = "nan_in_last_slots"
    return fill


def _normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def _pages(case: Case) -> int:
    """Return how many pages all texts have together."""
    if "length" not in case.fill:  # a learner's own case
        return case.B * case.W
    lengths_of = case.fill["length"]((case.B,), torch.int32, None).tolist()
    return sum(triton.cdiv(length, case.PAGE) for length in lengths_of)


def _keys(case: Case) -> int:
    """Return how many numbers of k the results depend on."""
    if "length" not in case.fill:  # a learner's own case
        return case.PAGES * case.PAGE * case.H_KV * case.D
    return int(case.fill["length"]((case.B,), torch.int32, None).sum()) * case.H_KV * case.D


def _in_order(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results if the pages of a text were 0, 1, 2 and so on."""
    pages = (torch.arange(table.shape[1]) % len(k)).expand_as(table)
    return paged_attention(q, k, v, pages, length, PART)


def _heads_first(kv: Tensor) -> Tensor:
    """Return what a kernel finds in k or v if it takes a page for [H_KV, PAGE, D]."""
    pages, page, heads, d = kv.shape
    return kv.reshape(pages, heads, page, d).transpose(1, 2)


def _dealt(kv: Tensor, q: Tensor) -> Tensor:
    """Return the heads of k or v in the order that h % H_KV would use."""
    return kv.repeat(1, 1, q.shape[1] // kv.shape[2], 1)


def _parts(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> Iterator[tuple[tuple[int, slice, int], Tensor, Tensor]]:
    """Yield for each part with keys its place in lse, its scores [H, keys] and its values [keys, H, D]."""
    size, group = PART * k.shape[1], q.shape[1] // k.shape[2]
    for b in range(len(q)):
        j = torch.arange(int(length[b]))
        page, place = table[b, j // k.shape[1]].long(), j % k.shape[1]
        keys, values = (kv[page, place].repeat_interleave(group, 1) for kv in (k, v))
        scores = torch.einsum("hd,jhd->hj", q[b], keys) / q.shape[2] ** 0.5
        for s, first in enumerate(range(0, len(j), size)):
            yield (b, slice(None), s), scores[:, first : first + size], values[first : first + size]


def _from_the_first_page(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results if every part began with its text."""
    o, lse = paged_attention(q, k, v, table, length, PART)
    for b in range(len(q)):
        for s in range(o.shape[2]):
            until = length[b : b + 1].clamp(max=(s + 1) * PART * k.shape[1])
            whole = paged_attention(q[b : b + 1], k, v, table[b : b + 1], until, table.shape[1])
            o[b, :, s], lse[b, :, s] = whole[0][0, :, 0], whole[1][0, :, 0]
    return o, lse


def _all_keys_in_each_part(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results if every part had all keys of its text."""
    parts = -(-table.shape[1] // PART)
    o, lse = paged_attention(q, k, v, table, length, table.shape[1])
    return o.expand(-1, -1, parts, -1), lse.expand(-1, -1, parts)


def _parts_outermost(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results as they are found if parts are stored outside texts and heads."""
    o, lse = paged_attention(q, k, v, table, length, PART)
    return o.permute(2, 0, 1, 3).reshape(o.shape), lse.permute(2, 0, 1).reshape(lse.shape)


def _full_pages_only(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    full = length // k.shape[1] * k.shape[1]
    return paged_attention(q, k, v, table, full, PART)


def _free_slots_count(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results if slots after the last key had a score of 0 and values of 0."""
    o, lse = paged_attention(q, k, v, table, length, PART)
    wide = lse.clone()
    for b, keys in enumerate(length.tolist()):
        if free := -keys % k.shape[1]:
            s = keys // (PART * k.shape[1])
            wide[b, :, s] = torch.logaddexp(lse[b, :, s], lse.new_tensor(free).log())
    return o * torch.where(lse > -torch.inf, torch.exp(lse - wide), 0.0)[..., None], wide


def _counted_in_the_part(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results if slots after a text's last key count, in parts that don't begin with the text."""
    o, lse = paged_attention(q, k, v, table, length, PART)
    page = k.shape[1]
    for b, keys in enumerate(length.tolist()):
        last = max(keys - 1, 0) // (PART * page)
        if last and keys % page:
            inside = min(-(-keys // page) * page, last * PART * page + keys)
            more = torch.tensor([inside])
            all_of_it = paged_attention(q[b : b + 1], k, v, table[b : b + 1], more, PART)
            o[b, :, last], lse[b, :, last] = all_of_it[0][0, :, last], all_of_it[1][0, :, last]
    return o, lse


def _lse_of_the_sum(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    o, lse = paged_attention(q, k, v, table, length, PART)
    for at, scores, _ in _parts(q, k, v, table, length, PART):
        lse[at] -= scores.amax(1)
    return o, lse


def _parts_first(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results as they are found if a text's parts are stored outside its heads."""
    o, lse = paged_attention(q, k, v, table, length, PART)
    return o.transpose(1, 2).reshape(o.shape), lse.transpose(1, 2).reshape(lse.shape)


def _first_row(table: Tensor, length: Tensor, page: int) -> Tensor:
    """Return the table with the first text's pages for all texts, and page 0 where it has none."""
    known = torch.arange(table.shape[1]) < -(-length[0] // page)
    return torch.where(known, table[0], 0).expand_as(table)


def _not_divided(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    o, lse = paged_attention(q, k, v, table, length, PART)
    for at, scores, _ in _parts(q, k, v, table, length, PART):
        o[at] *= torch.exp(scores - scores.amax(1, keepdim=True)).sum(1, keepdim=True)
    return o, lse


def _sum_not_rescaled(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: Tensor, PART: int
) -> tuple[Tensor, Tensor]:
    """Return the results if the weights of each page were kept when the maximum grows."""
    o, lse = paged_attention(q, k, v, table, length, PART)
    for at, scores, values in _parts(q, k, v, table, length, PART):
        pages = range(0, scores.shape[1], k.shape[1])
        tops = [scores[:, : first + k.shape[1]].amax(1, keepdim=True) for first in pages]
        kept = torch.cat([top.expand(-1, k.shape[1]) for top in tops], 1)[:, : scores.shape[1]]
        total = torch.exp(scores - tops[-1]).sum(1, keepdim=True)
        o[at] = torch.einsum("hj,jhd->hd", torch.exp(scores - kept) / total, values)
    return o, lse


def _drawn_texts(s: SimpleNamespace) -> dict[str, Fill]:
    """Return texts for a random case: the first fills its row of the table nearly, the last is short.

    In a row of one entry, the first has a single key.
    """
    texts = [s.W * s.PAGE - 3 if s.W > 1 else 1, *[0] * (s.B - 2), *[5] * (s.B > 1)]
    return spread(s.PAGES, s.PAGE, *texts)


PAGED_ATTENTION = Puzzle(
    number="67",
    spec=paged_attention,
    formula=(
        r"\begin{gathered} s_{bhj} = \tfrac{1}{\sqrt D} \, q_{bh} \cdot k_{b j g} \qquad "
        r"g = \lfloor h H_{KV} / H \rfloor \\ "
        r"o_{b h s} = \sum_{j \in \mathrm{part}\ s} e^{s_{bhj} - \mathrm{lse}_{bhs}} \, "
        r"v_{b j g} \qquad \mathrm{lse}_{bhs} = \log \sum_{j \in \mathrm{part}\ s} e^{s_{bhj}} \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.W, s.PART), s.H_KV, s.B),
    cases=(
        # one program, one page that is full
        Case(B=1, H=1, H_KV=1, D=16, PAGES=2, PAGE=16, W=1, PART=1, fill=spread(2, 16, 16)),
        # several texts, heads and parts, all full
        Case(B=2, H=4, H_KV=2, D=32, PAGES=9, PAGE=16, W=4, PART=2, fill=spread(9, 16, 64, 64)),
        # texts that end within a page; parts without keys; the last part has fewer pages
        Case(B=3, H=2, H_KV=1, D=16, PAGES=12, PAGE=16, W=5, PART=2, fill=spread(12, 16, 70, 33, 1)),
        # a text without any keys, and one part of one page each
        Case(B=3, H=6, H_KV=3, D=32, PAGES=8, PAGE=32, W=3, PART=1, fill=spread(8, 32, 40, 0, 96)),
        # scores that overflow without their maximum
        Case(
            B=1, H=8, H_KV=1, D=32, PAGES=6, PAGE=16, W=4, PART=4,
            fill=spread(6, 16, 50) | {"q": far_out, "k": far_out},
        ),
        # scores far below 0; what isn't a key is NaN
        Case(
            B=2, H=4, H_KV=4, D=16, PAGES=5, PAGE=16, W=2, PART=2,
            fill=spread(5, 16, 15, 15) | {
                "q": around_six,
                "k": unused_slots_nan(around_minus_six),
                "v": unused_slots_nan(_normal),
            },
        ),
        # one part of many pages
        Case(B=1, H=2, H_KV=2, D=16, PAGES=20, PAGE=16, W=9, PART=9, fill=spread(20, 16, 140)),
        # a cache of 2.2 thousand million elements, and texts in its last pages
        Case(
            pretend=True, B=2, H=2, H_KV=1, D=128, PAGES=2**20 + 4, PAGE=16, W=2, PART=1,
            fill=spread(4, 16, 32, 17, first=2**20),
        ),
    ),
    outputs=("o", "lse"),
    needed={"k": _keys, "v": _keys, "table": _pages},
    # a group of heads shares its keys, and each head of keys looks a page up once
    most_loads={
        **{name: lambda s: s.B * s.W * s.PAGE * s.H_KV * s.D for name in ("k", "v")},
        "table": lambda s: _pages(s) * s.H_KV,
    },
    allowance=_rounded_weights,
    slips={
        "the scores aren't divided by √D": lambda q, k, v, table, length, PART: paged_attention(
            q * q.shape[-1] ** 0.5, k, v, table, length, PART
        ),
        "the scores are divided by D here: divide them by √D": lambda q, k, v, table, length, PART: (
            paged_attention(q / q.shape[-1] ** 0.5, k, v, table, length, PART)
        ),
        "the slots are counted from the part's first page here: count a text's keys from its first page": (
            _counted_in_the_part
        ),
        "these are the pages 0, 1, 2, ... and not those of the table": _in_order,
        "slots and heads are swapped: a slot has H_KV heads of D numbers each": (
            lambda q, k, v, table, length, PART: paged_attention(
                q, _heads_first(k), _heads_first(v), table, length, PART
            )
        ),
        "head h uses head h // (H // H_KV), not h % H_KV": lambda q, k, v, table, length, PART: (
            paged_attention(q, _dealt(k, q), _dealt(v, q), table, length, PART)
        ),
        "all heads of q use head 0 of k and v here: program (part, g, b) needs head g": (
            lambda q, k, v, table, length, PART: paged_attention(
                q, k[:, :, :1].expand_as(k), v[:, :, :1].expand_as(v), table, length, PART
            )
        ),
        "every part begins with the text's first page here: part s begins at page s · PART": (
            _from_the_first_page
        ),
        "every part has all keys of its text here: part s has PART pages, from page s · PART on": (
            _all_keys_in_each_part
        ),
        "a text's last page is missing if it isn't full: round the number of pages up": _full_pages_only,
        "one key too many: a text's keys are 0 to length - 1, so compare with < instead of <=": (
            lambda q, k, v, table, length, PART: paged_attention(
                q,
                k.nan_to_num(),  # a kernel that gets NaN has another slip
                v.nan_to_num(),
                table,
                torch.where(length % k.shape[1] > 0, length + 1, length),
                PART,
            )
        ),
        "slots after the last key count with a score of 0: give them minus infinity": _free_slots_count,
        "all texts use the first text's row of the table here: row b begins b · W entries further on": (
            lambda q, k, v, table, length, PART: paged_attention(
                q, k, v, _first_row(table, length, k.shape[1]), length, PART
            )
        ),
        "parts and heads are swapped where you store: each head has all its parts side by side": (
            _parts_first
        ),
        "parts are outermost where you store: each head of a text has all its parts side by side": (
            _parts_outermost
        ),
        "o isn't divided by its denominator": _not_divided,
        "lse lacks the maximum: it's the maximum plus the log of the sum": _lse_of_the_sum,
        "you'd get these values if acc kept its weights when the maximum grows: rescale it, too": (
            _sum_not_rescaled
        ),
    },
    hard={
        "k and v can have 2^32 elements or more": Case(
            pretend=True, B=2, H=2, H_KV=1, D=128, PAGES=2**22 + 4, PAGE=16, W=2, PART=1,
            fill=spread(4, 16, 32, 17, first=2**22),
        ),
        LIGHT: Case(
            B=1, H=1, H_KV=1, D=16, PAGES=4, PAGE=16, W=4, PART=4, fill=spread(4, 16, 64) | FAR_KEYS
        ),
        "the pages can have 2^31 slots": Case(
            pretend=True, B=2, H=2, H_KV=1, D=16, PAGES=2**27 + 4, PAGE=16, W=2, PART=1,
            fill=spread(4, 16, 32, 17, first=2**27),
        ),
    },
    contract=Contract(
        {
            "W": Size(40),
            "B": (1, 2, 5),
            "H_KV": (1, 3),
            "H": lambda s: (s.H_KV, 4 * s.H_KV),
            "D": (16, 64),
            "PAGE": (16, 32),
            "PART": lambda s: (max(s.W // 2, 1), s.W) if s.W > 16 else (2, 3),
            "PAGES": lambda s: (s.W + 3,),
        },
        fills=lambda s: (_drawn_texts(s), _drawn_texts(s)),
        free=("H_KV", "H"),
    ),
)  # fmt: skip

# ---- puzzle 68


def merge_parts(
    o: Float32[Tensor, "R S D"], lse: Float32[Tensor, "R S"]
) -> tuple[BFloat16[Tensor, "R D"], Float32[Tensor, " R"]]:
    """z[r] = Σ_s exp(lse[r, s] - total[r]) · o[r, s]

    with total[r] = log Σ_s exp(lse[r, s]).
    A part with lse = -inf counts for nothing, and its o may hold anything, NaN
    included. A row whose parts are all so has z = 0 and total = -inf. BLOCK_S is the
    next power of two of S; D is a power of two. The tensors can have 2^31 elements or
    more.
    """
    total = lse.logsumexp(1)  # [R]
    used = lse > -torch.inf  # [R, S]
    weight = torch.where(used, torch.exp(lse - total[:, None]), 0.0)
    return (weight[:, :, None] * torch.where(used[:, :, None], o, 0.0)).sum(1), total


def empty_first(*counts: int, scale: float = 1.0, at: float = 0.0) -> Fill:
    """Return a fill for lse: ``counts`` says how many of each row's first parts are -inf, row by row in turn.

    The others are normal values times ``scale``, around ``at``.
    """

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        values = at + scale * torch.randn(shape, generator=generator)
        for row in range(shape[0]):
            values[row, : counts[row % len(counts)]] = -torch.inf
        return values.to(dtype)

    named = "_".join(["empty_parts_per_row", *map(str, counts)]) if any(counts) else "no_empty_parts"
    fill.__name__ = named + (f"_others_near_{at:g}" if at else "")
    return fill


def nan_in_part_0(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, but NaN in the first part of each row."""
    values = torch.randn(shape, generator=generator)
    values[:, 0] = torch.nan
    return values.to(dtype)


def _used_parts(case: Case) -> int:
    """Return how many parts of all rows have an lse above -inf."""
    shape = (case.R, case.S)
    if "lse" not in case.fill:  # a learner's own case
        return case.R * case.S
    return int((case.fill["lse"](shape, torch.float32, torch.Generator()) > -torch.inf).sum())


def _counted_alike(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    z, total = merge_parts(o, torch.where(lse > -torch.inf, 0.0, lse).to(lse.dtype))
    return z, lse.logsumexp(1)


def _without_weights(*, divided: bool) -> Callable:
    """Return `merge_parts` with z as a plain sum, divided by the sum of the weights or not."""

    def spec(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        z, total = merge_parts(o, lse)
        used = lse > -torch.inf
        plain = torch.where(used[:, :, None], o, 0.0).sum(1)
        top = lse.amax(1).clamp(min=-1e30)
        weights = torch.exp(lse - top[:, None]).sum(1).clamp(min=1.0)
        return plain / weights[:, None] if divided else plain, total

    return spec


def _not_shifted(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    weights, used = torch.exp(lse), lse > -torch.inf
    summed = (weights[:, :, None] * torch.where(used[:, :, None], o, 0.0)).sum(1)
    return summed / weights.sum(1).clamp(min=1.0)[:, None], lse.logsumexp(1)


def _lse_as_weights(*, shifted: bool) -> Callable:
    """Return `merge_parts` with lse as the weights, minus its maximum or not."""

    def spec(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        top, used = lse.amax(1, keepdim=True).clamp(min=-1e30), lse > -torch.inf
        weight = torch.where(used, lse - top if shifted else lse, 0.0)
        z = (weight[:, :, None] * torch.where(used[:, :, None], o, 0.0)).sum(1)
        return z / weight.sum(1).clamp(min=1.0)[:, None], merge_parts(o, lse)[1]

    return spec


def _with_total(change: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return `merge_parts` with another total: a function of the maximum and of the sum less it."""

    def spec(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        top = lse.amax(1).clamp(min=-1e30)
        return merge_parts(o, lse)[0], change(top, torch.exp(lse - top[:, None]).sum(1))

    return spec


def _zeros_are_parts(*, o_too: bool) -> Callable:
    """Return `merge_parts` if lanes past the last part have an lse of 0; o_too: and the o that comes next."""

    def spec(o: Tensor, lse: Tensor, BLOCK_S: int) -> tuple[Tensor, Tensor]:
        R, S, D = o.shape
        wide = torch.cat((lse, lse.new_zeros(R, BLOCK_S - S)), 1)
        after = torch.cat((o.reshape(R * S, D), o.new_zeros(BLOCK_S, D)))
        places = S * torch.arange(R)[:, None] + torch.arange(BLOCK_S)
        within = (torch.arange(BLOCK_S) < S) | torch.tensor(o_too)
        return merge_parts(torch.where(within[:, None], after[places], 0.0), wide)

    return spec


def _strides_swapped(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    R, S, D = o.shape
    r, s, d = torch.arange(R)[:, None, None], torch.arange(S)[:, None], torch.arange(D)
    return merge_parts(o.flatten()[((r * D + s) * S + d) % o.numel()], lse)


def _weights_not_summed(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    z, total = merge_parts(o, lse)
    top = lse.amax(1).clamp(min=-1e30)
    return z * torch.exp(total - top)[:, None], total


MERGE_PARTS = Puzzle(
    number="68",
    spec=merge_parts,
    formula=(
        r"z_r = \sum_s e^{\mathrm{lse}_{rs} - \mathrm{total}_r} \, o_{rs} \qquad "
        r"\mathrm{total}_r = \log \sum_s e^{\mathrm{lse}_{rs}}"
    ),
    grid=lambda s: (s.R,),
    cases=(
        Case(R=1, S=2, D=16, BLOCK_S=2, fill={"lse": empty_first(0)}),  # one program
        Case(R=4, S=8, D=32, BLOCK_S=8, fill={"lse": empty_first(0, scale=3.0)}),  # several, full
        Case(R=3, S=5, D=16, BLOCK_S=8, fill={"lse": empty_first(0, 2, 4)}),  # a ragged block; empty parts
        # rows of nothing but empty parts; o is NaN in the first part, which is empty in every row
        Case(R=4, S=3, D=16, BLOCK_S=4, fill={"lse": empty_first(1, 3, 2, 3), "o": nan_in_part_0}),
        Case(R=2, S=1, D=64, BLOCK_S=1, fill={"lse": empty_first(0, 1)}),  # a single part
        # exp() overflows, and vanishes, without the maximum
        Case(R=3, S=6, D=16, BLOCK_S=8, fill={"lse": empty_first(0, 1, at=200.0, scale=20.0)}),
        Case(R=3, S=6, D=16, BLOCK_S=8, fill={"lse": empty_first(0, 1, at=-1e4)}),
        # 2.2 thousand million elements
        Case(pretend=True, R=2**20 + 1, S=32, D=64, BLOCK_S=32),
    ),
    outputs=("z", "total"),
    most_loads={"o": lambda s: s.R * s.S * s.D, "lse": lambda s: s.R * s.S},
    needed={"o": lambda s: _used_parts(s) * s.D},
    slips={
        "the parts are averaged: weight each by exp(lse[r, s] - total[r])": _counted_alike,
        "the largest lse isn't subtracted before exp(), so small sums count as 1": _not_shifted,
        "the parts are summed without weights: weight each by exp(lse[r, s] - total[r])": (
            _without_weights(divided=False)
        ),
        "lse itself is the weight here: take exp() of it": _lse_as_weights(shifted=False),
        "the weights lack exp(): they're lse minus the maximum here": _lse_as_weights(shifted=True),
        "o isn't multiplied by the weights, only divided by their sum": _without_weights(divided=True),
        "the weighted sum isn't divided by the sum of the weights": _weights_not_summed,
        "total lacks the maximum: it's the maximum plus the log of the sum": lambda o, lse: (
            merge_parts(o, lse)[0],
            lse.logsumexp(1) - lse.amax(1),
        ),
        "total lacks the logarithm: it's the maximum plus the log of the sum": _with_total(
            lambda top, summed: top + summed
        ),
        "total is only the sum of exp(lse - maximum): it's the maximum plus the log of the sum": _with_total(
            lambda top, summed: summed
        ),
        "total is the denominator here: take its logarithm": _with_total(
            lambda top, summed: torch.exp(top) * summed
        ),
        "lanes past the last part count, with an lse of 0: give them minus infinity": _zeros_are_parts(
            o_too=False
        ),
        'lanes past the last part count, with an lse of 0: load lse with other=float("-inf")': (
            _zeros_are_parts(o_too=True)
        ),
        "o[r, s] is loaded from (r · D + s) · S on: it begins at (r · S + s) · D": _strides_swapped,
        "total is in base 2: use the natural logarithm": lambda o, lse: (
            merge_parts(o, lse)[0],
            lse.logsumexp(1) / 0.6931471805599453,
        ),
    },
    hard={
        LIGHT: Case(R=1, S=25, D=16, BLOCK_S=32, fill={"lse": falling, "o": in_all_columns(rising)}),
        "lse and z can have 2^31 elements, too": Case(pretend=True, R=2**27 + 1, S=17, D=32, BLOCK_S=32),
    },
    contract=Contract(
        {
            "S": Size(40),
            "R": Size(9),
            "D": lambda s: (16, 128),
            "BLOCK_S": lambda s: (triton.next_power_of_2(s.S),),
        },
        fills=lambda s: (
            {"lse": empty_first(1, 2, s.S), "o": nan_in_part_0},
            {"lse": empty_first(0, s.S, at=100.0, scale=10.0)},
        ),
    ),
)

# ---- puzzle 69


def grouped_matmul(
    x: BFloat16[Tensor, "P K"],
    w: BFloat16[Tensor, "E K N"],
    start: Int32[Tensor, " E+1"],
) -> BFloat16[Tensor, "P N"]:
    """z[p, n] = Σ_k x[p, k] · w[e, k, n] with start[e] ≤ p < start[e + 1]

    The rows of x are sorted by expert: expert e has the rows start[e] to start[e + 1]
    - 1, which may be none. No expert has more than M rows. A program without rows
    loads nothing of w.
    """
    z = x.new_zeros(x.shape[0], w.shape[2])
    for e in range(len(w)):
        rows = slice(int(start[e]), int(start[e + 1]))
        z[rows] = x[rows] @ w[e]
    return z


def _apart(w: Tensor, step: int) -> Tensor:
    """Return w as it is read if its matrices begin every ``step`` numbers."""
    places = torch.arange(len(w))[:, None] * step + torch.arange(w[0].numel())
    return w.flatten()[places].view(w.shape)


def _drawn_rows(s: SimpleNamespace) -> dict[str, Fill]:
    """Return the experts' rows for a random case: most for the last one, none for the one before."""
    few = (s.P - s.M) // max(s.E - 2, 1)
    rows = [few] * max(s.E - 2, 0)
    rows[:1] = [few + s.P - s.M - sum(rows)] if rows else []
    return {"start": lengths(*rows, *[0] * (s.E > 1), s.M)}


_EXPERTS = {
    "P": Size(150),
    "E": (3, 6),
    "M": lambda s: (s.P - s.P // 3,),
}


_LISTED = (
    # one program
    Case(P=16, E=1, M=16, K=16, N=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, fill={"start": lengths(16)}),
    # several on every axis, all full
    Case(
        P=64, E=2, M=32, K=64, N=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32, fill={"start": lengths(32, 32)}
    ),
    # ragged on every axis; experts with no row and with one
    Case(
        P=31, E=4, M=19, K=40, N=50, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16,
        fill={"start": lengths(11, 0, 19, 1)},
    ),
    # the first and the last expert have none; a block of K is longer than gate and up together
    Case(
        P=24, E=5, M=23, K=12, N=18, BLOCK_M=32, BLOCK_N=16, BLOCK_K=32,
        fill={"start": lengths(0, 1, 0, 23, 0)},
    ),
    # one token that chose two experts, as when a model writes
    Case(
        P=2, E=4, M=1, K=128, N=40, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64, fill={"start": lengths(0, 1, 0, 1)}
    ),
)  # fmt: skip
"""The cases of puzzles 69 and 70."""


def _enough_steps(s: Case) -> int:
    """Return twice the operations of all products, if every program takes all steps along K."""
    programs = s.E * triton.cdiv(s.M, s.BLOCK_M) * triton.cdiv(s.N, s.BLOCK_N)
    products = s.BLOCK_M * s.BLOCK_N * s.BLOCK_K * triton.cdiv(s.K, s.BLOCK_K)
    return 2 * 2 * programs * products


_RANGES = {"P": "rows with start[e + 1]"}
"""What ends a tile of rows, in puzzles 69 and 70."""

GROUPED_MATMUL = Puzzle(
    number="69",
    spec=grouped_matmul,
    formula=(
        r"z_{pn} = \sum_k x_{pk} \, w_{e(p), k n} \qquad "
        r"\mathrm{start}_{e(p)} \le p < \mathrm{start}_{e(p) + 1}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N), s.E),
    cases=(
        *_LISTED,
        # nothing cancels, so a sum in bfloat16 would stop growing
        Case(
            P=5, E=2, M=3, K=300, N=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32,
            fill={"start": lengths(2, 3), "x": around_six, "w": around_six},
        ),
    ),
    needed={"w": lambda s: sum(count > 0 for count in _counts(s)) * s.K * s.N},
    most_loads={
        "w": lambda s: _busy_blocks(s) * s.K * s.N,
        "x": lambda s: s.P * s.K * triton.cdiv(s.N, s.BLOCK_N),
    },
    most_flops=_enough_steps,
    ends=_RANGES,
    slips={
        "these are the products with w[0]: expert e has the matrix w[e]": lambda x, w, start: x @ w[0],
        "matrix e begins at e · K here: a matrix has K · N numbers": lambda x, w, start: grouped_matmul(
            x, _apart(w, w.shape[1]), start
        ),
        "matrix e begins at e · N here: a matrix has K · N numbers": lambda x, w, start: grouped_matmul(
            x, _apart(w, w.shape[2]), start
        ),
        "these are the products with another expert's matrix": lambda x, w, start: grouped_matmul(
            x, w.roll(-1, 0), start
        ),
    },
    hard={
        EVEN: Case(
            P=5, E=2, M=3, K=2, N=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
            fill={"start": lengths(2, 3), "x": whole(9, 15), "w": whole(9, 15)},
        ),
    },
    contract=Contract(
        _EXPERTS
        | {
            "K": Size(1100),
            "N": Size(150),
            "BLOCK_M": (64,),
            "BLOCK_N": (64, 128),
            "BLOCK_K": (32, 64),
        },
        fills=lambda s: (_drawn_rows(s), _drawn_rows(s)),
    ),
)  # fmt: skip


def _counts(case: Case) -> list[int]:
    """Return how many rows each expert has."""
    if "start" not in case.fill:  # a learner's own case
        return [case.M] * case.E
    return case.fill["start"]((case.E + 1,), torch.int32, None).diff().tolist()


def _busy_blocks(case: Case) -> int:
    """Return how many blocks of rows all experts have together."""
    return sum(triton.cdiv(count, case.BLOCK_M) for count in _counts(case))


# ---- puzzle 70


def swiglu_down(
    h: BFloat16[Tensor, "P 2*K"],
    w: BFloat16[Tensor, "E K N"],
    start: Int32[Tensor, " E+1"],
) -> BFloat16[Tensor, "P N"]:
    """z as in puzzle 69, of x[p, k] = silu(h[p, k]) · h[p, K + k]

    silu(g) is g / (1 + exp(-g)). Compute x in float32 from h, round it to bfloat16
    for tl.dot, and don't store it. A program without rows loads nothing of w.
    """
    gate, up = h.chunk(2, dim=1)
    return grouped_matmul(silu(gate) * up, w, start)


def _rounded_x(h: Tensor, w: Tensor, start: Tensor) -> Tensor:
    gate, up = h.chunk(2, dim=1)
    x = silu(gate) * up
    return grouped_matmul((x.bfloat16() - x).abs(), w.abs(), start)


def _gated(activation: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return `swiglu_down` with another function of gate and up."""

    def spec(h: Tensor, w: Tensor, start: Tensor) -> Tensor:
        return grouped_matmul(activation(*h.chunk(2, dim=1)), w, start)

    return spec


def _rows_of_k(h: Tensor, w: Tensor, start: Tensor) -> Tensor:
    """Return `swiglu_down` if row p of h began at p · K."""
    P, K = h.shape[0], h.shape[1] // 2
    at = K * torch.arange(P)[:, None] + torch.arange(2 * K)
    return swiglu_down(h.flatten()[at], w, start)


def _taking_turns(h: Tensor, w: Tensor, start: Tensor) -> Tensor:
    """Return `swiglu_down` if gate and up were neighbors."""
    return swiglu_down(torch.cat((h[:, 0::2], h[:, 1::2]), 1), w, start)


def far_gates(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 60: exp(-g) of the least ones overflows float32."""
    return (60 * torch.randn(shape, generator=generator)).to(dtype)


def low_gates(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values after gates that are alike within a row: -10, -13 and so on."""
    h = torch.randn(shape, generator=generator)
    h[:, : shape[1] // 2] = -10 - 3 * torch.arange(shape[0])[:, None]
    return h.to(dtype)


def shut_gates(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return gates of -200, whose silu is 0 in float32, before values near 1e27."""
    h = 2.0**90 * torch.randn(shape, generator=generator)
    h[:, : shape[1] // 2] = -200
    return h.to(dtype)


SWIGLU_DOWN = Puzzle(
    number="70",
    spec=swiglu_down,
    formula=(
        r"z_{pn} = \sum_k x_{pk} \, w_{e(p), k n} \qquad "
        r"x_{pk} = \frac{h_{pk}}{1 + e^{-h_{pk}}} \; h_{p, K + k}"
    ),
    grid=GROUPED_MATMUL.grid,
    cases=(
        *_LISTED,
        # exp() overflows; the gate is then 0
        Case(
            P=9, E=2, M=7, K=33, N=20, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
            fill={"start": lengths(2, 7), "h": far_gates},
        ),
    ),
    needed={"w": lambda s: sum(count > 0 for count in _counts(s)) * s.K * s.N},
    most_loads={
        "w": lambda s: _busy_blocks(s) * s.K * s.N,
        "h": lambda s: 2 * s.P * s.K * triton.cdiv(s.N, s.BLOCK_N),
    },
    most_flops=_enough_steps,
    ends=_RANGES | {"2*K": "columns of each half with K"},
    allowance=_rounded_x,
    machine=(Goal(cases=(1,), wants=(Want("float32 dots", most=0),)),),
    slips={
        "you'd get these values with the halves swapped: the first half of h is the gate": _gated(
            lambda gate, up: gate * silu(up)
        ),
        "you'd get these values from a sigmoid alone: silu(g) is g · sigmoid(g)": _gated(
            lambda gate, up: gate.sigmoid() * up
        ),
        "you'd get these values from exp of the gate itself: silu(g) is g / (1 + exp(-g))": _gated(
            lambda gate, up: gate * (-gate).sigmoid() * up
        ),
        "you'd get these values with silu of up, too: x is silu(gate) · up": _gated(
            lambda gate, up: silu(gate) * silu(up)
        ),
        "you'd get these values with the gate as up, too: up is K further on": _gated(
            lambda gate, up: silu(gate) * gate
        ),
        "row k of matrix e begins at (e + k) · N here: a matrix has K rows": lambda h, w, start: (
            swiglu_down(h, _apart(w, w.shape[2]), start)
        ),
        "you'd get these values without up: x is silu(gate) · up": _gated(
            lambda gate, up: silu(gate)
        ),
        "you'd get these values without silu: x is silu(gate) · up": _gated(
            lambda gate, up: gate * up
        ),
        "you'd get these values from relu(gate) · up: silu(g) is g / (1 + exp(-g))": _gated(
            lambda gate, up: gate.relu() * up
        ),
        "you'd get these values from silu(gate) + up: multiply the two": _gated(
            lambda gate, up: silu(gate) + up
        ),
        "you'd get these values from gate + up: x is silu(gate) · up": _gated(lambda gate, up: gate + up),
        "up is taken 1 element after the gate here: it's K further on": lambda h, w, start: grouped_matmul(
            silu(h[:, : h.shape[1] // 2]) * h[:, 1 : h.shape[1] // 2 + 1], w, start
        ),
        "these rows begin at p · K: a row of h has 2K numbers": _rows_of_k,
        "gate and up are taken in turn: the first K numbers of a row are its gates": _taking_turns,
    },
    hard={
        "silu of gates far below 0 is small, but not 0, and as precise as others": Case(
            P=9, E=2, M=7, K=33, N=20, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
            fill={"start": lengths(2, 7), "h": low_gates},
        ),
        "silu(-200) is 0 in float32, however large up is": Case(
            P=9, E=2, M=7, K=33, N=20, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
            fill={"start": lengths(2, 7), "h": shut_gates},
        ),
    },
    contract=Contract(
        _EXPERTS
        | {
            "K": Size(300),
            "N": Size(150),
            "BLOCK_M": (64,),
            "BLOCK_N": (64, 128),
            "BLOCK_K": (32, 64),
        },
        fills=lambda s: (_drawn_rows(s), _drawn_rows(s)),
    ),
)  # fmt: skip

# ---- puzzle 71


def sample_token(
    logits: Float32[Tensor, "B V"], heat: Float32[Tensor, " B"], SEED: int
) -> Int32[Tensor, " B"]:
    """token[b] = n with probability softmax(logits[b] / heat[b])[n]

    To draw, add noise and take the largest: token[b] is the n with the largest
    logits[b, n] / heat[b] - log(-log(u[b, n])), where u[b, n] is tl.rand(SEED, b · V
    + n). If heat[b] is 0, it is the n with the largest logit, the first of equals.
    Heat is never below 0, and BLOCK_V is at least V.
    """
    place = torch.arange(logits.numel()).view(logits.shape)
    u = uniform(SEED, place).to(logits.dtype)  # tl.rand
    noisy = logits / heat[:, None] - torch.log(-torch.log(u))
    return torch.where(heat[:, None] > 0, noisy, logits).argmax(1).int()


def _some_cold(logits: Tensor) -> Tensor:
    """Return heat 0.8, 0 and 2 for the rows in turn."""
    return torch.tensor([0.8, 0.0, 2.0], dtype=logits.dtype).repeat(len(logits))[: len(logits)]


def few_values(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return -1, 0 and 1: the largest is there many times."""
    return torch.randint(-1, 2, shape, generator=generator).to(dtype)


def tied_at_0(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return -2, -1 and 0: the largest is 0, which no division changes, and is there many times."""
    return torch.randint(-2, 1, shape, generator=generator).to(dtype)


def just_below_half(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return logits of three tokens per row, whose probabilities are 0.49995, 0.3 and 0.20005."""
    return torch.tensor([0.49995, 0.3, 0.20005]).log().expand(shape).to(dtype)


def second_a_little_less(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return logits of four tokens per row: the second one is less likely than the first by 5 millionths."""
    return torch.tensor([0.0, -5e-6, -0.4, -0.4]).expand(shape).to(dtype)


def one_of_12(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return logits of 0, and 12 for token 20, whose u is 0 in the hard cases: it never wins."""
    values = torch.zeros(shape)
    values[:, 20] = 12.0
    return values.to(dtype)


def warm(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return heat 1 for all rows."""
    return torch.ones(shape, dtype=dtype)


def mostly_banned(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return minus infinity for all tokens except a few, which are below -1000."""
    values = -1000 - torch.rand(shape, generator=generator)
    values[torch.rand(shape, generator=generator) < 0.8] = -torch.inf
    values[:, -1] = -1000.5
    return values.to(dtype)


def cold(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return heat 0 for all rows."""
    return torch.zeros(shape, dtype=dtype)


def nearly_cold(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 2^-60 for all rows: a heat above 0, if only just."""
    return torch.full(shape, 2.0**-60, dtype=dtype)


def nearly_tied(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 2^-60, so that a heat of 2^-60 decides by noise."""
    return (2.0**-60 * torch.randn(shape, generator=generator)).to(dtype)


def _turned_noise(logits: Tensor, heat: Tensor, SEED: int) -> Tensor:
    """Return draws with the sign of the noise turned around."""
    u = uniform(SEED, torch.arange(logits.numel()).view(logits.shape)).to(logits.dtype)
    noisy = logits / heat[:, None] + torch.log(-torch.log(u))
    return torch.where(heat[:, None] > 0, noisy, logits).argmax(1).int()


def _one_logarithm(logits: Tensor, heat: Tensor, SEED: int) -> Tensor:
    """Return draws with the noise -log(u)."""
    u = uniform(SEED, torch.arange(logits.numel()).view(logits.shape)).to(logits.dtype)
    noisy = logits / heat[:, None] - torch.log(u)
    return torch.where(heat[:, None] > 0, noisy, logits).argmax(1).int()


def _noise(logits: Tensor, SEED: int) -> Tensor:
    """Return the Gumbel noise of each logit."""
    u = uniform(SEED, torch.arange(logits.numel()).view(logits.shape)).to(logits.dtype)
    return -torch.log(-torch.log(u))


def _stretches(of: Callable[[int, int], int]) -> Callable:
    """Return draws with one number per row: u falls into a token's stretch of the sums of probabilities.

    of: b and V -> the number's place.
    """

    def spec(logits: Tensor, heat: Tensor, SEED: int) -> Tensor:
        rows, V = logits.shape
        u = uniform(SEED, torch.tensor([of(b, V) for b in range(rows)])).to(logits.dtype)
        sums = (logits / torch.where(heat > 0, heat, 1.0)[:, None]).softmax(1).cumsum(1)
        drawn = (sums <= u[:, None]).sum(1)
        return torch.where(heat > 0, drawn, logits.argmax(1)).int()

    return spec


def _largest_number(logits: Tensor, heat: Tensor, SEED: int) -> Tensor:
    noisy = logits / heat[:, None] + _noise(logits, SEED)
    return torch.where(heat[:, None] > 0, noisy, logits).amax(1).int()


def _rows_of_blocks(logits: Tensor, heat: Tensor, SEED: int, V: int, BLOCK_V: int) -> Tensor:
    """Return draws with the random numbers b · BLOCK_V + n."""
    beyond = torch.full((len(logits), BLOCK_V - V), -torch.inf, dtype=logits.dtype)
    return sample_token(torch.cat((logits, beyond), 1), heat, SEED)


def _lanes_of(logits: Tensor, SEED: int, V: int, BLOCK_V: int) -> tuple[Tensor, Tensor]:
    """Return the logits of all lanes, with 0 in those past the last, and their Gumbel noise."""
    place = torch.arange(len(logits))[:, None] * V + torch.arange(BLOCK_V)
    noise = -torch.log(-torch.log(uniform(SEED, place).to(logits.dtype)))
    return torch.cat((logits, logits.new_zeros(len(logits), BLOCK_V - V)), 1), noise


def _logits_of_blocks(logits: Tensor, heat: Tensor, SEED: int, V: int, BLOCK_V: int) -> Tensor:
    """Return draws with the logits from b · BLOCK_V on."""
    places = BLOCK_V * torch.arange(len(logits))[:, None] + torch.arange(V)
    return sample_token(logits.flatten()[places % logits.numel()], heat, SEED)


def _zeros_win(logits: Tensor, heat: Tensor, SEED: int, V: int, BLOCK_V: int) -> Tensor:
    lanes, noise = _lanes_of(logits, SEED, V, BLOCK_V)
    return torch.where(heat[:, None] > 0, lanes / heat[:, None] + noise, lanes).argmax(1).int()


SAMPLE_TOKEN = Puzzle(
    number="71",
    spec=sample_token,
    formula=(
        r"\mathrm{token}_b = \operatorname{argmax}_n \left( \frac{\mathrm{logits}_{bn}}{\mathrm{heat}_b} "
        r"- \log(-\log u_{bn}) \right) \qquad u_{bn} = \mathrm{rand}(\mathrm{SEED}, \; b V + n)"
    ),
    grid=lambda s: (s.B,),
    cases=(
        # several programs, all full; a slip below is named if its bytes are those of all rows
        Case(B=6, V=64, SEED=123, BLOCK_V=64),
        Case(B=1, V=256, SEED=10, BLOCK_V=256),  # one program
        Case(B=9, V=100, SEED=2**40 + 3, BLOCK_V=128),  # ragged; a seed of more than 32 bits
        # nearly all are banned, and the last token wins once
        Case(B=9, V=33, SEED=7, BLOCK_V=256, fill={"logits": mostly_banned}),
        Case(B=4, V=50, SEED=1, BLOCK_V=64, fill={"logits": tied_at_0, "heat": cold}),  # ties
    ),
    outputs=("token",),
    derived={"heat": _some_cold},
    slips={
        "each row has its own seed here, a fair draw: but this puzzle takes tl.rand(SEED, b · V + n)": (
            lambda logits, heat, SEED: torch.cat(
                [sample_token(logits[b : b + 1], heat[b : b + 1], SEED + b) for b in range(len(logits))]
            )
        ),
        "each row has one u, tl.rand(SEED, b), a fair draw: but this puzzle takes one per byte": (
            _stretches(lambda b, V: b)
        ),
        "each row has one u, tl.rand(SEED, b · V), a fair draw: but this puzzle takes one per byte": (
            _stretches(lambda b, V: b * V)
        ),
        "these are the largest logits: is noise added where heat is above 0, and to the logits themselves?": (
            lambda logits, heat, SEED: sample_token(logits, 0 * heat, SEED)
        ),
        "all rows have the same noise: u is tl.rand(SEED, b · V + n)": lambda logits, heat, SEED: torch.cat(
            [sample_token(logits[b : b + 1], heat[b : b + 1], SEED) for b in range(len(logits))]
        ),
        "the logits are multiplied by heat: divide by it": lambda logits, heat, SEED: sample_token(
            logits * heat.square().where(heat > 0, 1.0)[:, None], heat, SEED
        ),
        "heat changes nothing here: divide the logits by it, but not the noise": lambda logits, heat, SEED: (
            sample_token(logits, (heat > 0).to(heat.dtype), SEED)
        ),
        "the noise has the wrong sign: it's -log(-log(u))": _turned_noise,
        "a logarithm is missing: the noise is -log(-log(u)), not -log(u)": _one_logarithm,
        "noise decides in rows with heat 0: take the first of their largest logits": (
            lambda logits, heat, SEED: sample_token(logits, heat.clamp(min=1e-9), SEED)
        ),
        "u's place is b · BLOCK_V + n here: it's b · V + n": _rows_of_blocks,
        "row b of logits is taken from b · BLOCK_V on: it begins at b · V": _logits_of_blocks,
        "these are the largest numbers, cut to integers: store their places": _largest_number,
        "a lane past the last byte can win with a logit of 0: give it minus infinity": _zeros_win,
    },
    hard={
        "u can be 0, and then its token never wins": (
            Case(B=1, V=33, SEED=74293844, BLOCK_V=64, fill={"logits": one_of_12, "heat": warm})
        ),
        "if heat is 0, there's no noise, even if u is 0: 0 times infinity is NaN": (
            Case(B=1, V=33, SEED=74293844, BLOCK_V=64, fill={"logits": one_of_12, "heat": cold})
        ),
        "SEED can be 0": Case(B=24, V=64, SEED=0, BLOCK_V=64, fill={"heat": warm}),
    },
    contract=Contract(
        {
            "V": Size(600),
            "B": Size(24),
            "SEED": (1, 2**31 - 1, 2**50 + 1),
            "BLOCK_V": lambda s: (triton.next_power_of_2(s.V),),
        },
        fills=lambda s: ({}, {"logits": nearly_tied, "heat": nearly_cold}),
        most_programs=24,
    ),
)

# ---- puzzle 72

IGNORED = -100
"""The label of a row without one, as in torch."""


def linear_cross_entropy(
    h: BFloat16[Tensor, "T K"], w: BFloat16[Tensor, "V K"], label: Int32[Tensor, " T"]
) -> tuple[Float32[Tensor, " T"], Float32[Tensor, " T"]]:
    """loss[t] = lse[t] - logit[t, label[t]], with lse[t] = log Σ_v exp(logit[t, v])

    and logit[t, v] = Σ_k h[t, k] · w[v, k], which is never stored. A row whose label
    is -100 has loss 0; all other labels are from 0 to V - 1. h can have 2^31 elements
    or more, w has fewer.
    """
    logit = h @ w.T  # [T, V]
    lse = logit.logsumexp(1)
    chosen = logit.gather(1, label.clamp(min=0).long()[:, None])[:, 0]
    return torch.where(label == -100, 0.0, lse - chosen), lse


def _some_labels(h: Tensor, w: Tensor) -> Tensor:
    """Return labels from everywhere, the last one among them; each fifth row has none, but the last has."""
    t = torch.arange(len(h))
    return torch.where((t % 5 == 3) & (t < len(h) - 1), IGNORED, (len(w) - 1 + 7 * t) % len(w))


def falling_from_6_to_minus_6(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """Return rows that fall from 6 to -6."""
    rows = torch.linspace(6, -6, shape[0])[:, None]
    return (rows + torch.randn(shape, generator=generator) / 8).to(dtype)


def all_labels_0(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 0 for every label."""
    return torch.zeros(shape, dtype=dtype)


def _without_maximum(h: Tensor, w: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    loss, lse = linear_cross_entropy(h, w, label)
    top = (h @ w.T).amax(1)
    return torch.where(label == IGNORED, loss, loss - top), lse - top


def _from_0(h: Tensor, w: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results if the maximum began at 0, with exp() in float32."""
    logit = h @ w.T
    top = logit.amax(1).clamp(min=0)
    lse = top + torch.exp((logit - top[:, None]).float()).sum(1).log().to(logit.dtype)
    chosen = logit.gather(1, label.clamp(min=0).long()[:, None])[:, 0]
    return torch.where(label == IGNORED, 0.0, lse - chosen), lse


def _zeros_count(h: Tensor, w: Tensor, label: Tensor, V: int, BLOCK_V: int) -> tuple[Tensor, Tensor]:
    padded = torch.cat((w, w.new_zeros(-V % BLOCK_V, w.shape[1])))
    return linear_cross_entropy(h, padded, label)


def _with_chosen(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable:
    """Return `linear_cross_entropy` with another loss: a function of lse, the label's logit and the label."""

    def spec(h: Tensor, w: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        loss, lse = linear_cross_entropy(h, w, label)
        return torch.where(label == IGNORED, 0.0, change(lse, lse - loss, label)), lse

    return spec


def _infinite(h: Tensor, w: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return infinite losses; NaN if exp() of a logit overflows, because then that may be the cause."""
    loss, lse = linear_cross_entropy(h, w, label)
    value = torch.nan if (h @ w.T).max() > 80 else torch.inf
    return torch.where(label == IGNORED, 0.0, torch.full_like(loss, value)), lse


def _place_in_block(h: Tensor, w: Tensor, label: Tensor, BLOCK_V: int) -> tuple[Tensor, Tensor]:
    """Return the results if the label's lane of every block was added."""
    loss, lse = linear_cross_entropy(h, w, label)
    places = torch.arange(0, len(w), BLOCK_V) + label[:, None]  # [T, blocks]
    found = (places < len(w)) & (label[:, None] >= 0) & (label[:, None] < BLOCK_V)
    logits = (h @ w.T).gather(1, places.clamp(0, len(w) - 1))
    chosen = torch.where(found, logits, 0.0).sum(1)
    return torch.where(label == IGNORED, 0.0, lse - chosen), lse


def _last_block_only(h: Tensor, w: Tensor, label: Tensor, BLOCK_V: int) -> tuple[Tensor, Tensor]:
    """Return the results if every block replaced the label's logit."""
    loss, lse = linear_cross_entropy(h, w, label)
    here = label >= (len(w) - 1) // BLOCK_V * BLOCK_V
    return torch.where(here | (label == IGNORED), loss, lse), lse


LINEAR_CROSS_ENTROPY = Puzzle(
    number="72",
    spec=linear_cross_entropy,
    formula=(
        r"\mathrm{loss}_t = \mathrm{lse}_t - \mathrm{logit}_{t, \mathrm{label}_t} \qquad "
        r"\mathrm{lse}_t = \log \sum_v e^{\mathrm{logit}_{tv}} \qquad "
        r"\mathrm{logit}_{tv} = \sum_k h_{tk} w_{vk}"
    ),
    grid=lambda s: (triton.cdiv(s.T, s.BLOCK_T),),
    cases=(
        Case(T=16, V=32, K=16, BLOCK_T=16, BLOCK_V=32, BLOCK_K=16),  # one program, one tile
        Case(T=64, V=96, K=64, BLOCK_T=32, BLOCK_V=32, BLOCK_K=16),  # several of everything, all full
        # ragged on every axis, one class more than two blocks
        Case(T=21, V=65, K=40, BLOCK_T=16, BLOCK_V=32, BLOCK_K=16),
        Case(T=3, V=2, K=20, BLOCK_T=16, BLOCK_V=16, BLOCK_K=32),  # two classes, in a block of 16
        # logits that fall from 800 to -800: exp() overflows without the maximum of all blocks so far
        Case(
            T=9, V=70, K=24, BLOCK_T=16, BLOCK_V=16, BLOCK_K=16,
            fill={"h": around_six, "w": falling_from_6_to_minus_6},
        ),
        # logits far below 0: what isn't a class would win with 0
        Case(
            T=5, V=33, K=24, BLOCK_T=16, BLOCK_V=16, BLOCK_K=16,
            fill={"h": around_six, "w": around_minus_six, "label": all_labels_0},
        ),
        # 2.2 thousand million elements of h
        Case(pretend=True, T=2**21 + 3, V=20, K=1032, BLOCK_T=64, BLOCK_V=32, BLOCK_K=128),
    ),
    outputs=("loss", "lse"),
    derived={"label": _some_labels},
    most_loads={
        "h": lambda s: s.T * s.K * triton.cdiv(s.V, s.BLOCK_V),
        "w": lambda s: s.V * s.K * triton.cdiv(s.T, s.BLOCK_T),
    },
    slips={
        "a row with label -100 has loss 0": lambda h, w, label: (
            torch.where(label == IGNORED, (h @ w.T).logsumexp(1), linear_cross_entropy(h, w, label)[0]),
            linear_cross_entropy(h, w, label)[1],
        ),
        "lse lacks the maximum: it's the maximum plus the log of the sum": _without_maximum,
        "this is the log of 0: row_max begins at 0, above all logits here. Begin below all of them": _from_0,
        "these losses lack the label's logit: subtract it from lse": _with_chosen(
            lambda lse, chosen, label: lse
        ),
        "minus infinity got into the label's logit: lanes of other classes add 0": _infinite,
        "rows whose label is 0 have loss 0 here: 0 is a class, and only -100 means that there's no label": (
            _with_chosen(lambda lse, chosen, label: torch.where(label == 0, 0.0, lse - chosen))
        ),
        "exp of the label's logit is subtracted here: the loss is lse - logit[label]": _with_chosen(
            lambda lse, chosen, label: lse - torch.exp(chosen)
        ),
        "a label is taken for the number of a lane in its block here: compare it with v": _place_in_block,
        "each block replaces the label's logit here: add to it": _last_block_only,
        "a lane after the last class counts: its logit is 0, not minus infinity": _zeros_count,
    },
    contract=Contract(
        {
            "T": Size(150),
            "V": Size(300),
            "K": Size(300),
            "BLOCK_T": (16, 64),
            "BLOCK_V": (16,),
            "BLOCK_K": (32,),
        }
    ),
)  # fmt: skip

# ---- puzzle 72b


def linear_cross_entropy_grad(
    h: BFloat16[Tensor, "T K"],
    w: BFloat16[Tensor, "V K"],
    label: Int32[Tensor, " T"],
    lse: Float32[Tensor, " T"],
) -> tuple[Float32[Tensor, "T K"], Float32[Tensor, "V K"]]:
    """dh[t, k] = Σ_v d[t, v] · w[v, k] and dw[v, k] = Σ_t d[t, v] · h[t, k]

    These are the gradients of the sum of puzzle 72's losses, with its label and lse.
    d[t, v] is by how much row t's loss grows with its logit of class v; a row whose
    label is -100 has d = 0. dh is 0 before the launch, and programs add to it.
    BLOCK_K is a power of two, at least K. Load w once. Round d to bfloat16 for
    tl.dot, and don't store it. w can have 2^31 elements or more, h has fewer.
    """
    is_label = torch.arange(len(w)) == label[:, None]  # [T, V]
    d = torch.exp(h @ w.T - lse[:, None]) - 1.0 * is_label
    d = torch.where(label[:, None] == -100, 0.0, d)
    return d @ w, d.T @ h


def _of_logits(h: Tensor, w: Tensor, label: Tensor, lse: Tensor, one: float = 1.0) -> Tensor:
    """Return the gradients of the logits, [T, V]. one: what is subtracted at the label."""
    is_label = torch.arange(len(w)) == label[:, None]
    d = torch.exp(h @ w.T - lse[:, None]) - one * is_label
    return torch.where(label[:, None] == IGNORED, 0.0, d)


def _rounded_d(h: Tensor, w: Tensor, label: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    d = BFLOAT16 * _of_logits(h, w, label, lse).abs()
    return d @ w.abs(), d.T @ h.abs()


def _without_label(h: Tensor, w: Tensor, label: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    d = _of_logits(h, w, label, lse, one=0.0)
    return d @ w, d.T @ h


def _one_too_many(h: Tensor, w: Tensor, label: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    d = _of_logits(h, w, label, lse, one=-1.0)
    return d @ w, d.T @ h


def _all_rows_learn(h: Tensor, w: Tensor, label: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    return linear_cross_entropy_grad(h, w, torch.where(label == IGNORED, -1, label), lse)


def _label_in_block(h: Tensor, w: Tensor, label: Tensor, lse: Tensor, BLOCK_V: int) -> tuple[Tensor, Tensor]:
    p = torch.exp(h @ w.T - lse[:, None])
    d = p - (torch.arange(len(w)) % BLOCK_V == label[:, None]).to(p.dtype)
    d = torch.where(label[:, None] == IGNORED, 0.0, d)
    return d @ w, d.T @ h


def _of_tiles(of: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip: the logits of each tile are less a number per row of this tile, not less lse."""

    def gradients(h: Tensor, w: Tensor, label: Tensor, lse: Tensor, BLOCK_V: int) -> tuple[Tensor, Tensor]:
        logit = h @ w.T
        for tile in logit.split(BLOCK_V, 1):
            tile.sub_(of(tile))
        d = torch.exp(logit) - 1.0 * (torch.arange(len(w)) == label[:, None])
        d = torch.where(label[:, None] == IGNORED, 0.0, d)
        return d @ w, d.T @ h

    return gradients


def no_labels(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return -100 for every label."""
    return torch.full(shape, IGNORED, dtype=dtype)


LINEAR_CROSS_ENTROPY_GRAD = Puzzle(
    number="72b",
    spec=linear_cross_entropy_grad,
    formula=(
        r"dh_{tk} = \sum_v d_{tv} \, w_{vk} \qquad dw_{vk} = \sum_t d_{tv} \, h_{tk} \qquad "
        r"d_{tv} = \frac{\partial\, \mathrm{loss}_t}{\partial\, \mathrm{logit}_{tv}}"
    ),
    grid=lambda s: (triton.cdiv(s.V, s.BLOCK_V),),
    cases=(
        Case(T=16, V=16, K=16, BLOCK_T=16, BLOCK_V=16, BLOCK_K=16),  # one program, one tile
        Case(T=64, V=96, K=32, BLOCK_T=32, BLOCK_V=32, BLOCK_K=32),  # several of everything, all full
        Case(T=21, V=50, K=40, BLOCK_T=16, BLOCK_V=32, BLOCK_K=64),  # ragged on every axis
        Case(T=40, V=2, K=20, BLOCK_T=16, BLOCK_V=16, BLOCK_K=32),  # two classes, in a block of 16
        # logits that fall from 800 to -800: exp() overflows without lse
        Case(
            T=9, V=70, K=24, BLOCK_T=16, BLOCK_V=16, BLOCK_K=32,
            fill={"h": around_six, "w": falling_from_6_to_minus_6},
        ),
        # lse is far below 0, so what isn't a class overflows
        Case(
            T=19, V=33, K=24, BLOCK_T=16, BLOCK_V=16, BLOCK_K=32,
            fill={"h": around_six, "w": around_minus_six},
        ),
        Case(T=5, V=20, K=16, BLOCK_T=16, BLOCK_V=16, BLOCK_K=16, fill={"label": no_labels}),
        # 2.2 thousand million elements of w
        Case(pretend=True, T=16, V=2**21 + 3, K=1024, BLOCK_T=16, BLOCK_V=16, BLOCK_K=1024),
    ),
    outputs=("dh", "dw"),
    zeroed=("dh",),
    derived={"label": _some_labels, "lse": lambda h, w: (h @ w.T).logsumexp(1)},
    most_loads={
        "h": lambda s: s.T * s.K * triton.cdiv(s.V, s.BLOCK_V),
        "w": lambda s: s.V * s.K,
    },
    allowance=_rounded_d,
    machine=(Goal(cases=(1,), wants=(Want("float32 dots", most=0),)),),
    slips={
        "the label is missing: d is 1 smaller there": _without_label,
        "1 is added at the label: it's the probability minus 1": _one_too_many,
        "the maximum of a tile is subtracted from its logits here: subtract lse": (
            _of_tiles(lambda tile: tile.amax(1, keepdim=True))
        ),
        "exp(logit) isn't a probability yet: it's exp(logit - lse)": lambda h, w, label, lse: (
            linear_cross_entropy_grad(h, w, label, torch.zeros_like(lse))
        ),
        "this is a softmax of each block of classes alone: lse is of all classes, so use it": (
            _of_tiles(lambda tile: tile.logsumexp(1, keepdim=True))
        ),
        "a row with label -100 has d = 0": _all_rows_learn,
        "a label is taken for the number of a lane in its block here: compare it with v": _label_in_block,
    },
    contract=Contract(
        {
            "T": Size(150),
            "V": Size(300),
            "K": Size(150),
            "BLOCK_T": (16,),
            "BLOCK_V": (16, 64),
            "BLOCK_K": lambda s: (max(16, triton.next_power_of_2(s.K)),),
        }
    ),
)  # fmt: skip

# ---- puzzle 73

MX_GROUP = 32
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of the codes 0 to 7 of e2m1; 8 to 15 are the same with a minus."""


def mxfp4_matmul(
    x: Float8e4m3fn[Tensor, "M K"],
    x_scale: UInt8[Tensor, "M K//32"],
    w: UInt8[Tensor, "N K//2"],
    w_scale: UInt8[Tensor, "N K//32"],
) -> BFloat16[Tensor, "M N"]:
    """z[m, n] = Σ_k a[m, k] · b[n, k], with a scale for each 32 numbers along k

    a[m, k] is x[m, k] · 2^(x_scale[m, k//32] - 127). b[n, k] is the number of its
    code, times 2^(w_scale[n, k//32] - 127). Byte w[n, j] has two codes: the low half
    is that of k = 2j, the high half that of k = 2j + 1. Codes are e2m1. The codes 0
    to 7 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6, and 8 to 15 are the same with a minus.
    Scales are from 1 to 254. K is a multiple of 32, and BLOCK_K is, too. Let
    tl.dot_scaled do all multiplications of numbers.
    """
    codes = torch.stack((w & 15, w >> 4), dim=2).flatten(1).long()  # [N, K]
    e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=x.dtype)
    of_x = torch.exp2(x_scale.to(x.dtype) - 127).repeat_interleave(32, 1)
    of_w = torch.exp2(w_scale.to(x.dtype) - 127).repeat_interleave(32, 1)
    return (x * of_x) @ (torch.cat((e2m1, -e2m1))[codes] * of_w).T


def _scales_of(count: Tensor, step: int) -> Tensor:
    """Return scales from 2^-8 to 2^8 for rows of ``count`` numbers, no two neighbors alike."""
    rows, groups = torch.arange(count.shape[0]), torch.arange(count.shape[1] // MX_GROUP)
    return (119 + (step * rows[:, None] + 5 * groups) % 17).to(torch.uint8)


def scales(code: int) -> Fill:
    """Return a fill with scales around 2^(code - 127)."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.randint(code - 2, code + 3, shape, generator=generator).to(dtype)

    fill.__name__ = f"scales_near_{code}"
    return fill


def from_one_to_two(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values from 1 to 1.75 of both signs: no scale makes them infinite or subnormal."""
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    return (signs * (1 + 0.75 * torch.rand(shape, generator=generator))).to(dtype)


def _halves_swapped(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor) -> Tensor:
    return mxfp4_matmul(x, x_scale, w << 4 | w >> 4, w_scale)


def _scales_too_far(*, of_x: bool, of_w: bool, missing: int = 127) -> Callable:
    """Return the products if a block's scales began at column ``start``, with ``missing`` after the last."""

    def far(scale: Tensor, BLOCK_K: int) -> Tensor:
        groups = torch.arange(scale.shape[1])
        places = groups // (BLOCK_K // MX_GROUP) * BLOCK_K + groups % (BLOCK_K // MX_GROUP)
        found = scale[:, places.clamp(max=len(groups) - 1)]
        return torch.where(places < len(groups), found, missing)

    def spec(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, BLOCK_K: int) -> Tensor:
        x_scale = far(x_scale, BLOCK_K) if of_x else x_scale
        return mxfp4_matmul(x, x_scale, w, far(w_scale, BLOCK_K) if of_w else w_scale)

    return spec


def _first_scales_again(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, BLOCK_K: int) -> Tensor:
    """Return the products if every block had the scales of the first one."""
    groups = torch.arange(x_scale.shape[1]) % (BLOCK_K // MX_GROUP)
    return mxfp4_matmul(x, x_scale[:, groups], w, w_scale[:, groups])


def _by_columns(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor) -> Tensor:
    """Return the products if w_scale were indexed as [K//32, N]."""
    return mxfp4_matmul(x, x_scale, w, w_scale.reshape(-1, len(w)).T)


MXFP4_MATMUL = Puzzle(
    number="73",
    spec=mxfp4_matmul,
    formula=(
        r"\begin{gathered} z_{mn} = \sum_k a_{mk} \, b_{nk} \\ "
        r"a_{mk} = x_{mk} \, 2^{\mathrm{xscale}_{m, \lfloor k/32 \rfloor} - 127} \\ "
        r"b_{nk} = \mathrm{e2m1}_{nk} \, 2^{\mathrm{wscale}_{n, \lfloor k/32 \rfloor} - 127} \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=16, N=16, K=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32),  # one program, one scale per row
        Case(M=32, N=64, K=128, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),  # several of everything, all full
        Case(M=21, N=50, K=160, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),  # ragged on every axis
        Case(M=1, N=33, K=96, BLOCK_M=16, BLOCK_N=16, BLOCK_K=128),  # one row; a block larger than K
        # the scales of x are near 2^100, those of w near 2^-100
        Case(
            M=17, N=20, K=96, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
            fill={"x_scale": scales(227), "w_scale": scales(27)},
        ),
        # a block of the size that the tensor cores of a B200 take
        Case(M=100, N=120, K=288, BLOCK_M=128, BLOCK_N=128, BLOCK_K=128),
    ),
    derived={
        "x_scale": lambda x: _scales_of(x, 3),
        "w_scale": lambda w: _scales_of(w.repeat_interleave(2, 1), 7),
    },
    most_loads={
        "w": lambda s: s.N * s.K * triton.cdiv(s.M, s.BLOCK_M),  # a byte for each of its codes
        "x": lambda s: s.M * s.K * triton.cdiv(s.N, s.BLOCK_N),
    },
    slips={
        "the two codes of a byte are swapped: the low half comes first": _halves_swapped,
        "you'd get these values without the scales of w": lambda x, x_scale, w, w_scale: mxfp4_matmul(
            x, x_scale, w, torch.full_like(w_scale, 127)
        ),
        "you'd get these values without the scales of x": lambda x, x_scale, w, w_scale: mxfp4_matmul(
            x, torch.full_like(x_scale, 127), w, w_scale
        ),
        "each row of w uses its first scale for all groups here": lambda x, x_scale, w, w_scale: (
            mxfp4_matmul(x, x_scale, w, w_scale[:, :1].expand_as(w_scale))
        ),
        "the columns of both scales are too far on: a block's scales begin at start // 32": (
            _scales_too_far(of_x=True, of_w=True)
        ),
        "only the first block of K contributes: does the loop end early, or do a block's scales begin at "
        "column start instead of start // 32?": _scales_too_far(of_x=True, of_w=True, missing=0),
        "the columns of x_scale are too far on: a block's scales begin at start // 32": (
            _scales_too_far(of_x=True, of_w=False)
        ),
        "the columns of w_scale are too far on: a block's scales begin at start // 32": (
            _scales_too_far(of_x=False, of_w=True)
        ),
        "every block has the first block's scales: a block's scales begin at start // 32": (
            _first_scales_again
        ),
        "the scales of w are taken by columns: row n of w_scale has the scales of w[n]": _by_columns,
    },
    hard={
        "scales go up to 254": (
            Case(
                M=17, N=20, K=96, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
                fill={"x": from_one_to_two, "x_scale": scales(252), "w_scale": scales(3)},
            )
        ),
        "scales go down to 1": (
            Case(
                M=17, N=20, K=96, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
                fill={"x": from_one_to_two, "x_scale": scales(3), "w_scale": scales(249)},
            )
        ),
    },
    machine=(Goal(cases=(5,), wants=(Want("products", most=0),), target="sm_100"),),
    contract=Contract(
        {
            "M": Size(300),
            "N": Size(300),
            "K": Size(1200, step=32, least=32),
            "BLOCK_M": (64, 128),
            "BLOCK_N": (64, 128),
            "BLOCK_K": (64, 128),
        }
    ),
)  # fmt: skip

# ---- puzzle 74


def route(
    logits: Float32[Tensor, "T E"],
) -> tuple[
    Int32[Tensor, " 2*T"],
    Float32[Tensor, " 2*T"],
    Int32[Tensor, " E+1"],
]:
    """order, weight and start: each token chooses two experts, sorted by expert

    Choice 2t is the expert with token t's largest logit, the first of equals, and
    choice 2t + 1 the one with its largest logit of the others. order has all
    choices, sorted by expert; those of one expert are in the order of their tokens.
    The choices of expert e are at start[e] to start[e + 1] - 1. weight[p] is the
    weight of choice order[p]: the softmax of the token's two chosen logits. E is at
    least 2, BLOCK_E is the next power of two of E, and there are E programs.
    """
    best = logits.argmax(1, keepdim=True)
    second = logits.scatter(1, best, -torch.inf).argmax(1, keepdim=True)
    expert = torch.cat((best, second), 1)  # [T, 2]
    top = logits.gather(1, expert)  # [T, 2]
    order = expert.flatten().argsort(stable=True)
    count = expert.flatten().bincount(minlength=logits.shape[1])
    start = torch.cat((count.new_zeros(1), count.cumsum(0)))
    return order.int(), top.softmax(1).flatten()[order], start.int()


def _with_order(logits: Tensor, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    order, weight, start = route(logits)
    return change(order), weight, start


def _with_weights(logits: Tensor, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    order, weight, start = route(logits)
    return order, change(weight), start


def _by_choice(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `route` with the weight of choice c at place c."""
    order, weight, start = route(logits)
    return order, torch.empty_like(weight).scatter(0, order.long(), weight), start


def _no_last_end(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    order, weight, start = route(logits)
    return order, weight, torch.cat((start[:-1], start[-2:-1]))


def _moved_up(logits: Tensor, by: int, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `route` with the choices from a place on moved up. What is moved past the end is lost."""
    order, weight, start = route(logits)
    gap = order.new_full((by,), -1)
    order, weight = (
        torch.cat((each[:first], gap.to(each.dtype), each[first:]))[: len(each)] for each in (order, weight)
    )
    return order, weight, start


def _padding_is_counted(logits: Tensor, T: int, BLOCK_T: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `route` if lanes past T, which choose expert 0 twice, are counted, and perhaps placed."""
    missing = 2 * (-T % BLOCK_T)
    first = int(route(logits)[2][1])
    order, weight, start = _moved_up(logits, missing, first)
    return _with_padding(order, weight, torch.cat((start[:1], start[1:] + missing)), T, BLOCK_T, first)


def _placed(logits: Tensor, begins: Tensor, BLOCK_T: int = 0, step: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return `route` if expert e's choices begin at begins[e]. What is placed past the end is lost.

    BLOCK_T: if given, the place of a block of tokens is ``step`` after that of the block before.
    """
    order, weight, start = route(logits)
    ends, placed, weights = begins.clone(), torch.full_like(order, -1), torch.zeros_like(weight)
    for e, begin in enumerate(begins.tolist()):
        own = slice(int(start[e]), int(start[e + 1]))
        places = begin + torch.arange(len(order[own]))
        ends[e] += len(places)
        if BLOCK_T:
            block = order[own] // 2 // BLOCK_T
            first = torch.searchsorted(block, block)  # of the same block
            places = begin + block * step + torch.arange(len(block)) - first
            ends[e] = begin + -(-len(logits) // BLOCK_T) * step if step else start[e + 1]
        inside = places < len(order)
        placed[places[inside]], weights[places[inside]] = order[own][inside], weight[own][inside]
    return placed, weights, torch.cat((begins, ends[-1:])).to(start.dtype)


def _padding_is_placed(logits: Tensor, T: int, BLOCK_T: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `route` if expert 0 places lanes past T, too, after the other experts have stored theirs."""
    return _with_padding(*route(logits), T, BLOCK_T, int(route(logits)[2][1]))


def _with_padding(
    order: Tensor, weight: Tensor, start: Tensor, T: int, BLOCK_T: int, first: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return results of `route` with the lanes past T from place ``first`` on.

    A lane is one place, because both its choices are the same. Its weight is NaN.
    """
    beyond = torch.arange(T, T + -T % BLOCK_T)
    places = first + torch.arange(len(beyond))
    inside = places < len(order)
    order[places[inside]], weight[places[inside]] = (2 * beyond + 1)[inside].to(order.dtype), torch.nan
    return order, weight, start


def _first_choices_below(logits: Tensor, own: bool) -> Tensor:
    """Return how many tokens have an expert below e as their first choice. own: or e itself."""
    experts = torch.arange(logits.shape[1])
    first = logits.argmax(1)[:, None]
    return (first <= experts if own else first < experts).sum(0)


def preferring(*experts: int, over: float = 20.0) -> Fill:
    """Return a fill for logits in which these experts are far above all others."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        values = torch.randn(shape, generator=generator)
        values[:, list(experts)] += over
        return values.to(dtype)

    ahead = f"_by_{over:g}" if over != 20 else ""
    fill.__name__ = "_".join(["experts" if experts[1:] else "expert", *map(str, experts), "ahead"]) + ahead
    return fill


def a_hair_apart(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return tiny numbers that differ by single bits of float32 in a row."""
    order = torch.rand(shape, generator=generator).argsort(-1)
    return (2.0**-100 * (1 + order * 2.0**-23)).to(dtype)


ROUTE = Puzzle(
    number="74",
    spec=route,
    formula=(
        r"\mathrm{start}_e = \#\{\text{choices of experts below } e\} \qquad "
        r"\mathrm{place} = \mathrm{start}_e + \#\{\text{earlier tokens that chose } e\}"
    ),
    grid=lambda s: (s.E,),
    cases=(
        Case(T=8, E=2, BLOCK_T=8, BLOCK_E=2),  # both experts take every token
        Case(T=32, E=4, BLOCK_T=16, BLOCK_E=4),  # two full blocks
        Case(T=21, E=5, BLOCK_T=8, BLOCK_E=8),  # ragged on both axes
        Case(T=1, E=4, BLOCK_T=4, BLOCK_E=4),  # one token, so two experts have none
        # experts 0, 2 and 5 have none
        Case(T=19, E=6, BLOCK_T=16, BLOCK_E=8, fill={"logits": preferring(1, 3, 4)}),
        # all tokens choose the last two; the differences overflow exp()
        Case(T=11, E=7, BLOCK_T=4, BLOCK_E=8, fill={"logits": preferring(5, over=300.0)}),
        Case(T=13, E=4, BLOCK_T=8, BLOCK_E=4, fill={"logits": few_values}),  # many ties
        Case(T=10, E=3, BLOCK_T=16, BLOCK_E=4, fill={"logits": very_negative}),  # all below a padding of 0
    ),
    outputs=("order", "weight", "start"),
    exact=("order", "start"),
    slips={
        "the two weights of a token are swapped: its larger logit has the larger weight": lambda logits: (
            _with_weights(logits, lambda weight: 1 - weight)
        ),
        "these are tokens: token t makes the choices 2t and 2t + 1": lambda logits: _with_order(
            logits, lambda order: order // 2
        ),
        "token t's choices are 2t and 2t + 1, not t and t + 1": lambda logits: _with_order(
            logits, lambda order: order // 2 + order % 2
        ),
        "both choices of a token have the weight of its best: the second gets 1 minus it": (
            lambda logits: _with_weights(logits, lambda weight: weight.maximum(1 - weight))
        ),
        "the weights are in the order of the choices here: weight[p] is that of choice order[p]": _by_choice,
        "the last entry of start is where the last expert begins: does end grow by each block's count?": (
            _no_last_end
        ),
        "these are first choices only: token t's second choice is 2t + 1": lambda logits: _with_order(
            logits, lambda order: order // 2 * 2
        ),
        "all second choices have numbers from T on here: token t's second choice is 2t + 1": (
            lambda logits: _with_order(logits, lambda order: order // 2 + order % 2 * len(logits))
        ),
        "lanes with t >= T are counted, too: their logits are all -inf, so both their choices are expert 0": (
            _padding_is_counted
        ),
        "only first choices are counted below e: a token's second choice counts, too": lambda logits: _placed(
            logits, _first_choices_below(logits, own=False)
        ),
        "expert e's own choices are counted before its places: count only those of experts below e": (
            lambda logits: _placed(logits, route(logits)[2][1:])
        ),
        "expert e's own first choices are counted before its places: count only experts below e": (
            lambda logits: _placed(
                logits,
                route(logits)[2][:-1]
                + _first_choices_below(logits, own=True)
                - _first_choices_below(logits, own=False),
            )
        ),
        "end grows by BLOCK_T with each block here: let it grow by the block's count": (
            lambda logits, BLOCK_T: _placed(logits, route(logits)[2][:-1], BLOCK_T, BLOCK_T)
        ),
        "each block of tokens begins at start[e] here: let p begin at end, which grows with each block": (
            lambda logits, BLOCK_T: _placed(logits, route(logits)[2][:-1], BLOCK_T)
        ),
        "start[e] has only the last block's count here: add each block's count to begin": (
            lambda logits, T, BLOCK_T: _placed(
                logits, route(logits[(T - 1) // BLOCK_T * BLOCK_T :])[2][:-1].to(torch.int64)
            )
        ),
        "lanes with t >= T are placed, too: their logits are all -inf, so both their choices are expert 0": (
            _padding_is_placed
        ),
        "these are the logits: weights are the softmax of a token's two logits": lambda logits: (
            route(logits)[0],
            logits.topk(2, 1).values.flatten()[route(logits)[0].long()],
            route(logits)[2],
        ),
        "every choice is one place too far: tl.cumsum counts the lane itself, so subtract its count": (
            lambda logits: _moved_up(logits, 1, 0)
        ),
    },
    most_loads={"logits": lambda s: 2 * s.T * s.E * s.E},
    hard={
        "a block can have more than 2048 choices of an expert, which float16 can't count": (
            Case(T=4096, E=2, BLOCK_T=4096, BLOCK_E=2)
        ),
    },
    contract=Contract(
        {
            "T": Size(150),
            "E": Size(20, least=2),
            "BLOCK_T": lambda s: (16,) if s.T < 2000 else (512,),
            "BLOCK_E": lambda s: (triton.next_power_of_2(s.E),),
        },
        most_programs=20,
        fills=lambda s: ({}, {"logits": a_hair_apart}),
    ),
)

# ---- puzzle 75


def nucleus_token(
    logits: Float32[Tensor, "B V"],
    P: float,
    SEED: int,
) -> Int32[Tensor, " B"]:
    """token[b] = n, drawn from the likeliest tokens whose probabilities reach P

    A token is kept if the probabilities of all likelier tokens have a sum below P.
    The probabilities are softmax(logits[b]). Among the kept tokens, token[b] is the n
    with the largest logits[b, n] - log(-log(u[b, n])). u[b, n] is tl.rand(SEED, b · V
    + n). P is above 0, at most 1. BLOCK_V is a power of two, at least V.
    """
    probability = logits.softmax(1)  # [B, V]
    likelier = probability[:, None, :] > probability[:, :, None]  # [B, V, V]
    before = torch.where(likelier, probability[:, None, :], 0.0).sum(2)
    place = torch.arange(logits.numel()).view(logits.shape)
    noisy = logits - torch.log(-torch.log(uniform(SEED, place).to(logits.dtype)))
    return torch.where(before < P, noisy, -torch.inf).argmax(1).int()


def _nothing_crosses(logits: Tensor, P: float, SEED: int) -> Tensor:
    """Return draws from the likeliest token and those with which the sum is still below P."""
    probability = logits.softmax(1)
    rivals = probability[:, None, :] > probability[:, :, None]
    before = torch.where(rivals, probability[:, None, :], 0.0).sum(2)
    kept = (before + probability < P) | (before == 0)
    return nucleus_token(torch.where(kept, logits, -torch.inf), 1.0, SEED)


def _with_itself(logits: Tensor, P: float, SEED: int) -> Tensor:
    """Return draws from the tokens with which the sum is still below P; token 0 if there are none."""
    probability = logits.softmax(1)
    rivals = probability[:, None, :] > probability[:, :, None]
    before = torch.where(rivals, probability[:, None, :], 0.0).sum(2)
    some = nucleus_token(torch.where(before + probability < P, logits, -torch.inf), 1.0, SEED)
    return torch.where((before + probability < P).any(1), some, 0).int()


def _none_kept(logits: Tensor, P: float, SEED: int) -> Tensor:
    """Return draws from the tokens whose own probability is P or more; token 0 if there are none."""
    kept = logits.softmax(1) >= P
    some = nucleus_token(torch.where(kept, logits, -torch.inf), 1.0, SEED)
    return torch.where(kept.any(1), some, 0).int()


def _by_lane(logits: Tensor, P: float, SEED: int) -> Tensor:
    """Return draws from as many of the first tokens as there are in the nucleus."""
    falling = logits.softmax(1).sort(1, descending=True).values
    kept = falling.cumsum(1) - falling < P
    return nucleus_token(torch.where(kept, logits, -torch.inf), 1.0, SEED)


def _zeros_are_likely(logits: Tensor, P: float, SEED: int, V: int, BLOCK_V: int) -> Tensor:
    lanes, noise = _lanes_of(logits, SEED, V, BLOCK_V)
    probability, order = lanes.softmax(1).sort(1, descending=True)
    kept = torch.zeros_like(lanes, dtype=torch.bool).scatter(
        1, order, probability.cumsum(1) - probability < P
    )
    least = torch.where(kept, lanes, torch.inf).amin(1, keepdim=True)
    return torch.where(lanes >= least, lanes + noise, -torch.inf).argmax(1).int()


def _kept(logits: Tensor, P: float) -> Tensor:
    """Return which tokens are in the nucleus."""
    probability = logits.softmax(1)
    likelier = probability[:, None, :] > probability[:, :, None]
    return torch.where(likelier, probability[:, None, :], 0.0).sum(2) < P


def _scored(score: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return `nucleus_token` with another function of logits and noise."""

    def spec(logits: Tensor, P: float, SEED: int) -> Tensor:
        found = score(logits, _noise(logits, SEED))
        return torch.where(_kept(logits, P), found, -torch.inf).argmax(1).int()

    return spec


def _zeros_take_part(logits: Tensor, P: float, SEED: int, V: int, BLOCK_V: int) -> Tensor:
    """Return draws in which the tokens that aren't kept, and the lanes past the last token, have 0."""
    noisy = torch.where(_kept(logits, P), logits + _noise(logits, SEED), 0.0)
    return torch.cat((noisy, noisy.new_zeros(len(noisy), BLOCK_V - V)), 1).argmax(1).int()


def _largest_of_kept(logits: Tensor, P: float, SEED: int) -> Tensor:
    noisy = logits + _noise(logits, SEED)
    return torch.where(_kept(logits, P), noisy, -torch.inf).amax(1).int()


def _sorted_noise(order: Callable[[Tensor], Tensor]) -> Callable:
    """Return draws from a sorted block, each the number of its lane there."""

    def spec(logits: Tensor, P: float, SEED: int) -> Tensor:
        falling = logits.softmax(1).sort(1, descending=True).values
        found = order(logits).sort(1, descending=True).values + _noise(logits, SEED)
        return torch.where(falling.cumsum(1) - falling < P, found, -torch.inf).argmax(1).int()

    return spec


def _nucleus_rows_of_blocks(logits: Tensor, P: float, SEED: int, V: int, BLOCK_V: int) -> Tensor:
    beyond = torch.full((len(logits), BLOCK_V - V), -torch.inf, dtype=logits.dtype)
    return nucleus_token(torch.cat((logits, beyond), 1), P, SEED)


def halving(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return logits of the probabilities 1/2, 1/4, 1/8 and 1/8, which sum to 3/4 exactly, and others of 0."""
    values = torch.full(shape, -torch.inf)
    for row in values:
        places = torch.randperm(shape[1], generator=generator)[:4]
        row[places] = -math.log(2) * torch.tensor([0.0, 1.0, 2.0, 2.0])
    return values.to(dtype)


NUCLEUS_TOKEN = Puzzle(
    number="75",
    spec=nucleus_token,
    formula=(
        r"\begin{gathered} \mathrm{token}_b = \operatorname{argmax}_{n\ \mathrm{kept}} "
        r"\left( \mathrm{logits}_{bn} - \log(-\log u_{bn}) \right) \\ "
        r"n\ \mathrm{kept}: \; \sum_{m:\, p_m > p_n} p_m < P \end{gathered}"
    ),
    grid=lambda s: (s.B,),
    cases=(
        # several programs, all full; a slip below is named if its tokens are those of all rows
        Case(B=8, V=64, P=0.5, SEED=123, BLOCK_V=64),
        Case(B=1, V=256, P=0.7, SEED=15, BLOCK_V=256),  # one program
        Case(B=9, V=100, P=0.9, SEED=2**40 + 3, BLOCK_V=128),  # ragged
        Case(B=8, V=50, P=1.0, SEED=3, BLOCK_V=64),  # all are kept
        Case(B=8, V=40, P=0.05, SEED=11, BLOCK_V=64),  # hardly any token is kept besides the largest
        Case(B=9, V=33, P=0.6, SEED=5, BLOCK_V=256, fill={"logits": mostly_banned}),  # nearly all are banned
        Case(B=8, V=30, P=0.3, SEED=1, BLOCK_V=32, fill={"logits": few_values}),  # ties are kept together
        Case(B=12, V=12, P=0.7, SEED=9, BLOCK_V=16, fill={"logits": halving}),  # the second crosses P
        Case(B=12, V=12, P=0.75, SEED=2, BLOCK_V=16, fill={"logits": halving}),  # two reach P exactly
        Case(B=2, V=100, P=0.5, SEED=4, BLOCK_V=2048),  # a block whose pairs would be too many for a tile
    ),
    outputs=("token",),
    slips={
        "the token that crosses P is missing: it's kept if the sum before it is below P": _nothing_crosses,
        "a token is kept although the sum before it is P already: it must be below": (
            lambda logits, P, SEED: nucleus_token(logits, P * (1 + 2.0**-20), SEED)
        ),
        "P is compared as 1 - P here: a token is kept if the sum before it is below P": (
            lambda logits, P, SEED: nucleus_token(logits, 1 - P, SEED)
        ),
        "these are draws from all tokens: keep the likeliest, up to P": lambda logits, P, SEED: nucleus_token(
            logits, 1.0, SEED
        ),
        "the likeliest token always wins: is noise added, do the probabilities add up to 1, "
        "and is the threshold the smallest of those kept?": (lambda logits, P, SEED: logits.argmax(1).int()),
        "the token that crosses P is missing, even the likeliest: is its own probability in the sum, "
        "or is the threshold itself left out?": _with_itself,
        "tokens outside of the nucleus take part, with 0, or p is NaN: give them minus infinity, and "
        "subtract the maximum of the logits before exp": _zeros_take_part,
        "nothing is kept here, and then token 0 wins: compare P with a sum, not with one probability": (
            _none_kept
        ),
        "each row has its own seed here, a fair draw: but this puzzle takes tl.rand(SEED, b · V + n)": (
            lambda logits, P, SEED: torch.cat(
                [nucleus_token(logits[b : b + 1], P, SEED + b) for b in range(len(logits))]
            )
        ),
        "the noise is added to the probabilities: add it to the logits": _scored(
            lambda logits, noise: logits.softmax(1) + noise
        ),
        "the noise is added to sorted probabilities: add it to the logits, which aren't sorted": (
            _sorted_noise(lambda logits: logits.softmax(1))
        ),
        "the noise is added to a sorted block, so a lane's number isn't its token's: add it to the logits": (
            _sorted_noise(lambda logits: logits)
        ),
        "the noise has the wrong sign: it's -log(-log(u))": _scored(lambda logits, noise: logits - noise),
        "a logarithm is missing: the noise is -log(-log(u)), not -log(u)": _scored(
            lambda logits, noise: logits + torch.exp(-noise)
        ),
        "u's place is b · BLOCK_V + n here: it's b · V + n": _nucleus_rows_of_blocks,
        "these are the largest numbers, cut to integers: store their places": _largest_of_kept,
        "the first lanes are kept: sums of the sorted block say nothing about unsorted lanes": _by_lane,
        "a lane past the last token can win with a logit of 0: give it minus infinity": _zeros_are_likely,
        "all rows have the same noise: u is tl.rand(SEED, b · V + n)": lambda logits, P, SEED: torch.cat(
            [nucleus_token(logits[b : b + 1], P, SEED) for b in range(len(logits))]
        ),
    },
    hard={
        "u can be 0, and then its token never wins": (
            Case(B=1, V=33, P=1.0, SEED=74293844, BLOCK_V=64, fill={"logits": one_of_12})
        ),
        "SEED can be 0": Case(B=24, V=64, P=0.9, SEED=0, BLOCK_V=64),
        "the sum before a token can be just below P": (
            Case(B=24, V=3, P=0.5, SEED=6, BLOCK_V=4, fill={"logits": just_below_half})
        ),
        "two probabilities can be nearly the same, and only one of them kept": (
            Case(B=24, V=4, P=0.25, SEED=6, BLOCK_V=4, fill={"logits": second_a_little_less})
        ),
    },
    contract=Contract(
        {
            "V": Size(600),
            "B": Size(28),
            "P": (0.2, 0.8, 0.95),
            "SEED": (1, 2**31 - 1, 2**50 + 1),
            "BLOCK_V": lambda s: (triton.next_power_of_2(s.V),),
        },
        most_programs=28,
    ),
)

PUZZLES = (
    ROPE,
    PAGED_ATTENTION,
    MERGE_PARTS,
    GROUPED_MATMUL,
    SWIGLU_DOWN,
    SAMPLE_TOKEN,
    ROUTE,
    NUCLEUS_TOKEN,
    LINEAR_CROSS_ENTROPY,
    LINEAR_CROSS_ENTROPY_GRAD,
    MXFP4_MATMUL,
)
