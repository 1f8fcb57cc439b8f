"""The predictions of chapter 16."""

from puzzles_lib.question import Question

QUESTIONS: tuple[Question, ...] = ()
