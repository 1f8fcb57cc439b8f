"""The reading exercises of chapter 13, about the kernels in its notebook."""

import re
from collections.abc import Callable

from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.chapters.ch13_machine_code.kernels import (
    batched_matmul_kernel,
    masked_add_kernel,
)
from puzzles_lib.compiler import find_target
from puzzles_lib.compiler.layouts import read_layout
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.h200 import RESERVED

SIX_LAUNCHES = ((4096, 1024), (8192, 1024), (4095, 1024), (4094, 1024), (1, 1024), (4096, 512))  # N, BLOCK
WARPS = (2, 4, 8, 16, 32)
SIZES = (4000, 4004, 4008, 4016, 4100)
LAUNCHES = {1: (128, 128, 2), 2: (64, 256, 4), 3: (256, 128, 8), 4: (256, 256, 8)}  # rows, columns, warps
SUMS, DEEP, PROGRAMS = 16384, 5, 3  # what a launch on a budget needs


_made: dict[tuple, Stages] = {}


def _once(
    kernel: JITFunction, puzzle: Puzzle, target: str, numbers: dict[str, int], until: str = ""
) -> Stages:
    """Return a kernel's stages, compiled once per session: the questions ask for the same few."""
    key = (puzzle.name, target, until, *numbers.items())
    if key not in _made:
        made = stages(kernel, puzzle, target, until=until, **numbers)
        if made.built is None:  # the compiler rejects it, or another thread was compiling
            return made
        _made[key] = made
    return _made[key]


def _add(target: str = "sm_90", **numbers: int) -> Stages:
    return _once(masked_add_kernel, MASKED_ADD, target, {"N": 4096, "BLOCK": 1024} | numbers)


def _matmul(target: str = "sm_90", until: str = "", **numbers: int) -> Stages:
    sizes = {"B": 1, "M": 1024, "N": 1024, "K": 1024, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    return _once(batched_matmul_kernel, BATCHED_MATMUL, target, sizes | numbers, until)


# ---- the answers


def _compilations() -> int:
    """Return how many different programs the six launches need."""
    return len({_add(N=n, BLOCK=block).ttir for n, block in SIX_LAUNCHES})


def _left_out() -> set[int]:
    """Return the elements that the rounded mask of q2 leaves out."""
    return set(range(4002 // 4 * 4, 4002))


def _holder_of_700() -> tuple[int, int, int]:
    (holder,) = read_layout(_add().ttgir, "#blocked", (1024,)).holders((700,))
    return holder


def _holders_in_a_small_block() -> int:
    return len(read_layout(_add(N=200, BLOCK=32).ttgir, "#blocked", (32,)).holders((5,)))


def _sizes_with_wide_loads() -> set[int]:
    return {n for n in SIZES if "ld.global.v4" in _add(N=n).ptx}


def _register_of_518() -> str:
    """Return the register of program 0 that holds element 518, as the machine code numbers it."""
    ((_, _, register),) = read_layout(_add().ttgir, "#blocked", (1024,)).holders((518,))
    firsts = [int(number) for number in re.findall(r"LDG\.E\.128 R(\d+)", _add().sass)]
    return f"R{firsts[register // 4] + register % 4}"


def _products() -> int:
    return len(re.findall(r"wgmma\.mma_async", _matmul().ptx))


def _copies() -> tuple[int, int]:
    """Return how many copies of tiles are in front of the loop and in it."""
    front, _, rest = _matmul().ttgir.partition("scf.for")
    copy = "ttg.async_copy_global_to_local"
    return front.count(copy), rest.partition("scf.yield")[0].count(copy)


def _deepest(target: str = "sm_90") -> int:
    """Return the deepest pipeline that fits, found near the estimate: every stage takes the same space."""
    limit = find_target(target).shared_limit

    def needed(num_stages: int) -> int:
        return _matmul(target, num_stages=num_stages).shared_bytes

    deepest = 3 + (limit - needed(3)) // (needed(3) - needed(2))
    while needed(deepest) > limit:
        deepest -= 1
    while needed(deepest + 1) <= limit:
        deepest += 1
    return deepest


def _programs_at_a_time() -> tuple[int, int]:
    """Return how many programs one multiprocessor runs at a time, with 3 stages and with the most."""
    return tuple(_resident(_matmul(num_stages=n)) for n in (3, _deepest()))


def _resident(made: Stages) -> int:
    return resident(made.registers, made.shared_bytes, made.num_warps)


def _launch() -> tuple[int, ...]:
    """Return one of several launches that `_in_budget` accepts."""
    return 128, 128, 16, 4, 5


def _whole_launch(given: tuple) -> bool:
    """Return whether a launch has five numbers for which a compilation ends soon."""
    if len(given) != 5 or not all(isinstance(n, int) and n > 0 for n in given):
        return False
    powers = all(n.bit_count() == 1 for n in given[:4])
    least = given[0] >= 16 and given[1] >= 16 and given[2] >= 16
    return powers and least and max(given[:3]) <= 256 and given[3] <= 16 and given[4] <= 8


def _launched(given: tuple, until: str = "") -> Stages:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return _matmul(until=until, **dict(zip(names, given, strict=True)))


def _multiplies_by_wgmma(given: tuple) -> bool | None:
    """Return whether TTGIR has a wgmma, which it calls warp_group_dot; None if the launch gets none."""
    made = _launched(given, until="ttgir")
    return "ttng.warp_group_dot" in made.ttgir if made.ok else None


def _in_budget(given: tuple, right: tuple) -> bool:
    return _whole_launch(given) and _kept(given) is None


def _kept(given: tuple) -> str | None:
    """Return what keeps a launch from being an answer, or None."""
    if given[0] * given[1] < SUMS:
        return "sums"
    if given[4] < DEEP:
        return "depth"
    if not _multiplies_by_wgmma(given):
        return "wgmma"
    made = _launched(given)
    if not made.ok or made.spills:
        return "spills"
    if resident(made.registers, 0, made.num_warps) < PROGRAMS:
        return "registers"
    return None if _resident(made) >= PROGRAMS else "shared"


def _needs(given: tuple) -> dict[str, object]:
    """Return what a launch needs: registers per thread, given out in steps of 8, and the rest."""
    made = _launched(given)
    registers, threads = -(-(made.registers or 0) // 8) * 8, 32 * given[3]
    sums = given[0] * given[1] // threads
    shared = (made.shared_bytes or 0) + RESERVED
    return {
        "sums": sums,
        "registers": registers,
        "threads": threads,
        "all_registers": registers * threads * PROGRAMS,
        "shared": shared,
        "all_shared": shared * PROGRAMS,
    }


def _fails_by(what: str) -> Callable[[tuple, tuple], bool]:
    return lambda given, right: _kept(given) == what


def _loads_of_4095() -> int:
    return _add(N=4095).ptx.count("ld.global")


def _loads_without_a_promise() -> tuple[int, int]:
    """Return a load for each element of a thread, none of which is aligned, and a predicate for each run."""
    elements = read_layout(_add().ttgir, "#blocked", (1024,)).registers
    return elements, len(set(re.findall(r"(@%p\d+) ld\.global", _add().ptx)))


def _becomes() -> str:
    """Return what happens to the machine code if there is one element less."""
    whole, fewer = (_add(N=n).instructions for n in (4096, 4095))
    return "the same" if fewer == whole else "longer" if fewer > whole else "shorter"


def _warps_with_wide_loads() -> set[int]:
    return {warps for warps in WARPS if "ld.global.v4" in _add(num_warps=warps).ptx}


def _offsets_of_a_thread() -> tuple[int, int]:
    """Return where the two runs of thread 5 of program 2 begin."""
    layout = read_layout(_add().ttgir, "#blocked", (1024,))
    return tuple(2 * 1024 + layout.element(0, 5, register)[0] for register in (0, 4))


def _launches_that_spill() -> set[int]:
    return {
        name
        for name, (rows, columns, warps) in LAUNCHES.items()
        if _matmul(BLOCK_M=rows, BLOCK_N=columns, num_warps=warps).spills
    }


def _instructions_of_the_line() -> int:
    """Return how many SASS instructions the line with the mask became."""
    return len(_add().lines("sass", "mask ="))


def _bytes_of_neighbors() -> int:
    """Return the bytes of the longest run that lane 9 holds in a row of x, a fragment of mma.sync."""
    operand = "#ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>"
    layout = read_layout(_matmul("sm_80", num_stages=1).ttgir, operand, (16, 16))
    row = [any(h[:2] == (0, 9) for h in layout.holders((2, k))) for k in range(16)]
    return 2 * max(len(run) for run in "".join("x" if held else " " for held in row).split())


BASE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}


def _change() -> tuple[str, int]:
    """Return one of several changes that `_without_wgmma` accepts."""
    return "BLOCK_M", 32


def _changed(given: tuple) -> tuple[int, ...] | None:
    """Return the launch after a change, or None if the change has another form. Case doesn't matter."""
    names = {name.lower(): name for name in BASE}
    if len(given) != 2 or str(given[0]).lower() not in names:
        return None
    launch = tuple((BASE | {names[given[0].lower()]: given[1]}).values())
    return launch if _whole_launch(launch) else None


def _changes(*names: str) -> Callable[[tuple, tuple], bool]:
    return lambda given, right: given[0].lower() in {name.lower() for name in names}


def _without_wgmma(given: tuple, right: tuple) -> bool:
    launch = _changed(given)
    return launch is not None and _multiplies_by_wgmma(launch) is False


def _is(value: object):
    return lambda given, right: given == value


QUESTIONS = (
    Question(
        "ch13-q1",
        f"Launches with (N, BLOCK) = {', '.join(map(str, SIX_LAUNCHES))}: how often does Triton compile?",
        _compilations,
        int,
        "For each launch, write down BLOCK and the two answers about N. Which launches have the same?",
        (
            Nudge(
                _is(6),
                "That's one for each launch. But Triton doesn't compile for the value of N. What does it "
                "ask?",
            ),
            Nudge(_is(5), "Some of the sizes that are not multiples of 16 can share a compilation."),
            Nudge(
                _is(3),
                "Almost. Did you see that one launch has another BLOCK? And what does Triton ask about N "
                "besides 16?",
            ),
            Nudge(
                _is(2), "BLOCK isn't all that counts, and neither is 16. What else does Triton ask about N?"
            ),
            Nudge(_is(1), "A constexpr is part of the code, and so are the answers about N."),
        ),
    ),
    Question(
        "ch13-q2",
        "A kernel stores whole runs of four only, and N = 4002: which elements of z come out wrong? A set.",
        _left_out,
        set,
        "Where does the last whole run of four end? Nothing is stored from there on.",
        (
            Nudge(
                _is({4002, 4003}),
                "z has no such elements: it ends at N. Does the last whole run end before N, or after it?",
            ),
            Nudge(_is(set()), "Some are never stored: is N a multiple of 4?"),
        ),
    ),
    Question(
        "ch13-q3",
        "Who holds element 700 of the block? (warp, lane, register)",
        _holder_of_700,
        tuple,
        "Divide step by step. How many elements does one thread hold in a run? One warp? All warps together?",
        (
            Nudge(lambda given, right: len(given) != 3, "Give three numbers: (warp, lane, register)."),
            Nudge(
                lambda given, right: given[:2] == right[:2],
                "The thread is correct. But it has held others already, from the first half of the block. "
                "Which register comes next?",
            ),
            Nudge(
                lambda given, right: any(isinstance(lane, int) and lane > 31 for lane in given[1:2]),
                "A warp has lanes 0 to 31. After lane 31, the next warp begins.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] and given[2] == right[2],
                "Warp and register are correct. Where does this run of the warp begin? How far is it to 700?",
            ),
            Nudge(
                lambda given, right: isinstance(given[0], int) and given[0] > 3,
                "There are four warps, 0 to 3. After warp 3, the pattern starts again with warp 0.",
            ),
        ),
    ),
    Question(
        "ch13-q4",
        "With BLOCK=32, as in chapter 01, and four warps: how many threads hold each element?",
        _holders_in_a_small_block,
        int,
        "Read #blocked with BLOCK=32: how many places for elements do all threads have together?",
        (
            Nudge(
                _is(1),
                "One would be enough. But count the threads, and compare with the number of elements.",
            ),
            Nudge(_is(128), "That's how many threads there are. They share 32 elements."),
        ),
    ),
    Question(
        "ch13-q5",
        f"For which N of {', '.join(map(str, SIZES))} does x arrive in loads of four? A set.",
        _sizes_with_wide_loads,
        set,
        "Compile for each N. Look for ld.global in the PTX, or for tt.divisibility in the TTIR.",
        (
            Nudge(
                lambda given, right: given == set(SIZES),
                "All of them are multiples of 4, but does the compiler know that? It's told one thing only.",
            ),
            Nudge(
                lambda given, right: given > right,
                "The correct ones are in your set, but not alone. What exactly does the compiler know of N?",
            ),
            Nudge(lambda given, right: set() < given < right, "Correct so far, but there's another one."),
        ),
    ),
    Question(
        "ch13-q6",
        "Which register does thread 1 of program 0 load element 518 into? Answer like 'R20'.",
        _register_of_518,
        str,
        "Which of the thread's two runs is it in, and at which place? LDG.E.128 names the first of four "
        "registers.",
        (
            Nudge(lambda given, right: given.isdigit(), "A register's name has a letter in front: R."),
            Nudge(
                lambda given, right: given in ("r2", "r3", "r12", "r13"),
                "That's half of an address: [R2.64] means the pair R2, R3. Look in front of the bracket.",
            ),
            Nudge(
                lambda given, right: given in ("r4", "r5", "r6", "r7"),
                "That register belongs to the first load. Which elements does thread 1 load with it?",
            ),
            Nudge(
                lambda given, right: given in ("r8", "r9", "r11"),
                "That's the correct load. With which element does thread 1's run begin there?",
            ),
        ),
    ),
    Question(
        "ch13-q11",
        "How many wgmma instructions does a warp issue in one iteration of the loop, on sm_90?",
        _products,
        int,
        "The name says m64n128k16. How many pieces of that size make up [128, 64] @ [64, 128]?",
        (
            Nudge(
                _is(1), "In TTGIR there is one operation. Look at the PTX, or divide the tile into pieces."
            ),
            Nudge(_is(4), "4 is correct along K. How many pieces are there along M?"),
            Nudge(_is(2), "2 is correct along M. How many pieces are there along K?"),
            Nudge(_is(16), "One piece has all 128 columns. Count along M and K only."),
        ),
    ),
    Question(
        "ch13-q12",
        "How many copies of tiles are in front of the loop and in it, with num_stages=3 on sm_90? A pair.",
        _copies,
        tuple,
        "Three iterations are under way: one multiplies. For how many others must tiles be on their way?",
        (
            Nudge(
                lambda given, right: len(given) != 2,
                "Give two numbers: (in front of the loop, in the loop).",
            ),
            Nudge(
                lambda given, right: given == right[::-1],
                "The numbers are correct, but the first one is for the code in front of the loop.",
            ),
            Nudge(_is((2, 1)), "That counts iterations. Each of them needs a tile of x and one of y."),
            Nudge(
                _is((6, 2)),
                "Every iteration of the loop starts new copies itself. So how many must be ahead of it?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "Those in front of the loop are correct. Each iteration starts one other's tiles.",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "Those in the loop are correct. How many iterations have been started before the first dot?",
            ),
        ),
    ),
    Question(
        "ch13-q14",
        f"(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) for sm_90: at least {SUMS} sums in a program "
        f"with wgmma, no spills, num_stages of {DEEP} or more, {PROGRAMS} programs at a time.",
        _launch,
        tuple,
        "That multiplies without wgmma. How many warps work together in one, and on how many rows?",
        (
            Nudge(
                lambda given, right: len(given) != 5,
                "Give five numbers: (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages).",
            ),
            Nudge(
                lambda given, right: not _whole_launch(given),
                "Tile sizes are powers of two from 16 to 256 here, warps a power of two up to 16, and stages "
                "1 to 8.",
            ),
            Nudge(
                _fails_by("sums"),
                "A program computes BLOCK_M times BLOCK_N elements. Those are too few.",
            ),
            Nudge(_fails_by("depth"), f"num_stages, the last number, is less than {DEEP}."),
            Nudge(
                _fails_by("spills"),
                "With that launch, registers spill: a thread holds {sums} sums, and addresses and masks need "
                "registers, too.",
                _needs,
            ),
            Nudge(
                _fails_by("registers"),
                "That's {registers} registers for each thread. Three programs of {threads} threads need "
                "{all_registers}, and there are 65536. A thread has {sums} sums; more threads, or another "
                "shape of the tile, change the rest.",
                _needs,
            ),
            Nudge(
                _fails_by("shared"),
                "The registers fit, but not three programs' shared memory: {shared} bytes each, {all_shared} "
                "in all, and there are 233472. What do a stage's two tiles take, and which size makes them "
                "smaller without changing the sums?",
                _needs,
            ),
        ),
        _in_budget,
    ),
    Question(
        "ch13-q15",
        "How many programs does a multiprocessor run at a time with num_stages=3, and how many with 7? A "
        "pair.",
        _programs_at_a_time,
        tuple,
        "Divide twice: registers by those of a program's 128 threads, shared memory by what a program needs.",
        (
            Nudge(lambda given, right: len(given) != 2, "Give two numbers: (with num_stages=3, with 7)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "Those are the numbers, but the first one is for 3 stages.",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The second number is correct. With 3 stages, what do registers allow, and shared memory?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The first number is correct. How much shared memory is left beside one with 7 stages?",
            ),
        ),
    ),
    Question(
        "ch13-q16",
        "N = 4095, BLOCK = 1024, four warps, sm_90: how many loads does a thread's program have?",
        _loads_of_4095,
        int,
        "A thread holds as many elements as before. How many of them can share a predicate now?",
        (
            Nudge(
                _is(2),
                "There were 2 before, each with one predicate for four elements. Is that still allowed?",
            ),
            Nudge(_is(4), "That covers one run of four elements. How many runs does a thread have?"),
            Nudge(
                _is(3),
                "The edge cuts only one run, but which thread has it? One program is for all threads.",
            ),
            Nudge(
                lambda given, right: given == 1024,
                "That's the whole block. 128 threads share it.",
            ),
            Nudge(
                _is(4095),
                "That's all of x. It takes four programs, and each of them has 128 threads.",
            ),
        ),
    ),
    Question(
        "ch13-q18",
        "N = 4095 instead of 4096: does the machine code for an H100 get 'shorter', 'the same' or 'longer'?",
        _becomes,
        str,
        "There is one element less to do, but the code is one for all threads. What can it rely on for 4096?",
        (
            Nudge(
                lambda given, right: given not in ("shorter", "the same", "longer"),
                "Answer with one of the three words in the question.",
            ),
            Nudge(_is("the same"), "N is an argument, yes. But Triton looks at it before it compiles."),
        ),
    ),
    Question(
        "ch13-q19",
        f"A block of 1024 float32: with which num_warps of {', '.join(map(str, WARPS))} can a thread load 16 "
        "bytes at a time? A set.",
        _warps_with_wide_loads,
        set,
        "For each number: how many threads share the 1024 elements, and how many does each thread get?",
        (
            Nudge(
                lambda given, right: given > right,
                "Not with all of those. When a thread has fewer than four elements, how wide can its load "
                "be?",
            ),
            Nudge(
                lambda given, right: set() < given < right,
                "Correct so far, but that's not all of it. A thread can have many runs of four, or a single "
                "one.",
            ),
        ),
    ),
    Question(
        "ch13-q22",
        f"Which launches, as (rows, columns, warps), must spill on sm_90? {LAUNCHES} A set of their numbers.",
        _launches_that_spill,
        set,
        "How many sums does a thread hold in each of them? It has at most 255 registers.",
        (
            Nudge(
                lambda given, right: not given,
                "Count the sums per thread. Are there registers for all of them in all four launches?",
            ),
            Nudge(
                _is({4}),
                "Correct so far, but not all. A small tile can be too much for few threads.",
            ),
            Nudge(
                _is({1}),
                "Correct so far, but not all. A large tile can be too much even for 8 warps: divide for each "
                "launch.",
            ),
            Nudge(
                lambda given, right: given > right,
                "One is too many. A large tile can be shared by many threads: divide for each launch.",
            ),
        ),
    ),
    Question(
        "ch13-q23",
        "x_ptr is not a multiple of 16, but N = 4096 is. How many loads does a thread's program have, and "
        "how "
        "many predicates guard them? A pair.",
        _loads_without_a_promise,
        tuple,
        "A width needs an address: may four elements share a load? A predicate needs a mask: can the edge "
        "cut "
        "a run?",
        (
            Nudge(lambda given, right: len(given) != 2, "Give two numbers: (loads, predicates)."),
            Nudge(
                _is((8, 8)),
                "The loads are correct. But N is a multiple of 16 again: can the edge still cut a run of "
                "four?",
            ),
            Nudge(
                _is((2, 2)),
                "Those are the numbers for aligned pointers. Without that, may four elements share a load?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The loads are correct. For how many elements is one bit of the mask enough?",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The predicates are correct. How many elements has a thread, and may they share loads?",
            ),
        ),
    ),
    Question(
        "ch13-q25",
        "You are thread 5 of program 2. What is in %11 and %12? A pair.",
        _offsets_of_a_thread,
        tuple,
        "Follow the instructions: ctaid.x is 2 and tid.x is 5. Shifting left by 1 doubles a number.",
        (
            Nudge(lambda given, right: len(given) != 2, "Give two numbers: (what's in %11, what's in %12)."),
            Nudge(
                lambda given, right: given == (2 * 1024 + 5, 2 * 1024 + 5 + 512),
                "Almost: a thread's run has four elements. What does shl by 2 make of 5?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The first number is correct. %12 is made from %11. How far apart are they?",
            ),
            Nudge(
                lambda given, right: given == (20, 532),
                "Those would be the numbers in program 0. Where does the block of program 2 begin?",
            ),
            Nudge(
                lambda given, right: given[1] - given[0] == 512,
                "The distance is correct. Now %11: shift the program's number, shift the thread's number, "
                "and add.",
            ),
        ),
    ),
    Question(
        "ch13-q26",
        "Line 4 of masked_add_kernel computes the mask. How many SASS instructions did it become, for sm_90?",
        _instructions_of_the_line,
        int,
        "In the card, take the marks off all other lines, open sass, and count the lines that are left.",
        (
            Nudge(
                _is(2),
                "That may be the two comparisons. Is there another line that line 4 has become?",
            ),
            Nudge(
                lambda given, right: given in (33, 50),
                "That's the whole kernel. Choose line 4 and no other line.",
            ),
        ),
    ),
    Question(
        "ch13-q27",
        "How many bytes has the widest load of lane 9's fragment of x (float16) from global memory?",
        _bytes_of_neighbors,
        int,
        "Find lane 9's cells in x. How many of them are next to each other in a row?",
        (
            Nudge(_is(2), "That's a single element. Does lane 9 hold the one next to it, too?"),
            Nudge(
                _is(16),
                "That's all of the fragment, 8 elements. But they aren't all next to each other.",
            ),
            Nudge(_is(8), "Count bytes of neighbors in one row, not elements of the fragment."),
        ),
    ),
    Question(
        "ch13-q28",
        "Change one number of (BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=3) so that "
        "sm_90 multiplies without wgmma. (name, value)",
        _change,
        tuple,
        "Four warps share one wgmma, 16 rows each. When are there too few warps, or too few rows?",
        (
            Nudge(
                lambda given, right: _changed(given) is None,
                "Give a name and a number, such as ('BLOCK_N', 64). Tile sizes are powers of two from 16 to "
                "256 here, warps a power of two up to 16, and stages 1 to 8.",
            ),
            Nudge(
                lambda given, right: _changed(given) == _changed(("num_warps", 4)),
                "That's the launch as it is. Change one of its numbers.",
            ),
            Nudge(
                lambda given, right: _changed(given) == _changed(("BLOCK_M", 64)),
                "Half the rows still make a wgmma. How many of them does each of its four warps take?",
            ),
            Nudge(
                _changes("BLOCK_K", "num_stages"),
                "That changes how much is multiplied at a time, or how far ahead tiles are copied. It's "
                "still wgmma.",
            ),
            Nudge(
                _changes("BLOCK_N"),
                "It's still wgmma, with another n in its name. Which number does its m need?",
            ),
        ),
        _without_wgmma,
        computed=True,
    ),
)
