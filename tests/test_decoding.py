"""The kernels of bench "decoding", guarded, beside torch; and the bytes that its floor counts."""

import json
import re

import pytest
import torch
from torch.nn.functional import silu

from puzzles_lib.bench import decoding
from puzzles_lib.timing import recorded
from tests.conftest import REPO
from tests.running import Guarded


def normal(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).bfloat16()


def launched(name, grid, results, *values, **constants):
    Guarded(getattr(decoding, name), results)[grid](*values, num_warps=4, num_stages=1, **constants)


def test_gated():
    h, z = normal(3, 2 * 40), torch.empty(3, 40).bfloat16()
    launched("_swiglu_kernel", (3, 3), ("z_ptr",), h, z, N=40, BLOCK=16)
    gate, up = h.float().chunk(2, dim=1)
    torch.testing.assert_close(z, (silu(gate) * up).bfloat16(), rtol=2**-7, atol=1e-6)


def test_each_choice_comes_back_with_its_weight():
    order = torch.tensor([0, 3, 4, 1, 5, 2], dtype=torch.int32)
    z, weight, y = normal(6, 40), torch.rand(6), torch.empty(3, 40).bfloat16()
    launched("_combine_kernel", (3, 2), ("y_ptr",), z, order, weight, y, 6, 40, ROWS=8, BLOCK=32)
    back = torch.zeros(3, 40).index_add(0, order.long() // 2, z.float() * weight[:, None])
    torch.testing.assert_close(y, back.bfloat16(), rtol=2**-7, atol=1e-6)


def test_the_bytes_of_a_step(monkeypatch):
    """Of Mixtral's sizes: 0.35 GB per expert, and 17 MB of keys and values per text and layer."""
    wide = {"up": (8, 28672, 4096), "down": (8, 4096, 14336), "qkv": (6144, 4096), "out": (4096, 4096)}
    layer = {name: torch.empty(shape, dtype=torch.bfloat16, device="meta") for name, shape in wide.items()}
    expert, key = 3 * 14336 * 4096 * 2, 2 * 4096 * 8 * 128 * 2
    attention, head = (6144 + 4096) * 4096 * 2, 32000 * 4096 * 2
    for batch, chosen in ((1, 2), (16, 8)):
        want = 32 * (chosen * expert + attention + batch * key) + head
        assert decoding._bytes_read(32, batch, [layer], chosen) == want


def test_it_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="bench decoding needs a CUDA device"):
        next(decoding.measure())


# ---- the short form


@pytest.fixture
def gpu_with(monkeypatch):
    """A GPU that has so much free memory, without anything that runs."""

    def pretend(gigabytes: float) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(gigabytes * 1e9), int(2e11)))

    return pretend


def test_the_record_is_beside_what_is_measured():
    shown = (decoding.BASELINE, decoding.OURS, decoding.FLOOR)
    rows = [row for row in recorded.rows("decoding") if row["path"] in shown]
    half = [{**row, "us": 2 * row["us"]} for row in reversed(rows)]
    lines = decoding.beside_the_record(half, "Some GPU with a name of many words", (2, 6)).splitlines()
    assert lines[0].split("  ")[-1] == "recorded on one NVIDIA H200"
    found = [re.split(r" {2,}", line) for line in lines[1:-1]]
    assert [line[:2] for line in found] == [
        [texts, path]
        for texts in ("1 text", "16 texts")
        for path in ("torch", "the course's kernels", "reading the bytes alone")
    ]
    assert found[1][2:] == ["62, 178% of torch", "124, 178% of torch"] and found[0][2:] == ["35", "70"]
    assert lines[-1].startswith("(2 and 6 layers were timed, ")


@pytest.mark.parametrize("free, wanted", [(140, (2, 10)), (40, (2, 6)), (24, (2, 4)), (16, (1, 2))])
def test_as_many_layers_are_measured_as_fit(free, wanted, gpu_with, monkeypatch):
    gpu_with(free)
    monkeypatch.setattr(decoding, "_measured", lambda measured, short: iter([{"measured": measured}]))
    monkeypatch.setattr(decoding, "beside_the_record", lambda rows, name, measured: rows[0]["measured"])
    assert decoding.live() == wanted


def test_what_cannot_be_measured_is_said(gpu_with, monkeypatch):
    gpu_with(8)
    assert decoding.live() == "not timed on this Some GPU: it has 8 GB free, and needs 14 GB"
    gpu_with(100)

    def refuses(measured, short):
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(decoding, "_measured", refuses)
    assert decoding.live() == "not timed on this Some GPU: no kernel image is available"
    monkeypatch.setattr(decoding, "right_source", lambda puzzle: "")
    with pytest.raises(RuntimeError, match="doesn't have the correct kernels"):
        decoding.Kernels()


def test_chapter_22_quotes_the_record():
    (master,) = (REPO / "solutions").glob("22_*.ipynb")
    cells = {each["id"]: "".join(each["source"]) for each in json.loads(master.read_text())["cells"]}
    ours = {
        row["case"][:8]: row["ratio"] for row in recorded.rows("decoding") if row["path"] == decoding.OURS
    }
    told = re.findall(r"(\d+)%", cells["h200-live-idea"])
    assert told[:2] == [f"{100 * ours[batch]:.0f}" for batch in ("batch 1,", "batch 16")]
    least = decoding._bytes_needed(max(decoding.SHORT[-1])) / 1e9
    assert f"(it needs {least:.0f} GB)" in cells["h200-live-idea"]


def test_the_kernels_are_the_courses():
    kernels = decoding.Kernels()
    assert kernels.norm_kernel.fn.__name__ == "rms_norm_kernel"
    assert kernels.route_kernel.fn.__name__ == "route_kernel"
