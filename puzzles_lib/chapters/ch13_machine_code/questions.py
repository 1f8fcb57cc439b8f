"""The reading exercises of chapter 13. Their kernels are the chapter's own, as its notebook has them."""

import re

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
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Nudge, Question

BLOCK_SHARED_BYTES = find_target("sm_90").shared_limit
SIZES = (4000, 4004, 4008, 4016, 4100)
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
WIDTHS = (64, 128, 256)  # of tiles with 128 rows


_made: dict[tuple, Stages] = {}


def _once(kernel: JITFunction, puzzle: Puzzle, target: str, numbers: dict[str, int]) -> Stages:
    """Compiled once in a session: each question, and each try at one, asks for the same few."""
    key = (puzzle.name, target, *numbers.items())
    if key not in _made:
        made = stages(kernel, puzzle, target, **numbers)
        if made.built is None:  # refused by the front end, or since another thread was at work
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
    return len(read_layout(ttgir, "#ttg.slice<{dim = 0, parent = #blocked}>", (64,)).holders((5,)))


def _accumulators() -> int:
    return read_layout(_matmul(BLOCK_N=256).ttgir, "#mma", (128, 256)).registers


def _element_of_bits() -> tuple[int, int]:
    return read_layout(_matmul("gfx942").ttgir, "#linear", (64, 128)).element(1, 18, 5)


def _products() -> int:
    return len(re.findall(r"wgmma\.mma_async", _matmul().ptx))


def _pass_of_the_tensor_core() -> str:
    return next(p.name for p in _matmul().passes if "warp_group_dot" in "".join(p.after))


def _deepest() -> int:
    """Looked for from where it is to be expected: each stage more takes as much as the one before it."""

    def needed(num_stages: int) -> int:
        return _matmul(num_stages=num_stages).shared_bytes

    deepest = 3 + (BLOCK_SHARED_BYTES - needed(3)) // (needed(3) - needed(2))
    while needed(deepest) > BLOCK_SHARED_BYTES:
        deepest -= 1
    while needed(deepest + 1) <= BLOCK_SHARED_BYTES:
        deepest += 1
    return deepest


def _warps_without_spills() -> int:
    return next(n for n in (4, 8, 16, 32) if _matmul(BLOCK_N=256, num_warps=n).spills == 0)


def _loads_of_4095() -> int:
    return _add(N=4095).ptx.count("ld.global")


def _becomes() -> str:
    """Machine code for one element fewer."""
    whole, fewer = (len(_add(N=n).sass.splitlines()) for n in (4096, 4095))
    return "the same" if fewer == whole else "longer" if fewer > whole else "shorter"


def _runs_with_eight_warps() -> int:
    return read_layout(_add(num_warps=8).ttgir, "#blocked", (1024,)).registers // 4


def _pass_of_the_runs() -> str:
    return next(p.name for p in _add().passes if "sizePerThread = [4]" in "".join(p.diff.added))


def _place_of_a_chunk() -> int:
    """Of chunk 2, in row 6."""
    shared = read_shared(_matmul("sm_80", num_stages=1).ttgir, "#shared")
    return shared.column(6, 2 * shared.vec) // shared.vec


def _widths_that_spill() -> set[int]:
    return {n for n in WIDTHS if _matmul(BLOCK_N=n).spills}


def _refusals_of_block_k_4() -> set[str]:
    made = {name: _once(int8_matmul_kernel, INT8_MATMUL, name, {"BLOCK_K": 4}) for name in TARGETS}
    return {name for name, code in made.items() if not code.ok}


def _least_block_k() -> int:
    return next(k for k in (2, 4, 8, 16, 32, 64) if _matmul(BLOCK_K=k).ok)


def _same_pass(given: str, right: str) -> bool:
    """``TritonGPUCoalesce`` and ``tritongpu-coalesce`` are two names of one pass."""
    return re.sub(r"[^a-z0-9]", "", given) == re.sub(r"[^a-z0-9]", "", right.lower())


def _is(value: object):
    return lambda given, right: given == value


QUESTIONS = (
    Question(
        "ch13-q1",
        "How many arguments does the function in TTIR take?",
        _arguments,
        int,
        "Count what stands between the brackets of tt.func, each with a % before its name.",
        (
            Nudge(
                _is(4),
                "So many has the Python function. Search the TTIR for BLOCK: what is there in its place?",
            ),
            Nudge(_is(5), "Those are the arguments further down, in LLVM IR and PTX. Count in the TTIR."),
        ),
    ),
    Question(
        "ch13-q2",
        "Which operations in TTIR take the mask as an operand? Name them as TTIR does: {'tt.…', ...}",
        _users_of_the_mask,
        set,
        "Find the arith.cmpi. It gives a value a name, with a %; which later lines have that name in them?",
        (
            Nudge(
                lambda given, right: "arith.cmpi" in given,
                "arith.cmpi makes the mask. Asked for is what takes it: lines below with its name.",
            ),
            Nudge(
                lambda given, right: given < right,
                "Right, but that is not all of it: look for the name of the mask once more.",
            ),
            Nudge(
                lambda given, right: {n.rpartition(".")[2] for n in given} == {n[3:] for n in right},
                "Those two, yes. Name them as TTIR does: with tt. in front.",
            ),
            Nudge(
                lambda given, right: given > right,
                "Those are among them, and one is too many: has its line the name of the mask in it?",
            ),
            Nudge(
                lambda given, right: "tt.splat" in given,
                "tt.splat makes a block of copies of N, which the mask is then computed from. Look below it.",
            ),
        ),
    ),
    Question(
        "ch13-q3",
        "Who holds element 700 of the block? (warp, lane, register)",
        _holder_of_700,
        tuple,
        "Divide step by step: how many elements does a thread hold in a run, a warp, all warps together?",
        (
            Nudge(lambda given, right: len(given) != 3, "Three numbers: (warp, lane, register)."),
            Nudge(
                lambda given, right: given[:2] == right[:2],
                "The thread is right. But before it comes to this element it has held others already, "
                "in the first half of the block.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] and given[2] == right[2],
                "Warp and register are right. Where does this run of the warp begin, how far is 700 from it?",
            ),
            Nudge(
                lambda given, right: isinstance(given[0], int) and given[0] > 3,
                "There are four warps, 0 to 3. After the last one has its share, the first begins again.",
            ),
        ),
    ),
    Question(
        "ch13-q4",
        "In chapter 01 you had BLOCK=32. How many threads hold each element then, with four warps?",
        _holders_in_a_small_block,
        int,
        "Read #blocked with BLOCK=32: how many places for elements have all threads together?",
        (
            Nudge(
                _is(1),
                "One would be enough. But count the threads, and the elements that there are for them.",
            ),
            Nudge(_is(128), "That is how many threads there are. They share 32 elements."),
        ),
    ),
    Question(
        "ch13-q5",
        f"For which N of {', '.join(map(str, SIZES))} does x arrive in loads of four? A set.",
        _sizes_with_wide_loads,
        set,
        "Compile with each N and look for ld.global in the PTX, or for tt.divisibility in the TTIR.",
        (
            Nudge(
                lambda given, right: given == set(SIZES),
                "All of them are multiples of 4, but does the compiler know? It is told one thing only.",
            ),
            Nudge(
                lambda given, right: given > right,
                "The right ones are among them, but not alone: what exactly is the compiler told about N?",
            ),
            Nudge(lambda given, right: set() < given < right, "Right so far; there is another one."),
        ),
    ),
    Question(
        "ch13-q6",
        "Into which register does thread 0 load element 3 of its block? Such as 'R20'.",
        _register_of_3,
        str,
        "LDG.E.128 names the first of the registers it fills; they follow each other.",
        (
            Nudge(lambda given, right: given.isdigit(), "A register's name has a letter in front: R."),
            Nudge(
                lambda given, right: given.casefold() in ("r2", "r3"),
                "That is half of an address: [R2.64] is the pair R2, R3. Look before the bracket.",
            ),
            Nudge(
                lambda given, right: (
                    given.lstrip("r").isdigit() and int(given.lstrip("r")) == int(right[1:]) - 3
                ),
                "That is where element 0 goes.",
            ),
            Nudge(
                lambda given, right: given.lstrip("r") == str(int(right[1:]) - 1),
                "One short: element 3 is the fourth of them.",
            ),
            Nudge(
                lambda given, right: given.lstrip("r").isdigit() and int(given.lstrip("r")) > int(right[1:]),
                "That is one of the second load's, which starts at element 512.",
            ),
        ),
    ),
    Question(
        "ch13-q7",
        "How many threads has a program with four warps on gfx942?",
        _threads_on_amd,
        int,
        "The layout in TTGIR says how many threads a warp has, and how many warps there are.",
        (
            Nudge(_is(128), "So many it has on NVIDIA. Read threadsPerWarp in the TTGIR for gfx942."),
            Nudge(_is(64), "So many has one warp. The program has four."),
        ),
    ),
    Question(
        "ch13-q8",
        "How many threads of the program hold the same element of offs_k, in "
        "#ttg.slice<{dim = 0, parent = #blocked}> on sm_80?",
        _holders_of_a_column,
        int,
        "In the picture, go down the column of one element: every thread that you meet needs its offset.",
        (
            Nudge(_is(4), "So many in each warp. How many warps has the program?"),
            Nudge(_is(8), "That is a row: along it lie the columns. Go down, not across."),
            Nudge(_is(1), "If only one thread held it, the others could not compute their addresses."),
            Nudge(_is(128), "That is every thread. Most of them hold elements of other columns."),
        ),
    ),
    Question(
        "ch13-q9",
        "How many float32 accumulators does each thread hold for a 128 x 256 tile, with four warps?",
        _accumulators,
        int,
        "All threads together hold the tile, and none of it twice.",
        (
            Nudge(_is(128), "That is the tile of 128 x 128. This one is wider."),
            Nudge(_is(255), "That is what ptxas may use at most. Count elements and threads instead."),
            Nudge(_is(128 * 256), "That is the whole tile. It is shared among 4 warps of 32."),
        ),
    ),
    Question(
        "ch13-q10",
        "Which element (row, column) is in register 5 of lane 18 of warp 1, in #linear for gfx942?",
        _element_of_bits,
        tuple,
        "Write each number in binary, lowest bit first, and add up the steps of the bits that are 1.",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (row, column)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "The sums are right. Axis 0 comes first: the row.",
            ),
            Nudge(
                lambda given, right: (given[0] == right[0]) != (given[1] == right[1]),
                "One of the two is right. Which bits of 5, of 18 and of 1 are set?",
            ),
        ),
    ),
    Question(
        "ch13-q11",
        "How many wgmma instructions does a warp issue in one turn of the loop, on sm_90?",
        _products,
        int,
        "The name says m64n128k16. How many such pieces make [128, 64] @ [64, 128]?",
        (
            Nudge(
                _is(1), "In TTGIR there is one operation. Look in the PTX, or divide the tile into pieces."
            ),
            Nudge(_is(4), "Along K it takes four. And along M?"),
            Nudge(_is(2), "Along M it takes two. And along K?"),
            Nudge(_is(16), "One piece has all 128 columns. Count along M and along K."),
        ),
    ),
    Question(
        "ch13-q12",
        "Which pass turns tt.dot into ttng.warp_group_dot, on sm_90?",
        _pass_of_the_tensor_core,
        str,
        "Passes are shown with what they changed. In which one's lines does warp_group_dot appear with a +?",
        (
            Nudge(
                lambda given, right: "pipeline" in given,
                "That one puts copies and waits around it. When it comes, warp_group_dot is there already.",
            ),
            Nudge(
                lambda given, right: "convert-triton-to" in given or "converttritonto" in given,
                "That pass gives each tensor a layout, and leaves tt.dot what it was.",
            ),
            Nudge(
                lambda given, right: given.isdigit(),
                "Its name is asked for: numbers change with every version of Triton.",
            ),
            Nudge(
                lambda given, right: len(given) > 8 and given in right,
                "That is part of its name. Give all of it, as it stands in the list.",
            ),
            Nudge(
                lambda given, right: "dot" in given,
                "Its name sounds like it. But did it change anything here? Look for one that did.",
            ),
        ),
        _same_pass,
    ),
    Question(
        "ch13-q13",
        f"What is the largest num_stages on sm_90 within {BLOCK_SHARED_BYTES} bytes of shared memory?",
        _deepest,
        int,
        "Each stage more costs the same number of bytes: read it off two compilations.",
        (
            Nudge(
                lambda given, right: right < given <= right + 3,
                "That is too deep. Compile with it, and compare shared_bytes with the limit.",
            ),
            Nudge(lambda given, right: 0 < given < right, "That fits. So does a deeper one."),
        ),
    ),
    Question(
        "ch13-q14",
        "How many warps does a 128 x 256 tile take at least, on sm_90, so that nothing is spilled?",
        _warps_without_spills,
        int,
        "Compile it with num_warps=..., and read spills.",
        (
            Nudge(_is(4), "With so many it spills: stages(...).spills says how much."),
            Nudge(
                lambda given, right: given > right and given.bit_count() == 1,
                "With so many nothing is spilled. But are they needed?",
            ),
            Nudge(lambda given, right: given.bit_count() != 1, "Warps are a power of two."),
        ),
    ),
    Question(
        "ch13-q15",
        "What is the smallest BLOCK_K with which the float16 matmul compiles for sm_90?",
        _least_block_k,
        int,
        "Powers of two only. Where it does not compile, the refusal says what it wants.",
        (
            Nudge(
                lambda given, right: given == 2 * right,
                "That compiles. But pieces of K are counted in bytes, and a float16 has two.",
            ),
            Nudge(
                lambda given, right: given < right,
                "With that it does not compile for sm_90. Read its message to the end.",
            ),
            Nudge(
                lambda given, right: given > right and given.bit_count() == 1,
                "That compiles. A smaller one does too.",
            ),
        ),
    ),
    Question(
        "ch13-q16",
        "N = 4095, BLOCK = 1024, four warps, sm_90. How many loads are in the program of a thread?",
        _loads_of_4095,
        int,
        "A thread holds as many elements as before. How many of them may share a predicate now?",
        (
            Nudge(
                _is(2),
                "So many there were, each with one predicate for four elements. Is that still allowed?",
            ),
            Nudge(_is(4), "One run of four elements, yes. How many runs has a thread?"),
            Nudge(
                _is(3),
                "The edge lies in one run only, but which thread has it? One program is for all threads.",
            ),
            Nudge(
                lambda given, right: given >= 1024,
                "That is the whole block. It is shared among 128 threads.",
            ),
        ),
    ),
    Question(
        "ch13-q17",
        f"For which of {', '.join(TARGETS)} does int8_matmul_kernel not compile with BLOCK_K=4? A set.",
        _refusals_of_block_k_4,
        set,
        "Which of them are of one family? A tensor core takes pieces of a fixed depth.",
        (
            Nudge(
                lambda given, right: given > right,
                "One of them has, beside its matrix cores, an instruction such as a CPU's, of four products.",
            ),
            Nudge(
                lambda given, right: set() < given < right,
                "Right so far. Is another one's tensor core content with less?",
            ),
        ),
    ),
    Question(
        "ch13-q18",
        "N = 4095 instead of 4096: is the machine code for an H100 'shorter', 'the same' or 'longer'?",
        _becomes,
        str,
        "One element is less to do, but the code is one for all threads. What might it know of 4096?",
        (
            Nudge(
                lambda given, right: given not in ("shorter", "the same", "longer"),
                "Answer with one of the three that the question names.",
            ),
            Nudge(_is("the same"), "N is an argument, yes; but Triton looks at it before it compiles."),
        ),
    ),
    Question(
        "ch13-q19",
        "A block of 1024, eight warps, runs of four: how many runs does each thread hold?",
        _runs_with_eight_warps,
        int,
        "How many threads are there now, and how many elements for each of them?",
        (
            Nudge(_is(2), "So many with four warps. Now twice as many threads share the same block."),
            Nudge(_is(4), "Those are the elements of each thread. How many runs of four do they make?"),
            Nudge(_is(256), "So many threads are there. How many elements are left for each?"),
        ),
    ),
    Question(
        "ch13-q20",
        "Which pass made runs of four out of single elements, on sm_90?",
        _pass_of_the_runs,
        str,
        "add.passes['…'] shows what one changed. Where does sizePerThread = [4] first stand beside a +?",
        (
            Nudge(
                lambda given, right: given.isdigit(),
                "Its name is asked for: numbers change with every version of Triton.",
            ),
            Nudge(
                lambda given, right: "convert-triton-to" in given or "converttritonto" in given,
                "That one brings layouts in, with single elements. Who makes runs of them?",
            ),
            Nudge(
                lambda given, right: "remove" in given,
                "That one tidies up. When it comes, the runs are there already.",
            ),
            Nudge(
                lambda given, right: len(given) > 6 and given in right,
                "That is part of its name. Give all of it, as it stands in the list.",
            ),
        ),
        _same_pass,
    ),
    Question(
        "ch13-q21",
        "In #shared, at which place of row 6 is chunk 2 kept?",
        _place_of_a_chunk,
        int,
        "Write 2 and 6 in binary. A bit of the place is 1 where theirs differ.",
        (
            Nudge(_is(2), "There it would be without swizzling, and is in row 0. What is c xor r here?"),
            Nudge(_is(6), "That is r alone. What is c xor r, with c = 2?"),
            Nudge(
                lambda given, right: given in (0, 8),
                "That is a sum. Exclusive or adds nothing up: it looks at each pair of bits by itself.",
            ),
        ),
    ),
    Question(
        "ch13-q22",
        f"Which of {', '.join(map(str, WIDTHS))} columns must spill, in a tile of 128 rows, on sm_90 with "
        "four warps? A set.",
        _widths_that_spill,
        set,
        "How many sums of each tile does one of the 128 threads hold? It has at most 255 registers.",
        (
            Nudge(
                lambda given, right: not given,
                "Count the sums of the widest one: are there registers for all of them?",
            ),
            Nudge(
                lambda given, right: given > right and 64 not in given,
                "Of the middle one a thread holds 128 sums. Are 255 registers too few for that?",
            ),
            Nudge(
                lambda given, right: given > right,
                "Of the narrowest a thread holds 64 sums, and it has 255 registers.",
            ),
        ),
    ),
)
