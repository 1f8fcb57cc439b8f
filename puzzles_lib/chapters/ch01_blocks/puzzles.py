"""Chapter 01: one axis, cut into blocks."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def constant_add(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[n] + 10, where N is a multiple of BLOCK"""
    return x + 10


CONSTANT_ADD = Puzzle(
    number="1",
    spec=constant_add,
    formula=r"z_n = x_n + 10",
    grid=lambda s: (s.N // s.BLOCK,),
    cases=(
        Case(N=32, BLOCK=32),  # one program
        Case(N=128, BLOCK=32),  # four programs
        Case(N=896, BLOCK=128),  # seven programs, another block size
        Case(N=192, BLOCK=64, fill={"x": inputs.large}),
    ),
    stored_once=("z",),
    contract=Contract({"BLOCK": (256, 512), "N": Size(2600, step=lambda s: s.BLOCK)}),
)


def masked_add(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[n] + 10, for any N"""
    return x + 10


MASKED_ADD = Puzzle(
    number="2",
    spec=masked_add,
    formula=r"z_n = x_n + 10",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(
        Case(N=32, BLOCK=32),  # one full block
        Case(N=20, BLOCK=32),  # one block, not full
        Case(N=128, BLOCK=32),  # four full blocks
        Case(N=200, BLOCK=32),  # six full blocks and a ragged one
        Case(N=1000, BLOCK=256, fill={"x": inputs.large}),
        Case(N=65, BLOCK=64),  # a last block of one element
    ),
    stored_once=("z",),
    contract=Contract({"N": Size(2600), "BLOCK": (128, 512)}),
)


def reversed_add(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[N - 1 - n] + 10"""
    return x.flip(0) + 10


def _last_block_for_all(x: Tensor, BLOCK: int) -> Tensor:
    return x.flip(0)[torch.arange(len(x)) % BLOCK] + 10


def _blocks_reversed(x: Tensor, BLOCK: int) -> Tensor:
    return torch.cat([block.flip(0) for block in x.split(BLOCK)]) + 10


def _blocks_in_reverse(x: Tensor, BLOCK: int) -> Tensor:
    at = torch.arange(len(x))
    return x[(len(x) - (at // BLOCK + 1) * BLOCK + at % BLOCK).clamp(min=0)] + 10


REVERSED_ADD = Puzzle(
    number="2b",
    spec=reversed_add,
    formula=r"z_n = x_{N - 1 - n} + 10",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(
        Case(N=32, BLOCK=32),  # one full block
        Case(N=20, BLOCK=32),  # one block, not full
        Case(N=128, BLOCK=32),  # four full blocks
        Case(N=35, BLOCK=8),  # four full blocks and a ragged one
        Case(N=1000, BLOCK=256, fill={"x": inputs.large}),
    ),
    stored_once=("z",),
    slips={
        "x isn't reversed: z[0] needs the last element": lambda x: x + 10,
        "all programs read the last elements of x: program 1 begins one block before them": (
            _last_block_for_all
        ),
        "each block is reversed, but the blocks are in x's order": _blocks_reversed,
        "the blocks are in reverse order, but each still counts up": _blocks_in_reverse,
    },
    contract=MASKED_ADD.contract,
)

PUZZLES = (CONSTANT_ADD, MASKED_ADD, REVERSED_ADD)
