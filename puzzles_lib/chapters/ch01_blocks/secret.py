"""A message for the reader's kernel: codes of letters, 10 too low and in reverse order."""

import torch
from torch import Tensor

_LETTERS = "j\\[b#ej#j^]_h#ceh\\#iZW[h#b[dh[a#i_^j"


def codes() -> Tensor:
    """Return the message as the reader's kernel gets it: float32 [N]."""
    return torch.tensor([float(ord(letter)) for letter in _LETTERS])


def text(numbers: Tensor) -> str:
    """Return codes of letters as text, with a question mark for a number that is no letter's."""
    return "".join(chr(round(code)) if 32 <= code < 127 else "?" for code in numbers.tolist())


def message() -> str:
    """Return what the reader's kernel should bring to light."""
    return text(codes().flip(0) + 10)
