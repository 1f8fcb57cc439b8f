"""Chapter 22's puzzles: their formulas are attention, rotations, experts and draws as torch has them."""

import json
import math
import re

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from puzzles_lib import check
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch22_language_model import pictures
from puzzles_lib.chapters.ch22_language_model.puzzles import (
    GROUPED_MATMUL,
    LINEAR_CROSS_ENTROPY,
    MERGE_PARTS,
    MXFP4_MATMUL,
    NUCLEUS_TOKEN,
    PAGED_ATTENTION,
    ROPE,
    ROUTE,
    SAMPLE_TOKEN,
    SWIGLU_DOWN,
    grouped_matmul,
    linear_cross_entropy,
    linear_cross_entropy_grad,
    merge_parts,
    mxfp4_matmul,
    nucleus_token,
    paged_attention,
    rope,
    route,
    sample_token,
    spread,
    swiglu_down,
)
from puzzles_lib.checker.expected import evaluate
from puzzles_lib.inputs import make_inputs
from puzzles_lib.source import define
from puzzles_lib.speaking.model import Sizes, angles
from tests.conftest import REPO


def cells(folder: str) -> list[dict]:
    return json.loads((REPO / folder / "22_language_model.ipynb").read_text())["cells"]


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_a_product_of_rotated_vectors_depends_on_the_distance_alone():
    cos, sin = (each.double() for each in angles(Sizes()))
    q, k = normal(1, 1, 32), normal(1, 1, 32).flip(2)

    def score(of_q: int, of_k: int) -> Tensor:
        at_q, at_k = (torch.tensor([place], dtype=torch.int32) for place in (of_q, of_k))
        return (rope(q, cos, sin, at_q) * rope(k, cos, sin, at_k)).sum()

    assert torch.allclose(score(7, 3), score(104, 100), atol=1e-5)
    assert torch.allclose(score(0, 0), (q * k).sum())
    assert not torch.allclose(score(7, 3), score(3, 7), atol=1e-2)


def test_parts_that_are_merged_are_attention_over_all_keys():
    texts, page = (70, 0, 33), 16
    q, k, v = normal(3, 4, 32), normal(12, page, 2, 32), normal(12, page, 2, 32).flip(0)
    fills = spread(12, page, *texts)
    table = fills["table"]((3, 5), torch.int32, torch.Generator().manual_seed(0))
    length = fills["length"]((3,), torch.int32, torch.Generator())
    o, lse = paged_attention(q, k, v, table, length, 2)
    z, total = merge_parts(o.flatten(0, 1), lse.flatten(0, 1))
    for b, keys in enumerate(texts):
        pages = table[b, : -(-keys // page)].long()
        of_k, of_v = (each[pages].flatten(0, 1)[:keys].transpose(0, 1) for each in (k, v))
        found = z.view(3, 4, 32)[b]
        if keys:
            told = scaled_dot_product_attention(q[b][:, None], of_k, of_v, enable_gqa=True)[:, 0]
            assert torch.allclose(found, told)
            scores = torch.einsum("hd,hjd->hj", q[b], of_k.repeat_interleave(2, 0)) / 32**0.5
            assert torch.allclose(total.view(3, 4)[b], scores.logsumexp(1))
        else:
            assert (found == 0).all() and (total.view(3, 4)[b] == -torch.inf).all()


def test_rows_go_to_their_experts():
    x, w = normal(9, 8), normal(4, 8, 5)
    start = torch.tensor([0, 2, 2, 8, 9], dtype=torch.int32)
    expert = torch.tensor([0, 0, 2, 2, 2, 2, 2, 2, 3])
    assert torch.allclose(grouped_matmul(x, w, start), torch.einsum("pk,pkn->pn", x, w[expert]))
    h = normal(9, 16)
    told = torch.einsum("pk,pkn->pn", silu(h[:, :8]) * h[:, 8:], w[expert])
    assert torch.allclose(swiglu_down(h, w, start), told)


def test_draws_are_as_frequent_as_the_softmax_says():
    logits = normal(7).expand(4000, 7)
    for heat in (0.5, 1.0):
        found = sample_token(logits, torch.full((4000,), heat).double(), 5).bincount(minlength=7) / 4000
        assert (found - (logits[0] / heat).softmax(0)).abs().max() < 0.025
    cold = sample_token(logits, torch.zeros(4000).double(), 5)
    assert (cold == logits[0].argmax()).all()


def test_the_loss_is_torchs_cross_entropy():
    h, w, label = normal(9, 8), normal(13, 8), torch.tensor([0, 12, -100, 5, 5, -100, 7, 1, 2])
    loss, lse = linear_cross_entropy(h, w, label)
    assert torch.allclose(loss, cross_entropy(h @ w.T, label, reduction="none"))
    assert torch.allclose(lse, (h @ w.T).logsumexp(1))


def test_the_gradients_are_autograds():
    h, w, label = normal(9, 8), normal(13, 8), torch.tensor([0, 12, -100, 5, 5, -100, 7, 1, 2])
    h, w = h.requires_grad_(), w.requires_grad_()
    cross_entropy(h @ w.T, label, reduction="sum").backward()
    with torch.no_grad():
        dh, dw = linear_cross_entropy_grad(h, w, label, (h @ w.T).logsumexp(1))
    assert torch.allclose(dh, h.grad) and torch.allclose(dw, w.grad)
    assert (dh[2] == 0).all()


def test_codes_and_scales_are_those_of_the_mx_formats():
    """All codes against the table of the OCP's Microscaling Formats (MX) specification 1.0."""
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    w = torch.arange(16, dtype=torch.uint8).view(1, 16) * 16 + torch.arange(15, -1, -1, dtype=torch.uint8)
    numbers = torch.tensor([table[code] for j in range(16) for code in (15 - j, j)]).double()
    x, one = torch.eye(32).double(), torch.full((32, 1), 127, dtype=torch.uint8)
    for scale in (1, 127, 254):
        z = mxfp4_matmul(x, one, w, torch.tensor([[scale]], dtype=torch.uint8))
        assert (z[:, 0] == numbers * 2.0 ** (scale - 127)).all()


def test_the_router_chooses_as_torch_does():
    logits = normal(50, 6)
    order, weight, start = route(logits)
    top, expert = logits.topk(2, dim=1)
    assert (order == expert.flatten().argsort(stable=True)).all()
    assert (start.diff() == expert.flatten().bincount(minlength=6)).all() and start[0] == 0
    of_all = logits.softmax(1).gather(1, expert)
    assert torch.allclose(weight, (of_all / of_all.sum(1, keepdim=True)).flatten()[order.long()])
    assert torch.allclose(weight, top.softmax(1).flatten()[order.long()])


@pytest.mark.parametrize(
    "puzzle, old, new, told",
    [
        (ROPE, "(t * H + h)", "(t + h)", "differ by D = 32 elements, but z[1, ...] is H · D = 256 elements"),
        (GROUPED_MATMUL, "tl.where(begin < end, tl.cdiv(K, BLOCK_K), 0)", "tl.cdiv(K, BLOCK_K)",
         "program (0, 0, 1) stores nothing, but loads w_ptr here"),
        (ROUTE, "tl.where(t < T, below, 0)", "below", "lanes with t >= T are counted, too"),
        (ROUTE, "tl.cumsum(count) - count", "tl.cumsum(count)", "every choice is one place too far"),
        (ROUTE, " + (second < e).to(tl.int32)", "", "only first choices are counted below e"),
        (ROUTE, "(first < e).to(tl.int32) + (second < e)", "(first <= e).to(tl.int32) + (second <= e)",
         "expert e's own choices are counted before its places"),
        (ROUTE, "(first < e)", "(first <= e)", "expert e's own first choices are counted before its places"),
        (ROUTE, "end += tl.sum(count)", "end += BLOCK_T", "end grows by BLOCK_T with each block here"),
        (ROPE, "a * c[None, :] - b * s[None, :]",
         "(a * c[None, :]).to(tl.bfloat16) - (b * s[None, :]).to(tl.bfloat16)",
         "is a value on the way rounded to bfloat16?"),
        (GROUPED_MATMUL, "< end\n", "< end + 1\n",
         "compare the rows with start[e + 1] in the mask, with < instead of <="),
        (GROUPED_MATMUL, "tl.cdiv(K, BLOCK_K), 0)", "K, 0)", "a loop run more often than it has blocks?"),
        (SWIGLU_DOWN, "is_row & (k[None, :] < K)", "is_row", "compare the columns of each half with K"),
        (SWIGLU_DOWN, "h_mask = is_row & (k", "h_mask = (k", "compare the rows with start[e + 1] in"),
        (SWIGLU_DOWN, "/ (1 + tl.exp(-gate)) * up", "/ (1 + tl.exp(-gate)) + up", "from silu(gate) + up"),
        (SWIGLU_DOWN, "/ (1 + tl.exp(-gate)) * up", "+ up", "from gate + up: x is silu(gate) · up"),
        (SWIGLU_DOWN, "gate / (1 + tl.exp(-gate)) *", "tl.maximum(gate, 0.0) *", "from relu(gate) · up"),
        (SWIGLU_DOWN, "at + K", "at + 1", "up is taken 1 element after the gate here"),
        (PAGED_ATTENTION, "slot < length", "slot <= length", "one key too many"),
        (PAGED_ATTENTION, "tl.num_programs(0) + part", "(W // PART) + part",
         "the rows of your tile are 32 elements apart, but the strides of o are 96, 48 and 16"),
        (MERGE_PARTS, "top + tl.log(denominator)", "denominator", "total is only the sum of exp("),
        (MERGE_PARTS, "top + tl.log(denominator)", "top + denominator", "total lacks the logarithm"),
        (MERGE_PARTS, "top + tl.log(denominator)", "tl.exp(top) * denominator", "total is the denominator"),
        (MERGE_PARTS, "(r * S + s)[:, None] * D", "(r * D + s)[:, None] * S", "it begins at (r · S + s) · D"),
        (MERGE_PARTS, 'other=float("-inf")', "other=0.0", 'load lse with other=float("-inf")'),
        (SAMPLE_TOKEN, "logits_ptr + b * V", "logits_ptr + b * BLOCK_V", "it begins at b · V"),
        (SAMPLE_TOKEN, "tl.rand(", "tl.randn(", "or the log of a negative number?"),
        (NUCLEUS_TOKEN, 'noisy, float("-inf"))', "noisy, 0.0)", "outside of the nucleus take part, with 0"),
        (NUCLEUS_TOKEN, "tl.min(tl.where(before < P, falling, 1.0", "tl.max(tl.where(before < P, falling, 0",
         "and is the threshold the smallest of those kept?"),
        (ROUTE, "begin += tl.sum", "begin = tl.sum", "start[e] has only the last block's count here"),
        (ROUTE, "p = end + ", "p = begin + ", "each block of tokens begins at start[e] here"),
        (ROUTE, "mine = (t < T) & ", "mine = ", "lanes with t >= T are placed, too"),
        (ROUTE, "(t < T) & (", "(t < 2 * T) & (", "lanes with t >= T are placed, too"),
        (ROUTE, "tl.where(first == e, weight, 1 - weight)", "tl.where(first == e, best, next_best)",
         "these are the logits: weights are the softmax"),
        (MXFP4_MATMUL, "start // 32 +", "start +", "the columns of both scales are too far on"),
        (MXFP4_MATMUL, "start // 32 +", "", "every block has the first block's scales"),
        (ROPE, "    tl.store(z_ptr + first, a * c[None, :] - b * s[None, :], mask=mask)",
         "    a = a * c[None, :] - b * s[None, :]\n    tl.store(z_ptr + first, a, mask=mask)",
         "b's line takes the new a here"),
        (ROPE, "a * c[None, :] - b * s[None, :]", "b * s[None, :] - a * c[None, :]",
         "the first half has the wrong sign"),
        (ROPE, "b * c[None, :] + a * s", "-b * c[None, :] - a * s", "the second half has the wrong sign"),
        (ROPE, "b * c[None, :] + a * s", "b * c[None, :] - a * s", "the second half has a minus, too"),
        (ROPE, "a * c[None, :] - b * s", "a * c[None, :] + b * s", "the first half has a plus, too"),
        (PAGED_ATTENTION, "* D**-0.5", "/ D", "the scores are divided by D here"),
        (PAGED_ATTENTION, "number * PAGE + slot <", "(number - part * PART) * PAGE + slot <",
         "the slots are counted from the part's first page"),
        (SWIGLU_DOWN, "/ (1 + tl.exp(-gate)) * up",
         "/ (1 + tl.exp(-gate)) * up.to(tl.float32) / (1 + tl.exp(-up.to(tl.float32)))",
         "with silu of up, too"),
        (SAMPLE_TOKEN, "    noisy = logits / heat - tl.log(-tl.log(u))\n", """\
    hot = logits / tl.where(heat > 0, heat, 1.0)
    p = tl.exp(hot - tl.max(hot, axis=0))
    sums = tl.cumsum(p) / tl.sum(p)
    noisy = (sums > tl.rand(SEED, b)).to(tl.float32)
""", "each row has one u, tl.rand(SEED, b), a fair draw"),
        (LINEAR_CROSS_ENTROPY, "tl.full((BLOCK_T,), -1e30, tl.float32)", "tl.zeros((BLOCK_T,), tl.float32)",
         "this is the log of 0: row_max begins at 0"),
        (LINEAR_CROSS_ENTROPY, "label[:, None], logit, 0.0)", "label[:, None], tl.exp(logit), 0.0)",
         "exp of the label's logit is subtracted here"),
    ],
)  # fmt: skip
def test_a_report_names_the_cause(puzzle, old, new, told):
    right = kernel_sources()[puzzle.name]
    assert old in right
    report = str(check(define(right.replace(old, new), "<wrong>"), puzzle))
    assert told in report
    assert "do their offsets depend" not in report and "only as often" not in report


def test_a_route_without_any_mask_of_tokens_is_named():
    right = kernel_sources()["route"]
    wrong = right.replace("mine = (t < T) & ", "mine = ").replace("tl.where(t < T, below, 0)", "below")
    assert "lanes with t >= T are counted, too" in str(check(define(wrong, "<wrong>"), ROUTE))


def test_minus_infinity_may_be_the_log_of_0():
    """In a puzzle with a log, the report doesn't blame a correct tl.where."""
    right = kernel_sources()["merge_parts"]
    wrong = right.replace("top + tl.log(denominator)", "top + tl.log(denominator * 0)")
    report = str(check(define(wrong, "<wrong>"), MERGE_PARTS))
    assert "is this the log of 0" in report and "where does a load or tl.where" not in report


def test_the_loss_with_a_logit_of_0_is_the_one_in_the_text():
    case = LINEAR_CROSS_ENTROPY.cases[5]
    inputs = make_inputs(LINEAR_CROSS_ENTROPY, case)
    loss, lse = (float(each[0]) for each in evaluate(LINEAR_CROSS_ENTROPY, case, inputs).values())
    right = kernel_sources()["linear_cross_entropy"]
    wrong = right.replace('logit, float("-inf"))', "logit, 0.0)")
    report = check(define(wrong, "<wrong>"), LINEAR_CROSS_ENTROPY).listed[5]
    assert f"is {loss - lse + math.log(15):.6g}, but should be" in str(report.verdict.message)
    (text,) = [each["source"] for each in cells("solutions") if each["id"] == "p72-wrong-told"]
    for number in (loss, -lse, lse - loss, loss - lse + math.log(15)):
        assert f"{abs(number):.1f}" in "".join(text)


def test_bytes_stop_in_the_ratio_of_their_weights():
    alt = pictures.waits().alt
    for part in re.findall(r"(\d+) and (\d+)", alt)[:6]:
        first, second = map(int, part)
        assert 0.69 < first / (first + second) < 0.81
    assert "drawn in 74.6%" in alt


@pytest.mark.parametrize("puzzle", [SAMPLE_TOKEN, NUCLEUS_TOKEN])
def test_the_first_case_tells_the_slips_apart(puzzle):
    case = puzzle.cases[0]
    inputs = make_inputs(puzzle, case)
    right, *slips = (
        tuple(evaluate(puzzle, case, inputs, spec)["token"].tolist())
        for spec in (None, *puzzle.slips.values())
    )
    wrong = [each for each in slips if each != right]
    assert len(set(wrong)) == len(wrong) >= 6


def test_the_nucleus_is_as_small_as_can_be():
    logits = normal(7).expand(4000, 7)
    p, place = logits[0].softmax(0).sort(descending=True)
    for limit in (0.3, 0.75, 1.0):
        count = int((p.cumsum(0) < limit).sum()) + 1  # the fewest that reach it
        found = nucleus_token(logits, limit, 3).bincount(minlength=7)[place] / 4000
        told = torch.where(torch.arange(7) < count, p, 0)[:7]
        assert (found[count:] == 0).all()
        assert (found - told / told.sum()).abs().max() < 0.025


def test_a_case_without_fills_counts_all_it_might_need():
    """A learner's own case has no fills."""
    for puzzle, names in ((PAGED_ATTENTION, ("k", "v")), (GROUPED_MATMUL, ("w",))):
        case = puzzle.cases[1]
        bare = type(case)(fill=None, salt="", pretend=False, **case.numbers)
        for name in names:
            assert puzzle.needed[name](bare) >= puzzle.needed[name](case) > 0


def test_the_speeds_are_those_recorded():
    rates = pictures.decoding()
    assert list(rates) == [1, 16]
    text = pictures.speeds().alt
    for found in rates.values():
        assert found["floor"] == max(found.values())  # a step reads these bytes, and more
        assert found["kernels, CUDA graph"] > found["torch, compiled, CUDA graph"] > found["torch, eager"]
        for name, (words, _) in pictures.PATHS.items():
            assert f"{words} {found[name]:.0f}" in text
