"""The short form of bench "decoding", as chapter 22 runs it on a reader's GPU."""

import re
import time

import pytest
import torch

from puzzles_lib.bench import decoding

pytestmark = pytest.mark.gpu


def test_a_readers_gpu_is_measured_beside_the_record():
    start = time.monotonic()
    table = decoding.live()
    took = time.monotonic() - start
    print(f"\n{table}\n{took:.0f} s")
    if " and needs " in table:
        pytest.skip(table)
    lines = table.splitlines()
    assert lines[0].startswith(f"tokens per second{'':17}this {torch.cuda.get_device_name()} ")
    rates = {
        line[:34].strip(): [int(n) for n in re.findall(r" (\d+)(?:,|$| )", line[34:])] for line in lines[1:-1]
    }
    for texts in ("1 text", "16 texts"):
        torchs, ours, floor = (
            next(each[0] for name, each in rates.items() if name.startswith(texts) and name.endswith(path))
            for path in ("torch", "the course's kernels", "reading the bytes alone")
        )
        assert 0 < torchs < floor and 0 < ours < 1.1 * floor  # a step reads these bytes, and more
    assert took < 60
    assert torch.cuda.memory_allocated() < 1 << 28  # the notebook has its memory back
