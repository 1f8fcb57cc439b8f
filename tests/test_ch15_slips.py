"""What a failed race of chapter 15 says of common slips, and which hint follows it."""

import pytest

from puzzles_lib import hint, session
from puzzles_lib.chapters.ch15_racing_cublas import puzzles, versions
from puzzles_lib.chapters.ch15_racing_cublas.machine import small_puzzle
from puzzles_lib.chapters.ch15_racing_cublas.rung import Rung
from puzzles_lib.chapters.ch15_racing_cublas.slips import SLIPS
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report
from puzzles_lib.coach import hinting
from puzzles_lib.source import define, with_helpers

SMALL = {"BLOCK_M": 128, "BLOCK_N": 64}


def tried(rung: Rung, *edits: tuple[str, str], tiles: dict[str, int] = SMALL) -> tuple[Rung, Report]:
    """A version in tiles of these sizes with edits somewhere in its kernel or helpers, and its report."""
    functions = list(with_helpers(rung.kernel))
    sources = {each.__name__: each.src for each in functions}
    for old, new in edits:
        (name,) = (name for name, source in sources.items() if old in source)
        sources[name] = sources[name].replace(old, new)
    scope = dict(rung.kernel.fn.__globals__)
    for each in reversed(functions):  # helpers come after the functions that call them
        scope[each.__name__] = define(
            f"@triton.jit\n{sources[each.__name__]}", f"<a try of {each.__name__}>", scope
        )
    loaded = {"words": (16, 64), "params": (1, 256), "dy": (128, 128)} if rung.descriptors else None
    kernel = scope[rung.kernel.__name__]
    made = Rung(rung.name, kernel, splits=1, descriptors=loaded, **rung.options, **rung.constants | tiles)
    return made, examine(kernel, small_puzzle(made), until_failure=True)


PARTS = "(words >> 8 * (j // 4)) & (3 << 2 * (j % 4))"
PLACED = "tl.permute(tl.join(pair, pair >> 8), (0, 2, 1))"
FOUR = "words[:, None, :] & mask"
CORNER = "[block * 16, n]"
CUTS = "[i // 4])[i // 2 % 2])[i % 2]"
CORNERS = """[group + 4 * block + half, 0]) * unit  # [1, BLOCK_K]
        minimum = params_in.load([group + 4 * block + 2 + half, 0])"""
SCALE, MINIMUM = "[group + 4 * block + half, 0]", "[group + 4 * block + 2 + half, 0]"
MIXED = (CORNERS, CORNERS.replace("+ half", "+ 2 * half").replace("2 + 2 * half", "2 * half + 1"))
PER_STEP = CORNERS.replace("4 * block + half", "step").replace("4 * block + 2", "step + 2 - half")
PER_HALF = CORNERS.replace("4 * block + half", "4 * step").replace("4 * block + 2 + half", "4 * step + 2")
TRIES = [
    (versions.along_k, ("(words >> 2 * j)", "(words >> j)"), "shifted by j bits", "Field j"),
    (versions.along_k, ("(words >> 2 * j) & 3", "words & (3 << 2 * j)"), "out of range", "Field j"),
    (versions.along_k, ("2 * j) & 3", "2 * j)"), "isn't masked: & 3", "Field j"),
    (versions.along_k, ("& 3", "& 7"), "three bits of the word", "Field j"),
    (versions.along_k, ("minimum[None, :] + ", ""), "no minimum", "Which axis is K"),
    (versions.along_k, ("scale[None, :]", "scale[:, None]"), "do not fit", "Which axis is K"),
    (versions.along_k, ("minimum[None, :] + scale[None, :]", "scale[None, :] + minimum[None, :]"),
     "scale and minimum are swapped", "Which axis is K"),
    (versions.along_k, ("tl.dot(x, dy, acc)", "tl.dot(dy, x, acc)"),
     "tl.dot needs the last axis", "Which factor"),
    (versions.along_k, ("tl.dot(x, dy, acc)", "tl.dot(tl.trans(dy), tl.trans(x), acc)"),
     "the product is [128, 64], but acc is [64, 128]", "Which factor"),
    (versions.along_k, ("tl.dot(x, dy, acc)", "tl.dot(x, dy)"), "only the last dot", "Which factor"),
    (versions.subnormal, ("* 2.0 ** (101 - 2 * (j % 4))", ""), "power of two is missing", "The exponent"),
    (versions.subnormal, ("2.0 ** (101", "2.0 ** (133"), "product on line 23 that is too large",
     "The exponent"),
    (versions.subnormal, ("101 - 2 * (j % 4)", "133 - 2 * j"), "product on line 23 that is too large",
     "The exponent"),
    (versions.subnormal, (", bitcast=True", ""), "converted, not read", "Read, not converted"),
    (versions.subnormal, (PARTS, "words & (3 << 2 * (j % 4))"), "fields 0 to 3 again", "Which bits"),
    (versions.subnormal, ("(minimum * 2.0**-32).to(tl.bfloat16)", "minimum.to(tl.bfloat16) * 2.0**-32"),
     "no minimum", "Three lines"),
    (versions.one_dot, ("3 << 2 * tl.load", "3 << tl.load"), "1 bit apart", "Four masks"),
    (versions.one_dot, ("[None, :, None]", "[:, None, None]"), "do not fit", "Which axis is the field"),
    (versions.one_dot, (FOUR, f"tl.permute({FOUR}, (0, 2, 1))"), "out of order", "Which axis is the field"),
    (versions.by_tma, (f"tl.trans(words_in.load({CORNER}))", f"words_in.load({CORNER})"),
     "mask is [16, 4, 64]", "A block of words has 16 rows"),
    (versions.by_tma, (CORNER, "[step * 16, n]"), "read past the end", "A corner for each tile"),
    (versions.by_tma, (SCALE, "[group + 4 * block + half, 64 * half]"), "scales begin at column 0", ""),
    (versions.by_tma, (CORNERS, PER_STEP), "by 1 row per half block", "Four rows per block"),
    (versions.subnormal, ("(101 - 2 * (j % 4))", "(101 - (j % 4))"), "falls by 2", "The exponent"),
    (versions.by_tma, ("minimum.to(tl.float32) * 2.0**-32", "minimum.to(tl.float32)"), "2^32 too large", ""),
    (versions.by_tma, (CORNER, "[block, n]"), "16 rows of words", "A block of words has 16 rows"),
    (versions.by_tma, (CORNER, "[block * 128, n]"), "128 per block", ""),
    (versions.by_tma, (CORNER, "[step * BLOCK_K, n]"), "read past the end", ""),
    (versions.by_tma, ("[group + 4", "[4"), "first group's scales and minima", ""),
    (versions.whole, (PLACED, "tl.reshape(tl.join(pair, pair >> 8), (COLUMNS, 2, 8))"),
     "tl.reshape keeps the order", ""),
    (versions.by_tma, ("4 * block", "block"), "a block has 4 rows", "Four rows per block"),
    (versions.by_tma, ("block + 2 + half", "block + 1 + half"), "1 row after the scale", "Four rows"),
    (versions.subnormal, ("(101 - 2 * (j % 4))", "(101 - 2 * j)"), "use j % 4", "The exponent"),
    (versions.subnormal, (PARTS, "(words >> 2 * j) & 3"), "shifted down to bits 0 and 1", ""),
    (versions.one_dot, ("3 << 2 * tl.load", "2 << 2 * tl.load"), "only the upper bit of each field", ""),
    (versions.by_tma, (SCALE, SCALE.replace("4 * block", "block")), "corner of the scale moves", ""),
    (versions.by_tma, (MINIMUM, MINIMUM.replace("4 * block", "block")), "corner of the minimum moves", ""),
    (versions.whole, ("pair >> 8", "pair >> 16"), "drops a whole word", ""),
    (versions.whole, ("tl.join(pair, pair >> 8)", "tl.join(pair >> 8, pair)"), "come before fields 0 to 3",
     ""),
    (versions.along_k, ("(words >> 2 * j)", "(words >> 2 * r[None, :])"), "row r is shifted by 2 r",
     "Field j"),
    (versions.subnormal, ("(3 << 2 * (j % 4))", "3"), "every mask is 3", "Which bits"),
    (versions.subnormal, ("tl.load(place) * 2.0", "tl.load(place).to(tl.float32) * 2.0"), "of one dtype",
     "Everything in bfloat16"),
    (versions.subnormal, ("* 2.0 ** (101", "* 2 ** (101"), "write 2.0 ** n", "A power of two as a float"),
    (versions.subnormal, (PARTS, "words & (3 << 2 * j)"), "49152 is out of range for int16", "Which bits"),
    (versions.by_tma, (CORNERS, PER_HALF), "by 4 rows per half block", "Four rows per block"),
    (versions.by_tma, (CORNERS, CORNERS.replace(" + half", "")), "add half to both", "Four rows per block"),
    (versions.in_pieces, (CUTS, "[0])[0])[0]"), "every piece is the tile's first", "Three bits"),
    (versions.by_tma, MIXED, "rows are mixed up", "Four rows per block"),
    (versions.by_tma, ("* unit", ""), "power of two is missing", "Scaled as in rung 4"),
    (versions.whole, (PLACED, "tl.join(pair, pair >> 8)"), "count faster", "Put the new axis in the middle"),
    (versions.whole, ("pair >> 8", "pair >> 4"), "fields 2 to 5", "Two versions of the pair"),
    (versions.whole, ("both[:, :, None, :]", "both"), "do not fit", "Room for the fields"),
    (versions.in_pieces, (CUTS, "[i % 2])[i // 2 % 2])[i // 4]"), "the pieces are in another order",
     "Which cut comes first"),
]  # fmt: skip


@pytest.mark.parametrize(("rung", "edit", "words", "title"), TRIES, ids=[words for *_, words, _ in TRIES])
def test_a_slip_is_named_and_its_hint_comes_first(rung, edit, words, title, monkeypatch):
    monkeypatch.setattr(hinting, "_shown", {})
    monkeypatch.setattr(session, "_raced", {})
    made, report = tried(rung, edit)
    assert not report.ok and words in str(report)
    session.remember_race(made.hint_key, report)
    assert title in hint(made).headline


def test_a_product_and_a_sum_in_place_of_fma_are_named():
    """In small tiles, the result is still within the tolerance."""
    fused, apart = (
        "tl.fma(code, scale[None, :], minimum[None, :])",
        "code * scale[None, :] + minimum[None, :]",
    )
    tiles = {name: versions.subnormal.constants[name] for name in SMALL}
    _, report = tried(versions.subnormal, (fused, apart), tiles=tiles)
    assert "rounded twice, after the product and after the sum: tl.fma" in str(report)


def test_every_slip_is_tried():
    tried_here = [*(words for _, _, words, _ in TRIES), "rounded twice"]
    assert [text for text in SLIPS if not any(words in text for words in tried_here)] == []


def test_no_case_is_named_after_the_tables_that_a_kernel_loads():
    puzzle = small_puzzle(versions.by_tma)
    assert "numbers" not in f"{puzzle.cases[0]}" and puzzle.derived["numbers"] is puzzles.the_numbers
