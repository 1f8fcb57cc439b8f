"""The predictions of chapter 15."""

import math

import torch

from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.records import Record, bound_of, ladder_records
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS, Rung
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.h200 import MULTIPROCESSORS
from puzzles_lib.timing.recorded import rows


def _flop_per_byte(more: int = 0) -> float:
    """Return the FLOP per byte that must be moved. more: bytes that needn't be, but are counted, too."""
    rows = ROWS[0]
    words, params = rows * CIN // 4, 4 * rows * CIN // 256
    return 2 * rows * COUT * CIN / (words + params + 2 * rows * COUT + 2 * COUT * CIN + more)


def _reads_of_dy() -> tuple[int, int]:
    first, bigger = versions.first, versions.bigger
    return CIN // first.constants["BLOCK_N"], CIN // bigger.constants["BLOCK_N"]


def _exponent() -> int:
    word = torch.tensor([1 << 6], dtype=torch.int16)  # code 1 in field 3
    return int(word.view(torch.bfloat16).double().log2())


def _seven_against_eight() -> float:
    """Return the speedup of rung 7 over rung 6: rounds, each as long as a part of K."""
    before, after = (_rounds(rung) / rung.splits for rung in (versions.by_tma, versions.filled))
    return before / after


def _waiting() -> float:
    return 1 - bound_of(_record(versions.first)).forecast_us / _times(versions.first.name)[0]["us"]


def _beyond_the_bound() -> float:
    return 1 - bound_of(_record(versions.first)).least_us / _times(versions.first.name)[0]["us"]


def _times(path: str) -> list[dict]:
    """Return the recorded rows of a version, the long K first."""
    found = [row for row in rows("ladder") if row["path"] == path]
    return sorted(found, key=lambda row: -row["us"])


def _times_unpacked() -> int:
    return COUT // versions.first.constants["BLOCK_M"]


def _sum_registers() -> int:
    bigger = versions.bigger
    return bigger.constants["BLOCK_M"] * bigger.constants["BLOCK_N"] // (32 * bigger.options["num_warps"])


def _before_the_first_store() -> tuple[int, int]:
    sums = versions.whole.constants["BLOCK_M"] * versions.whole.constants["BLOCK_N"]
    return 4 * sums, 4 * sums // 8


def _record(rung: Rung) -> Record:
    """Return the record of a version: an answer is judged without waiting for a compiler."""
    return {record.name: record for record in ladder_records()}[rung.name]


def _first_grid() -> tuple[int, int, int]:
    return versions.first.grid()


def _rounds(rung: Rung = versions.bigger) -> int:
    found = _record(rung).evidence
    places = MULTIPROCESSORS * resident(found.registers, found.shared, rung.options["num_warps"])
    return -(-math.prod(rung.grid()) // places)


def _most_parts() -> int:
    """Return the largest number of parts whose programs all find a slot at once."""
    found, rung = _record(versions.by_tma).evidence, versions.by_tma
    places = MULTIPROCESSORS * resident(found.registers, found.shared, rung.options["num_warps"])
    return places // (COUT // rung.constants["BLOCK_M"] * (CIN // rung.constants["BLOCK_N"]))


def _passed_on() -> int:
    return _record(versions.along_k).evidence.passed_on


def _operand_registers() -> int:
    whole = versions.whole
    values = whole.constants["BLOCK_N"] * whole.constants["BLOCK_K"]
    return 2 * values // (4 * 32 * whole.options["num_warps"])


def _saved_clocks() -> int:
    """Return the clocks to issue that rung 8 saves in the rows of one of its iterations."""
    filled, whole = _record(versions.filled), _record(versions.whole)
    turns = whole.launch["BLOCK_K"] // filled.launch["BLOCK_K"]
    return round(turns * bound_of(filled).issue - bound_of(whole).issue)


def _falls() -> str:
    """Return what falls from rung 4 to rung 5, at the long K."""
    before, after = versions.subnormal, versions.one_dot
    forecast = bound_of(_record(after)).forecast_us < bound_of(_record(before)).forecast_us
    time = _times(after.name)[0]["us"] < _times(before.name)[0]["us"]
    return {(True, True): "both", (True, False): "forecast", (False, True): "time"}.get(
        (forecast, time), "neither"
    )


QUESTIONS = (
    Question(
        id="ch15-q1",
        asks="How many FLOP per byte does the fused product do, at K = 100864 (within 0.2%)?",
        right=_flop_per_byte,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.002,
        nudges=(
            Nudge(
                lambda v, r: abs(v / (r / 2) - 1) < 0.02,
                "A multiplication and an addition count as two FLOP. Do you have both?",
            ),
            Nudge(
                lambda v, r: r < v < 1.02 * r,
                "That's nearly it, but some bytes are missing: do you have scales, minima and dW?",
            ),
            Nudge(
                lambda v, r: abs(v / _flop_per_byte(2 * COUT * CIN) - 1) < 0.0005,
                "That's correct for a dW in float32. Here, dW is bfloat16.",
            ),
            Nudge(
                lambda v, r: any(
                    abs(v / _flop_per_byte(trips * 2 * ROWS[0] * CIN) - 1) < 0.02 for trips in (1, 2)
                ),
                "You counted x̂ in bfloat16. A fused kernel reads the words, and x̂ is never in memory.",
            ),
            Nudge(
                lambda v, r: abs(v / 768 - 1) < 0.02,
                "That's correct if only dy were moved. The kernel reads words, scales and minima, too, and "
                "writes dW.",
            ),
            Nudge(
                lambda v, r: v < r,
                "That's too few FLOP per byte, so some of the bytes you counted aren't moved. The kernel "
                "reads words, scales, minima and dy, and writes dW.",
            ),
        ),
        nudge="Count dy (2 bytes per element), the words (a quarter of a byte per code), and scale and "
        "minimum (2 bytes each per group).",
    ),
    Question(
        id="ch15-q2",
        asks="How many programs of one part of K load the same columns of dy, in rung 1 and in rung 2?",
        right=_reads_of_dy,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == tuple(reversed(r)), "Swap them: rung 1 comes first, then rung 2."),
            Nudge(
                lambda v, r: len(v) == 2 and v[0] == r[0],
                "The first number is correct. Rung 2 has wider tiles along CIN. How many fit side by side?",
            ),
        ),
        nudge="A tile of dW needs BLOCK_M columns of dy, and every other tile of its row needs the same "
        "ones. How many tiles make up a row?",
    ),
    Question(
        id="ch15-q3",
        asks="Two bits in field 3, all others 0, read as a bfloat16, are code · 2^e. What is e?",
        right=_exponent,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -133, "That's the exponent of field 0. Where is field 3?"),
            Nudge(
                lambda v, r: v == -130,
                "That would be bit 3. Fields are two bits wide. Where does field 3 begin?",
            ),
            Nudge(lambda v, r: v == -126, "That's bit 7, the upper bit of field 3. Code 1 is the lower one."),
            Nudge(lambda v, r: v == -r, "The number is very small. Which sign does its exponent have?"),
        ),
        nudge="Field 0 counts in steps of 2^-133, and each field further left is worth four times as much.",
    ),
    Question(
        id="ch15-q4",
        asks="If iterations were all that counts, how many times as fast as rung 6 is rung 7 (within 2%)?",
        right=_seven_against_eight,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.02,
        nudges=(
            Nudge(
                lambda v, r: v == 2,
                "One round instead of two is correct. With fewer parts, though, each part takes longer.",
            ),
            Nudge(
                lambda v, r: abs(v * r - 1) < 0.02,
                "That's the inverse: divide the time of rung 6 by the time of rung 7.",
            ),
            Nudge(
                lambda v, r: abs(v - 7 / 8) < 0.01 or abs(v - 8 / 7) < 0.01,
                "That compares the lengths of the parts. How many rounds does each launch take?",
            ),
            Nudge(
                lambda v, r: v < 1.2,
                "Rung 6 takes two rounds, because its last programs find no free slot at first. Did you "
                "count both?",
            ),
        ),
        nudge="Count the rounds of both launches. How long is a round? It takes as long as one part of K.",
    ),
    Question(
        id="ch15-q5",
        asks="How many times does rung 1 unpack each value of x̂, in all its programs together?",
        right=_times_unpacked,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "One program unpacks it once. Which other programs need the same value, for other tiles?",
            ),
            Nudge(
                lambda v, r: v == r**2,
                "That's the number of tiles. Tiles that are next to each other along CIN need other columns "
                "of x̂.",
            ),
            Nudge(
                lambda v, r: v == 64,
                "64 is the length of a tile's side. How many such tiles are there along COUT?",
            ),
            Nudge(
                lambda v, r: v == 2 * r,
                "A value is needed for its own column of dW only. How many tiles are in that column?",
            ),
            Nudge(
                lambda v, r: v in (r * versions.first.splits, versions.first.splits),
                "The parts of K share no row of x̂, so they don't count here.",
            ),
        ),
        nudge="A value in column n of x̂ is needed for column n of dW. How many tiles contain parts of that "
        "column?",
    ),
    Question(
        id="ch15-q6",
        asks="How many 32-bit registers of each thread hold the float32 sums of a 256 × 128 tile, with 8 "
        "warps?",
        right=_sum_registers,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r // 2, "Two bfloat16 numbers share a register, but a float32 fills one."
            ),
            Nudge(lambda v, r: v == 32 * r, "That's the number per warp. A warp has 32 threads."),
        ),
        nudge="Divide the elements of the tile among 8 warps of 32 threads.",
    ),
    Question(
        id="ch15-q7",
        asks="One program takes a time of 1. How long does the launch of rung 2 take?",
        right=lambda: float(_rounds()),
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "Some programs find no free slot at first. When can they start?",
            ),
            Nudge(
                lambda v, r: 1 < v < 1.5,
                "That would be the time if every slot stayed busy. What do most slots do while the last "
                "programs run?",
            ),
        ),
        nudge="Fill the slots with programs. When those end, start the programs that are left.",
    ),
    Question(
        id="ch15-q8",
        asks="How many bytes do threads exchange through shared memory in an iteration of rung 3?",
        right=_passed_on,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16 * 256 or v == 16 * 128 * 2,
                "That's the size of the words. A copy brings them from memory to shared memory. Which bytes "
                "does one thread write there for another?",
            ),
        ),
        nudge="Which thread unpacks a value of x̂ here, and which thread hands it to the tensor cores?",
    ),
    Question(
        id="ch15-q9",
        asks="How many 32-bit registers of each thread hold an iteration's 128 × 128 values of x̂, with 8 "
        "warps?",
        right=_operand_registers,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2 * r, "A register holds two bfloat16 numbers. Did you count one?"),
            Nudge(lambda v, r: v == 32 * r, "That's the number per warp. A warp has 32 threads."),
        ),
        nudge="Divide the values among 8 warps of 32 threads, and put two of them into each register.",
    ),
    Question(
        id="ch15-q10",
        asks="How many bytes of a program's 256 × 128 sums go through shared memory before its first store, "
        "in rung 8 and in eight pieces?",
        right=_before_the_first_store,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: v == tuple(n // 4 for n in r),
                "That's how many sums go through. How many bytes does a float32 number have?",
            ),
            Nudge(
                lambda v, r: v == tuple(n // 2 for n in r), "dW is bfloat16 at the end, but sums are float32."
            ),
            Nudge(lambda v, r: v == tuple(reversed(r)), "Swap them: rung 8 comes first."),
            Nudge(
                lambda v, r: len(v) == 2 and v[0] == r[0],
                "The first number is correct. Of eight pieces, how many must have gone through before the "
                "first one can be stored?",
            ),
        ),
        nudge="In rung 8, the whole tile goes through shared memory first. In pieces, the first piece does.",
    ),
    Question(
        id="ch15-q11",
        asks="How many clocks of issuing does rung 8 save per 128 rows, compared with rung 7?",
        right=_saved_clocks,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v < 0,
                "An iteration of rung 7 has half as many rows. How many iterations does it need for 128?",
            ),
            Nudge(
                lambda v, r: v in (538, 608),
                "That's one box's clocks. How many clocks do 128 rows take in the other box?",
            ),
            Nudge(
                lambda v, r: v == 2 * 538,
                "That's what rung 7 takes for 128 rows. How much less does rung 8 take?",
            ),
            Nudge(
                lambda v, r: v in (70, 140),
                "Only rung 7 needs two iterations for 128 rows. An iteration of rung 8 has all of them.",
            ),
            Nudge(lambda v, r: v > r, "Rung 8 can't save more than rung 7 takes. Did you subtract both?"),
        ),
        nudge="Both boxes show how many clocks an iteration takes to issue, and how many rows it has.",
    ),
    Question(
        id="ch15-q12",
        asks="For what share of its time does rung 1 merely wait, at K = 100864 (within 0.02)?",
        right=_waiting,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.02,
        nudges=(
            Nudge(
                lambda v, r: min(abs(v + r - 1), abs(v - _beyond_the_bound())) < 0.02,
                "Is that the share in which it works, or the time beyond the bound? You need the time "
                "beyond the forecast.",
            ),
            Nudge(lambda v, r: not 0 < v < 1, "A share is a number from 0 to 1. Divide by the whole time."),
        ),
        nudge="Subtract the forecast from the measured time, then divide by the measured time.",
    ),
    Question(
        id="ch15-q13",
        asks='From rung 4 to rung 5, what falls at K = 100864: "forecast", "time", "both" or "neither"?',
        right=_falls,
        kind=str,
        nudges=(
            Nudge(
                lambda v, r: v in ("forecast", "both"),
                "A forecast adds up what is issued. Does rung 5 issue less than rung 4?",
            ),
            Nudge(
                lambda v, r: v == "neither",
                "What can the tensor cores do now while the threads unpack?",
            ),
        ),
        nudge="Answer with 'forecast', 'time', 'both' or 'neither'.",
    ),
    Question(
        id="ch15-q14",
        asks="Which grid does rung 1 need: programs along COUT, programs along CIN, parts of K?",
        right=_first_grid,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 3, "The grid has three axes: COUT, CIN, and the parts of K."),
            Nudge(
                lambda v, r: v[:2] == (COUT, CIN),
                "That's one program per element of dW. How many elements does one program compute?",
            ),
            Nudge(
                lambda v, r: 64 in v[:2],
                "64 is the length of a tile's side. How many tiles fit into 768?",
            ),
            Nudge(
                lambda v, r: v != r and sorted(v) == sorted(r),
                "The three sizes are correct, but in the wrong order: axis 0 is COUT, axis 1 is CIN, and "
                "axis 2 counts the parts of K.",
            ),
            Nudge(
                lambda v, r: v[:2] == r[:2],
                "The tiles are correct. Axis 2 counts the parts of K. How many are there?",
            ),
        ),
        nudge="dW has COUT rows and CIN columns. How many tiles of BLOCK_M × BLOCK_N fit along each axis?",
    ),
    Question(
        id="ch15-q15",
        asks="Into how many parts should K be cut, so that no program of rung 7 waits for a slot and as few "
        "slots as possible stay empty?",
        right=_most_parts,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v > r,
                "That makes more programs than slots, so some programs wait. Count the programs per part.",
            ),
            Nudge(
                lambda v, r: 0 < v < r,
                "No program waits, but more slots than necessary stay empty. Is there room for another part?",
            ),
        ),
        nudge="One part is 18 programs, and the GPU has 132 slots for them.",
    ),
)
