"""The predictions of chapter 17."""

from puzzles_lib.question import Question

QUESTIONS: tuple[Question, ...] = ()
