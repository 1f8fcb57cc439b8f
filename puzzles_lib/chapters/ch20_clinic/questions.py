"""The questions of chapter 20: one about its map of symptoms, and one about each patient before it's "
"run."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.question import Nudge, Question


def _rows_of_the_map() -> tuple[int, ...]:
    """The rows of the three reports, as `pictures.symptoms` draws them."""
    from puzzles_lib.chapters.ch20_clinic.pictures import SYMPTOMS  # draws: not before it is asked

    rows = [seen for seen, _ in SYMPTOMS]
    return tuple(
        map(rows.index, ("same every run, but off", "depends on what ran before", "starts at some size"))
    )


_MAP = Question(
    id="ch20-q1",
    asks="Which row of the map fits each report? Count rows from 0. (a, b, c)",
    right=_rows_of_the_map,
    kind=tuple,
    nudge="Compare one right and one wrong run. Do they differ in size, in values or in what came before?",
    nudges=(
        Nudge(lambda v, r: len(v) != 3, "Answer with three numbers: (a, b, c)."),
        Nudge(lambda v, r: v == tuple(row + 1 for row in r), "Count rows from 0: the first one is row 0."),
        Nudge(
            lambda v, r: v[0] == 2, "a: every run is wrong in the same way, so nothing differs between runs."
        ),
        Nudge(lambda v, r: v[1] == 1, "b: both requests have the same values."),
        Nudge(
            lambda v, r: v[1] == 2, "b: this isn't random. The first request is wrong, and only the first."
        ),
        Nudge(
            lambda v, r: v[2] == 1, "c: the report doesn't mention values. It mentions how many there are."
        ),
    ),
)

QUESTIONS = (_MAP, *(patient.question for patient in PATIENTS))
