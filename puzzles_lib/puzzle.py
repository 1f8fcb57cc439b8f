"""A puzzle as data: a typed spec, a grid, and the cases to try it on.

The spec is a plain PyTorch function. Its jaxtyping annotations *are* the puzzle's contract: they
name every tensor, its dtype and its sizes. Everything else here only reads them.

    def outer_add(x: Float32[Tensor, " N"], y: Float32[Tensor, " M"]) -> Float32[Tensor, "M N"]:
        return x[None, :] + y[:, None]

A size in an annotation is a name (``N``), a number (``4``) or an expression of names (``K//8``),
see https://docs.kidger.site/jaxtyping/api/array/.
"""

import ast
import importlib
import inspect
import math
import operator
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any, TypeGuard

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.contract import DRAWS, Contract, Size, beyond
from puzzles_lib.dtypes import of_name, of_torch
from puzzles_lib.goal import Goal, Once, Traffic
from puzzles_lib.parameters import sizes_of

WIDE = 9  # more numbers than that don't fit on a page, unless their names can be broken
MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)
"""The most programs that a GPU launches along each axis of a grid."""


ALLOWED_NUMBERS = "an integer of at least 0, a float, a boolean or None"


def is_number(value: object) -> TypeGuard[int | float | None]:
    """Return whether a case may have this value."""
    return value is None or (isinstance(value, int | float) and not (type(value) is int and value < 0))


class Case:
    """One set of sizes and block sizes to try a kernel on.

    ``Case(M=90, N=100, BLOCK_M=32, BLOCK_N=16)``: every number is a keyword. Numbers in the spec's
    annotations are sizes; the others are compile-time constants for the kernel. Numbers are attributes:
    ``case.M``. Numbers that are not sizes may also be floats, such as ``eps=1e-5``, or booleans, and None
    stands for an optional argument that is not given: ``Case(N=100, bias_ptr=None)``.

    ``fill`` is a dict from an input's name to a function that makes the input:
    ``fill={"x": inputs.large}``. It is a function of ``(shape, dtype, generator)`` that returns a contiguous
    tensor (or an expanded one, which is made contiguous).

    ``salt``: another salt gives other values for the inputs.

    ``pretend=True``: a case with tensors of more than 2**31 elements, to find offsets that overflow int32. No
    other case finds them. The grid and the offsets are as large as the numbers say, but no memory is
    allocated: values are generated when a kernel loads them. Only programs at the edges of the grid run. The
    check covers their addresses, not the values that they store. Only integer tensors can have a ``fill``,
    such as a table of page numbers.

    Raises ValueError for a negative integer, and for a number that is not an integer, a float, a boolean or
    None.
    """

    numbers: dict[str, Any]
    fill: dict[str, Callable[..., torch.Tensor]]
    salt: str
    pretend: bool

    def __init__(
        self,
        *,
        fill: Mapping[str, Callable] | None = None,
        salt: str = "",
        pretend: bool = False,
        **numbers: int | float | None,
    ):
        for name, value in numbers.items():
            if not is_number(value):
                raise ValueError(f"Case: {name} must be {ALLOWED_NUMBERS}, but is {value!r}")
        self.__dict__["numbers"] = dict(numbers)
        self.__dict__["fill"] = dict(fill or {})
        self.__dict__["salt"] = salt
        self.__dict__["pretend"] = pretend

    def but(self, **numbers: Any) -> "Case":
        """Return the same case with some numbers changed or added."""
        return Case(fill=self.fill, salt=self.salt, pretend=self.pretend, **{**self.numbers, **numbers})

    def __getattr__(self, name: str) -> Any:
        numbers = self.__dict__.get("numbers", {})  # a copy has no numbers yet
        if name.startswith("__") or name not in numbers:
            raise AttributeError(f"this case has no {name!r}; it has {', '.join(numbers)}")
        return numbers[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Case is frozen")

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in self.numbers.items()]
        parts += [f"{name}:{fill.__name__}" for name, fill in self.fill.items()]
        parts += ["pretend"] * self.pretend
        return "  ".join(parts)

    __repr__ = __str__

    def salted(self, salt: str) -> "Case":
        """Return the same case with other values of its inputs."""
        return Case(fill=self.fill, salt=salt, pretend=self.pretend, **self.numbers)


@dataclass(frozen=True)
class Argument:
    """A tensor of a puzzle: ``name``, torch ``dtype``, and its sizes as written in the annotation."""

    name: str
    dtype: torch.dtype
    dims: tuple[str, ...]

    def shape(self, numbers: Mapping[str, int]) -> tuple[int, ...]:
        """Return the sizes as integers, for a case's numbers."""
        return tuple(evaluate(dim, numbers) for dim in self.dims)

    def annotation(self) -> str:
        return f"{of_torch(self.dtype).annotation}[{', '.join(self.dims)}]"


@dataclass(frozen=True)
class Tiled:
    """A tensor of a puzzle that a kernel gets as a descriptor made by the host.

    ``block`` is the shape of the tile. If it has as many axes as the tensor, so does the descriptor.
    Otherwise it must have two, rows and columns, and the descriptor is a matrix whose rows are the tensor's
    last axis.
    """

    argument: Argument
    block: tuple[int, ...]

    def descriptor(self, numbers: Mapping[str, int], base: torch.Tensor) -> TensorDescriptor:
        """Return the descriptor of ``base``, for a case's numbers."""
        shape = self.argument.shape(numbers)
        if len(self.block) == len(shape):
            strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
            return TensorDescriptor(base, list(shape), strides, list(self.block))
        columns = shape[-1]
        return TensorDescriptor(base, [math.prod(shape[:-1]), columns], [columns, 1], list(self.block))


class Launched(typing.NamedTuple):
    """What a puzzle's ``launch`` gives a kernel: its grid and its arguments, as in ``kernel[grid](...)``.

    tensors: the puzzle's tensors by the address of their storage; they have shapes and no memory.
    """

    grid: object
    args: tuple[object, ...]
    kwargs: dict[str, Any]
    tensors: dict[int, tuple[str, torch.Tensor]]

    def name_of(self, tensor: torch.Tensor) -> str:
        """Return which of the puzzle's tensors this is, however it is viewed. Raise ValueError for none."""
        name, _ = self.tensors.get(tensor.untyped_storage()._cdata, ("", tensor))
        if not name:
            raise ValueError(
                "launch passes a tensor that is neither an input nor a result; name it in outputs"
            )
        return name

    def start_of(self, tensor: torch.Tensor) -> int:
        """Return how many bytes after the beginning of the puzzle's tensor this part of it begins."""
        return int(tensor.storage_offset()) * tensor.itemsize

    def told(self, value: object) -> str:
        """Return an argument as text, with the names of tensors."""
        if isinstance(value, tuple):
            return f"({', '.join(map(self.told, value))}{',' * (len(value) == 1)})"
        if isinstance(value, TensorDescriptor):
            return f"TensorDescriptor({self.told(value.base)}, ...)"
        if not isinstance(value, torch.Tensor):
            return repr(value)
        name, start = self.name_of(value), self.start_of(value)
        _, whole = self.tensors[value.untyped_storage()._cdata]
        text = f"{name}.view({value.dtype})" if value.dtype != whole.dtype else name
        return f"{text} from element {start // value.itemsize}" if start else text

    def sizes(self, numbers: Mapping[str, object]) -> tuple[int, ...]:
        """Return the grid. numbers: what a grid that is a function also finds by name."""
        try:
            return sizes_of(self.grid, {**numbers, **self.kwargs}, "launch")
        except KeyError as error:
            raise ValueError(
                f"the grid asks for {error}; pass it by its name, or if triton.autotune sets it, give each "
                "case any value for it"
            ) from None


class _Noted:
    """Stands for the kernel in a puzzle's ``launch``. Notes what it would be launched with."""

    def __init__(self) -> None:
        self.launches: list[tuple[object, tuple[object, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args: object, grid: object, **kwargs: Any) -> None:
        self.launches.append((grid, args, kwargs))


@dataclass(frozen=True)
class _GridOfLaunch:
    """The grid of a puzzle that has a ``launch``."""

    launched: Callable[[Case], Launched]

    def __call__(self, case: Case) -> tuple[int, ...]:
        return self.launched(case).sizes(case.numbers)


class _Missing:
    """Stands for a part of a puzzle that is not given."""

    def __call__(self, *_: object) -> Any:
        raise TypeError("this part of the puzzle is missing")

    def __repr__(self) -> str:
        return "None"  # in the signature that `help` shows


_missing = _Missing()


@dataclass(frozen=True)
class Puzzle:
    """What to compute (``spec``), how to launch it (``grid`` or ``launch``), what to try it on (``cases``).

    A kernel of your own needs only these, and ``outputs`` if its result isn't called z. Everything else makes
    a puzzle stricter. Strides aren't judged, because all tensors are contiguous, and offsets beyond 2**31 are
    judged only in cases with ``pretend=True``: for both, use `audit`.

    number: the place in the syllabus, such as ``"9b"``; a kernel of your own needs none.
    spec: a PyTorch function with jaxtyping annotations on its parameters and result. It must also be
        correct in float64, because the checker computes its reference there. A parameter annotated ``int``,
        ``float`` or ``bool`` is a number of the case, such as ``BITS`` or ``eps``, not an input.
    grid: a function of the case that returns the number of programs along one to three axes, as a tuple. The
        names of the kernel's parameters then decide what it gets: ``x_ptr``, ``N``, ``stride_x0``.
    launch: instead of ``grid``, a function that launches the kernel. The kernel's parameters may then have
        any names, and its arguments any values: ``launch=lambda kernel, s, x, z: kernel[(s.M,)](x, z,
        x.stride(0), 1e-6, BLOCK=s.BLOCK)``. The function gets a stand-in for the kernel, the case, and the
        tensors that its other parameters name. These tensors have shapes and no values. The function is also
        called once when the puzzle is made. If the grid depends on a number that `triton.autotune` sets,
        every case needs some value for this number, which isn't used otherwise. The function may pass a part
        of a tensor (``x[s.N:]``), or a tensor as another dtype (``x.view(torch.int8)``). Accesses must then
        be within the whole tensor.
    cases: what `check` tries, the easiest first.
    formula: the mathematics in LaTeX, shown in the notebook.
    outputs: the names of the results, ``("z",)`` by default. The kernel's pointers are then ``z_ptr`` and so
        on. A result with the name of an input is that input, changed in place.
    most_loads: a dict from an input's name to a function of the case. It returns how many elements of this
        input may be loaded at most, summed over all programs. For puzzles whose point is to read something
        only once.
    most_flops: a function of the case that returns how many operations on floats are enough. They are counted
        for every lane of all programs, two per product of a `tl.dot`.
    needed: a dict from an input's name to a function of the case. It returns how many elements of this input
        the results depend on; all by default. `check` counts only these when it reports the least possible
        traffic.
    load_slips: a dict from a sentence to a function of the case, for kernels that load more than
        ``most_loads``. The function returns how many elements a kernel with this mistake loads. The report
        shows the first sentence whose number is at least as large as the number of loads.
    descriptors: a dict from an input's name to a function of the case that returns the shape of a tile. The
        kernel may then take a tensor descriptor, ``<name>_desc``, which loads tiles of this shape. It may
        take the pointer, too. If the tile has fewer axes than the input, the descriptor is of a matrix whose
        rows are the input's last axis.
    tables: a dict from an int64 input's name to another input's name. When the kernel starts, the first input
        contains the address of each row of the second (along its first axis), as a grouped matmul takes them.
    exact: names of results that are copied or chosen, not computed. They are compared bit for bit.
    stored_once: names of results whose elements must each be stored only once. Two stores to one element fail
        even if they store the same value, and even if one program makes both.
    zeroed: names of results that are zero when the kernel starts, such as a lock. All others contain NaN or
        garbage.
    locks: names of results that are locks. List them in ``zeroed``, too. A lock is 0 while it is free, and 1
        while a program holds it. Only that program may store to the other results.
    same_bits: whether the results must be the same, bit for bit, in any order of the programs.
    derived: a dict from an input's name to a function that computes this input from earlier ones, as a
        previous kernel would. The function's parameters have the spec's names. If a case has a fill for the
        input, the fill is used instead.
    allowance: a function with the spec's parameters that returns how far each element of a result may be
        off. It is for kernels that round values to half precision for `tl.dot`. None allows only the error of
        computing in float32.
    slips: a dict from a sentence for the report to a function like the spec that makes a common mistake. If a
        kernel's results are those of the function, the report shows the sentence. The function can also take
        any number of the case as a parameter.
    ends: how a report words a missing mask, for axes on which a program's data end before the axis does. With
        ``{"P": "rows with start[e + 1]"}``, a load past the end of an axis of size P is reported with
        "compare rows with start[e + 1]" instead of "compare rows with P".
    contract: how random cases are chosen; without a contract there are none.
    hard: a dict from a sentence to a case, for mistakes that few inputs show. `check` tries these cases once
        all others pass, and doesn't list them. If a kernel fails one, the report shows its sentence.
    machine: goals for the machine code, or for how often the kernel is compiled. They're checked only after
        all cases pass.
    traffic: goals for how much is fetched from memory. They're checked only after all cases pass.
    resident: whether all programs of the grid run at the same time, as a cooperative launch promises, so that
        each may wait for any other. A ``launch`` with ``launch_cooperative_grid=True`` promises this itself.
    broken_by: the name of the mistake in the kernel that learners have to repair. Leave it empty if learners
        fill in missing lines instead.

    Raises ValueError if the parts do not fit together.
    """

    number: str = ""
    spec: Callable = _missing
    grid: Callable[[Case], tuple[int, ...]] = _missing
    cases: tuple[Case, ...] = ()
    formula: str = ""
    outputs: tuple[str, ...] = ("z",)
    most_loads: Mapping[str, Callable[[Case], int]] | None = None
    most_flops: Callable[[Case], int] | None = None
    needed: Mapping[str, Callable[[Case], int]] | None = None
    load_slips: Mapping[str, Callable[[Case], int]] | None = None
    descriptors: Mapping[str, Callable[[Case], tuple[int, ...]]] | None = None
    tables: Mapping[str, str] | None = None
    exact: tuple[str, ...] = ()
    stored_once: tuple[str, ...] = ()
    zeroed: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    same_bits: bool = False
    derived: Mapping[str, Callable[..., torch.Tensor]] | None = None
    allowance: Callable | None = None
    slips: Mapping[str, Callable] | None = None
    ends: Mapping[str, str] | None = None
    contract: Contract | None = None
    hard: Mapping[str, Case] | None = None
    machine: tuple[Goal | Once, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    resident: bool = False
    broken_by: str = ""
    launch: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        if self.spec is _missing:
            raise ValueError("Puzzle: spec is missing: a PyTorch function with jaxtyping annotations")
        self._check_launch()
        if not self.cases:
            raise ValueError(f"{self.name}: cases is empty, but at least one is needed")
        returned = _annotations(self.spec).get("return")
        results = typing.get_args(returned) if typing.get_origin(returned) is tuple else (returned,)
        if len(results) != len(self.outputs):
            raise ValueError(
                f"{self.name}: outputs names {len(self.outputs)} results, but the spec returns {len(results)}"
            )
        if twice := sorted({name for name in self.outputs if self.outputs.count(name) > 1}):
            raise ValueError(f"{self.name}: outputs names {', '.join(twice)} twice")
        self._check_in_place()
        if unknown := set(self.descriptors or {}) - {a.name for a in self.inputs}:
            raise ValueError(f"{self.name}: descriptors names {sorted(unknown)}, which are not inputs")
        self._check_tables()
        if unknown := set(self.needed or {}) - {a.name for a in self.inputs}:
            raise ValueError(f"{self.name}: needed names {sorted(unknown)}, which are not inputs")
        if unknown := set(self.derived or {}) - {a.name for a in self.inputs}:
            raise ValueError(f"{self.name}: derived names {sorted(unknown)}, which are not inputs")
        for field in ("exact", "stored_once", "zeroed", "locks"):
            names = getattr(self, field)
            if unknown := set(names) - set(self.outputs):
                raise ValueError(f"{self.name}: {field} names {sorted(unknown)}, which are not outputs")
        self._check_contract()
        if self.resident and any(case.pretend for case in self.cases):
            raise ValueError(
                f"{self.name}: a puzzle with a resident grid has no pretended cases: few of the programs run "
                "in them, and the others may be waited for"
            )
        run = {number for number, case in enumerate(self.cases) if not case.pretend}
        named = {"machine": {n for goal in self.machine for n in goal.cases}}
        named["traffic"] = {goal.case for goal in self.traffic}
        for field, numbers in named.items():
            if missed := numbers - run:
                raise ValueError(f"{self.name}: {field} names case {min(missed)}, which is not run in full")
        for goal in self.machine:
            for name in goal.keeps if isinstance(goal, Once) else ():
                if bad := [n for n in goal.cases if self.cases[n].numbers.get(name, 1) % 16]:
                    text = f"machine keeps {name!r}, which isn't a multiple of 16 in case {bad[0]}"
                    raise ValueError(f"{self.name}: {text}")
        for case in (*self.cases, *(self.hard or {}).values()):
            if missing := set(self.spec_numbers) - set(case.numbers):
                raise ValueError(
                    f"{self.name}: the spec takes {sorted(missing)}, but case {case} has no such number"
                )
            for argument in self.tensors:
                argument.shape(case.numbers)
            if unknown := set(case.fill) - {a.name for a in self.inputs}:
                raise ValueError(f"{self.name}: fill names {sorted(unknown)}, which are not inputs")
            floats = {a.name for a in self.inputs if a.dtype.is_floating_point} & set(case.fill)
            if case.pretend and floats:
                text = f"a case with pretend fills integers only, but fill names {sorted(floats)}"
                raise ValueError(f"{self.name}: {text}")
            for name, offered in self.offers(case).items():
                if isinstance(offered, Tiled):
                    try:
                        offered.descriptor(case.numbers, torch.empty(0, dtype=offered.argument.dtype))
                    except (AssertionError, TypeError, ValueError) as error:
                        raise ValueError(f"{self.name}: no {name} for case {case}: {error}") from None
            try:
                self.grid(case)
            except AttributeError as error:
                advice = "give it any value: that of an autotune configuration replaces it"
                raise ValueError(f"{self.name}: the grid of case {case}: {error}; {advice}") from None
            except Exception as error:
                if self.launch is None:
                    raise
                words = f"{type(error).__name__}: {error}"
                raise ValueError(f"{self.name}: launch fails for case {case}: {words}") from None
            if not 1 <= len(self.grid(case)) <= 3:
                raise ValueError(f"{self.name}: the grid of case {case} must have 1 to 3 axes")
            for axis, (count, most) in enumerate(zip(self.programs(case), MOST_PROGRAMS, strict=True)):
                if count > most and not case.pretend:  # for pretended cases it is a verdict
                    raise ValueError(
                        f"{self.name}: the grid of case {case} has {count} programs along axis {axis}, "
                        f"but a GPU launches at most {most}"
                    )

    @property
    def name(self) -> str:
        return self.spec.__name__

    @property
    def counts(self) -> bool:
        """Whether this is one of the course's own puzzles, which `progress` counts."""
        chapter = ".".join(self.spec.__module__.split(".")[:3])
        if not chapter.startswith("puzzles_lib.chapters."):
            return False
        counting = getattr(importlib.import_module(f"{chapter}.puzzles"), "PUZZLES", ())
        return any(puzzle is self for puzzle in counting)

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        """The spec's tensor parameters, in order."""
        hints = {n: _annotations(self.spec).get(n) for n in inspect.signature(self.spec).parameters}
        return tuple(_argument(name, hint) for name, hint in hints.items() if hint not in _NUMBERS)

    @cached_property
    def spec_numbers(self) -> tuple[str, ...]:
        """The spec's parameters annotated ``int``, ``float`` or ``bool``, which are numbers of the case."""
        hints = _annotations(self.spec)
        return tuple(n for n in inspect.signature(self.spec).parameters if hints.get(n) in _NUMBERS)

    @cached_property
    def results(self) -> tuple[Argument, ...]:
        """The spec's results under their names from ``outputs``."""
        returned = _annotations(self.spec)["return"]
        hints = typing.get_args(returned) if typing.get_origin(returned) is tuple else (returned,)
        return tuple(_argument(name, hint) for name, hint in zip(self.outputs, hints, strict=True))

    @property
    def pointed_to(self) -> frozenset[str]:
        """The inputs whose addresses are in a table, another input."""
        return frozenset((self.tables or {}).values())

    @property
    def in_place(self) -> frozenset[str]:
        """The inputs that the kernel changes: they are results, too."""
        return frozenset(a.name for a in self.inputs) & frozenset(self.outputs)

    @cached_property
    def tensors(self) -> tuple[Argument, ...]:
        """The inputs and the results. A tensor that is changed in place occurs once."""
        return self.inputs + tuple(a for a in self.results if a.name not in self.in_place)

    def pointer(self, name: str) -> str:
        """Return what reports call the kernel's pointer to a tensor."""
        return name if self.launch else f"{name}_ptr"

    def launched(self, case: Case) -> Launched:
        """Return what ``launch`` gives a kernel in a case.

        Raises ValueError if it does not launch the kernel once, and what ``launch`` itself raises.
        """
        assert self.launch is not None
        made = {
            a.name: torch.empty(a.shape(case.numbers), dtype=a.dtype, device="meta") for a in self.tensors
        }
        asked = tuple(inspect.signature(self.launch).parameters.values())[2:]
        every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in asked)
        wanted = [name for name in made if every or any(name == parameter.name for parameter in asked)]
        noted = _Noted()
        self.launch(noted, case, **{name: made[name] for name in wanted})
        if len(noted.launches) != 1:
            raise ValueError(f"launch launches the kernel {len(noted.launches)} times, but must do so once")
        tensors = {tensor.untyped_storage()._cdata: (name, tensor) for name, tensor in made.items()}
        return Launched(*noted.launches[0], tensors)

    def _check_launch(self) -> None:
        if self.launch is None:
            if self.grid is _missing:
                raise ValueError(f"{self.name}: grid is missing; launch= may be given instead")
            return
        if self.grid is not _missing and not isinstance(self.grid, _GridOfLaunch):
            raise ValueError(f"{self.name}: give grid or launch, not both")
        if self.descriptors:
            raise ValueError(f"{self.name}: descriptors and launch are both given: launch makes descriptors")
        if not callable(self.launch):
            raise ValueError(f"{self.name}: launch must be a function, not {type(self.launch).__name__}")
        taken = list(inspect.signature(self.launch).parameters.values())
        kinds = [p.kind for p in taken[:2]]
        if len(taken) < 2 or not all(
            kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD) for kind in kinds
        ):
            raise ValueError(f"{self.name}: launch must take the kernel, the case, and then tensors by name")
        names = [a.name for a in self.inputs] + list(self.outputs)
        for parameter in taken[2:]:
            if parameter.kind is parameter.VAR_KEYWORD or parameter.default is not parameter.empty:
                continue
            if parameter.name not in names:
                allowed = ", ".join(dict.fromkeys(names))
                hint = f"; if {parameter.name} is a result, name it in outputs="
                raise ValueError(
                    f"{self.name}: launch may only take {allowed}, but takes {parameter.name!r}{hint}"
                )
        object.__setattr__(self, "grid", _GridOfLaunch(self.launched))

    def _check_in_place(self) -> None:
        inputs = {a.name: a for a in self.inputs}
        for result in self.results:
            if result.name in inputs and result != (own := inputs[result.name]):
                raise ValueError(
                    f"{self.name}: {result.name} is changed in place, so its result must be "
                    f"{own.annotation()}, not {result.annotation()}"
                )
        if both := sorted(set(self.zeroed) & set(inputs)):
            raise ValueError(f"{self.name}: zeroed names {both}, which are inputs, changed in place")

    def _check_tables(self) -> None:
        inputs = {argument.name: argument for argument in self.inputs}
        for table, rows in (self.tables or {}).items():
            if unknown := {table, rows} - set(inputs):
                raise ValueError(f"{self.name}: tables names {sorted(unknown)}, which are not inputs")
            if (dtype := inputs[table].dtype) != torch.int64:
                raise ValueError(
                    f"{self.name}: a tensor named in tables must be torch.int64, but {table} is {dtype}"
                )
            if not inputs[rows].dims:
                raise ValueError(f"{self.name}: tables names {rows}, which has no rows")
            if any(case.pretend for case in self.cases):
                raise ValueError(
                    f"{self.name}: a puzzle with tables has no pretended cases: its tensors are not there"
                )

    def _check_contract(self) -> None:
        numbers = self.contract.numbers if self.contract else self.cases[0].numbers
        if set(numbers) != set(self.cases[0].numbers):
            wanted = ", ".join(self.cases[0].numbers)
            raise ValueError(f"{self.name}: contract draws {', '.join(numbers)}, but a case has {wanted}")
        for name, size in numbers.items():
            if isinstance(size, Size) and size.most < (least := beyond(self._largest(name))):
                raise ValueError(
                    f"{self.name}: contract has {name} up to {size.most}, but at least {least} is needed"
                )

    def _largest(self, name: str) -> int:
        """Return the largest value of each number in the cases, except those of true size."""
        each = (case.numbers.get(name, 0) for case in self.cases if not case.pretend)
        return max((value for value in each if type(value) is int), default=0)

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """Return the largest value of each number in the cases, except those of true size."""
        return {name: self._largest(name) for name in self.cases[0].numbers}

    def drawn(self, salt: str = "") -> tuple[Case, ...]:
        """Return the random cases, which are the same at every call with the same salt."""
        if self.contract is None:
            return ()
        cases = []
        for turn in range(DRAWS):
            seed = f"{self.name}/{salt}/{turn}"
            numbers = self.contract.draw(
                turn,
                seed,
                self.largest,
                lambda n: math.prod(self.programs(Case(fill=None, salt="", pretend=False, **n))),
            )
            fills = self.contract.fills(SimpleNamespace(**numbers))
            cases.append(Case(fill=fills[turn % len(fills)], salt=salt, pretend=False, **numbers))
        return tuple(cases)

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Return the numbers of a case that say what to compute; the others, such as BLOCK, say how."""
        dims = " ".join(dim for argument in self.tensors for dim in argument.dims)
        return frozenset(re.findall(r"[^\W\d]\w*", dims)) | frozenset(self.spec_numbers)

    def programs(self, case: Case) -> tuple[int, int, int]:
        """Return the grid for a case, padded to three axes."""
        x, y, z = (*(int(n) for n in self.grid(case)), 1, 1)[:3]
        return x, y, z

    def offers(self, case: Case) -> dict[str, object]:
        """Return everything that a kernel may take, by name: pointers, descriptors, numbers, strides.

        Pointers map to their `Argument`, descriptors to a `Tiled`, the rest to integers. Strides are those of
        contiguous tensors, in elements. They are named by the axis if it is a plain size (``stride_xm`` for
        axis ``M`` of ``x``), and always by its position (``stride_x0``).
        """
        offers: dict[str, object] = {}
        for argument in self.tensors:
            offers[f"{argument.name}_ptr"] = argument
            if block := (self.descriptors or {}).get(argument.name):
                offers[f"{argument.name}_desc"] = Tiled(argument, block(case))
        offers.update(case.numbers)
        for argument in self.tensors:
            shape = argument.shape(case.numbers)
            for axis, dim in enumerate(argument.dims):
                stride = math.prod(shape[axis + 1 :])
                offers[f"stride_{argument.name}{axis}"] = stride
                if dim.isidentifier():
                    offers.setdefault(f"stride_{argument.name}{dim.lower()}", stride)
        return offers

    def source(self) -> str:
        """Return the spec's source text."""
        return inspect.getsource(self.spec).rstrip()

    def __str__(self) -> str:
        return f"{self._heading()}\n\n{self.source()}\n\n{self._told_cases()}"

    def _told_cases(self) -> str:
        cases = "\n".join(f"    {case}" for case in self.cases)
        goals = "".join(f"\n{goal}" for goal in self.machine + self.traffic)
        terms = "".join(f"\n{term}" for term in self._terms())
        return f"cases\n{cases}{terms}{goals}"

    def _told_arguments(self) -> str:
        """Return what a kernel may take, a line each: tensors with dtype and shape, descriptors, numbers."""
        roles = {result.name: ", a result" for result in self.results}
        roles |= dict.fromkeys(self.in_place, ", an input that the kernel changes")
        lines = []
        for each in self.tensors:
            about = f"{of_torch(each.dtype).name} [{', '.join(each.dims)}]{roles.get(each.name, '')}"
            lines.append(f"{self.pointer(each.name)}: {about}")
        for name, block in (self.descriptors or {}).items():
            tile = block(self.cases[0])
            lines.append(f"{name}_desc: a descriptor of {name}, with tiles of {tile} in case 0")
        if self.launch is not None:
            head, last = "tensors", [f"In case 0, the kernel is launched as {self._told_launch()}"]
        else:
            head, last = "your kernel may take", []
            if names := ", ".join(dict.fromkeys(name for case in self.cases for name in case.numbers)):
                lines.append(f"{names}: numbers of the case")
        return "\n".join([head, *(f"    {line}" for line in lines), *last])

    def _told(self) -> str:
        """Return the whole statement as text: what to compute, what a kernel may take, and the cases."""
        try:
            source = [self.source()]
        except OSError:  # the spec was made by exec
            source = []
        return "\n\n".join([self._heading(), *source, self._told_arguments(), self._told_cases()])

    def _heading(self) -> str:
        return f"Puzzle {self.number}: {self.title}".replace("Puzzle :", "Puzzle:")

    def _told_launch(self) -> str:
        """Return the first case's launch as text, with the tensors' names."""
        launched = self.launched(self.cases[0])
        named = (f"{n}={launched.told(v)}" for n, v in launched.kwargs.items())
        given = [*map(launched.told, launched.args), *named]
        return f"kernel[{self.grid(self.cases[0])}]({', '.join(given)})"

    def _terms(self) -> list[str]:
        """Return what the spec cannot say about the results."""
        terms = []
        if self.zeroed:
            names = " and ".join(", ".join(map(self.pointer, self.zeroed)).rsplit(", ", 1))
            terms.append(
                f"When the kernel starts, {names} {'contains' if len(self.zeroed) == 1 else 'contain'} zeros."
            )
        if self.same_bits:
            terms.append("The results must be the same, bit for bit, in any order of the programs.")
        if self.resident:
            terms.append("All programs run at the same time, so each of them may wait for any other.")
        return terms

    def __repr__(self) -> str:
        return f"<Puzzle {self.number}: {self.name}>".replace("Puzzle :", "Puzzle:")

    def _repr_markdown_(self) -> str:
        formula = f"\n$$ {self.formula} $$\n" if self.formula else ""
        names = list(dict.fromkeys(name for case in self.cases for name in case.numbers))
        heads = [name.replace("_", "_<wbr>") for name in names] if len(names) > WIDE else names
        rows = [f"| {' | '.join(['case', *heads, 'inputs'])} |", f"|{' --- |' * (len(names) + 2)}"]
        for number, case in enumerate(self.cases):
            numbers = [str(case.numbers.get(name, "")) for name in names]
            fills = ", ".join(f"{n}: {f.__name__.replace('_', ' ')}" for n, f in case.fill.items())
            if len(names) > WIDE and len(alike := {f.__name__ for f in case.fill.values()}) == 1:
                fills = f"{', '.join(case.fill)}: {alike.pop().replace('_', ' ')}"
            held = "pretended" if case.pretend else fills or "random"
            rows.append(f"| {' | '.join([str(number), *numbers, held])} |")
        pointers = ", ".join(f"`{a.name}_ptr`" for a in self.tensors)
        such = f", such as `{names[0]}`" if names else ""
        told = f"Your kernel may take {pointers}, and any of these numbers by name{such}:"
        if self.launch is not None:
            told = f"In the first case, your kernel is launched as `{self._told_launch()}`:"
        table = "\n".join(rows)
        return (
            f"**{self._heading()}**\n{formula}\n```python\n{self.source()}\n```\n\n"
            f"{told}\n\n{table}\n"
            + "".join(f"\n{term}\n" for term in self._terms())
            + "".join(_goal_markdown(goal) for goal in self.machine)
            + _traffic_markdown(self.traffic)
        )


class OwnDoc:
    """The ``__doc__`` of a class whose instances have their own, which `help` and Jupyter's ``?`` show.

    whole: the class's docstring. told: a function that returns an instance's docstring.
    """

    def __init__(self, whole: str | None, told: Callable[[Any], str]):
        self.whole, self.told = whole, told

    def __get__(self, instance: object, owner: type) -> str | None:
        return self.whole if instance is None else self.told(instance)


Puzzle.__doc__ = OwnDoc(Puzzle.__doc__, Puzzle._told)  # type: ignore[assignment]


def _goal_markdown(goal: Goal | Once) -> str:
    wants = "".join(f"- {want}\n" for want in goal.wants)
    return f"\nOnce all cases pass (they count from 0), there is a goal for the {goal.title}:\n\n{wants}"


def _traffic_markdown(goals: Sequence[Traffic]) -> str:
    if not goals:
        return ""
    many = "one more goal" if len(goals) == 1 else "these goals, too"
    listed = "".join(f"- {goal}\n" for goal in goals)
    return f"\nOnce all cases pass (they count from 0), your kernel must meet {many}:\n\n{listed}"


def pick_case(puzzle: Puzzle, case: "int | Case", caller: str) -> Case:
    """Return a puzzle's case by its number, or check a case that the reader made. Random cases come last.

    Raises ValueError, in the name of the public function ``caller``, if the case does not exist or does not
    fit the puzzle.
    """
    __tracebackhide__ = True
    if isinstance(case, Case):
        try:
            for argument in puzzle.tensors:
                argument.shape(case.numbers)
            puzzle.grid(case)
        except (ArithmeticError, AttributeError, ValueError) as error:
            raise ValueError(f"{caller}: case is {case}, which does not fit {puzzle.name}: {error}") from None
        return case
    cases = puzzle.cases + puzzle.drawn()
    if isinstance(case, bool) or not isinstance(case, int) or not 0 <= case < len(cases):
        raise ValueError(f"{caller}: case must be from 0 to {len(cases) - 1} or a Case, but is {case!r}")
    return cases[case]


class NoSuchProgram(ValueError):
    """The grid has no such program."""


def pick_program(program: object, grid: tuple[int, ...], caller: str) -> int | None:
    """Return a program's number in launch order. program: that number, or ids; None stays None.

    Raises NoSuchProgram, in the name of the public function ``caller``, if there is no such program.
    """
    count = math.prod(grid)
    last = ", ".join(str(n) for n in grid)
    allowed = f"from 0 to {count - 1}, or ids below {last if len(grid) == 1 else f'({last})'}"
    wrong = NoSuchProgram(f"{caller}: program must be {allowed}, but is {program!r}")
    if program is None:
        return None
    if isinstance(program, int) and not isinstance(program, bool):
        if not 0 <= program < count:
            raise wrong
        return program
    if not isinstance(program, (tuple, list)) or not 1 <= len(program) <= 3:
        raise wrong
    ids, sizes = (*program, *(0,) * (3 - len(program))), (*grid, *(1,) * (3 - len(grid)))
    if not all(isinstance(i, int) and 0 <= i < n for i, n in zip(ids, sizes, strict=True)):
        raise wrong
    return (ids[0] * sizes[1] + ids[1]) * sizes[2] + ids[2]


def expect_puzzle(call: str, kernel: object, puzzle: object) -> None:
    """Raise TypeError, with the name of the call, if ``puzzle`` is not a `Puzzle`.

    If ``kernel`` is a `Puzzle`, the message says that the arguments are swapped.
    """
    if isinstance(puzzle, Puzzle):
        return
    if isinstance(kernel, Puzzle):
        name = getattr(puzzle, "__name__", "kernel")
        raise TypeError(f"{call}: the arguments are swapped, write {call}({name}, {kernel.name.upper()})")
    raise TypeError(f"{call}(kernel, puzzle): puzzle must be a Puzzle, not {type(puzzle).__name__}")


_NUMBERS = (int, float, bool)  # annotations of what is not a tensor


def _annotations(spec: Callable) -> dict[str, Any]:
    return typing.get_type_hints(spec, include_extras=True)


def _argument(name: str, hint: object) -> Argument:
    """Read a jaxtyping annotation such as ``Float32[Tensor, "M N"]``."""
    dims: str | None = getattr(hint, "dim_str", None)
    dtypes = getattr(hint, "dtypes", ())
    named = map(of_name, dtypes) if isinstance(dtypes, tuple) else ()
    rows = {row for row in named if row}  # jaxtyping's Bool is also NumPy's "bool_"
    if dims is None or len(rows) != 1:
        raise ValueError(
            f"{name} must be annotated with one dtype and its sizes, as in "
            f'Float32[Tensor, "M N"], but is annotated {hint!r}'
        )
    return Argument(name, rows.pop().torch, tuple(dims.split()))


_OPERATORS: dict[type, Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
}


@cache
def _parsed(dim: str) -> ast.expr:
    return ast.parse(re.sub(r"\s", "", dim), mode="eval").body


def evaluate(dim: str, numbers: Mapping[str, int]) -> int:
    """Return the value of one size of an annotation, such as ``"K//8"``, for a case's numbers.

    Raises ValueError for a name that the case lacks, for anything except integer arithmetic, and for a result
    below zero.
    """

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name() if type(numbers.get(node.id)) is int:
                return numbers[node.id]
            case ast.Name() if node.id in numbers:
                raise ValueError(f"{node.id} is {numbers[node.id]!r}, but sizes such as {dim!r} are integers")
            case ast.Name():
                raise ValueError(f"size {dim!r} needs {node.id}, but the case has {', '.join(numbers)}")
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return _OPERATORS[type(node.op)](value(node.left), value(node.right))
            case ast.UnaryOp() if type(node.op) in _OPERATORS:
                return _OPERATORS[type(node.op)](value(node.operand))
        raise ValueError(f"size {dim!r} is not integer arithmetic on names and numbers")

    size = value(_parsed(dim))
    if size < 0:
        raise ValueError(f"size {dim!r} must be an integer of at least 0, but is {size} for this case")
    return size
