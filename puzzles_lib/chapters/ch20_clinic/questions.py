"""The questions of chapter 20: about its map of symptoms, and what each case's cause is."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.question import Nudge, Question


def _rows_of_the_map() -> tuple[int, ...]:
    """The rows of the three reports, as `pictures.symptoms` draws them."""
    from puzzles_lib.chapters.ch20_clinic.pictures import SYMPTOMS  # draws: not before it is asked

    rows = [seen for seen, _ in SYMPTOMS]
    return tuple(map(rows.index, ("every result slightly off", "some runs", "some elements")))


_MAP = Question(
    id="ch20-q1",
    asks="Which row of the map fits each report? Count rows from 0. (a, b, c)",
    right=_rows_of_the_map,
    kind=tuple,
    nudge="Compare a correct result with a wrong one. Do they differ in place, in value or in the run?",
    nudges=(
        Nudge(lambda v, r: len(v) != 3, "Answer with three numbers: (a, b, c)."),
        Nudge(lambda v, r: v == tuple(row + 1 for row in r), "Count rows from 0: the first one is row 0."),
        Nudge(lambda v, r: v[0] == 2, "a: all runs give the same numbers, so comparing runs shows nothing."),
        Nudge(lambda v, r: v[0] == 0, "a: no element is correct, so the places of wrong ones show nothing."),
        Nudge(lambda v, r: v[1] == 1, "b: both requests have the same values."),
        Nudge(
            lambda v, r: v[1:] == r[1:],
            "b and c are correct. For a: is any result correct, and by how much are the others off?",
        ),
        Nudge(lambda v, r: v[2] == 1, "c: the report says nothing about values. It says where they are."),
    ),
)

QUESTIONS = (
    _MAP,
    *(question for patient in PATIENTS for question in (patient.also, patient.question) if question),
)
