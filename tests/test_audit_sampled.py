"""Values of launches of which only some programs run: compared where they are sure, and counted elsewhere."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit, audited
from puzzles_lib.auditor import reference, running
from puzzles_lib.runner import Stop

QUICK = Guard(sizes=False)
X = torch.arange(200.0)
IN_PART = "elements were compared: other programs would store the rest"
NOT_COMPARED = "values: not compared, because not all programs ran"


@triton.jit
def plus_kernel(X, Z, n, WRONG: tl.constexpr, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    """Add 1, and one more in program 2 of a grid whose block has the size WRONG."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n) + 1
    if BLOCK == WRONG:
        x += tl.where(tl.program_id(0) == 2, 1, 0)
    if ATOMIC:
        tl.atomic_add(Z + i, x, mask=i < n)
    else:
        tl.store(Z + i, x, mask=i < n)


@triton.jit
def twice_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Z + i, 2 * tl.load(X + i, mask=i < n), mask=i < n)


def plus(x, after=lambda z: z, wrong=0, atomic=False):
    z = torch.zeros_like(x) if atomic else torch.empty_like(x)
    plus_kernel[(13,)](x, z, x.numel(), wrong, atomic, BLOCK=16)
    return after(z)


def sample(monkeypatch, programs, blocks=(16,)):
    """Let only these programs run of a grid of `plus_kernel`, if its block has one of these sizes."""

    def sampled(self):
        is_it = self.launch.name == "plus_kernel" and self.launch.arguments["BLOCK"] in blocks
        return [(each, 0, 0) for each in programs] if is_it else None

    monkeypatch.setattr(running._Guarded, "_sample", sampled)


@pytest.mark.parametrize("programs, is_found", [((0, 2, 12), True), ((0, 3, 12), False)])
def test_elements_that_sampled_programs_store_are_compared(monkeypatch, programs, is_found):
    sample(monkeypatch, programs)
    for wrong in (0, 16):
        report = audit(plus, X, wrong=wrong, like=lambda x, wrong: x + 1, guard=QUICK)
        assert not report.compared
        if wrong and is_found:
            assert "16 of 200 elements of the result are wrong. The first, [32], is 34" in str(report)
        else:
            assert report.ok and "0 of 1 launch clean, the rest not judged" in str(report)
            assert f"not judged: values: 40 of 200 {IN_PART}" in str(report)


def test_what_a_kernel_changes_in_place_is_compared_where_it_is_stored(monkeypatch):
    sample(monkeypatch, (0, 2))

    def in_place(x, y, wrong):
        plus_kernel[(13,)](x, x, x.numel(), wrong, False, BLOCK=16)
        if y is not x:
            y.add_(1)

    for wrong in (0, 16):
        report = audit(in_place, X, X, wrong, like=lambda x, *_: (x + 1, x + 1), guard=QUICK)
        assert report.ok == (not wrong)
    report = audit(in_place, X, X.clone(), 0, like=lambda x, y, _: (x + 1, y + 1), guard=QUICK)
    assert report.ok and any(f"values: 232 of 400 {IN_PART}" in text for text in report.unjudged)


def launched(z):
    out = torch.empty_like(z)
    twice_kernel[(1,)](z, out, z.numel(), BLOCK=256)
    return out


def scattered(z):
    z.scatter_(0, torch.arange(100), 7.0)
    return z


@pytest.mark.parametrize(
    "after, wanted, atomic",
    [
        (lambda z: z * 2, lambda x: 2 * (x + 1), False),
        (launched, lambda x: 2 * (x + 1), False),
        (lambda z: [z, z.sum()], lambda x: [x + 1, (x + 1).sum()], False),
        (scattered, lambda x: torch.cat([torch.full((100,), 7.0).to(x), x[100:] + 1]), False),
        (lambda z: z[20].item(), lambda x: float(x[20] + 1), False),
        (lambda z: z, lambda x: x + 1, True),
    ],
)
def test_results_of_elements_that_are_missing_are_counted(monkeypatch, after, wanted, atomic):
    sample(monkeypatch, (0, 2, 12))
    like = lambda x, *_: wanted(x)  # noqa: E731
    report = audit(plus, X, after, 0, atomic, like=like, guard=QUICK)
    assert report.ok and not report.compared and NOT_COMPARED in report.unjudged
    monkeypatch.undo()
    report = audit(plus, X, after, 0, atomic, like=like, guard=QUICK)
    assert report.ok and report.compared and not report.unjudged


@pytest.mark.parametrize("after", [lambda z: z.view(10, 20), lambda z: z.zero_(), lambda z: z[:50].zero_()])
def test_a_view_and_a_new_value_take_nothing_that_is_missing(monkeypatch, after):
    sample(monkeypatch, (0, 2, 12))
    report = audit(plus, X, after, like=lambda x, after: after(x + 1), guard=QUICK)
    assert report.ok and not any(NOT_COMPARED in text for text in report.unjudged)
    assert any(IN_PART in text for text in report.unjudged)


def tuned(wrong, blocks=(16, 32, 64)):
    kernel = triton.autotune([triton.Config({"BLOCK": block}) for block in blocks], key=["n"])(plus_kernel)

    def call(x):
        z = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, z, x.numel(), wrong, False)
        return z + 0

    return call


@pytest.mark.parametrize("sampled", [16, 32, 64])
@pytest.mark.parametrize("wrong", [0, 16, 32, 64])
def test_a_configuration_that_is_sampled_does_not_hide_the_values_of_others(monkeypatch, sampled, wrong):
    sample(monkeypatch, (0,), blocks=(sampled,))  # program 2 does not run
    report = audit(tuned(wrong), X, like=lambda x: x + 1, guard=QUICK)
    assert [each.status for each in report.launches].count("unjudged") == 1
    if wrong in (0, sampled):
        assert report.ok and report.compared, report
        assert any("the values of 1 of 3 configurations of autotune" in text for text in report.unjudged)
    else:
        assert [finding.verdict.kind for finding in report.findings] == ["values"], report


def test_a_block_of_code_gets_the_results_of_a_configuration_that_ran_wholly(monkeypatch):
    sample(monkeypatch, (0,), blocks=(16, 64))
    with audited(guard=QUICK) as report:
        z = tuned(0)(X)
        assert torch.equal(z, X + 1) and not report.lacks_results
        tuned(0, (16, 64))(X)
    assert report.lacks_results and report.ok and [each.status for each in report.launches].count("ok") == 1


def test_a_launch_after_a_sampled_configuration_is_judged(monkeypatch):
    sample(monkeypatch, (0,), blocks=(16,))
    call = tuned(0)

    def then_past_the_end(x):
        z = call(x)
        twice_kernel[(1,)](z, torch.empty_like(z), 201, BLOCK=256)

    report = audit(then_past_the_end, X, guard=QUICK)
    assert [finding.verdict.kind for finding in report.findings] == ["out of bounds"], report


def test_hard_inputs_of_a_sampled_launch_are_compared_where_they_are_sure(monkeypatch):
    @triton.jit
    def plus_kernel(X, Z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < n)
        tl.store(Z + i, tl.where(x == 0, 1.0, x), mask=i < n)

    def copied(x):
        z = torch.empty_like(x)
        plus_kernel[(triton.cdiv(x.numel(), 16),)](x.contiguous(), z, x.numel(), BLOCK=16)
        return z

    sample(monkeypatch, (0, 1))
    report = audit(copied, X + 1, like=lambda x: x.clone(), hard=True, guard=QUICK)
    assert [finding.verdict.kind for finding in report.findings] == ["values"]
    assert "zero" in report.findings[0].on


def test_a_slow_reference_of_a_sampled_launch_is_not_asked_again(monkeypatch):
    sample(monkeypatch, (0, 2))
    now = [0.0]
    monkeypatch.setattr(reference.time, "process_time", lambda: now[0])

    def slow(x):
        now[0] += 6.0
        return x + 1

    report = audit(plus, X, like=slow, guard=QUICK)
    assert report.ok and not report.compared and now == [6.0]
    assert any("the reference takes more than 5 s of CPU time" in text for text in report.unjudged)


# ---- programs that run at once


def large(x):
    z = torch.empty_like(x)
    plus_kernel[(triton.cdiv(x.numel(), 16),)](x, z, x.numel(), 0, False, BLOCK=16)
    return z


def probed(monkeypatch, alone, at_once):
    """Let each program take this many seconds alone, and at once."""

    def probe(self, programs):
        return measured(self, programs)[0], at_once if len(programs) > running.PROBED + 1 else alone

    measured = running._Guarded._probe
    monkeypatch.setattr(running._Guarded, "_probe", probe)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_grid_runs_completely_if_that_is_fast_enough_at_once(monkeypatch, at_once):
    probed(monkeypatch, 1e-3, 1e-4 if at_once else 1e-3)
    guard = Guard(sizes=False, seconds=0.2)
    report = audit(large, torch.arange(16.0 * 400), like=lambda x: x + 1, guard=guard)
    (launch,) = report.launches
    assert report.ok and (launch.outcome.programs == 400) is at_once
    assert bool(report.unjudged) is not at_once


def test_a_run_that_takes_longer_than_it_seemed_is_sampled(monkeypatch):
    runs = []

    def slow(self, draws):
        ran, after = forwards(self, draws)
        runs.append(self.only)
        stop = Stop("time limit", "time limit: still running after 20 s of CPU time, in program (7, 0, 0)")
        return (dataclasses.replace(ran, stop=stop), after) if self.only is None else (ran, after)

    forwards = running._Guarded._forwards
    monkeypatch.setattr(running._Guarded, "_forwards", slow)
    probed(monkeypatch, 1e-3, 1e-5)
    report = audit(large, torch.arange(16.0 * 4000), guard=Guard(sizes=False, seconds=0.2))
    assert report.ok and "too large to run completely: 200 of 4,000 programs ran" in report.unjudged[0]
    assert len(runs) == 2 and runs[0] is None and len(runs[1]) == 200
