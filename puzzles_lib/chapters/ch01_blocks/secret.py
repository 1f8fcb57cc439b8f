"""A message in three parts: codes of letters, each 10 too low; the third part is reversed."""

import torch
from torch import Tensor

# Words end where blocks of 8 end, so that each program's results can be read on their own.
_FIRST = "oek#Wh[#h[WZ_d]#j^_i#_d#fWhWbb[b"
_SECOND = "W#XbeYa#cWo#[dZ#[Whbo"
_THIRD = "ioWm#^jeX#e]#ih[jd_ef##oWhee^"


def first_part() -> Tensor:
    """Return the first part as the reader's kernel gets it: float32 [32], four blocks of 8."""
    return _codes(_FIRST)


def second_part() -> Tensor:
    """Return the second part: float32 [21], two blocks of 8 and a ragged one."""
    return _codes(_SECOND)


def third_part() -> Tensor:
    """Return the third part, from the last letter to the first: float32 [29]."""
    return _codes(_THIRD)


def _codes(letters: str) -> Tensor:
    return torch.tensor([float(ord(letter)) for letter in letters])


def read(numbers: Tensor) -> str:
    """Return codes of letters as text, with a question mark for a number that is no letter's."""
    return "".join(chr(round(code)) if 32 <= code < 127 else "?" for code in numbers.tolist())
