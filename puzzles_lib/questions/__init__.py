"""The reading exercises, by id. A module per chapter; each has a tuple ``QUESTIONS``."""

from puzzles_lib.questions import machine_code, racing
from puzzles_lib.questions.question import Nudge, Question

__all__ = ["QUESTIONS", "Nudge", "Question"]

_MODULES = (machine_code, racing)

QUESTIONS: dict[str, Question] = {q.id: q for module in _MODULES for q in module.QUESTIONS}
