"""A change between two kernels, made in a third one that is written otherwise."""

import ast
import contextlib
from collections import Counter

import pytest

from puzzles_lib import BATCHED_MATMUL, CONV2D
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import CHAPTERS, mistakes
from puzzles_lib.coach.transplant import NoPlace, transplanted
from puzzles_lib.mistakes import Mistake

SOURCE = """\
@triton.jit
def right_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    total = tl.zeros((1,), tl.float32)
    for i in range(3):
        total += tl.sum(x, axis=0)
    tl.store(z_ptr + offs, x + 10, mask=mask)
"""
OWN = """\
@triton.jit
def my_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK) + BLOCK * tl.program_id(0)  # mine
    value = tl.load(n + x_ptr, other=0.0, mask=N > n)
    acc = tl.zeros((1,), tl.float32)
    for turn in range(3):
        acc = acc + tl.sum(value, axis=0)
    tl.store(n + z_ptr, (10 + value), mask=n < N)
"""


def disguised(source: str) -> str:
    """Return the same kernel with other local names, without comments, spaced as `ast` does."""
    tree = ast.parse(source)
    kernel = [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1]
    names = [node for node in ast.walk(kernel) if isinstance(node, ast.Name)]
    local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    local -= {each.arg for each in kernel.args.args}
    for node in names:
        node.id = f"my_{node.id}" if node.id in local else node.id
    return ast.unparse(tree) + "\n"


@pytest.mark.parametrize(
    "old, new, line",
    [
        ("x + 10", "x - 10", "    tl.store(n + z_ptr, (value - 10), mask=n < N)"),
        (", other=0.0", "", "    value = tl.load(x_ptr + n, mask=n < N)"),
        ("range(3)", "range(2)", "    for turn in range(2):"),
        ("x = tl.load(", "x = 2 * tl.load(", "    value = 2 * tl.load(x_ptr + n, mask=n < N, other=0.0)"),
        ("    tl.store(", "    x = x * x\n    tl.store(", "    value = value * value"),
        ("N, BLOCK: ", "N, M, BLOCK: ", None),
    ],
)
def test_a_change_is_made_in_the_learners_words(old, new, line):
    if line is None:
        with pytest.raises(NoPlace):
            transplanted(SOURCE, SOURCE.replace(old, new), OWN)
        return
    made = transplanted(SOURCE, SOURCE.replace(old, new), OWN)
    assert line in made.splitlines() and "# mine" in made


def test_a_new_parameter_comes_along():
    wrong = SOURCE.replace("N, BLOCK: ", "N, M, BLOCK: ").replace("x + 10", "x + M")
    assert "def my_kernel(x_ptr, z_ptr, N, M, BLOCK: tl.constexpr)" in transplanted(SOURCE, wrong, OWN)


def test_a_line_goes():
    made = transplanted(SOURCE, SOURCE.replace("        total += tl.sum(x, axis=0)\n", "        pass\n"), OWN)
    assert "acc + tl.sum" not in made and "pass" in made


@pytest.mark.parametrize(
    "own",
    [
        "",
        "x = (",
        OWN.replace("10 + value", "9 + value + 1"),
        OWN + "    tl.store(z_ptr + n, value + 10, mask=n < N)\n",
        "def my_kernel(*a, **k):\n    global q\n    f = lambda: {**k}\n    return [*a]\n",
    ],
)
def test_what_has_no_clear_place_is_refused(own):
    with pytest.raises(NoPlace):
        transplanted(SOURCE, SOURCE.replace("x + 10", "x - 10"), own)


OTHERWISE = {  # written with other steps on the way, not only with other names
    ("layer_norm_dx", "mean_taken_for_constant", "rstd[:, None] * (g - xhat * b[:, None])"): """\
def mine(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, M, N, BLOCK_M, BLOCK_N):
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    mask = (r[:, None] < M) & (c[None, :] < N)
    offs = r.to(tl.int64)[:, None] * N + c[None, :]
    dy = tl.load(dy_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=c < N, other=0.0)
    mean = tl.load(mean_ptr + r, mask=r < M)
    rstd = tl.load(rstd_ptr + r, mask=r < M)
    xhat = tl.where(mask, (x - mean[:, None]) * rstd[:, None], 0.0)
    g = dy * w[None, :]
    a = tl.sum(g, axis=1) / N
    b = tl.sum(g * xhat, axis=1) / N
    tl.store(dx_ptr + offs, rstd[:, None] * (g - a[:, None] - xhat * b[:, None]), mask=mask)
""",
    ("long_layer_norm", "mean_of_means", "frac = 1 / (n // BLOCK_N + 1)"): """\
def mine(x_ptr, mean_ptr, rstd_ptr, N, BLOCK_N):
    row = tl.program_id(0).to(tl.int64) * N
    n, mean, m2 = 0, 0.0, 0.0
    for start in range(0, N, BLOCK_N):
        c = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + row + c, mask=c < N, other=0.0)
        nb = tl.minimum(BLOCK_N, N - start)
        mb = tl.sum(x) / nb
        d = tl.where(c < N, x - mb, 0.0)
        delta = mb - mean
        nn = n + nb
        frac = nb / nn
        mean += delta * frac
        m2 += tl.sum(d * d) + delta * delta * n * frac
        n = nn
    tl.store(mean_ptr + tl.program_id(0), mean)
    tl.store(rstd_ptr + tl.program_id(0), tl.rsqrt(m2 / N + 1e-5))
""",
    ("linear_recurrence", "not_associative", "return next_a, x * next_a + next_x"): """\
def two_steps(a, x, next_a, next_x):
    return a * next_a, x * next_a + next_x
def mine(a_ptr, x_ptr, start_ptr, h_ptr, T, BLOCK_T):
    pass
""",
    (
        "attention_dq",
        "mask_as_a_factor",
        "p = tl.exp(scores - lse[:, None]) * (j[None, :] <= i[:, None])",
    ): """\
def mine(q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, dq_ptr, delta_ptr, T, D, BLOCK_Q, BLOCK_K):
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    lse = tl.load(lse_ptr + i, mask=i < T, other=0.0)
    for first in range(0, T, BLOCK_K):
        j = first + tl.arange(0, BLOCK_K)
        scores = tl.load(q_ptr + j[None, :])
        seen = j[None, :] <= i[:, None]
        p = tl.where(seen, tl.exp(scores - lse[:, None]), 0.0)
""",
    ("attention_dkv", "one_head_of_the_group", "first_head, end_head = (g * group, g * group + 1)"): """\
def mine(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, H, H_KV, T, D, BLOCK_Q, BLOCK_K):
    start, g = tl.program_id(0) * BLOCK_K, tl.program_id(1)
    group = H // H_KV
    first_head, end_head = g * group, (g + 1) * group
""",
}


@pytest.mark.parametrize("puzzle, mistake, line", OTHERWISE)
def test_a_change_is_made_in_a_kernel_that_takes_other_steps(puzzle, mistake, line):
    right = kernel_sources()[puzzle]
    every = [each for chapter in CHAPTERS for each in chapter.mistakes]
    (slip,) = [each for each in every if (each.puzzle.name, each.name) == (puzzle, mistake)]
    made = transplanted(right, slip.apply(right), OTHERWISE[puzzle, mistake, line])
    assert ast.unparse(ast.parse(line.removeprefix("return "))) in ast.unparse(ast.parse(made)), made


@pytest.mark.parametrize(
    "puzzle, mistake, edits, line",
    [
        (
            "paged_attention",
            "all_pages_of_the_part",
            {
                "end = tl.minimum((part + 1) * PART, tl.cdiv(length, PAGE))": (
                    "first = PART * part\n    last = min(tl.cdiv(length, PAGE), first + PART)"
                ),
                "range(part * PART, end)": "range(first, last)",
            },
            "last = (part + 1) * PART",
        ),
        (
            "route",
            "counts_itself",
            {
                "p = end + tl.cumsum(count) - count": "place = end + tl.cumsum(count, 0) - 1",
                "order_ptr + p,": "order_ptr + place,",
                "weight_ptr + p,": "weight_ptr + place,",
            },
            "place = end + tl.cumsum(count)",
        ),
        (
            "route",
            "counts_itself",
            {
                "count = mine.to(tl.int32)": "count = tl.where(mine, 1, 0)",
                "p = end + tl.cumsum(count) - count": "place = end + tl.cumsum(count, axis=0) - count",
                "order_ptr + p,": "order_ptr + place,",
                "weight_ptr + p,": "weight_ptr + place,",
            },
            "place = end + tl.cumsum(count)",
        ),
    ],
)
def test_a_change_is_made_in_a_kernel_that_has_another_formula(puzzle, mistake, edits, line):
    own = right = kernel_sources()[puzzle]
    for old, new in edits.items():
        assert old in own
        own = own.replace(old, new)
    every = [each for chapter in CHAPTERS for each in chapter.mistakes]
    (slip,) = [each for each in every if (each.puzzle.name, each.name) == (puzzle, mistake)]
    found = []
    for spelled in slip.spellings(right):
        with contextlib.suppress(NoPlace):
            found.append(transplanted(spelled, slip.apply(right), own))
    assert f" {line}\n" in found[0]


def test_every_other_formula_is_another_one():
    for slip in (each for chapter in CHAPTERS for each in chapter.mistakes if each.otherwise):
        first, *others = slip.spellings(kernel_sources()[slip.puzzle.name])
        assert others and first not in others


def test_a_form_that_is_there_twice_has_no_clear_place():
    own = OWN.replace("(10 + value)", "(10 + value) * (n + 10)").replace("other=0.0, ", "")
    with pytest.raises(NoPlace):
        transplanted(SOURCE, SOURCE.replace("x + 10", "x - 10"), own.replace("value = tl", "value = 2 * tl"))


def test_nearly_all_mistakes_can_be_made_in_a_kernel_with_other_names():
    """Those that change many lines can't. The few that differ from a renamed one have other new names.

    Of each puzzle's mistakes, every fourth is tried: they are listed by the line that they change.
    """
    sources = kernel_sources()
    by_puzzle: dict[str, list[Mistake]] = {}
    for each in (each for chapter in CHAPTERS for each in chapter.mistakes):
        by_puzzle.setdefault(each.puzzle.name, []).append(each)
    made = same = tried = 0
    for name, known in by_puzzle.items():
        right = sources[name]
        own = disguised(right)
        for each in known[::4]:
            tried += 1
            wrong = each.apply(right)
            with contextlib.suppress(NoPlace):
                found = transplanted(right, wrong, own)
                made += 1
                same += ast.unparse(ast.parse(found)) + "\n" == disguised(wrong)
    assert made > 0.95 * tried and same > 0.94 * tried, (made, same, tried)


class _Inlined(ast.NodeTransformer):
    """Writes a mask out wherever its name stands, if it's assigned once and no name in it twice."""

    def __init__(self, kernel: ast.FunctionDef):
        names = [node for node in ast.walk(kernel) if isinstance(node, ast.Name)]
        self.times = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
        self.values: dict[str, ast.expr] = {}

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        self.generic_visit(node)
        names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        calls = any(isinstance(each, ast.Call) for each in ast.walk(node.value))
        is_mask = any(isinstance(each, ast.Compare) for each in ast.walk(node.value)) and not calls
        target = node.targets[0]
        if is_mask and isinstance(target, ast.Name) and all(self.times[n] < 2 for n in names | {target.id}):
            self.values[target.id] = node.value
            return None
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        written = self.values.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return ast.parse(ast.unparse(written), mode="eval").body if written else node


class _AxesLast(ast.NodeTransformer):
    """Writes ``x[:, None] < M`` as ``(x < M)[:, None]``. numbers: the names of numbers."""

    def __init__(self, kernel: ast.FunctionDef):
        self.numbers = {each.arg for each in kernel.args.args}

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        right = node.comparators[0]
        if not isinstance(node.left, ast.Subscript) or ast.unparse(right) not in self.numbers:
            return node
        return ast.Subscript(ast.Compare(node.left.value, node.ops, [right]), node.left.slice, node.left.ctx)


def rewritten(source: str, way: type[ast.NodeTransformer]) -> str:
    tree = ast.parse(source)
    kernel = [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1]
    way(kernel).visit(kernel)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


@pytest.mark.parametrize("way", [_Inlined, _AxesLast])
def test_nearly_all_mistakes_can_be_made_in_a_kernel_with_other_masks(way):
    """Where the change is in a mask, the learner's has it in each place where it's written."""
    sources = kernel_sources()
    every = [each for chapter in CHAPTERS for each in chapter.mistakes]
    changed = {
        name for name, text in sources.items() if rewritten(text, way) != ast.unparse(ast.parse(text)) + "\n"
    }
    some = [each for each in every if each.puzzle.name in changed and "<" in "".join(each.edits)]
    assert len(some) > 50
    made = same = 0
    for each in some:
        right = sources[each.puzzle.name]
        own, wrong = (rewritten(text, way) for text in (right, each.apply(right)))
        with contextlib.suppress(NoPlace):
            found = transplanted(right, each.apply(right), disguised(own))
            made += 1
            same += ast.dump(ast.parse(rewritten(found, way))) == ast.dump(ast.parse(disguised(wrong)))
    assert made > 0.9 * len(some) and same > 0.8 * len(some), (made, same, len(some))


MASKS = {
    ("pair_difference", "mask_of_the_numbers"): (
        {"mask = offs < N": "", "mask=mask": "mask=offs < N"},
        ["2 * offs, mask=2 * offs < N)", "1, mask=2 * offs < N)", "second - first, mask=2 * offs < N)"],
    ),
    ("grouped_matmul", "masked_by_all_rows"): (
        {"is_row = p[:, None] < end": "is_row = (p < end)[:, None]"},
        ["is_row = p[:, None] < P"],
    ),
    ("grouped_matmul", "masked_by_all_rows "): (
        {"is_row = p[:, None] < end": "ok = p < end", "K * N, p, is_row": "K * N, p, ok[:, None]",
         "mask=is_row &": "mask=ok[:, None] &"},
        ["p, p[:, None] < P, n,", "mask=(p[:, None] < P) & (n"],
    ),
    ("mxfp4_matmul", "missing_scales_nan"): (
        {"w_scale = tl": "ws = tl", "w_scale,": "ws,", "is_n & is_g, other=127": "is_g & is_n, other=127"},
        ["ws = tl.load(w_scale_ptr + n[:, None] * (K // 32) + g, mask=is_n & is_g, other=255)"],
    ),
    ("mxfp4_matmul", "missing_scales_nan "): (  # another address, another mask, and no names
        {"w_scale = tl": "ws = tl", "w_scale,": "ws,",
         "w_scale_ptr + n[:, None] * (K // 32) + g, mask=is_n & is_g, other=127":
         "w_scale_ptr + (K >> 5) * n[:, None] + g, (g < (K >> 5)) & is_n, 127"},
        ["ws = tl.load(w_scale_ptr + (K >> 5) * n[:, None] + g, mask=(g < K >> 5) & is_n, other=255)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("puzzle, mistake", MASKS)
def test_a_mask_may_be_written_in_other_words(puzzle, mistake):
    edits, lines = MASKS[puzzle, mistake]
    own = right = kernel_sources()[puzzle]
    for old, new in edits.items():
        assert old in own
        own = own.replace(old, new)
    every = [each for chapter in CHAPTERS for each in chapter.mistakes]
    (slip,) = [each for each in every if (each.puzzle.name, each.name) == (puzzle, mistake.strip())]
    made = transplanted(right, slip.apply(right), own)
    changed = [line.strip() for line in made.splitlines() if line not in own.splitlines()]
    changed = [line for line in changed if not line.startswith("P, BLOCK_M")]
    assert len(changed) == len(lines)
    assert all(new in line for new, line in zip(lines, changed, strict=True)), changed


def test_a_load_at_another_address_gets_another_mask_if_it_is_the_only_one():
    wrong = SOURCE.replace(", other=0.0", "")
    load = "tl.load(x_ptr + n + n + 1, n < 9, 0.0)"
    own = OWN.replace("tl.load(n + x_ptr, other=0.0, mask=N > n)", load)
    assert load in own and "value = tl.load(x_ptr + n + n + 1, mask=n < 9)" in transplanted(
        SOURCE, wrong, own
    )
    with pytest.raises(NoPlace):
        transplanted(SOURCE, wrong, own.replace(load, f"{load} + {load}"))
    with pytest.raises(NoPlace):
        transplanted(SOURCE, wrong, own.replace("x_ptr", "y_ptr"))


def test_what_others_note_on_shared_nodes_is_not_copied(monkeypatch):
    """IPython's tracebacks note each node's parent, also that of the one ``ast.Load()``."""

    class Parent:
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    shared = ast.parse("x", mode="eval").body.ctx
    monkeypatch.setattr(shared, "parent", Parent(), raising=False)
    right = kernel_sources()["batched_matmul"]
    for each in (m for chapter in CHAPTERS for m in chapter.mistakes if m.puzzle.name == "batched_matmul"):
        with contextlib.suppress(NoPlace):
            transplanted(right, each.apply(right), disguised(right))


CONVOLUTIONS = {  # ordinary ways to write the loops and the mask of conv2d, by the line with the mistake
    "mask = (n * H + (i + a)) * W + (j + b) < N * H * W": """\
    for a in range(KH):
        for b in range(KW):
            mask = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=mask, other=0.0)
""",
    "mask=(n * H + (i + a)) * W + (j + b) < N * H * W, other=0.0)": """\
    for a in range(0, KH, 1):
        for b in range(KW):
            x = tl.load(x_ptr + n * H * W + (i + a) * W + (j + b),
                        mask=(n < N) & (i + a < H) & (j + b < W), other=0.0)
""",
    "mask = (n * H + row) * W + col < N * H * W": """\
    for kh in tl.range(KH):
        for kw in tl.static_range(0, KW):
            row = i + kh
            col = j + kw
            mask = (n < N) & (row < H) & (col < W)
            x = tl.load(x_ptr + (n * H + row) * W + col, mask=mask, other=0.0)
""",
    "mask = (n * H + y) * W + col < N * H * W": """\
    for kh in range(KH):
        for kw in range(KW):
            y, col = i + kh, kw + j
            inside = (y < H) & (W > col)
            mask = inside & (n < N)
            x = tl.load(x_ptr + (n * H + y) * W + col, mask=mask, other=0.0)
""",
}


@pytest.mark.parametrize("line", CONVOLUTIONS)
def test_a_loop_and_a_mask_may_be_written_in_other_ways(line):
    right = kernel_sources()["conv2d"]
    head = right[: right.index("    n, i, j =")] + "    n, i, j = offs_n[:, None, None], "
    own = f"{head}offs_h[None, :, None], offs_w[None, None, :]\n{CONVOLUTIONS[line]}"
    (slip,) = [each for each in mistakes(CONV2D) if each.name == "mask_by_the_offset"]
    made = transplanted(right, slip.apply(right), own)
    changed = set(made.splitlines()) - set(own.splitlines())
    assert [each.strip() for each in changed] == [line], made


PRODUCTS = (  # ordinary ways to add up the dots of batched_matmul, each with its accumulator
    ("tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)", "acc += tl.dot(x, y)"),
    ("tl.zeros([BLOCK_M, BLOCK_N], tl.float32)", "acc = acc + tl.dot(x, y)"),
    ("tl.zeros((BLOCK_M, BLOCK_N), tl.float32)", "acc = tl.dot(x, y) + acc"),
    ("tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)", "acc = tl.dot(x, y, acc=acc)"),
)


@pytest.mark.parametrize("zeros, dot", PRODUCTS)
def test_a_dot_may_be_added_in_other_ways(zeros, dot):
    right = kernel_sources()["batched_matmul"]
    own = right.replace("tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)", zeros)
    own = own.replace("acc = tl.dot(x, y, acc)", dot)
    (slip,) = [each for each in mistakes(BATCHED_MATMUL) if each.name == "half_accumulator"]
    made = transplanted(right, slip.apply(right), own)
    assert "tl.float32" not in made
    assert "acc = tl.dot(x, y, acc, out_dtype=tl.float16)" in made, made


def test_a_dot_is_found_where_the_tiles_are_loaded_in_another_way():
    right = kernel_sources()["batched_matmul"]
    own = right.replace("acc = tl.dot(x, y, acc)", "acc += tl.dot(x, y)")
    own = own.replace("x_rows + offs_k[None, :], mask", "x_rows, mask").replace(
        "        acc +=", "        x_rows += BLOCK_K\n        acc +="
    )
    (slip,) = [each for each in mistakes(BATCHED_MATMUL) if each.name == "half_accumulator"]
    made = transplanted(right, slip.apply(right), own)
    assert "        acc = tl.dot(x, y, acc, out_dtype=tl.float16)  #" in made, made
