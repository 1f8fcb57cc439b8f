"""Chapter 11: what its prose says of the reader's own bug, and of bytes, is what its cells printed."""

import re

import nbformat
import torch

from puzzles_lib import RELU_PACK, check
from puzzles_lib.authoring.solutions import other_kernel
from puzzles_lib.kernels.packed_relu import relu_pack
from tests.conftest import REPO

MASTER = nbformat.read(REPO / "solutions/11_relu_masks.ipynb", as_version=4)
CELLS = {cell.id: cell for cell in MASTER.cells}


def test_one_case_alone_notices_the_readers_own_bug_and_in_the_mask_alone():
    report = check(other_kernel("11", "p17-own"), RELU_PACK)
    assert [case.number for case in report.listed if not case.ok] == [5]
    (words,) = (str(case.verdict) for case in report.listed if not case.ok)
    assert "wrong values in mask: 11 of 12, the first is mask[0, 0]" in words
    got, want = re.search(r"got (-?\d+), want (-?\d+)", words).groups()
    assert f"got, want = {got}, {want}" in CELLS["p17-own-xor"].source
    assert bin((int(got) ^ int(want)) & 0xFFFFFFFF).count("1") == 2
    assert "(2 of 32 bits differ)" in words and int(got) >= 0 > int(want)
    assert "One of the two is the sign" in CELLS["p17-own-after"].source
    assert f"computes {got} for" in CELLS["p17-own-watch-idea"].source


def test_a_byte_of_the_librarys_mask_belongs_to_two_rows():
    x = torch.ones(100, 77)
    x[1] = -1
    assert relu_pack(x)[1][8:11].tolist() == [255, 31, 0]
