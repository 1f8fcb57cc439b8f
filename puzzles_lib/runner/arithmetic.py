"""What a compiled kernel computes otherwise than line by line.

Two things are the compiler's, and no line of the kernel says so:

- a sum that takes a product is one step, an fma: the product is not rounded on the way. What should cancel,
  such as ``s * w - s * o`` where w is o, leaves the product's rounding error;
- ``tl.sum(a[:, :, None] * b[None, :, :])`` of float32 is a dot in TF32, which takes 10 bits of each factor.

Along an axis, in ``tl.sum(a * b, 0)``, ``tl.cumsum`` and ``tl.reduce``, products are fused as well: a thread
rounds the first of its own and adds the others by fmas, and with one product a thread adds its own,
unrounded, to its neighbour's (PTX and SASS of sm_90, Triton 3.7.1; of bfloat16 in ``tl.cumsum`` none is).
A run leaves that out. Which ones are rounded hangs on the layout, as does the order of the sum, and neither
can tip a result that hangs on no order: all the roundings saved together move a sum of products by less
than a quarter of its tolerance (`tests.test_arithmetic`), the results of the course's own kernels by a tenth.
What cancels to 0 by pairs in one such sum, as ``tl.sum(tl.join(a, -a) * tl.join(b, b))`` would, is 0 here.

A run notes where either would happen, and does it where it is asked to (``as_compiled``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from puzzles_lib.dtypes import DType
from puzzles_lib.runner.lanes import FLOAT32, Product
from puzzles_lib.source import Site

LEAST_DOT = 16  # rows and columns, for the compiler to make a dot of a sum


@dataclass(frozen=True)
class Fused:
    """A product and a sum that are one step; cancels: so that what would be 0 is not."""

    product: Site
    sum: Site
    cancels: bool


@dataclass
class Arithmetic:
    """What was noted of a run.

    products: a sum has taken a product. cancels: one that was rounded, and came out as 0.
    sums_in_tf32: whether the compiler turns sums of products into dots, as Triton does before 3.8.
    dots: there was a `tl.dot`. in_tf32: lines whose sum of products is a dot.
    fused: what was done in one step, and made a difference; only of a run ``as_compiled``.
    """

    as_compiled: bool = False
    sums_in_tf32: bool = True
    products: bool = False
    cancels: bool = False
    dots: bool = False
    in_tf32: dict[Site, None] = field(default_factory=dict)
    fused: dict[Fused, None] = field(default_factory=dict)


def lost(product: Product) -> np.ndarray:
    """The exact product less the rounded one, in float64; 0 where that is not finite.

    Of float64 by Dekker's product, A floating-point technique for extending the available precision (1971).
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
    """Two numbers of 26 bits for each of 53."""
    large = values * (2.0**27 + 1)
    high = large - (large - values)
    return high, values - high


def moved(product: Product, move: Callable[[np.ndarray], np.ndarray]) -> Product:
    """The product of lanes that were moved: what was lost moves with them."""
    before = product.moved
    return product._replace(moved=(lambda error: move(before(error))) if before else move)


def dot_operands(
    product: Product | None, shape: tuple[int, ...], row: DType
) -> tuple[np.ndarray, np.ndarray] | None:
    """The two blocks of whose product this is, where a sum along an axis is a dot of theirs to the compiler.

    Triton's CombineBroadcastMulReducePattern does so along any axis, though it is right along 1 alone:
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
