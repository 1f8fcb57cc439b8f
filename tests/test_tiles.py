"""The bench of attention's tiles, with no GPU: its kernels run guarded, and a stub keeps the time."""

import math
from dataclasses import asdict, replace
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from triton.runtime.errors import OutOfResources

from puzzles_lib.bench import tiles
from puzzles_lib.bench.__main__ import main
from puzzles_lib.kernels.attention import Tiles
from puzzles_lib.timing import sweep
from puzzles_lib.timing.recorded import TILES, keep, load
from tests.running import run

production = import_module("puzzles_lib.kernels.attention")

SMALL = {"B": 1, "H": 2, "T": 24, "D": 64}
FEW = {"m": (16, 32), "n": (16,), "warps": (4, 8), "stages": (2,)}
FILLED = {
    "_forward_kernel": ("o_ptr", "lse_ptr"),
    "_dq_kernel": ("dq_ptr", "delta_ptr"),
    "_dkv_kernel": ("dk_ptr", "dv_ptr"),
}
OPTIONS = ("num_warps", "num_stages")
TIMES = {(16, 4): 3.0, (16, 8): 5.0, (32, 4): 2.0}  # by m and warps; 32 with 8 warps is refused


class Guarded:
    """A kernel in the interpreter; like one that was compiled, where it fits."""

    def __init__(self, name):
        self.kernel, self.results = getattr(production, name), FILLED[name]

    def __getitem__(self, grid):
        def launch(*values, num_warps, num_stages, **constants):
            if (constants["BLOCK_M"], num_warps) == (32, 8):
                raise OutOfResources(300_000, 232_448, "shared memory")
            arguments = dict(zip(self.kernel.arg_names, values, strict=False)) | constants
            done = run(self.kernel, arguments, (*grid, 1, 1), self.results)
            assert done.stop is None and done.undefined is None and done.conflict is None, done
            return SimpleNamespace(n_regs=99, n_spills=0, metadata=SimpleNamespace(shared=1024))

        return launch


class Launched:
    """A kernel that notes what it is launched with, and never fits."""

    def __getitem__(self, grid):
        def launch(*values, **constants):
            self.last = grid, constants
            raise OutOfResources(300_000, 232_448, "shared memory")

        return launch


@pytest.fixture
def measured(monkeypatch):
    """What `tiles.swept` measures of some parts, as if there were a GPU; and the times that were taken."""
    timed = []

    def microseconds(swept, sets, config):
        assert len(sets) == sweep.SETS and not torch.equal(sets[0]["q"], sets[1]["q"])
        timed.append((swept.name, config["m"], config["warps"]))
        return TIMES[config["m"], config["warps"]]

    for name in FILLED:
        monkeypatch.setattr(production, name, Guarded(name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(sweep, "compile_all", lambda module, tried: None)
    monkeypatch.setattr(sweep, "_microseconds", microseconds)
    return lambda *tried: (sweep.swept("tiles", tiles.__name__, tried), timed)


def small(name, causal):
    return tiles.of(name, causal, SMALL, FEW, "cpu")


@pytest.mark.parametrize("name, causal", [("forward", True), ("dq", False), ("dk and dv", True)])
def test_each_configuration_is_launched_judged_and_timed_twice(measured, tmp_path, name, causal):
    record, timed = measured(small(name, causal))
    keep(record, tmp_path / "r.json")
    (kernel,) = load(tmp_path / "r.json")["kernels"]
    assert kernel["fields"][:4] == ["m", "n", "warps", "stages"] and kernel["causal"] == causal
    rows = {(row[0], row[2]): dict(zip(kernel["fields"], row, strict=True)) for row in kernel["rows"]}
    assert {key: row["us"] for key, row in rows.items()} == TIMES | {(32, 8): None}
    assert {key: row["again_us"] for key, row in rows.items()} == TIMES | {(32, 8): None}
    assert rows[32, 8]["error"] == "out of shared memory" and rows[32, 8]["shared"] == 300_000
    assert all(rows[key]["error"] < 2**-7 and rows[key]["registers"] == 99 for key in TIMES)
    rounds = [{tuple(key) for _, *key in timed[place : place + 3]} for place in (0, 3)]
    assert rounds == [set(TIMES)] * 2 and len(timed) == 6


def test_a_wrong_result_has_no_time(measured):
    swept = small("dk and dv", True)

    def want(tensors):
        found = swept.want(tensors)
        return found | {"dv": 1.25 * found["dv"]}

    record, timed = measured(replace(swept, want=want))
    errors = {row[-1] for row in record["kernels"][0]["rows"]}
    assert timed == [] and errors == {"out of shared memory", "wrong by 2.0e-01"}


@pytest.mark.parametrize("name, kernel", list(zip(tiles.PARTS, FILLED, strict=True)))
def test_compiling_is_a_short_launch_and_a_refusal_none_of_its_business(monkeypatch, name, kernel):
    launched = Launched()
    monkeypatch.setattr(production, kernel, launched)
    monkeypatch.setattr(tiles, "SWEPT", (tiles.of(name, True, {**SMALL, "B": 4, "T": 4096}, device="cpu"),))
    for config in list(tiles.SWEPT[0].configurations())[:3]:
        sweep._compile((tiles.__name__, 0, config))
        (_, constants) = launched.last
        assert Tiles(**config) == Tiles(*(constants[each] for each in ("BLOCK_M", "BLOCK_N", *OPTIONS)))
        assert constants["CAUSAL"] and constants["D"] == 64
    (grid, constants) = launched.last
    assert (
        math.prod(grid) == 2 * tiles.SHORT // constants["BLOCK_N" if kernel == "_dkv_kernel" else "BLOCK_M"]
    )


def test_what_was_chosen_is_among_what_is_tried_and_told_beside_the_best():
    for each in tiles.SWEPT:
        assert each.more["chosen"] in list(each.configurations())
        assert each.more["chosen"] == asdict(tiles.PARTS[each.name.split(",")[0]].chosen[each.sizes["D"]])
    assert len({each.name for each in tiles.SWEPT}) == 3 * 4
    forward = tiles.SWEPT[0]
    fields = (*forward.tried, *sweep.FOUND)
    rows = [[*config.values(), 128, 0, 1, 100.0 + place, 100.0, 1e-3] for place, config in told(forward)]
    kernel = {"name": forward.name, "fields": fields, "rows": rows, **forward.more}
    record = {"device": "A", "date": "2026-01-02", "kernels": [kernel]}
    place = list(forward.configurations()).index(forward.more["chosen"])
    line = tiles.table(record).splitlines()[-1]
    assert line.endswith(
        f"m=64  n=128  warps=4  stages=2: number {place + 1}, {1 + place / 100:.2f} times the best"
    )
    rows[place][-3:] = [None, None, "out of shared memory"]
    assert tiles.table(record).endswith("stages=2: out of shared memory")


def told(swept):
    return enumerate(swept.configurations())


def test_the_chosen_tiles_are_the_recorded_best_or_near():
    record = load(TILES)
    assert [kernel["name"] for kernel in record["kernels"]] == [each.name for each in tiles.SWEPT]
    for kernel, each in zip(record["kernels"], tiles.SWEPT, strict=True):
        found = [dict(zip(kernel["fields"], row, strict=True)) for row in kernel["rows"]]
        best = min(row["us"] for row in found if row["us"] is not None)
        (chosen,) = [row for row in found if each.more["chosen"].items() <= row.items()]
        assert chosen["us"] <= 1.04 * best, each.name


def test_work_is_counted_by_scores_and_by_tensors():
    sizes = {"B": 2, "H": 3, "T": 8, "D": 64}
    forward, full, dq, dkv = (
        tiles.of(name, causal, sizes)
        for name, causal in (("forward", True), ("forward", False), ("dq", True), ("dk and dv", True))
    )
    assert forward.flops == 2 * 3 * 64 * 4 * 36 and full.flops == 2 * 3 * 64 * 4 * 64
    assert dq.flops == 1.5 * forward.flops and dkv.flops == 2 * forward.flops
    wide, narrow = 2 * 3 * 8 * 64 * 2, 2 * 3 * 8 * 4
    assert [forward.bytes, dq.bytes, dkv.bytes] == [
        4 * wide + narrow, 6 * wide + 3 * narrow, 6 * wide + 2 * narrow
    ]  # fmt: skip


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["tiles"]) == 1 and "bench tiles needs a CUDA device" in capsys.readouterr().err
