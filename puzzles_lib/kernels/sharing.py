"""Keep the codes of one tensor once when several layers read that tensor.

The layers for q, k and v read one input. The first of the three quantizes the input and records a note: which
tensor it was, the tensor's version, and its codes. The other two find the note and keep the same codes.

A note must never be used after it has become wrong. A tensor's memory can change without torch noticing,
through NumPy, ``x.data``, ``dist.recv`` or a kernel of your own. So a tensor's identity and version alone
prove nothing. A note is therefore used only if all of these are true:

- The module that contains the layers (the attention block, say) is still in the same call of ``forward``.
  Notes are dropped when that call ends, so no note passes from one step or micro-batch to the next.
- The first layer still waits for its backward pass. Until then torch's own layer would hold the tensor
  itself, so a write that torch doesn't notice would break torch's gradient, too.
- The tensor is the same object and has the same version.

Inside `torch.compile` there are no notes: the compiler merges equal calls in its graph, in which every write
is visible.
"""

import threading
from typing import NamedTuple
from weakref import ref

import torch
from torch import nn


class Key(NamedTuple):
    """What decides whether codes can be shared: their format, and the number of columns."""

    bits: int
    group_size: int
    dtype: torch.dtype
    rounding: str
    columns: int


class Pending:
    """Held by the autograd nodes that keep some codes. ``done`` is True once one of them has run."""

    __slots__ = ("__weakref__", "done")

    def __init__(self) -> None:
        self.done = False


class Codes(NamedTuple):
    """The codes of a tensor: words and params of a `puzzles_lib.kernels.quantize.PackedTensor`."""

    words: torch.Tensor
    params: torch.Tensor
    pending: Pending | None


class _Note(NamedTuple):
    tensor: ref
    version: int
    pending: ref
    words: torch.Tensor
    params: torch.Tensor


class _Scopes(threading.local):
    """The calls of ``forward`` that run in this thread, the innermost last: a module's id, notes by key."""

    def __init__(self) -> None:
        self.running: list[tuple[int, dict[Key, _Note]]] = []


_scopes = _Scopes()
NUMBER = -16  # of our hooks; torch counts up from 0


def is_open() -> bool:
    """Return whether a module that shares is in a call of its ``forward``."""
    return bool(_scopes.running)


def find(x: torch.Tensor, key: Key) -> Codes | None:
    """Return the codes of x that another layer made in this call of ``forward``, or None."""
    note = _scopes.running[-1][1].get(key) if _scopes.running else None
    if note is None or note.tensor() is not x or x.is_inference() or x._version != note.version:
        return None
    pending = note.pending()
    return None if pending is None or pending.done else Codes(note.words, note.params, pending)


def remember(x: torch.Tensor, key: Key, codes: Codes) -> None:
    """Note the codes of x until the innermost call of a sharing module's ``forward`` ends."""
    if _scopes.running and not x.is_inference():
        notes = _scopes.running[-1][1]
        notes[key] = _Note(ref(x), x._version, ref(codes.pending), codes.words, codes.params)


def share(module: nn.Module) -> None:
    """Let the layers inside a module share codes during each call of its ``forward``.

    This uses hooks, with the same number in all modules. torch would give each hook its own number.
    torch.compile looks at these numbers, so it would compile each block of a model separately.
    """
    module._forward_pre_hooks[NUMBER] = _open
    module._forward_hooks[NUMBER] = _close
    module._forward_hooks_always_called[NUMBER] = True


def unshare(module: nn.Module) -> None:
    """Undo `share`."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks, module._forward_hooks_always_called):
        hooks.pop(NUMBER, None)


def _open(module: nn.Module, inputs: tuple) -> None:
    if not torch.compiler.is_compiling():
        _end(module)  # a call that was interrupted before its end
        _scopes.running.append((id(module), {}))


def _close(module: nn.Module, inputs: tuple, output: object) -> None:
    if not torch.compiler.is_compiling():
        _end(module)


def _end(module: nn.Module) -> None:
    """End the call of this module's ``forward``, if it runs, and all calls inside it."""
    modules = [number for number, _ in _scopes.running]
    if id(module) in modules:
        del _scopes.running[modules.index(id(module)) :]
