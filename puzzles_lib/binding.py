"""Find values for a kernel's parameters, by name, in a case of a puzzle, or say why there are none."""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction, KernelInterface
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import versions
from puzzles_lib.compiler import Opinion, Program, interpret_was_on, program, program_of
from puzzles_lib.compiler.vetting import vet
from puzzles_lib.parameters import Unsupported, leaves, like, parameters, unfit
from puzzles_lib.puzzle import Argument, Case, Puzzle, Tiled, is_number
from puzzles_lib.runner import Pretended
from puzzles_lib.source import Refusal
from puzzles_lib.wrapped import Configuration, Wrapped, unwrap


@dataclass(frozen=True)
class Bound:
    """A kernel with a value for each of its parameters, by name, for one case of a puzzle.

    case: with the numbers of a configuration instead of the puzzle's own, such as BLOCK.
    arguments: numbers as they are; pointers and descriptors of empty stand-ins with the correct dtype.
    configuration: the values from `triton.autotune` and `triton.heuristics`; None for a plain kernel.
    program: the translated kernel, which is run; None before the front end has been asked.
    tensors: the puzzle's tensors by the parameters that get them, if the puzzle has a ``launch``; None if
        they are found by the parameters' names. Parts of tuples are parameters such as ``"pair[0]"``.
    starts: how many bytes after the beginning of its tensor such a parameter points, if not to the beginning.
    launch_options: ``num_warps`` and other options of such a launch.
    """

    kernel: JITFunction
    puzzle: Puzzle
    case: Case
    arguments: Mapping[str, object]
    wrapped: Wrapped
    configuration: Configuration | None = None
    program: Program | None = None
    tensors: Mapping[str, str] | None = None
    starts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    launch_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def takes(self) -> frozenset[str]:
        """The names of the puzzle's tensors that the kernel takes."""
        if self.tensors is not None:
            return frozenset(self.tensors.values())
        return frozenset(name.removesuffix("_ptr").removesuffix("_desc") for name in self.arguments)

    def translated(self, *, record: bool = False) -> Program | Refusal:
        """Return the translated kernel, or why it can't be run. record: add what a recording needs."""
        if self.program is not None and not record:
            return self.program
        return program(self.kernel, self.arguments, record=record)

    def taken(self, opinion: Opinion) -> "Bound":
        """Return this kernel with the translation from a front end's opinion."""
        return dataclasses.replace(self, program=program_of(self.kernel, self.arguments, opinion))

    @property
    def num_warps(self) -> int:
        """The number of warps of a launch: 4 unless it or a configuration says otherwise."""
        return self.options.get("num_warps", 4)

    @property
    def resident(self) -> bool:
        """Whether all programs of the grid run at the same time."""
        return self.puzzle.resident or bool(self.launch_options.get("launch_cooperative_grid"))

    @property
    def options(self) -> dict[str, int]:
        """``num_warps`` and ``num_stages``, if the launch or a configuration sets them."""
        given = {"num_warps": self.wrapped.num_warps} if self.wrapped.num_warps else {}
        given |= self.launch_options
        given |= self.configuration.options if self.configuration else {}
        return {name: given[name] for name in ("num_warps", "num_stages") if type(given.get(name)) is int}

    def at(self, case: Case, number: int = 0) -> "Bound | Refusal | None":
        """Return the kernel in the configuration with that number, bound to a case of the puzzle.

        Returns None if autotune would not try this configuration there.
        """
        return _bound(self.wrapped, self.puzzle, case, number)

    def filled(self, tensors: Mapping[str, torch.Tensor] | Mapping[str, Pretended]) -> dict[str, object]:
        """Return the arguments with these tensors, by the puzzle's names, instead of their stand-ins.

        Parameters get whole tensors, whichever part the launch passes: see `starts`.
        """
        arguments = leaves(self.arguments)
        for parameter, name in (self.tensors or {}).items():
            if name in tensors:
                value, tensor = arguments[parameter], tensors[name]
                if isinstance(value, TensorDescriptor):
                    arguments[parameter] = dataclasses.replace(value, base=tensor)
                else:
                    arguments[parameter] = tensor
        for name, tensor in tensors.items() if self.tensors is None else ():
            if f"{name}_ptr" in arguments:
                arguments[f"{name}_ptr"] = tensor
            if isinstance(descriptor := arguments.get(f"{name}_desc"), TensorDescriptor):
                arguments[f"{name}_desc"] = dataclasses.replace(descriptor, base=tensor)
        return arguments


def bind(kernel: object, puzzle: Puzzle, case: Case, num_warps: int = 0) -> Bound | Refusal:
    """Vet what should be a ``@triton.jit`` kernel and bind it to a case.

    A kernel within `triton.autotune` is bound in its first configuration. num_warps: what the launch
    asks for; 0 if it asks for nothing.
    """
    if interpret_was_on():
        text = "TRITON_INTERPRET was set when Triton was imported: unset it and restart the notebook's kernel"
        return _signature(text, "the course runs kernels on the CPU without it")
    if told := versions.too_old(triton.__version__):
        return Refusal(told, kind="error")
    wrapped = unwrap(kernel)
    if wrapped is None:
        return _no_kernel(kernel)
    if num_warps and (wrapped.autotuner or "num_warps" in wrapped.gives):
        return _signature(f"num_warps={num_warps} is given, but triton.autotune or a heuristic sets it")
    wrapped = dataclasses.replace(wrapped, num_warps=num_warps)
    refusal = _unfit(wrapped, puzzle) or vet(wrapped.kernel)
    if refusal:
        return refusal
    for number in range(wrapped.count):
        if bound := _bound(wrapped, puzzle, case, number):
            return bound
    return all_pruned(case)


def all_pruned(case: Case) -> Refusal:
    """Return why a case in which autotune's ``early_config_prune`` keeps nothing can't be launched."""
    return _signature("early_config_prune must keep at least one configuration", f"it keeps none for {case}")


def _bound(wrapped: Wrapped, puzzle: Puzzle, case: Case, number: int) -> Bound | Refusal | None:
    kernel = wrapped.kernel
    if puzzle.launch is not None:
        return _launched(wrapped, puzzle, case, number)
    if not wrapped.layers:
        return Bound(kernel, puzzle, case, stand_ins(kernel, puzzle, case), wrapped)
    found = wrapped.configuration(number, _launched_with(wrapped, puzzle, case))
    if not isinstance(found, Configuration):
        return found
    try:
        case = case.but(**{name: value for name, value in found.values.items() if name in case.numbers})
        puzzle.programs(case)
    except (ArithmeticError, TypeError, ValueError) as error:
        return _signature(f"{found}: {error}")
    arguments = {**stand_ins(kernel, puzzle, case), **found.values}
    for name, value in arguments.items():
        if value is inspect.Parameter.empty:
            return _signature(f"{found}, which does not give {name}")
    if found.pre_hook is not None:  # it may set the blocks of descriptors, which the front end must know
        launched = {**arguments, **_launched_with(wrapped, puzzle, case)}
        if refusal := found.prepare(launched):
            return refusal
        arguments |= {name: _blocks_of(value, arguments[name]) for name, value in launched.items()}
    return Bound(kernel, puzzle, case, arguments, wrapped, found)


def _launched(wrapped: Wrapped, puzzle: Puzzle, case: Case, number: int) -> Bound | Refusal | None:
    """Bind a kernel to what the puzzle's ``launch`` gives it."""
    try:
        launched = puzzle.launched(case)
        if twice := wrapped.twice(launched.args, launched.kwargs):
            return _signature(f"the launch passes {twice}, which triton.autotune or a heuristic sets, too")
        values, options = parameters(wrapped.kernel, launched.args, launched.kwargs, wrapped.gives)
        given = {
            name: value.base if isinstance(value, TensorDescriptor) else value
            for name, value in leaves(values).items()
            if isinstance(value, torch.Tensor | TensorDescriptor)
        }
        tensors = {name: launched.name_of(tensor) for name, tensor in given.items()}
        starts = {name: start for name, tensor in given.items() if (start := launched.start_of(tensor))}
    except (TypeError, Unsupported, ValueError) as error:
        return _signature(str(error))
    if text := unfit(options):
        return _signature(text)
    configuration = None
    if wrapped.layers:
        found = wrapped.configuration(number, values)
        if not isinstance(found, Configuration):
            return found
        configuration = found
        try:
            case = case.but(**{n: v for n, v in found.values.items() if is_number(v)})
            puzzle.programs(case)
        except (ArithmeticError, TypeError, ValueError) as error:
            return _signature(f"{found}: {error}")
        values |= found.values
        if found.pre_hook is not None:
            if starts:
                name = min(starts)
                return _signature(f"launch passes a part of {tensors[name]}, but a pre_hook needs all of it")
            launch = dict(values)
            if refusal := found.prepare(launch):
                return refusal
            values |= {
                name: _blocks_of(value, values[name]) for name, value in launch.items() if name in values
            }
    arguments = {p.name: _empty(values.get(p.name, p.default)) for p in wrapped.kernel.params}
    if missing := [name for name, value in arguments.items() if value is inspect.Parameter.empty]:
        return _signature(f"the launch does not pass {missing[0]}")
    return Bound(
        wrapped.kernel, puzzle, case, arguments, wrapped, configuration, None, tensors, starts, options
    )


def _empty(value: object) -> object:
    """Return a tensor's stand-in, or a descriptor of one; any other value as it is."""
    if isinstance(value, tuple):
        return like(value, [_empty(part) for part in value])
    if isinstance(value, torch.Tensor):
        return torch.empty(0, dtype=value.dtype)
    if isinstance(value, TensorDescriptor):
        return dataclasses.replace(value, base=torch.empty(0, dtype=value.base.dtype))
    return value


def _launched_with(wrapped: Wrapped, puzzle: Puzzle, case: Case) -> dict[str, object]:
    """Return the launch's own arguments by name, without the wrappers' values; tensors are empty."""
    offers = puzzle.offers(case)
    names = [p.name for p in wrapped.kernel.params if p.name in offers and p.name not in wrapped.gives]
    given: dict[str, object] = {}
    device = "meta" if case.pretend else "cpu"
    for name in names:
        offered = offers[name]
        if isinstance(offered, Argument):
            offered = torch.empty(offered.shape(case.numbers), dtype=offered.dtype, device=device)
        elif isinstance(offered, Tiled):
            shape = offered.argument.shape(case.numbers)
            tensor = torch.empty(shape, dtype=offered.argument.dtype, device=device)
            offered = offered.descriptor(case.numbers, tensor)
        given[name] = offered
    return given


def _blocks_of(changed: object, value: object) -> object:
    """Return a descriptor with the block shape of another one; any other value as it is."""
    if isinstance(changed, TensorDescriptor) and isinstance(value, TensorDescriptor):
        return dataclasses.replace(value, block_shape=list(changed.block_shape))
    return value


def stand_ins(kernel: JITFunction, puzzle: Puzzle, case: Case) -> dict[str, object]:
    """Return a value for each of the kernel's parameters, from the puzzle or from their defaults."""
    offers = puzzle.offers(case)
    values = {}
    for parameter in kernel.params:
        value = offers[parameter.name] if parameter.name in offers else parameter.default
        if isinstance(value, Argument):
            value = torch.empty(0, dtype=value.dtype)
        elif isinstance(value, Tiled):
            value = value.descriptor(case.numbers, torch.empty(0, dtype=value.argument.dtype))
        values[parameter.name] = value
    return values


_LAUNCH = f"{KernelInterface.__getitem__.__qualname__}.<locals>.<lambda>"


def _no_kernel(kernel: object) -> Refusal:
    """Return why this object is not a kernel."""
    name = getattr(kernel, "__name__", type(kernel).__name__)
    if isinstance(kernel, KernelInterface):
        return _signature(f"{type(kernel).__name__} wraps the kernel: pass the @triton.jit function itself")
    if getattr(kernel, "__qualname__", "") == _LAUNCH:
        return _signature("kernel[grid] is a launch: pass only the kernel, because the puzzle sets the grid")
    if callable(kernel):
        return _signature(f"{name} is a Python function: put @triton.jit on the line above its def")
    if kernel is None:  # as `mistake(...).kernel` is until its puzzle is solved
        return _signature(
            "there is no kernel yet: kernel is None. If it comes from mistake(...), solve that puzzle first. "
            "Then run the cell with mistake(...) again, and then this cell"
        )
    return _signature(f"kernel must be a @triton.jit function, but is {kernel!r:.60}")


def _unfit(wrapped: Wrapped, puzzle: Puzzle) -> Refusal | None:
    """Return the refusal of a parameter that the puzzle cannot fill, or that the wrappers must not."""
    if puzzle.launch is not None:
        told = wrapped.unfit(puzzle.sizes)
        return _signature(told) if told else None
    offers = puzzle.offers(puzzle.cases[0])
    fixed = {name for name in offers if name not in puzzle.cases[0].numbers} | puzzle.sizes
    if told := wrapped.unfit(fixed):
        return _signature(told)
    for parameter in wrapped.kernel.params:
        offered = offers.get(parameter.name)
        if parameter.is_constexpr and isinstance(offered, Argument | Tiled):
            what = "pointer" if isinstance(offered, Argument) else "descriptor"
            return _signature(f"{parameter.name} is a {what}, so it cannot be a tl.constexpr")
        if parameter.name not in offers and not parameter.has_default and parameter.name not in wrapped.gives:
            names = ", ".join(n for n in offers if not n.startswith("stride_"))
            return _signature(
                f"the kernel takes {parameter.name!r}, which {puzzle.name} does not have",
                f"its names are {names}, and strides (stride_x0)",
            )
    return None


def _signature(message: str, advice: str = "") -> Refusal:
    return Refusal(message, advice=advice, kind="signature")
