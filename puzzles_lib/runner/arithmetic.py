"""Note where compiled code computes something else than the kernel's lines say.

Two things are decided by the compiler, and no line of the kernel shows them:

- A sum of which one side is a product is one instruction, an fma: the product isn't rounded. What should
  cancel, such as ``s * w - s * o`` with w equal to o, leaves the product's rounding error.
- ``tl.sum(a[:, :, None] * b[None, :, :])`` of float32 is a dot in TF32, which uses 10 bits of each factor.

Along an axis, in ``tl.sum(a * b, 0)``, ``tl.cumsum`` and ``tl.reduce``, products are fused as well. A thread
rounds the first of its products and adds the others by fmas. If it has only one product, it adds it,
unrounded, to its neighbor's. (This is from PTX and SASS of sm_90, Triton 3.7.1. In ``tl.cumsum`` of bfloat16
nothing is fused.) A run leaves this out. Which products are rounded depends on the layout, as does the order
of the sum. Neither changes a result that doesn't depend on the order: all the roundings together move a sum
of products by less than a quarter of its tolerance (`tests.test_arithmetic`), and the results of the course's
own kernels by a tenth. What cancels to 0 by pairs in one such sum, as in ``tl.sum(tl.join(a, -a) * tl.join(b,
b))``, is 0 here.

A run notes where either would happen, and computes that way if it is asked to (``as_compiled``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from puzzles_lib.dtypes import DType
from puzzles_lib.runner.lanes import FLOAT32, Product
from puzzles_lib.source import Site

MANY = 16  # numbers that are added up: each addition may round
TF32_ROUNDOFF = 2.0**-11
LEAST_DOT = 16  # rows and columns, for the compiler to make a dot of a sum


@dataclass(frozen=True)
class Fused:
    """A product and a sum that are one instruction. cancels: whether a result of 0 becomes another number."""

    product: Site
    sum: Site
    cancels: bool


@dataclass
class Arithmetic:
    """What a run noted.

    products: whether a sum has taken a product. cancels: whether a rounded product was canceled to 0.
    sums_in_tf32: whether the compiler turns sums of products into dots, as Triton does before 3.8.
    tf32: whether a `tl.dot` of float32 blocks was in TF32. factors: the largest roundoff with which one used
    its factors.
    in_tf32: lines whose sum of products is a dot. inexact: those of them with a factor that TF32 rounds.
    narrow: lines whose sum is rounded, one addition after another, to a dtype of fewer bits than float32: its
    name, and how many numbers are added up.
    rounded: lines that round a sum, of however few numbers, to such a dtype: its name.
    fused: where one instruction made a difference; only of a run ``as_compiled``.
    """

    as_compiled: bool = False
    sums_in_tf32: bool = True
    products: bool = False
    cancels: bool = False
    tf32: bool = False
    factors: float = 0.0
    in_tf32: dict[Site, None] = field(default_factory=dict)
    inexact: dict[Site, None] = field(default_factory=dict)
    narrow: dict[Site, tuple[str, int]] = field(default_factory=dict)
    rounded: dict[Site, str] = field(default_factory=dict)
    fused: dict[Fused, None] = field(default_factory=dict)


def lost(product: Product) -> np.ndarray:
    """Return the exact product minus the rounded one, in float64; 0 if that is not finite.

    For float64 this is Dekker's product, A floating-point technique for extending the available precision
    (1971).
    """
    left, right, rounded = (
        product.row.widen(each) for each in (product.left, product.right, product.rounded)
    )
    if rounded.dtype == np.float64:
        (a, b), (c, d) = (_halves(each) for each in (left, right))
        error = ((a * c - rounded) + a * d + b * c) + b * d
    else:
        error = left.astype(np.float64) * right - rounded
    error = np.where(np.isfinite(error), error, 0.0)
    return product.moved(error) if product.moved else error


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers of 26 bits for each number of 53 bits."""
    large = values * (2.0**27 + 1)
    high = large - (large - values)
    return high, values - high


def moved(product: Product, move: Callable[[np.ndarray], np.ndarray]) -> Product:
    """Return the product of lanes that were moved: the part that rounding lost moves with them."""
    before = product.moved
    return product._replace(moved=(lambda error: move(before(error))) if before else move)


def dot_operands(
    product: Product | None, shape: tuple[int, ...], row: DType
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the two blocks whose product this is, if the compiler makes its sum a dot; None otherwise.

    Triton's CombineBroadcastMulReducePattern does so along any axis, though it is correct along axis 1 alone:
    https://github.com/triton-lang/triton/issues/9609 and pull/10574.
    """
    if product is None or product.moved or len(shape) != 3 or row is not FLOAT32:
        return None
    left, right = product.left, product.right
    if left.ndim != 3 or right.ndim != 3:
        return None
    rows, _, columns = shape
    if left.shape[2] != 1 or right.shape[0] != 1 or min(rows, columns) < LEAST_DOT:
        return None
    return left[:, :, 0], right[0]
