"""A message for the reader's kernels: codes of letters, each 10 too low; the second part is reversed."""

import torch
from torch import Tensor

_FIRST = "Z[Wh#h[WZ[h#j^[#h[ij#_i#h[l[hi[Z"
_SECOND = "[h[^modW#e]#ih[jd_ef#hkeo#[deZ#bb[m"


def first_part() -> Tensor:
    """Return the first part as the reader's kernel gets it: float32 [32], four blocks of 8."""
    return _codes(_FIRST)


def second_part() -> Tensor:
    """Return the second part, from the last letter to the first: float32 [35]."""
    return _codes(_SECOND)


def _codes(letters: str) -> Tensor:
    return torch.tensor([float(ord(letter)) for letter in letters])


def read(numbers: Tensor) -> str:
    """Return codes of letters as text, with a question mark for a number that is no letter's."""
    return "".join(chr(round(code)) if 32 <= code < 127 else "?" for code in numbers.tolist())
