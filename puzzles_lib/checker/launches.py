"""Whether a GPU launches what has been compiled: a program's shared memory must fit.

The front end's opinion says where it may not (`compiler.shared`): then the compiler is asked, some 50 ms.
"""

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.compiler import Opinion, find_target, shared_memory
from puzzles_lib.source import Refusal

_TARGET = find_target("sm_90")
_GPU = "an H100 or H200"
_CURE = "tl.dot's blocks lie there, and loads that run ahead in a loop: take smaller blocks, or more steps"


class Launches:
    """Looks at the launches of one check."""

    def __init__(self) -> None:
        self._known: dict[str, str | Refusal] = {}

    def refused(self, bound: Bound, opinion: Opinion) -> Verdict | None:
        """Why a GPU would not launch it; None where it would, or where nobody knows."""
        if opinion.large is None:
            return None
        asked = shared_memory(bound.kernel, bound.arguments, _TARGET, self._known, **bound.options)
        if asked is None or _TARGET.shared_limit is None or asked <= _TARGET.shared_limit:
            return None
        text = f"a launch would fail: a program asks for {-(-asked // 1024):,} KB of shared memory, "
        text += f"{_GPU} has {_TARGET.shared_limit // 1024}"
        stages = bound.options.get("num_stages")
        return Verdict("launch", text, opinion.large, _CURE + f"; num_stages is {stages}" * bool(stages))
