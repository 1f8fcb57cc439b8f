"""The GPU of the recorded figures: an NVIDIA H200."""

FLOPS = 989e12  # per second, from the data sheet, dense bfloat16; the power limit allows about 0.8 of it
FLOAT32 = 67e12  # per second, from the data sheet, without tensor cores
BYTES = 3.95e12  # per second: a large copy of the first runs; later runs have 4.1e12 to 4.2e12
CACHE = 50 << 20  # bytes of L2

MULTIPROCESSORS = 132  # for each of them
REGISTERS, WARPS, PROGRAMS, SHARED = 65536, 64, 32, 228 << 10
RESERVED = 1 << 10  # bytes of shared memory that each program needs in addition to its own
