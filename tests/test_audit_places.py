"""`audit` says which launch and line stored a wrong element, and what to change."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit
from puzzles_lib.auditor.command import main
from puzzles_lib.auditor.report import AuditReport, Finding

QUICK = Guard(sizes=False)

PURPOSE = "; if that's on purpose, pass guard=Guard(unwritten=('Z',))"


@triton.jit
def double_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n)
    tl.store(Z + i, x * 2, mask=i < n)


@triton.jit
def bump_kernel(Z, n, at, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(Z + i, mask=i < n)
    tl.store(Z + i, z, mask=i < n)
    tl.debug_barrier()
    if at >= 0:
        tl.store(Z + at, 77.0)


def doubled(x, at=-1, programs=0, block=32):
    z = torch.empty_like(x)
    n = x.numel()
    double_kernel[(programs or triton.cdiv(n, block),)](x, z, n, BLOCK=block)
    if at >= 0:
        bump_kernel[(1,)](z, n, at, BLOCK=128)
    return z


def reference(x, **_):
    return 2 * x


def only(report: AuditReport) -> Finding:
    (finding,) = report.findings
    return finding


def test_wrong_values_name_the_launch_and_the_line_that_stored_the_first():
    finding = only(audit(doubled, torch.ones(100), at=70, like=reference, guard=QUICK))
    assert finding.verdict.message == (
        "1 of 100 elements of the result is wrong: [70] is 77, but should be 2 (off by 75, allowed 8.7e-06)"
    )
    assert (finding.kernel, finding.launch) == ("bump_kernel", 1)
    assert finding.verdict.site.source == "tl.store(Z + at, 77.0)"
    assert finding.place.source.startswith("bump_kernel[(1,)]")


def test_wrong_values_that_torch_computes_name_the_kernels_whose_results_it_takes():
    def halves(x):
        z = doubled(x)
        return torch.cat([z[50:], z[:50]]).to(torch.float16), x.exp()

    def thrice(x):
        return 3 * torch.cat([x[50:], x[:50]]), x.exp()

    finding = only(audit(halves, torch.ones(100), like=thrice, guard=QUICK))
    told = "it comes from what double_kernel stores; the last operator is torch's to"
    assert (finding.verdict.diagnosis, finding.kernel, finding.verdict.site) == (told, "", None)

    def twice(x):
        first, second = doubled(x), doubled(x, at=70)
        first.mul_(2)
        first.add_(second)
        second.fill_(0)
        return first + 0 * x, second

    told = "it comes from what double_kernel and bump_kernel store; the last operator is torch's add"
    assert (
        only(audit(twice, torch.ones(100), like=lambda x: (6 * x, 0 * x), guard=QUICK)).verdict.diagnosis
        == told
    )

    def right_but_for_zeros(x):
        return torch.where(torch.arange(100) == 70, 81 * x, 6 * x), x

    found = only(audit(twice, torch.ones(100), like=right_but_for_zeros, guard=QUICK))
    assert "comes from" not in found.verdict.diagnosis

    def apart(x):
        doubled(x)
        return x.exp()

    found = only(audit(apart, torch.ones(100), like=torch.sin, guard=QUICK))
    assert "comes from" not in found.verdict.diagnosis


def test_other_elements_are_the_first_launch_s():
    finding = only(audit(lambda x: doubled(x), torch.ones(100), like=lambda x: 3 * x, guard=QUICK))
    assert (finding.kernel, finding.launch) == ("double_kernel", 0)
    assert finding.verdict.site.source == "tl.store(Z + i, x * 2, mask=i < n)"


def test_a_view_of_a_transposed_result_is_found():
    def turned(x):
        z = torch.empty(5, 20).t()
        double_kernel[(4,)](x, z, 100, BLOCK=32)
        return z[3:]

    finding = only(
        audit(
            turned,
            torch.ones(100),
            like=lambda x: torch.ones(17, 5),
            guard=Guard(sizes=False, bounds="storage"),
        )
    )
    assert finding.verdict.site.source == "tl.store(Z + i, x * 2, mask=i < n)"


def test_what_torch_changes_afterwards_is_no_kernel_s():
    def changed(x):
        return doubled(x).add_(1)

    finding = only(audit(changed, torch.ones(100), like=reference, guard=QUICK))
    assert finding.kernel == "" and finding.verdict.site is None


def test_wrong_values_with_the_users_own_transposed_input_have_a_line_and_the_strides():
    def flat(x):
        z = torch.empty(x.shape)
        double_kernel[(4,)](x, z, 100, BLOCK=32)
        return z

    finding = only(audit(flat, torch.randn(20, 5).t(), like=reference, guard=QUICK))
    assert finding.verdict.site.source == "tl.store(Z + i, x * 2, mask=i < n)"
    assert "X (1, 5) (shape (5, 20))" in finding.verdict.diagnosis


def test_a_grid_that_is_too_small_is_told():
    finding = only(audit(doubled, torch.ones(150), programs=4, guard=QUICK))
    assert finding.verdict.kind == "never written" and finding.kernel == "double_kernel"
    assert finding.verdict.diagnosis.removesuffix(PURPOSE) == (
        "the grid has 4 programs, and each stores 32 elements: "
        "150 elements need triton.cdiv(150, 32) = 5 programs"
    )


@triton.jit
def scale_kernel(X, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)


def test_elements_in_place_that_no_program_stores_are_named_with_the_launch_and_its_grid():
    def scaled(x):
        scale_kernel[(x.numel() // 32,)](x, x.numel(), BLOCK=32)

    for function in (scaled, lambda x: (z := x.clone(), scaled(z))[0]):
        finding = only(audit(function, torch.ones(100), like=lambda x: x.mul_(2), guard=QUICK))
        assert finding.kernel == "scale_kernel" and finding.place.source.startswith("scale_kernel[(x.numel()")
        assert finding.verdict.message.startswith(
            "4 of 100 elements of the result are wrong. The first, [96]"
        )
        assert finding.verdict.diagnosis.removesuffix(PURPOSE) == (
            "no program stores [96] to [99]; the grid has 3 programs, and each stores 32 elements: "
            "100 elements need triton.cdiv(100, 32) = 4 programs"
        )


def test_elements_that_nothing_must_store_are_no_fault_of_the_grid():
    """The first 64 elements are doubled; the last 36 stay as they are. The reference changes one of them."""

    def scaled(x):
        scale_kernel[(2,)](x, 64, BLOCK=32)

    def like(x):
        x[:64] *= 2
        x[70] = 9

    finding = only(audit(scaled, torch.ones(100), like=like, guard=QUICK))
    assert finding.verdict.diagnosis == "no program stores [70]"


def test_what_torch_stores_is_not_left_out():
    def scaled(x):
        scale_kernel[(3,)](x, x.numel(), BLOCK=32)
        x[96:] += 2

    finding = only(audit(scaled, torch.ones(100), like=lambda x: x.mul_(2), guard=QUICK))
    told = "it comes from what scale_kernel stores; the last operator is torch's copy_"
    assert "[96]" in finding.verdict.message and finding.verdict.diagnosis == told


def test_elements_that_no_program_stores_are_counted_beside_wrong_ones():
    def wrong(x):
        scale_kernel[(3,)](x, x.numel(), BLOCK=32)
        bump_kernel[(1,)](x, 96, 10, BLOCK=128)

    finding = only(audit(wrong, torch.ones(100), like=lambda x: x.mul_(2), guard=QUICK))
    assert finding.verdict.site.source == "tl.store(Z + at, 77.0)" and finding.kernel == "bump_kernel"
    assert finding.verdict.diagnosis.startswith("no program stores 4 of them, [96] to [99]")


@triton.jit
def box_kernel(X, Z, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    offsets = rows[:, None] * N + columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(Z + offsets, tl.load(X + offsets, mask=mask), mask=mask)


def test_rows_and_columns_that_no_program_stores_are_counted_on_their_axis_of_the_grid():
    def tiled(x, floors=0):
        z = torch.empty_like(x)
        m, n = x.shape
        grid = m // 16 if floors == 1 else triton.cdiv(m, 16), n // 8 if floors == 2 else triton.cdiv(n, 8)
        box_kernel[grid](x, z, m, n, BM=16, BN=8)
        return z

    assert audit(tiled, torch.ones(40, 20), guard=QUICK).ok
    for floors, axis, count, each, unit, size, need in (
        (1, 0, 2, 16, "rows", 40, 3),
        (2, 1, 2, 8, "columns", 20, 3),
    ):
        finding = only(audit(tiled, torch.ones(40, 20), floors=floors, guard=QUICK))
        assert finding.verdict.diagnosis.removesuffix(PURPOSE) == (
            f"the grid has {count} programs along axis {axis}, and each stores {each} {unit}: "
            f"{size} {unit} need triton.cdiv({size}, {each}) = {need} programs"
        )


def test_a_grid_with_one_program_per_row_and_a_row_too_many():
    def rows(x):
        z = torch.empty_like(x)
        box_kernel[(x.shape[0] - 1, 1)](x, z, *x.shape, BM=1, BN=32)
        return z

    finding = only(audit(rows, torch.ones(5, 20), guard=QUICK))
    assert "has 4 programs along axis 0, and each stores 1 row: 5 rows need" in finding.verdict.diagnosis


@triton.jit
def persistent_kernel(X, Z, n, tiles, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    count = n // BLOCK
    if tiles:
        count = tiles
    for tile in range(tl.program_id(0), count, PROGRAMS):
        i = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(Z + i, tl.load(X + i, mask=i < n), mask=i < n)


def test_a_count_of_blocks_that_is_rounded_down_in_the_kernel_is_named_or_asked_for():
    def copied(x, tiles=0):
        z = torch.empty_like(x)
        persistent_kernel[(4,)](x, z, x.numel(), tiles, PROGRAMS=4, BLOCK=32)
        return z

    finding = only(audit(copied, torch.ones(300), guard=QUICK))
    line = persistent_kernel.fn.__code__.co_firstlineno + 2
    why = f"n // BLOCK in line {line} rounds down to 9, and 9 blocks have 288 elements"
    assert finding.verdict.diagnosis.removesuffix(PURPOSE) == f"{why}: tl.cdiv(n, BLOCK) rounds up"
    finding = only(audit(copied, torch.ones(300), tiles=8, guard=QUICK))
    assert "is a count of blocks rounded down?" in finding.verdict.diagnosis


def test_a_gap_in_the_middle_is_no_fault_of_the_grid():
    def gap(x):
        z = torch.empty(100)
        double_kernel[(1,)](x, z, 32, BLOCK=32)
        double_kernel[(1,)](x, z[68:], 32, BLOCK=32)
        return z

    finding = only(audit(gap, torch.ones(32), guard=QUICK))
    assert finding.verdict.diagnosis.removesuffix(PURPOSE) == "they contain what torch.empty found in memory"


@triton.jit
def bare_kernel(X, Z, n_elements, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + offs, tl.load(X + offs) * 2, mask=offs < n_elements)


def test_a_vector_without_a_mask_is_told_the_mask():
    def bare(x):
        z = torch.empty_like(x)
        bare_kernel[(4,)](x, z, x.numel(), BLOCK=32)
        return z

    finding = only(audit(bare, torch.ones(10, 10), guard=QUICK))
    assert finding.verdict.diagnosis == "X has n_elements = 100 elements: add mask=offs < n_elements"


@triton.jit
def tile_kernel(X, Z, M, N, stride, EVEN_M: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    if EVEN_M:
        mask = (rows[:, None] >= 0) & (cols[None, :] < N)
        tl.store(Z + rows[:, None] * stride + cols[None, :], 1.0, mask=mask)
    else:
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(Z + rows[:, None] * stride + cols[None, :], 1.0, mask=mask)


def tiles(x, even=True):
    z = torch.empty_like(x)
    M, N = x.shape
    tile_kernel[(triton.cdiv(M, 16),)](x, z, M, N, z.stride(0), EVEN_M=even, BM=16, BN=32)
    return z


def test_an_axis_that_a_mask_leaves_out_is_named_and_the_constant_that_lets_it():
    assert audit(tiles, torch.ones(20, 30), even=False, guard=QUICK).ok
    finding = only(audit(tiles, torch.ones(20, 30), guard=QUICK))
    assert finding.verdict.diagnosis == (
        "lanes for rows 20 to 31 are on, but Z has M = 20 rows: compare the rows with M in the mask; "
        "this line runs because EVEN_M is True in this launch"
    )


def too_many_tiles(x):
    z = torch.empty_like(x)
    M, N = x.shape
    tile_kernel[(4,)](x, z, M, N, z.stride(0), EVEN_M=True, BM=16, BN=32)
    return z


def test_a_program_without_an_element_is_a_reason_to_doubt_the_grid_first():
    finding = only(audit(too_many_tiles, torch.ones(32, 30), guard=QUICK))
    assert finding.verdict.diagnosis.startswith(
        "lanes for rows 32 to 47 are on, but Z has M = 32 rows; this program has no element at all, so check "
        "the grid and the order of the arguments. If they're right, compare the rows with M in the mask"
    )


@triton.jit
def rows_kernel(X, Z, stride_x, stride_z, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(Z + row * stride_z + c, tl.load(X + row * stride_x + c, mask=c < N), mask=c < N)


def test_the_strides_of_another_tensor_are_told():
    def copied(x):
        z = torch.empty(x.shape)
        rows_kernel[(x.shape[0],)](x, z, x.stride(0), x.stride(0), x.shape[1], BLOCK=32)
        return z

    finding = only(audit(copied, torch.ones(5, 40)[:, :32], guard=QUICK))
    assert finding.verdict.diagnosis.startswith(
        "strides: X (40, 1), Z (32, 1): does the kernel use those of X for Z?"
    )


@triton.jit
def sum_kernel(P, Z, rows, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(P + row * N + c, mask=c < N, other=0.0)
    tl.store(Z + c, total, mask=c < N)


def test_the_first_element_that_is_read_and_never_written_is_named():
    def summed(x):
        parts, z = torch.empty(4, 30), torch.empty(30)
        tile_kernel[(1,)](x, parts, 3, 30, 30, EVEN_M=False, BM=16, BN=32)
        sum_kernel[(1,)](parts, z, 4, 30, BLOCK=32)
        return z

    finding = only(audit(summed, torch.ones(3, 30), guard=QUICK))
    assert finding.verdict.message.startswith("P[3, 0] is read before anything is stored there")
    assert finding.verdict.diagnosis.endswith("if not, read only what earlier launches store")


def helped(x, z):
    double_kernel[(triton.cdiv(x.numel(), 32),)](
        x,
        z,
        x.numel() + 1,
        BLOCK=32,
    )
    return z


def test_a_launch_over_several_lines_is_shown_whole_with_what_calls_its_helper():
    def wrapper(x):
        return helped(x, torch.empty_like(x))

    report = audit(wrapper, torch.ones(100), guard=QUICK)
    *_, launched, called = only(report).lines()
    assert launched.endswith("double_kernel[(triton.cdiv(x.numel(), 32),)]( x, z, x.numel() + 1, BLOCK=32, )")
    assert called.startswith("called at ") and called.endswith(": return helped(x, torch.empty_like(x))")
    assert repr(report.launches[0]) == "<double_kernel[4]: FINDING>"
    assert "tensor(" not in repr(report.launches[0].launch)


def test_a_wrong_argument_of_the_command_shows_no_frame_of_the_library(tmp_path, monkeypatch, capsys):
    (tmp_path / "wrongly.py").write_text("def f(x): pass\ndef g(): return 1, 2\ndef h(x): int('a')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["wrongly:f", "--inputs", "wrongly:g"]) == 2
    assert capsys.readouterr().err.startswith("python -m puzzles_lib.audit: TypeError: f() takes 1")
    (tmp_path / "wrongly2.py").write_text("def g(): return 1\ndef h(x):\n    int('a')\n")
    assert main(["wrongly2:h", "--inputs", "wrongly2:g"]) == 2
    told = capsys.readouterr().err
    assert "wrongly2.py" in told and "auditor" not in told.replace("puzzles_lib.audit:", "")


@triton.jit
def moved_kernel(X, Z, n, step, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:
        tl.store(Z + i, tl.load(X + i + step, mask=i < n, other=0.0), mask=i < n)
    else:
        tl.store(Z + i, tl.load(X + (i + step)), mask=i < n)


def moved(x, step, masked=True):
    z = torch.empty_like(x)
    moved_kernel[(triton.cdiv(x.numel(), 32),)](x, z, x.numel(), step, MASKED=masked, BLOCK=32)
    return z


def test_a_mask_that_compares_something_else_is_not_told_to_be_added():
    past, before = (
        only(audit(moved, torch.ones(96), step, guard=QUICK)).verdict.diagnosis for step in (8, -8)
    )
    told = (
        "X has n = 96 elements, but the mask lets offsets {} through: compare the offsets themselves with {}"
    )
    assert past.startswith(told.format("from n on", "n"))
    assert before.startswith(told.format("below 0", "0"))
    unmasked = only(audit(moved, torch.ones(96), -8, masked=False, guard=QUICK)).verdict.diagnosis
    assert unmasked == "X has n = 96 elements: add mask=(i + step) >= 0"
    assert past.endswith("; this line runs because MASKED is True in this launch")


@triton.jit
def flat_kernel(X, Z, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i))


@triton.jit
def row_kernel(X, Z, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i))


def test_a_row_without_a_mask_is_told_its_columns_and_a_flat_block_is_not():
    def flat(x):
        z = torch.empty_like(x)
        flat_kernel[(4,)](x, z, BLOCK=32)
        return z

    def rows(x):
        z = torch.empty_like(x)
        row_kernel[(len(x),)](x, z, x.shape[1], BLOCK=32)
        return z

    assert only(audit(flat, torch.ones(5, 20), guard=QUICK)).verdict.diagnosis.startswith("mask the lanes")
    assert only(audit(rows, torch.ones(5, 20), guard=QUICK)).verdict.diagnosis == (
        "lanes for columns 20 to 31 are on, but X has N = 20 columns: compare the columns with N in the mask"
    )


def test_one_row_is_not_plural():
    finding = only(audit(tiles, torch.ones(1, 30), guard=QUICK))
    assert "lanes for rows 1 to 15 are on, but Z has M = 1 row: compare" in finding.verdict.diagnosis


@triton.jit
def careless_kernel(X, Z, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    e = tl.exp(tl.load(X + c, mask=c < N, other=-float("inf")))
    p = e / tl.sum(e, 0)
    tl.store(Z + c, p, mask=c < N)


def test_the_line_that_makes_a_nan_is_named():
    def careless(x):
        z = torch.empty_like(x)
        careless_kernel[(1,)](x, z, len(x), BLOCK=32)
        return z

    x = torch.tensor([200.0, 1.0, 2.0])
    finding = only(audit(careless, x, like=lambda x: torch.softmax(x, -1), guard=QUICK))
    assert finding.verdict.site.source == "tl.store(Z + c, p, mask=c < N)"
    line = finding.verdict.site.line - 1
    assert finding.verdict.diagnosis == (
        f"the NaN is made in line {line}, by inf / inf, and the inf comes from an exp that overflows"
    )


@triton.jit
def turned_kernel(X, Z, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    on = (rows < M) & (cols < N)
    tl.store(Z + cols * M + rows, tl.load(X + rows * N + cols, mask=on), mask=on)


def test_a_mask_that_leaves_elements_out_is_named_with_its_numbers():
    def turned(x):
        z = torch.empty(x.shape[1], x.shape[0])
        grid = triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 32)
        turned_kernel[grid](x, z, x.shape[1], x.shape[0], BM=16, BN=32)
        return z

    finding = audit(turned, torch.randn(70, 40), guard=QUICK).findings[0]
    assert finding.verdict.kind == "never written"
    assert "rounded down" not in finding.verdict.diagnosis

    def doubled(x):
        z = torch.empty_like(x)
        double_kernel[(1,)](x, z, len(x), BLOCK=512)
        return z

    finding = only(audit(doubled, torch.randn(10, 33), guard=QUICK))
    assert finding.verdict.diagnosis.startswith("a mask compares with n = 10, but Z has 330 elements; if ")

    def first_row(x):
        z = torch.empty_like(x)
        double_kernel[(1,)](x, z, x.shape[1], BLOCK=64)
        return z

    finding = only(audit(first_row, torch.randn(10, 33), guard=QUICK))
    assert "a mask compares" not in finding.verdict.diagnosis


@triton.jit
def few_columns_kernel(X, Z, M, N, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), M, PROGRAMS):
        tl.store(Z + row * N + cols, tl.load(X + row * N + cols, mask=cols < N), mask=cols < N)


def test_a_block_that_is_smaller_than_a_row_is_named():
    def copied(x):
        z = torch.empty_like(x)
        few_columns_kernel[(2,)](x, z, *x.shape, PROGRAMS=2, BLOCK=64)
        return z

    finding = only(audit(copied, torch.ones(13, 77), guard=QUICK))
    why = "BLOCK = 64 is too small for 77 columns, or a loop over blocks is missing"
    assert finding.verdict.diagnosis.startswith(f"{why}; if ")


@triton.jit
def minus_kernel(X, Y, Z, M, N, stride_m, stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    places = rows[:, None] * stride_m + cols[None, :] * stride_n
    x, y = tl.load(X + places, mask=mask), tl.load(Y + places, mask=mask)
    tl.store(Z + places, x - y, mask=mask)


SWAPS = {
    "M and N": {"M": 100, "N": 40},
    "stride_m and stride_n": {"stride_m": 1, "stride_n": 100},
    "BLOCK_M and BLOCK_N": {"BLOCK_M": 32, "BLOCK_N": 16},
    "X and Y": {},
    "axes 0 and 1 of the grid": {},
}


def subtracted(x, y, swapped=""):
    z = torch.empty_like(x)
    numbers = {"M": 40, "N": 100, "stride_m": 100, "stride_n": 1, "BLOCK_M": 16, "BLOCK_N": 32}
    grid = (3, 4) if "grid" not in swapped else (4, 3)
    first, second = (y, x) if swapped == "X and Y" else (x, y)
    minus_kernel[grid](first, second, z, **{**numbers, **SWAPS.get(swapped, {})})
    return z


@pytest.mark.parametrize("swapped", SWAPS)
def test_what_is_swapped_is_named(swapped):
    given = torch.randn(2, 40, 100).unbind()
    told = f"{swapped} are swapped, in the launch or in the kernel: with them exchanged, nothing is wrong"
    wrong = audit(subtracted, *given, swapped, like=lambda x, y, _: x - y, guard=QUICK)
    assert wrong.findings[0].verdict.diagnosis == told


@pytest.mark.parametrize("swapped", SWAPS)
def test_without_a_reference_what_may_be_swapped_is_no_better_than_a_reason(swapped):
    told = f"{swapped} may be swapped, in the launch or in the kernel: with them exchanged, nothing is out of"
    for finding in audit(subtracted, *torch.randn(2, 40, 100).unbind(), swapped, guard=QUICK).findings[:1]:
        has_reason = swapped.startswith(("BLOCK", "axes"))  # "the grid has 4 programs along axis 1, ..."
        assert (told in finding.verdict.diagnosis) is not has_reason, str(finding)


def test_nothing_is_called_swapped_if_that_is_no_cure():
    given = torch.randn(2, 40, 100).unbind()
    for swapped in SWAPS:  # the reference wants something else, too
        wrong = audit(subtracted, *given, swapped, like=lambda x, y, _: x - 2 * y, guard=QUICK)
        assert wrong.findings and "exchanged" not in str(wrong)


def test_a_swap_is_found_among_several_launches():
    def twice(x, y):
        return subtracted(subtracted(x, y), y, "M and N")

    found = audit(twice, *torch.randn(2, 40, 100).unbind(), like=lambda x, y: x - 2 * y, guard=QUICK).findings
    assert "swapped" not in found[0].verdict.diagnosis  # both launches of the kernel would be exchanged
