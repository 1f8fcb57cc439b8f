"""The gradient of the SiLU, which chapter 03 asks for: its inputs, its values, and typical slips."""

import torch

SEED, ROWS, COLUMNS = 0, 50, 70


def inputs() -> dict[str, torch.Tensor]:
    """Return the x, y and dz on which the gradient of the SiLU is asked for."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = {"x": (ROWS, COLUMNS), "y": (ROWS,), "dz": (ROWS, COLUMNS)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def gradient(slip: str = "") -> torch.Tensor:
    """Return dx for z = silu(x * y), by PyTorch's autograd, or with a slip.

    slip: a key of the table below. ``"y"``, ``"dz"``: this factor is missing. ``"x"``: it stands for y.
    ``"sigmoid"``, ``"other"``: only the first or the second term of the product rule. ``"forward"``: the
    SiLU itself. ``"slope"``: that of the sigmoid. ``"minus"``: between the terms. ``"negative"``: the whole
    sign. ``"exponent"``: that of the sigmoid has the wrong sign. ``"t"``: one t is x. ``"gate"``: the relu's
    is still there. ``"plus"``: 1 + s. ``"relu"``: that of the relu. ``"product"``: the factor t of
    the second term is missing. ``"brackets"``: dz multiplies only the first term, and y the second.
    """
    given = inputs()
    x, y, dz = given["x"], given["y"], given["dz"]
    t = x * y[:, None]
    s = torch.sigmoid(t)
    if slip:
        y = y[:, None]
        slope, off = s + t * s * (1 - s), 1 - s
        return {
            "y": dz * slope,
            "dz": slope * y,
            "x": dz * slope * x,
            "sigmoid": dz * s * y,
            "other": dz * t * s * off * y,
            "forward": dz * t * s * y,
            "slope": dz * s * off * y,
            "minus": dz * (s - t * s * off) * y,
            "negative": -dz * slope * y,
            "exponent": dz * (off + t * off * s) * y,
            "t": dz * (s + x * s * off) * y,
            "gate": torch.where(t > 0, dz * slope * y, 0),
            "relu": torch.where(t > 0, dz * y, 0),
            "product": dz * (s + s * off) * y,
            "brackets": dz * s + t * s * off * y,
            "plus": dz * (s + t * s * (1 + s)) * y,
        }[slip]
    x.requires_grad_()
    torch.nn.functional.silu(x * y[:, None]).backward(dz)
    assert x.grad is not None
    return x.grad


def first_difference(dx: torch.Tensor) -> str:
    """Return where a gradient differs first from PyTorch's, with the inputs there, or that it doesn't."""
    want, given = gradient(), inputs()
    for m, n in (~torch.isclose(dx, want, atol=1e-5)).nonzero()[:1].tolist():
        x, y, dz = given["x"][m, n], given["y"][m], given["dz"][m, n]
        found, wanted = (float(each[m, n] / (dz * y)) for each in (dx, want))
        return (
            f"first difference, at [{m}, {n}]: dx is {dx[m, n]:.4f}, PyTorch's {want[m, n]:.4f} "
            f"(x = {x:.4f}, y = {y:.4f}, dz = {dz:.4f}).\n"
            f"So your slope, dx / (dz * y), is {found:.4f} at t = x * y = {x * y:.4f}, "
            f"and PyTorch's is {wanted:.4f}"
        )
    return f"dx agrees with PyTorch's in all {dx.numel():,} elements"


def is_near(given: tuple, want: torch.Tensor) -> bool:
    """Return whether these rows of a gradient equal another gradient, up to rounding."""
    try:
        found = torch.tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return False
    return found.shape == want.shape and torch.allclose(found, want.double(), atol=1e-5)
