"""The reading exercises of chapter 13, about the kernels in its notebook."""

import re
from collections.abc import Callable, Iterable

from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.chapters.ch13_machine_code.kernels import (
    batched_matmul_kernel,
    int8_matmul_kernel,
    masked_add_kernel,
)
from puzzles_lib.chapters.ch13_machine_code.puzzles import INT8_MATMUL
from puzzles_lib.compiler import find_target
from puzzles_lib.compiler.layouts import read_layout, read_shared
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Nudge, Question

BLOCK_SHARED_BYTES = find_target("sm_90").shared_limit
SIZES = (4000, 4004, 4008, 4016, 4100)
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
LAUNCHES = {1: (128, 128, 2), 2: (64, 256, 4), 3: (256, 128, 8), 4: (256, 256, 8)}  # rows, columns, warps
SUMS, DEEP, PROGRAMS = 8192, 4, 3  # what a launch on a budget needs


_made: dict[tuple, Stages] = {}


def _once(kernel: JITFunction, puzzle: Puzzle, target: str, numbers: dict[str, int]) -> Stages:
    """Return a kernel's stages, compiled once per session: the questions ask for the same few."""
    key = (puzzle.name, target, *numbers.items())
    if key not in _made:
        made = stages(kernel, puzzle, target, **numbers)
        if made.built is None:  # the compiler rejects it, or another thread was compiling
            return made
        _made[key] = made
    return _made[key]


def _add(target: str = "sm_90", **numbers: int) -> Stages:
    return _once(masked_add_kernel, MASKED_ADD, target, {"N": 4096, "BLOCK": 1024} | numbers)


def _matmul(target: str = "sm_90", **numbers: int) -> Stages:
    sizes = {"B": 1, "M": 1024, "N": 1024, "K": 1024, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    return _once(batched_matmul_kernel, BATCHED_MATMUL, target, sizes | numbers)


# ---- the answers


def _arguments() -> int:
    header = re.search(r"tt\.func public @\w+\((.*)\)", _add().ttir)[1]
    return len(re.findall(r"%\w+:", header))


def _users_of_the_mask() -> set[str]:
    ttir = _add().ttir
    mask = re.search(r"(%\w+) = arith\.cmpi", ttir)[1]
    uses = [line for line in ttir.splitlines() if re.search(rf"{mask}\b(?! =)", line)]
    return {re.search(r"\b(?:tt|arith)\.\w+", line)[0] for line in uses}


def _holder_of_700() -> tuple[int, int, int]:
    (holder,) = read_layout(_add().ttgir, "#blocked", (1024,)).holders((700,))
    return holder


def _holders_in_a_small_block() -> int:
    return len(read_layout(_add(N=200, BLOCK=32).ttgir, "#blocked", (32,)).holders((5,)))


def _sizes_with_wide_loads() -> set[int]:
    return {n for n in SIZES if "ld.global.v4" in _add(N=n).ptx}


def _register_of_3() -> str:
    first = int(re.search(r"LDG\.E\.128 R(\d+)", _add().sass)[1])
    return f"R{first + 3}"


def _threads_on_amd() -> int:
    layout = read_layout(_add("gfx942").ttgir, "#blocked", (1024,))
    return layout.lanes * layout.warps


def _holders_of_a_column() -> int:
    ttgir = _matmul("sm_80").ttgir
    return len(read_layout(ttgir, "#ttg.slice<{dim = 0, parent = #blocked1}>", (128,)).holders((5,)))


def _accumulators() -> int:
    return read_layout(_matmul(BLOCK_N=256).ttgir, "#mma", (128, 256)).registers


def _element_of_bits() -> tuple[int, int]:
    return read_layout(_matmul("gfx942").ttgir, "#linear", (64, 128)).element(1, 18, 5)


def _products() -> int:
    return len(re.findall(r"wgmma\.mma_async", _matmul().ptx))


def _copies() -> tuple[int, int]:
    """Return how many copies of tiles are in front of the loop and in it."""
    front, _, rest = _matmul().ttgir.partition("scf.for")
    copy = "ttg.async_copy_global_to_local"
    return front.count(copy), rest.partition("scf.yield")[0].count(copy)


def _deepest() -> int:
    """Return the deepest pipeline that fits, found near the estimate: every stage takes the same space."""

    def needed(num_stages: int) -> int:
        return _matmul(num_stages=num_stages).shared_bytes

    deepest = 3 + (BLOCK_SHARED_BYTES - needed(3)) // (needed(3) - needed(2))
    while needed(deepest) > BLOCK_SHARED_BYTES:
        deepest -= 1
    while needed(deepest + 1) <= BLOCK_SHARED_BYTES:
        deepest += 1
    return deepest


def _programs_at_a_time() -> tuple[int, int]:
    """Return how many programs one multiprocessor runs at a time, with 3 stages and with the most."""
    return tuple(_resident(_matmul(num_stages=n)) for n in (3, _deepest()))


def _resident(made: Stages) -> int:
    return resident(made.registers, made.shared_bytes, made.num_warps)


def _launch() -> tuple[int, ...]:
    """Return one of several launches that `_in_budget` accepts."""
    return 64, 128, 32, 4, 4


def _whole_launch(given: tuple) -> bool:
    """Return whether a launch has five numbers for which a compilation ends soon."""
    if len(given) != 5 or not all(isinstance(n, int) and n > 0 for n in given):
        return False
    powers = all(n.bit_count() == 1 for n in given[:4])
    least = given[0] >= 16 and given[1] >= 16 and given[2] >= 16
    return powers and least and max(given[:3]) <= 256 and given[3] <= 16 and given[4] <= 8


def _launched(given: tuple) -> Stages:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return _matmul(**dict(zip(names, given, strict=True)))


def _in_budget(given: tuple, right: tuple) -> bool:
    return _whole_launch(given) and _kept(given) is None


def _kept(given: tuple) -> str | None:
    """Return what keeps a launch from being an answer, or None."""
    if given[0] * given[1] < SUMS:
        return "sums"
    if given[4] < DEEP:
        return "depth"
    made = _launched(given)
    if not made.ok or "wgmma" not in (made.tensor_core or ""):
        return "wgmma"
    if made.spills:
        return "spills"
    if resident(made.registers, 0, made.num_warps) < PROGRAMS:
        return "registers"
    return None if _resident(made) >= PROGRAMS else "shared"


def _fails_by(what: str) -> Callable[[tuple, tuple], bool]:
    return lambda given, right: _kept(given) == what


def _loads_of_4095() -> int:
    return _add(N=4095).ptx.count("ld.global")


def _loads_without_a_promise() -> int:
    """Return one load for each element of a thread: no two of them may share one."""
    return read_layout(_add().ttgir, "#blocked", (1024,)).registers


def _becomes() -> str:
    """Return what happens to the machine code if there is one element less."""
    whole, fewer = (_add(N=n).instructions for n in (4096, 4095))
    return "the same" if fewer == whole else "longer" if fewer > whole else "shorter"


def _runs_with_eight_warps() -> int:
    return read_layout(_add(num_warps=8).ttgir, "#blocked", (1024,)).registers // 4


def _moves_of_the_runs() -> int:
    """Return how many moves between layouts come with the runs of four."""
    added = (p.diff.added for p in _add().passes)
    lines = next(lines for lines in added if "sizePerThread = [4]" in "".join(lines))
    return sum("ttg.convert_layout" in line for line in lines)


def _places() -> tuple[tuple[int, ...], ...]:
    """Return where Triton's own layout puts each chunk of eight rows."""
    shared = read_shared(_matmul("sm_80", num_stages=1).ttgir, "#shared")
    return tuple(
        tuple(shared.column(row, chunk * shared.vec) // shared.vec for chunk in range(8)) for row in range(8)
    )


def _whole_table(given: tuple) -> bool:
    """Return whether an answer is eight rows of eight places."""
    rows = len(given) == 8 and all(isinstance(row, list | tuple) and len(row) == 8 for row in given)
    return rows and all(isinstance(p, int) and 0 <= p < 8 for row in given for p in row)


def _each_once(lines: Iterable) -> bool:
    return all(sorted(line) == list(range(8)) for line in lines)


def _without_conflicts(given: tuple, right: tuple) -> bool:
    return _whole_table(given) and _each_once(given) and _each_once(zip(*given, strict=True))


def _passes_of_dot_and_copies() -> tuple[str, str]:
    """Return the passes that bring in wgmma and the copies ahead of time."""
    changed = _matmul().passes.changed

    def first(operation: str) -> str:
        return next(p.name for p in changed if any(operation in line for line in p.diff.added))

    return first("ttng.warp_group_dot"), first("ttg.async_copy_global_to_local")


def _same_passes(given: tuple, right: tuple) -> bool:
    return len(given) == 2 and all(map(_same_pass, given, right))


def _same_pass(given: object, right: str) -> bool:
    return given in (right, right.removeprefix("tritongpu-"))


def _launches_that_spill() -> set[int]:
    return {
        name
        for name, (rows, columns, warps) in LAUNCHES.items()
        if _matmul(BLOCK_M=rows, BLOCK_N=columns, num_warps=warps).spills
    }


def _targets_of_block_k_4() -> set[str]:
    made = {name: _once(int8_matmul_kernel, INT8_MATMUL, name, {"BLOCK_K": 4}) for name in TARGETS}
    return {name for name, code in made.items() if code.ok}


def _is(value: object):
    return lambda given, right: given == value


QUESTIONS = (
    Question(
        "ch13-q1",
        "How many arguments does the function in TTIR have?",
        _arguments,
        int,
        "Count the names with a % between the brackets of tt.func.",
        (
            Nudge(
                _is(4),
                "The Python function has 4. Search the TTIR for BLOCK. What do you find instead?",
            ),
            Nudge(_is(5), "You counted further down, in LLVM IR or PTX. Count in the TTIR."),
        ),
    ),
    Question(
        "ch13-q2",
        "Which operations in TTIR take the mask as an operand? Name them as TTIR does, in a set.",
        _users_of_the_mask,
        set,
        "Find the arith.cmpi. It names its result with a %. Which later lines use that name?",
        (
            Nudge(
                lambda given, right: "arith.cmpi" in given,
                "arith.cmpi makes the mask. Which operations use it? Look at the lines below with its name.",
            ),
            Nudge(
                lambda given, right: given < right,
                "Correct so far, but that's not all of it. Search for the mask's name once more.",
            ),
            Nudge(
                lambda given, right: {n.rpartition(".")[2] for n in given} == {n[3:] for n in right},
                "Those two are correct. Now write their TTIR names, with tt. in front.",
            ),
            Nudge(
                lambda given, right: given > right,
                "Both are in your set, but one is too many. Do all of their lines contain the mask's name?",
            ),
            Nudge(
                lambda given, right: "tt.splat" in given,
                "tt.splat makes a block of copies of N, before the mask exists. Look further down.",
            ),
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
        "Which register does thread 0 load element 3 of its block into? Answer like 'R20'.",
        _register_of_3,
        str,
        "LDG.E.128 names the first of four registers in a row.",
        (
            Nudge(lambda given, right: given.isdigit(), "A register's name has a letter in front: R."),
            Nudge(
                lambda given, right: given.casefold() in ("r2", "r3"),
                "That's half of an address: [R2.64] means the pair R2, R3. Look in front of the bracket.",
            ),
            Nudge(
                lambda given, right: (
                    given.lstrip("r").isdigit() and int(given.lstrip("r")) == int(right[1:]) - 3
                ),
                "That's where element 0 goes.",
            ),
            Nudge(
                lambda given, right: given.lstrip("r") == str(int(right[1:]) - 1),
                "That's one short. Count elements 0, 1, 2 and 3: element 3 is the fourth of them.",
            ),
            Nudge(
                lambda given, right: (
                    given.lstrip("r").isdigit() and 0 < int(given.lstrip("r")) - int(right[1:]) <= 4
                ),
                "That register belongs to the second load, which starts at element 512.",
            ),
        ),
    ),
    Question(
        "ch13-q7",
        "How many threads does a program with four warps have on gfx942?",
        _threads_on_amd,
        int,
        "The layout in TTGIR gives the size of a warp in threads, and the number of warps.",
        (
            Nudge(_is(128), "That would be correct on NVIDIA. Read threadsPerWarp in the TTGIR for gfx942."),
            Nudge(_is(64), "That's how many threads one warp has. The program has four warps."),
        ),
    ),
    Question(
        "ch13-q8",
        "How many threads of the program hold the same element of offs_n, for the tile of y in #blocked1 on "
        "sm_80?",
        _holders_of_a_column,
        int,
        "Draw y's tile like the picture of x's, from threadsPerWarp and warpsPerCTA. Then go down a column. "
        "Every thread you meet needs its offset.",
        (
            Nudge(_is(2), "That's how many there are in each warp. How many warps does the program have?"),
            Nudge(
                _is(16),
                "A row of y's tile has that many lanes, and a column of x's that many threads. Go down a "
                "column of y's tile.",
            ),
            Nudge(_is(1), "If only one thread held it, the others could not compute their addresses."),
            Nudge(_is(128), "That's every thread. Most of them hold elements of other columns."),
        ),
    ),
    Question(
        "ch13-q9",
        "How many float32 accumulators does each thread hold for a 128 x 256 tile, with four warps?",
        _accumulators,
        int,
        "All threads together hold the tile, and none of it twice.",
        (
            Nudge(_is(128), "That's for the tile of 128 x 128. This one is wider."),
            Nudge(_is(255), "That's the most registers ptxas may use. Count elements and threads instead."),
            Nudge(_is(128 * 256), "That's the whole tile. It's shared among 4 warps of 32 threads."),
        ),
    ),
    Question(
        "ch13-q10",
        "Which element (row, column) is in register 5 of lane 18 of warp 1, in #linear for gfx942?",
        _element_of_bits,
        tuple,
        "Write each number in binary, lowest bit first. Add up the steps of the bits that are 1.",
        (
            Nudge(lambda given, right: len(given) != 2, "Give two numbers: (row, column)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "The sums are correct, but the row comes first. Axis 0 is the row.",
            ),
            Nudge(
                lambda given, right: (given[0] == right[0]) != (given[1] == right[1]),
                "One of the two is correct. Which bits of 5, 18 and 1 are set?",
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
        "ch13-q13",
        f"What is the largest num_stages that fits {BLOCK_SHARED_BYTES} bytes of shared memory, on sm_90?",
        _deepest,
        int,
        "Every stage costs the same number of bytes. Compare two compilations to find it.",
        (
            Nudge(
                lambda given, right: right < given <= right + 3,
                "That's too deep. Compile with it and compare shared_bytes with the limit.",
            ),
            Nudge(lambda given, right: 0 < given < right, "That fits, but so does a deeper pipeline."),
        ),
    ),
    Question(
        "ch13-q14",
        f"(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) for sm_90: at least {SUMS} sums in a program "
        f"with wgmma, no spills, num_stages of {DEEP} or more, {PROGRAMS} programs at a time.",
        _launch,
        tuple,
        "The registers fit, but not three programs' shared memory. What do a stage's two tiles take, and "
        "which size makes them smaller without changing the sums?",
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
                "With that launch, registers spill. How many sums does a thread hold, and how many may it?",
            ),
            Nudge(
                _fails_by("wgmma"),
                "That multiplies without wgmma. How many warps work together in one, and on how many rows?",
            ),
            Nudge(
                _fails_by("registers"),
                "Three programs need too many registers: multiply registers per thread, threads, programs.",
            ),
        ),
        _in_budget,
    ),
    Question(
        "ch13-q15",
        "How many programs does a multiprocessor run at a time with 3 stages, and how many with the most "
        "that fit? A pair.",
        _programs_at_a_time,
        tuple,
        "Divide twice: registers by those of a program's 128 threads, shared memory by what a program needs.",
        (
            Nudge(lambda given, right: len(given) != 2, "Give two numbers: (with 3 stages, with the most)."),
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
                "The first number is correct. How much shared memory is left next to the deepest pipeline?",
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
        "ch13-q17",
        f"Which of {', '.join(TARGETS)} accept int8_matmul_kernel with BLOCK_K=4? A set.",
        _targets_of_block_k_4,
        set,
        "A tensor core takes pieces of a fixed depth. Which of the targets are of one family?",
        (
            Nudge(
                lambda given, right: not given,
                "One of them also has an instruction such as a CPU's, which adds up four products at once.",
            ),
            Nudge(
                lambda given, right: given > right,
                "One of those accepts it, but not all. Could the other tensor cores work with a depth of 4?",
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
        "A block of 1024, eight warps, runs of four: how many runs does each thread hold?",
        _runs_with_eight_warps,
        int,
        "How many threads are there now, and how many elements does each of them get?",
        (
            Nudge(_is(2), "That was with four warps. Now twice as many threads share the same block."),
            Nudge(_is(4), "That's how many elements each thread has. How many runs of four do they make?"),
            Nudge(_is(256), "That's how many threads there are. How many elements are left for each?"),
        ),
    ),
    Question(
        "ch13-q20",
        "How many ttg.convert_layout does the pass add that makes runs of four, on sm_90?",
        _moves_of_the_runs,
        int,
        "Find the pass where sizePerThread = [4] first appears beside a +. Count its convert_layout lines.",
        (
            Nudge(
                _is(9),
                "That's all lines it adds. Some are the new layout, the load and the store. Count the moves.",
            ),
            Nudge(
                _is(3),
                "That's the load's or the store's share. The pass changes both of them.",
            ),
            Nudge(
                _is(0),
                "At the end none are left, because a later pass removes them. What did this pass add?",
            ),
        ),
    ),
    Question(
        "ch13-q21",
        "Where does each of 8 rows keep each of its 8 chunks, so that chunk c of all rows can be read in one "
        "round? A list of 8 rows of 8 places: places[r][c].",
        _places,
        tuple,
        "Some chunk c is at the same place in two rows, so these two rows take turns. How could the place "
        "depend on r as well?",
        (
            Nudge(
                lambda given, right: not _whole_table(given),
                "Give 8 rows, each of them 8 places from 0 to 7: places[r][c].",
            ),
            Nudge(
                lambda given, right: not _each_once(given),
                "In one of your rows, two chunks are at the same place. Each row needs every place once.",
            ),
            Nudge(
                lambda given, right: all(list(row) == list(range(8)) for row in given),
                "That's the tile without swizzling: chunk c of all eight rows is in the same banks.",
            ),
        ),
        _without_conflicts,
        computed=True,
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
                lambda given, right: set() < given < right,
                "Correct so far, but not all. A small tile can be too much for few threads.",
            ),
            Nudge(
                lambda given, right: given > right,
                "One is too many. A large tile can be shared by many threads: divide for each launch.",
            ),
        ),
    ),
    Question(
        "ch13-q23",
        "Nobody promises that x_ptr is a multiple of 16. How many loads does a thread's program have?",
        _loads_without_a_promise,
        int,
        "A thread has two runs of four elements. Without the promise, may four of them share a load?",
        (
            Nudge(
                _is(2), "That is with the promise. Leave out (0,): sixteen and count ld.global in the PTX."
            ),
            Nudge(_is(4), "That covers one run of four elements. How many runs does a thread have?"),
        ),
    ),
    Question(
        "ch13-q24",
        "Which pass of the matmul for sm_90 brings in the tensor core, and which one copies tiles ahead "
        "of time? A pair of names.",
        _passes_of_dot_and_copies,
        tuple,
        "Look into some passes: h100.passes[name]. Which one has a + beside ttng.warp_group_dot, and "
        "which one beside ttg.async_copy_global_to_local?",
        (
            Nudge(
                lambda given, right: len(given) != 2,
                "Give two names of passes: (the tensor core, copies ahead of time).",
            ),
            Nudge(
                lambda given, right: _same_passes(given[::-1], right),
                "The names are correct, but the first one is for the tensor core.",
            ),
            Nudge(
                lambda given, right: _same_pass(given[0], right[0]),
                "The first name is correct. Which pass has a + beside ttg.async_copy_global_to_local?",
            ),
            Nudge(
                lambda given, right: _same_pass(given[1], right[1]),
                "The second name is correct. Which pass has a + beside ttng.warp_group_dot?",
            ),
        ),
        _same_passes,
    ),
)
