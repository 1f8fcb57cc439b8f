"""What a kernel would compute that reads an input in another way: by another stride, index, or not at all.

These slips are the same in every puzzle, so no puzzle lists them. Each gives the spec's results for other
inputs. A report names one only if no other one gives all of the kernel's results, too.
"""

from collections.abc import Iterator, Mapping

import torch

from puzzles_lib.checker.expected import evaluate
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.puzzle import evaluate as size_of

MOST_ELEMENTS = 1 << 16  # of all inputs and the result
BECAME = "it is what you get if"
UNUSED = "unused: "
"""Before the name of an input. Several may lead to the same result, as the factors of a product do."""
MOST_PLACES = 64  # along an axis whose index is used for another one

Inputs = Mapping[str, torch.Tensor]


def misreads(
    puzzle: Puzzle, case: Case, inputs: Inputs, result: Argument
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each slip, in words, and the result that it leads to."""
    if sum(tensor.numel() for tensor in inputs.values()) > MOST_ELEMENTS:
        return
    for argument in puzzle.inputs:
        if argument.name not in inputs:
            continue
        tensor = inputs[argument.name]
        value = _result(puzzle, case, {**inputs, argument.name: torch.zeros_like(tensor)}, result)
        if value is not None:
            yield UNUSED + argument.name, value
        for text, other in _other_inputs(puzzle, case, argument, tensor):
            if not torch.equal(other, tensor):
                value = _result(puzzle, case, {**inputs, argument.name: other}, result)
                if value is not None:
                    yield text, value
        yield from _other_index(puzzle, case, inputs, argument, result)


def _result(puzzle: Puzzle, case: Case, inputs: Inputs, result: Argument) -> torch.Tensor | None:
    """Return the spec's result; None if the spec can't take these inputs, such as another table."""
    try:
        return evaluate(puzzle, case, inputs)[result.name]
    except Exception:
        return None


def _other_inputs(
    puzzle: Puzzle, case: Case, argument: Argument, tensor: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what an input would be if it were read in another way."""
    name, dims = argument.name, argument.dims
    for dim, axis in enumerate(dims):
        if tensor.shape[dim] > 1:
            first = tensor.narrow(dim, 0, 1).expand_as(tensor).contiguous()
            yield f"{BECAME} {name} is always read at index 0 along {axis}", first
    if tensor.is_floating_point():
        for axis, count in _iterations(puzzle, case):
            if axis not in dims:
                yield (
                    f"{BECAME} {name} is added in every iteration over {axis}, {count} times",
                    tensor * count,
                )
    if tensor.dim() != 2:
        return
    rows, columns = tensor.shape
    if rows > 1 and columns > 1:
        turned = tensor.reshape(columns, rows).mT.contiguous()
        told = f"{name} is read as [{dims[1]}, {dims[0]}], but it is [{dims[0]}, {dims[1]}]"
        yield f"{BECAME} {told}", turned
        flat, at = tensor.flatten(), torch.arange(columns)
        for told, stride in _strides(puzzle, case):
            if stride != columns and (rows - 1) * stride + columns <= flat.numel():
                apart = flat[torch.arange(rows)[:, None] * stride + at]
                taken = f"rows of {name} are taken to be {told} elements apart"
                yield f"{BECAME} {taken}, but they are {dims[1]} apart", apart


def _iterations(puzzle: Puzzle, case: Case) -> Iterator[tuple[str, int]]:
    """Yield each axis that a kernel walks along in several blocks, and their number."""
    results = {dim for each in puzzle.results for dim in each.dims}
    for axis in dict.fromkeys(dim for each in puzzle.inputs for dim in each.dims if dim.isidentifier()):
        block, size = case.numbers.get(f"BLOCK_{axis}"), case.numbers.get(axis)
        if axis not in results and block and size and size > block:
            yield axis, -(-int(size) // int(block))


def _strides(puzzle: Puzzle, case: Case) -> Iterator[tuple[str, int]]:
    """Yield the lengths of the rows of all tensors, each once, in words."""
    known: dict[int, str] = {}
    for each in puzzle.tensors:
        if each.dims:
            known.setdefault(int(size_of(each.dims[-1], case.numbers)), each.dims[-1])
    yield from ((told, stride) for stride, told in known.items())


def _other_index(
    puzzle: Puzzle, case: Case, inputs: Inputs, argument: Argument, result: Argument
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the result if a vector along one axis of the result is read with the index of another axis."""
    tensor = inputs[argument.name]
    if len(argument.dims) != 1 or argument.dims[0] not in result.dims or len(result.dims) < 2:
        return
    shape = result.shape(case.numbers)
    for dim, axis in enumerate(result.dims):
        count = shape[dim]
        if axis == argument.dims[0] or not 1 < count <= min(MOST_PLACES, len(tensor)):
            continue
        parts = []
        for place in range(count):
            alike = torch.full_like(tensor, tensor[place].item())
            value = _result(puzzle, case, {**inputs, argument.name: alike}, result)
            if value is None:
                return
            parts.append(value.narrow(dim, place, 1))
        name = argument.name
        told = f"{name} is indexed along {axis}, but its elements are along {argument.dims[0]}"
        yield f"{BECAME} {told}", torch.cat(parts, dim)
