"""Random numbers for stochastic rounding: Philox, counted only by an element's place.

Stochastic rounding of a value between the codes c and c + 1 gives c + 1 with a probability equal to its
distance from c. The result is wrong each time, but correct on average (Gupta et al., 2015, arXiv:1502.02551).
Philox (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3") makes random bits from a key and a
count, without a state. Here the key is seed and offset, and the count is column and row. So a code depends
only on these, not on how a kernel is launched.

A call of Philox makes 64 bits for 32 elements of a column. A number u of 16 bits serves 8 elements, a *unit*,
whose words and fields are adjacent. Each element takes u with its top three bits flipped in a different way.
Each of these numbers is uniform, so x̂ is correct on average. Together they are in different eighths of [0,
1), so that their errors tend to cancel in a sum over rows, such as a weight's gradient. On an H200 stochastic
codes of [100864, 3072], bfloat16, groups of 256, are as fast as the nearest ones within 1.5%. 1 bit takes 160
us and 2 bits 168 us; a copy of as many bytes takes 157 and 167 us (`python -m puzzles_lib.bench rounding`).
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels.bitpack import WORD_ROWS, block_rows

ROUNDINGS = ("nearest", "stochastic")
ROUNDS = tl.constexpr(7)  # of Philox: as many as pass BigCrush in the paper
_M = (0xD2511F53, 0xCD9E8D57, 0xD256D193)  # Philox's multipliers: of 4x32, and of 2x32
_BUMPS = (0x9E3779B9, 0xBB67AE85)  # of its key, each round
_LOW = 0xFFFFFFFF
UNIT_FIELDS = {1: 4, 2: 4, 4: 4, 8: 2}  # by bits: adjacent fields of a word
UNIT_ROWS = {1: 2, 2: 2, 4: 2, 8: 4}  # and adjacent rows of words, 8 elements in all
STOCHASTIC_REGISTERS = 168  # of a thread, at most: more threads are worth more than fewer reloads


def check_rounding(rounding: str) -> None:
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be nearest or stochastic, but is {rounding!r}")


def rounding_of(bits: int, rounding: str | None) -> str:
    """Return how a layer rounds: `rounding` itself, or to the nearest code if it is None.

    One bit is rounded stochastically with None: its nearest codes double the gradients' size.
    Raises ValueError for another rounding.
    """
    if rounding is None:
        return "stochastic" if bits == 1 else "nearest"
    check_rounding(rounding)
    return rounding


def as_seed(rounding: str, seed: int | torch.Tensor, device: torch.device) -> torch.Tensor | None:
    """Return the seed as a tensor of one int64, or None for nearest rounding.

    Raises ValueError for another rounding, or for a seed of 65 bits or of more elements. Raises TypeError for
    a seed that is neither an integer nor an int64 tensor.
    """
    check_rounding(rounding)
    if isinstance(seed, torch.Tensor):
        if seed.dtype != torch.int64:
            raise TypeError(
                f"seed must be an integer or a torch.int64 tensor with one element, but is {seed.dtype}"
            )
        if seed.numel() != 1 or seed.device != device:
            what = f"{seed.numel()} elements on {seed.device}"
            raise ValueError(f"seed must have one element on the device of x, {device}, but has {what}")
        return None if rounding == "nearest" else seed
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(
            f"seed must be an integer or a torch.int64 tensor with one element, but is {type(seed).__name__}"
        )
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must be an integer that fits in 64 bits, but is {seed}")
    return None if rounding == "nearest" else torch.full((), seed, dtype=torch.int64, device=device)


@triton.constexpr_function
def fraction_bits(bits):
    """Return the number of fractional bits of a value between two codes."""
    return 14 if bits == 8 else 16


@triton.constexpr_function
def leading_one(bits):
    """Return 1.5 · 2^n, near which float32 numbers are 2^-fraction_bits apart. Adding it rounds a value."""
    return 1.5 * 2.0 ** (23 - fraction_bits(bits))


@triton.constexpr_function
def draw_rows(bits):
    """Return how many rows of words share a call of Philox: 32 rows of a matrix."""
    return 2 * bits


# ---- torch, the reference


def philox_ref(key: list[torch.Tensor], counter: list[torch.Tensor], rounds: int = ROUNDS.value):
    """Return Philox4x32 or Philox2x32: as many tensors of 32 random bits (in int64) as the counter has.

    counter: 4 or 2 tensors of 32 bits. key: 2 or 1 of them.
    """
    for _ in range(rounds):
        if len(counter) == 2:
            product = _M[2] * counter[0]  # 64 bits, the top one in the sign
            counter = [(product >> 32 & _LOW) ^ key[0] ^ counter[1], product & _LOW]
        else:
            a, b = _M[0] * counter[0], _M[1] * counter[2]
            high_a, high_b = a >> 32 & _LOW, b >> 32 & _LOW
            counter = [high_b ^ counter[1] ^ key[0], b & _LOW, high_a ^ counter[3] ^ key[1], a & _LOW]
        key = [(k + bump) & _LOW for k, bump in zip(key, _BUMPS, strict=False)]
    return counter


def draw_ref(seed: torch.Tensor, offset: int, rows: int, columns: int, bits: int) -> torch.Tensor:
    """Return integers [rows, columns] of `fraction_bits` random bits. rows must be whole blocks."""
    halves = [seed & _LOW, seed >> 32 & _LOW]
    count = [torch.full_like(seed, word) for word in (offset & _LOW, offset >> 32 & _LOW, 0, 0)]
    key = philox_ref(halves, count)[:1]
    unit_fields, unit_rows = UNIT_FIELDS[bits], UNIT_ROWS[bits]
    row = torch.arange(rows, device=seed.device)
    word_row = row // block_rows(bits) * WORD_ROWS + row % WORD_ROWS
    field = row % block_rows(bits) // WORD_ROWS
    calls = rows // 32
    column = torch.arange(columns, device=seed.device).expand(calls, columns)
    words = philox_ref(key, [column, torch.arange(calls, device=seed.device)[:, None]])
    unit = word_row % draw_rows(bits) // unit_rows * (16 // bits // unit_fields) + field // unit_fields
    word = torch.stack(words)[unit // 2, word_row // draw_rows(bits)]  # [rows, columns]
    number = (word >> (16 * (unit % 2))[:, None] & 0xFFFF) >> 16 - fraction_bits(bits)
    piece = field % unit_fields * unit_rows + word_row % unit_rows  # of 8
    return number ^ (piece << fraction_bits(bits) - 3)[:, None]


# ---- Triton


@triton.jit
def draw(seed_ptr, offset, first, offs_c, BITS: tl.constexpr):
    """Return 64 random bits for each column, in two words, for the `draw_rows` that contain ``first``."""
    key, _, _, _ = tl.philox(
        tl.load(seed_ptr),
        offset.to(tl.int32),
        (offset.to(tl.int64) >> 32).to(tl.int32),
        0,
        0,
        n_rounds=ROUNDS,
    )
    low = offs_c.to(tl.uint32)  # [1, 1, GROUPS * WIDTH]
    high = tl.zeros_like(low) + (first // draw_rows(BITS)).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        product = low.to(tl.uint64) * 0xD256D193
        low = (product >> 32).to(tl.uint32) ^ key ^ high
        high = product.to(tl.uint32)
        key += 0x9E3779B9
    return low, high


@triton.jit
def noise(
    low, high, first, step, BITS: tl.constexpr, SPLIT: tl.constexpr, HALVES: tl.constexpr = False
):  # fmt: skip
    """Return floats [STEP, ROWS, GROUPS * WIDTH]: `leading_one` plus a fraction of random bits.

    low, high: random words, from `draw`.
    step: the first of STEP fields. first: the first of ROWS rows of words, at most those of a unit.
    HALVES: use an instruction of NVIDIA's GPUs.
    """
    UNIT_FIELDS: tl.constexpr = 2 if BITS == 8 else 4
    UNIT_ROWS: tl.constexpr = 8 // UNIT_FIELDS
    STEP: tl.constexpr = SPLIT[0]
    ROWS: tl.constexpr = SPLIT[1]
    field = step if STEP <= UNIT_FIELDS else step + tl.arange(0, STEP)[:, None, None]
    unit = first % draw_rows(BITS) // UNIT_ROWS * (16 // BITS // UNIT_FIELDS) + field // UNIT_FIELDS
    word = tl.where(unit < 2, low, high)
    leading = tl.full(word.shape, leading_one(BITS), tl.float32).to(tl.uint32, bitcast=True)
    if HALVES and BITS < 8:  # a half of the word is the fraction, the leading one's upper half goes above it
        number = tl.where(unit % 2 == 0, _lower_and_upper(word, leading), upper_halves(word, leading))
    else:
        number = (word >> (unit % 2 * 16).to(tl.uint32)) & 0xFFFF
        number = (number >> (16 - fraction_bits(BITS))) | leading
    # Where a program has whole units, the compiler knows each element's piece.
    field = 0 if STEP >= UNIT_FIELDS else step % UNIT_FIELDS
    field = (field + tl.arange(0, STEP)[:, None, None]) % UNIT_FIELDS
    row = 0 if ROWS == UNIT_ROWS else first % UNIT_ROWS
    piece = field * UNIT_ROWS + row + tl.arange(0, ROWS)[None, :, None]
    return (number ^ (piece << (fraction_bits(BITS) - 3)).to(tl.uint32)).to(tl.float32, bitcast=True)


@triton.jit
def _lower_and_upper(a, b):
    """Of 32 bits each: a's lower 16, and b's upper ones above them."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x7610;", "=r,r,r", [a, b], a.dtype, True, 1)


@triton.jit
def lower_halves(a, b):
    """Return 32 bits each: a's lower 16, and b's lower 16 above them."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b], a.dtype, True, 1)


@triton.jit
def upper_halves(a, b):
    """Return 32 bits each: a's upper 16, and b's upper 16 above them."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b], a.dtype, True, 1)
