"""Say which versions of Triton the checker supports, without importing Triton."""

import re

OLDEST, NEWEST = (3, 7), (3, 9)
SUPPORTED = "Triton {}.{} to {}.{}".format(*OLDEST, *NEWEST)


def has_barriers_at_atomics(version: str) -> bool:
    """Return whether a version puts a barrier before an atomic that releases and after one that acquires.

    In the PTX of sm_90, 3.7.1 and 3.8.0 have no such barrier and 3.9.0 has both, also for a block of atomics.
    """
    numbers = _numbers(version)
    return numbers is not None and numbers >= (3, 9)


def has_sums_in_tf32(version: str) -> bool:
    """Return whether a version turns a sum of products into a dot in TF32, along any axis.

    3.8.0 and 3.9.0 do so along axis 1 only, where it is right, and in full precision.
    """
    numbers = _numbers(version)
    return numbers is not None and numbers < (3, 8)


def has_cv_with_a_policy(version: str) -> bool:
    """Return whether a version keeps a load's .cv next to an eviction policy, which ptxas refuses.

    In the PTX of sm_90, 3.7.1 leaves .cv out, and 3.8.0 has both. 3.9.0 has both, too.
    """
    numbers = _numbers(version)
    return numbers is not None and numbers >= (3, 8)


def has_repeated_registers(version: str) -> bool:
    """Return whether a thread with room for more than a whole block holds elements of it several times."""
    numbers = _numbers(version)
    return numbers is not None and numbers < (3, 9)


def too_old(version: str) -> str:
    """Return why the checker can't work with a version of Triton, as one clause; "" if it can.

    An older Triton hides the function by which the checker has the IR printed.
    """
    numbers = _numbers(version)
    if numbers is None or numbers >= OLDEST:
        return ""
    return f"the checker does not support Triton {version}, only {SUPPORTED}"


def too_new(version: str) -> str:
    """Return that a version is newer than those that the checker is tested with, as one clause; "" if not."""
    numbers = _numbers(version)
    if numbers is None or numbers <= NEWEST:
        return ""
    return f"the checker is tested with {SUPPORTED}, but this is Triton {version}"


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
