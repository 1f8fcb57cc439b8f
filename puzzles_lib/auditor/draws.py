"""Find programs that get the same random number and use it for different elements.

The same number is often meant: programs that share a row of inputs need the same dropout mask, and a mask may
be shared by all rows. So a repeated number is followed: one program at a time runs again with another number
in one lane. If that changes just the element which the same lane stores, the number belongs to this element.
Otherwise, as in a sum or a `tl.dot`, it belongs to what the lane loads. Only numbers that belong to different
elements are reported, and not as a fault: the mask may be shared on purpose.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from puzzles_lib.auditor.defined import span_of
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.checker.naming import index_of, the_program, the_programs
from puzzles_lib.checker.report import Verdict
from puzzles_lib.runner import Access, Options, Program, Run
from puzzles_lib.runner.draws import Change, Draws, Event

TRIED = 6  # repeated numbers that are followed
Again = Callable[[Options], tuple[Run, Mapping[str, torch.Tensor]]]
_Elements = set[tuple[str, int]]  # a tensor's name, and a place from its first element on


def repeated_draws(launch: Launch, draws: Draws, again: Again, seconds: float) -> Verdict | None:
    """Return a verdict on a random number that two calls of one line use for different elements, or None.

    again: runs the launch once more, from the tensors as they were before, and returns them as they are then.
    seconds: CPU time for these runs.
    """
    end = time.thread_time() + seconds
    found = list(itertools.islice(draws.repeats(), 1 << 16))
    followed = _Followed(again)
    for place in sorted({len(found) * n // TRIED for n in range(TRIED)} if found else ()):
        one, lane, other, other_lane = found[place]
        for result in range(one.results):
            if time.thread_time() > end:
                return None
            names = followed.uses(one, lane, result), followed.uses(other, other_lane, result)
            if (uses := _different(*names)) is not None:
                return Verdict("repeated draws", _text(launch, one, other, *uses), one.site)
    return None


class _Use:
    """What becomes of one random number: the elements that it changes, and what the program accesses."""

    def __init__(self, changed: _Elements, accesses: list[Access], event: Event, lane: int):
        self.changed, self.lane, self.is_block = changed, lane, bool(event.shape)
        shape = event.shape or (1,)
        self.accesses = [a for a in accesses if (a.elements.shape or (1,)) == shape]

    def stored(self) -> dict[str, tuple[str, int]]:
        """Return, by tensor, the element that the lane stores, if no other lane's element has changed."""
        found: dict[str, tuple[str, int]] = {}
        for access in self.accesses:
            if access.kind != "load" and (own := self._element(access)) in self.changed:
                every = {(access.argument, int(n)) for n in access.elements[access.mask]}
                if every & self.changed == {own}:
                    found.setdefault(access.argument, own)
        return found

    def loaded(self) -> dict[tuple[str, object], _Elements]:
        """Return the elements that the lane loads, by tensor and line.

        A single number may be a key, from which a program makes other numbers: it belongs to no element.
        """
        found: dict[tuple[str, object], _Elements] = {}
        for access in self.accesses if self.is_block else ():
            if access.kind == "load" and (own := self._element(access)):
                found.setdefault((access.argument, access.site), set()).add(own)
        return found

    def _element(self, access: Access) -> tuple[str, int] | None:
        is_on = access.mask.ravel()[self.lane]
        return (access.argument, int(access.elements.ravel()[self.lane])) if is_on else None


def _different(one: _Use | None, other: _Use | None) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Return the different elements to which a number belongs in two calls; None if they are the same."""
    if one is None or other is None or not one.changed or not other.changed:
        return None
    stored, others = one.stored(), other.stored()
    if both := sorted(stored.keys() & others.keys()):
        differ = [(stored[name], others[name]) for name in both if stored[name] != others[name]]
        return differ[0] if len(differ) == len(both) else None
    loaded, others_loaded = one.loaded(), other.loaded()
    both_loaded = [key for key in loaded if key in others_loaded]
    if not both_loaded or any(loaded[key] & others_loaded[key] for key in both_loaded):
        return None
    return min(loaded[both_loaded[0]]), min(others_loaded[both_loaded[0]])


class _Followed:
    """Runs single programs with and without another random number."""

    def __init__(self, again: Again):
        self._again = again
        self._plain: dict[Program, tuple[Run, dict[str, np.ndarray]]] = {}

    def uses(self, event: Event, lane: int, result: int) -> _Use | None:
        """Return what becomes of a number; None if the program doesn't end alone."""
        program = event.program
        if program not in self._plain:
            self._plain[program] = self._ran(program, None)
        ran, before = self._plain[program]
        if ran.stop is not None:
            return None
        changed: _Elements = set()
        for high in (False, True):
            changed_run, after = self._ran(program, Change(program, event.number, lane, result, high))
            if changed_run.stop is not None:
                return None
            for name, values in after.items():
                differ = values != before[name]
                differ &= (values == values) | (before[name] == before[name])
                changed |= {(name, int(place)) for place in np.flatnonzero(differ)}
        return _Use(changed, list(ran.accesses), event, lane)

    def _ran(self, program: Program, change: Change | None) -> tuple[Run, dict[str, np.ndarray]]:
        ran, tensors = self._again(Options(quiet=True, record=True, only=[program], draws=Draws(change)))
        return ran, {name: _places(tensor) for name, tensor in tensors.items()}


def _places(tensor: torch.Tensor) -> np.ndarray:
    """Return the values of a tensor's memory, from its first element to its last."""
    flat = tensor.detach().as_strided((span_of(tensor),), (1,))
    return (flat.double() if flat.is_floating_point() else flat).numpy()


def _text(launch: Launch, one: Event, other: Event, *elements: tuple[str, int]) -> str:
    stands: Any = launch  # for the puzzle and the case
    named = []
    for name, place in elements:
        tensor = launch.all_tensors[name]
        named.append(f"{name}[{index_of(place, tuple(tensor.shape))}]" if tensor.is_contiguous() else name)
    if one.program == other.program:
        who = f"{the_program(one.program, stands, stands)} gets the same random number twice"
    else:
        who = f"{the_programs(one.program, other.program, stands, stands)} get the same random number"
    where = " and ".join(dict.fromkeys(named))
    return f"{who}, for {where}; if these need different numbers, give them different offsets or seeds"
