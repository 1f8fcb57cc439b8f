"""What chapter 20 asks: of its map of symptoms, and of each patient, before anything is run."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.question import Nudge, Question


def _rows_of_the_map() -> tuple[int, ...]:
    """The rows of the three reports, as `pictures.symptoms` draws them."""
    from puzzles_lib.chapters.ch20_clinic.pictures import SYMPTOMS  # draws: not before it is asked

    rows = [seen for seen, _ in SYMPTOMS]
    return tuple(map(rows.index, ("the same, but off", "depends on who ran before", "begins at a size")))


_MAP = Question(
    id="ch20-q1",
    asks="Which row of the map is each report's, counted from 0? (a, b, c)",
    right=_rows_of_the_map,
    kind=tuple,
    nudge="two runs, one right and one wrong: is it their size, their values or what came before?",
    nudges=(
        Nudge(lambda v, r: len(v) != 3, "three numbers: (a, b, c)"),
        Nudge(lambda v, r: v == tuple(row + 1 for row in r), "count rows from 0: the first is row 0"),
        Nudge(lambda v, r: v[0] == 2, "a: each run is wrong alike, so nothing differs between runs"),
        Nudge(lambda v, r: v[1] == 1, "b: both requests have the same values"),
        Nudge(lambda v, r: v[1] == 2, "b: no chance is in it: the first is wrong, and only the first"),
        Nudge(lambda v, r: v[2] == 1, "c: nobody says what the values are, but how many there are"),
    ),
)

QUESTIONS = (_MAP, *(patient.question for patient in PATIENTS))
