"""The syllabus as data: a module per chapter, in order."""

from puzzles_lib.puzzle import Puzzle
from puzzles_lib.puzzles import (
    bit_packing,
    blocks,
    broadcasting,
    convolution,
    flash_attention,
    fused_dw,
    fusion,
    int8_linear,
    machine_code,
    matmul,
    quantize,
    quantized_matmul,
    racing,
    reductions,
    relu_masks,
    welcome,
)
from puzzles_lib.puzzles.chapter import Chapter

CHAPTERS: tuple[Chapter, ...] = (
    welcome.CHAPTER,
    blocks.CHAPTER,
    broadcasting.CHAPTER,
    fusion.CHAPTER,
    reductions.CHAPTER,
    flash_attention.CHAPTER,
    convolution.CHAPTER,
    matmul.CHAPTER,
    quantized_matmul.CHAPTER,
    bit_packing.CHAPTER,
    quantize.CHAPTER,
    relu_masks.CHAPTER,
    fused_dw.CHAPTER,
    machine_code.CHAPTER,
    int8_linear.CHAPTER,
    racing.CHAPTER,
)
PUZZLES: tuple[Puzzle, ...] = tuple(puzzle for chapter in CHAPTERS for puzzle in chapter.puzzles)

# Every puzzle by its name in capitals: OUTER_ADD.
globals().update({puzzle.name.upper(): puzzle for puzzle in PUZZLES})
DOUBLE = welcome.DOUBLE
INT8_MATMUL = machine_code.INT8_MATMUL
