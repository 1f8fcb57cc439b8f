"""Chapter 03: several operations in one pass over memory, and a gradient."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def tiny(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 1e-28: about 1e-10 if multiplied by `huge` ones, 0 if divided by them."""
    return (1e-28 * torch.randn(shape, generator=generator)).to(dtype)


def huge(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 1e18."""
    return (1e18 * torch.randn(shape, generator=generator)).to(dtype)


def positive(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return the magnitudes of normal values."""
    return torch.randn(shape, generator=generator).abs().to(dtype)


def some_far_up(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, but each fourth is positive, and huge."""
    values = torch.randn(shape, generator=generator)
    return torch.where(torch.arange(shape[-1]) % 4 == 0, 1e18 * values.abs(), values).to(dtype)


def some_far_down(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, but each fourth is negative, and huge."""
    return -some_far_up(shape, dtype, generator)


def mul_relu(
    x: Float32[Tensor, " N"],
    y: Float32[Tensor, " M"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = max(x[n] * y[m], 0)"""
    return torch.relu(x[None, :] * y[:, None])


def largest_of_a_column(x: Tensor, y: Tensor) -> Tensor:
    """Return what ``tl.max(product, 0)`` leaves if one block contains the whole matrix."""
    return (x[None, :] * y[:, None]).amax(0, keepdim=True).expand(len(y), -1)


def largest_of_all(x: Tensor, y: Tensor) -> Tensor:
    """Return what ``tl.max(product)`` leaves if one block contains the whole matrix."""
    return (x[None, :] * y[:, None]).amax().expand(len(y), len(x))


def whether_it_is_positive(x: Tensor, y: Tensor) -> Tensor:
    return (x[None, :] * y[:, None] > 0).float()


def relu_of_each_factor(x: Tensor, y: Tensor) -> Tensor:
    """Return relu(x) * relu(y), which is 0 if both are negative."""
    return torch.relu(x)[None, :] * torch.relu(y)[:, None]


def relu_by_the_sign_of_x(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x[None, :] > 0, x[None, :] * y[:, None], 0.0)


def relu_by_the_sign_of_y(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y[:, None] > 0, x[None, :] * y[:, None], 0.0)


def absolute_value(x: Tensor, y: Tensor) -> Tensor:
    return (x[None, :] * y[:, None]).abs()


def no_relu(x: Tensor, y: Tensor) -> Tensor:
    return x[None, :] * y[:, None]


def leaky_relu(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(x[None, :] * y[:, None], 0.01)


MUL_RELU = Puzzle(
    number="5",
    spec=mul_relu,
    formula=r"z_{m,n} = \operatorname{relu}(x_n \, y_m), \qquad \operatorname{relu}(t) = \max(t, 0)",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=32, N=32, BLOCK_M=32, BLOCK_N=32),  # one program
        Case(M=64, N=96, BLOCK_M=32, BLOCK_N=16),  # several blocks on both axes
        Case(M=90, N=100, BLOCK_M=16, BLOCK_N=64),  # ragged on both axes
        Case(M=9, N=70, BLOCK_M=16, BLOCK_N=32),  # fewer rows than a block
        Case(M=40, N=33, BLOCK_M=32, BLOCK_N=32, fill={"x": inputs.very_negative, "y": inputs.large}),
    ),
    contract=Contract(
        {"M": Size(300), "N": Size(300), "BLOCK_M": (16, 64, 128), "BLOCK_N": (32, 128)},
        fills=lambda s: (
            {"x": some_far_up, "y": some_far_down},  # some products are near -1e36
            {"x": inputs.small, "y": inputs.small},
        ),
    ),
    slips={
        "z[m, n] is the largest product of its column: tl.max(t, 0) folds axis 0, tl.maximum(t, 0) compares "
        "with the number 0": largest_of_a_column,
        "every element of z is the largest of all products: tl.max(t) folds the whole block, "
        "tl.maximum(t, 0) compares with the number 0": largest_of_all,
        "z[m, n] is 1 if the product is above 0, which is the result of a comparison: "
        "the product itself is wanted there": whether_it_is_positive,
        "this is the relu of each factor, multiplied: the relu of the product is wanted": relu_of_each_factor,
        "the relu looks at the sign of x alone: it has to look at the product": relu_by_the_sign_of_x,
        "the relu looks at the sign of y alone: it has to look at the product": relu_by_the_sign_of_y,
        "this is the absolute value of the product: below 0, a relu is 0": absolute_value,
        "this is the product without the relu: below 0, a relu is 0": no_relu,
        "below 0, a hundredth of the product is left (a leaky relu): this relu is 0 there": leaky_relu,
    },
)


def mul_relu_backward(
    x: Float32[Tensor, "M N"], y: Float32[Tensor, " M"], dz: Float32[Tensor, "M N"]
) -> Float32[Tensor, "M N"]:
    """How the loss changes with x, if dz is how it changes with z = relu(x * y)

    As in PyTorch, relu'(0) = 0.
    """
    x = x.detach().requires_grad_()
    z = torch.relu(x * y[:, None])
    return torch.autograd.grad(z, x, dz)[0]


def gate_of_x(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x > 0, dz * y[:, None], 0)


def gate_of_y(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(y[:, None] > 0, dz * y[:, None], 0)


def without_y(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] > 0, dz, 0)


def times_x(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] > 0, dz * x, 0)


def open_at_zero(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] >= 0, dz * y[:, None], 0)


def relu_of_the_gradient(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.relu(dz * y[:, None])


def gate_of_dz(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(dz > 0, dz * y[:, None], 0)


def gate_the_other_way(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] > 0, 0, dz * y[:, None])


def gate_below_zero(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] < 0, dz * y[:, None], 0)


def gate_of_all_three(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] * dz > 0, dz * y[:, None], 0)


def gate_of_two_positive(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where((x > 0) & (y[:, None] > 0), dz * y[:, None], 0)


def gate_of_equal_signs(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where((x > 0) == (y[:, None] > 0), dz * y[:, None], 0)


def without_dz(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] > 0, y[:, None], 0)


def gate_of_the_sum(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x + y[:, None] > 0, dz * y[:, None], 0)


def half_open_at_zero(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    product = x * y[:, None]
    return dz * y[:, None] * (product > 0) + 0.5 * dz * y[:, None] * (product == 0)


def size_of_y(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] > 0, dz * y[:, None].abs(), 0)


def dz_where_shut(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return torch.where(x * y[:, None] > 0, dz * y[:, None], dz)


def relu_instead_of_its_slope(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return dz * torch.relu(x * y[:, None])


def relu_times_y(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return dz * torch.relu(x * y[:, None]) * y[:, None]


def without_a_gate(x: Tensor, y: Tensor, dz: Tensor) -> Tensor:
    return dz * y[:, None]


MUL_RELU_BACKWARD = Puzzle(
    number="6",
    spec=mul_relu_backward,
    formula=r"z_{m,n} = \operatorname{relu}(x_{m,n} \, y_m)",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=32, N=32, BLOCK_M=32, BLOCK_N=32),  # one program
        Case(M=64, N=96, BLOCK_M=32, BLOCK_N=16),  # several blocks on both axes
        Case(M=90, N=100, BLOCK_M=16, BLOCK_N=64),  # ragged on both axes
        Case(M=9, N=70, BLOCK_M=16, BLOCK_N=32, fill={"x": tiny, "y": huge}),  # fewer rows than a block
        Case(M=40, N=33, BLOCK_M=32, BLOCK_N=32, fill={"x": inputs.zeros}),  # relu'(0) = 0 everywhere
    ),
    contract=Contract(
        {"M": Size(300), "N": Size(300), "BLOCK_M": (16, 64, 128), "BLOCK_N": (32, 128)},
        fills=lambda s: (
            {"x": positive, "y": some_far_down, "dz": huge},  # dz * y is near -1e36
            {"x": inputs.small, "y": inputs.small},
        ),
    ),
    outputs=("dx",),
    slips={
        "the gate looks at the sign of x alone: the relu was taken of x * y": gate_of_x,
        "the gate looks at the sign of y alone: the relu was taken of x * y": gate_of_y,
        "dz passes the gate without the factor y: the derivative of x * y with respect to x is y": without_y,
        "dz passes the gate with the factor x: the derivative of x * y with respect to x is y": times_x,
        "this is dz * y without the gate": without_a_gate,
        "x * y is exactly 0 there, and relu'(0) = 0: the gate is open only above 0": open_at_zero,
        "x * y is exactly 0 there, and relu'(0) = 0: the gate is shut at 0, not half open": half_open_at_zero,
        "the gate looks at the sign of x + y: the relu was taken of x * y": gate_of_the_sum,
        "the factor y has lost its sign: the slope of x * y is y, also if y is negative": size_of_y,
        "dz gets through where the gate is shut: dx is 0 there": dz_where_shut,
        "this is the relu of dz * y: the gate must look at the sign of x * y": relu_of_the_gradient,
        "the gate looks at the sign of dz: the relu was taken of x * y": gate_of_dz,
        "the gate is open below 0 and shut above 0": gate_the_other_way,
        "the gate is open only below 0: where x * y is above 0, it must let dz * y through": gate_below_zero,
        "the gate looks at the sign of x * y * dz: the relu was taken of x * y": gate_of_all_three,
        "the gate is open only if x and y are both above 0, but the product of two negative numbers is "
        "above 0, too": gate_of_two_positive,
        "the gate compares x with 0 and y with 0, but x * y is exactly 0 there, and relu'(0) = 0: compare "
        "the product": gate_of_equal_signs,
        "the gate is correct, but the factor dz is missing: dz * y passes it, not y": without_dz,
        "the relu of x * y is a factor here instead of its slope, 1 or 0, times y": relu_instead_of_its_slope,
        "the relu of x * y is a factor here instead of its slope, 1 or 0": relu_times_y,
    },
)

PUZZLES = (MUL_RELU, MUL_RELU_BACKWARD)
