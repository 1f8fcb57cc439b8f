"""Say what to change in a kernel or in its launch, for faults that have a usual cure."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from puzzles_lib import compiler
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.auditor.shared import bad_index
from puzzles_lib.checker.edges import CURE, MASK_EXCHANGED, past_an_edge
from puzzles_lib.checker.report import Verdict
from puzzles_lib.puzzle import Argument
from puzzles_lib.runner import Access, Run
from puzzles_lib.source import Site, nodes, site_in

LONGEST = 60  # of an offset in a cure, in characters
_NOTHING_TO_DO = (
    "this program has no element at all, so check the grid and the order of the arguments. If they're right, "
)
NOT_WRITTEN = "they contain what torch.empty found in memory"
_MASK = "mask the lanes that have no element, or correct the offsets"


def with_cure(verdict: Verdict, launch: Launch) -> Verdict:
    """Return a verdict with advice, if it has none yet and its kind has a usual cure."""
    if verdict.diagnosis:
        return verdict
    advice = ""
    if verdict.kind == "out of bounds":
        advice = _strides(launch, verdict)
        if "between its elements" not in verdict.message:
            advice = f"{advice}{'' if advice.endswith('?') else '.'} If not, {_MASK}" if advice else _MASK
    elif verdict.kind == "uninitialized" and "before anything is stored there" in verdict.message:
        advice = "if the kernel adds to what is there, make the tensor with torch.zeros"
        if verdict.site and "atomic" not in verdict.site.source:
            advice += "; if not, read only what earlier launches store"
    return replace(verdict, diagnosis=advice)


def is_general(diagnosis: str) -> bool:
    """Return whether a diagnosis names no cause in particular, so that the launch itself may be wrong."""
    general = NOT_WRITTEN, MASK_EXCHANGED
    return diagnosis == _MASK or diagnosis.startswith(general) or _NOTHING_TO_DO in diagnosis


def with_strides(verdict: Verdict, launches: Iterable[Launch]) -> Verdict:
    """Return a verdict that says which tensors aren't contiguous, unless it says so already."""
    if "strides" in verdict.diagnosis:
        return verdict
    launches = list(launches)
    found = {name: t for each in launches for name, t in each.tensors.items() if not t.is_contiguous()}
    diagnosis = "; ".join(filter(None, (verdict.diagnosis, _assumed(found, launches))))
    return replace(verdict, diagnosis=diagnosis)


def _assumed(tensors: Mapping[str, torch.Tensor], launches: Sequence[Launch]) -> str:
    """Say what a kernel may assume that tensors which aren't contiguous don't have."""
    if not tensors:
        return ""
    each = ", ".join(f"{name} {t.stride()} (shape {tuple(t.shape)})" for name, t in tensors.items())
    if not all(t.stride(-1) == 1 for t in tensors.values()):
        return f"strides: {each}: does the kernel assume a stride of 1 along the last axis?"
    assumes = f"strides: {each}: does the kernel assume that rows follow each other without a gap?"
    steps = {t.stride(-2) for t in tensors.values() if t.dim() > 1}
    if len(steps) != 1:
        return assumes
    (step,) = steps
    passed = dict.fromkeys(name for launch in launches for name in _passed(launch, step))
    if not passed:
        return f"{assumes} No argument of the launch is {step}"
    names = " and ".join(passed)
    return f"strides: {each}: {names} is {step} in this launch. Does the kernel multiply the row by {names}?"


def _passed(launch: Launch, step: int) -> list[str]:
    """Return the parameters that get a stride; a constant may be a block of that size."""
    constants = {p.name for p in launch.kernel.params if p.is_constexpr and "stride" not in p.name.lower()}
    return [name for name, value in launch.numbers.items() if value == step and name not in constants]


def _strides(launch: Launch, verdict: Verdict) -> str:
    """Return what is unusual about the strides of a verdict's tensor, or of others with its shape."""
    for name, tensor in launch.tensors.items():
        if not re.search(rf"\b{name}\b", verdict.message):
            continue
        if not tensor.is_contiguous():
            return _assumed({name: tensor}, [launch])
        for other, like in launch.tensors.items():
            if like.shape == tensor.shape and not like.is_contiguous():
                both = f"strides: {other} {like.stride()}, {name} {tensor.stride()}"
                return f"{both}: does the kernel use those of {other} for {name}?"
    return ""


def of_bounds(verdict: Verdict, launch: Launch, code: compiler.Program, ran: Run) -> Verdict:
    """Return a verdict on an access out of bounds with what its mask lacks, if that is clear.

    ran: a run of the program that has done it, whose accesses were kept.
    """
    access = next((a for a in ran.accesses if a.bad.any()), None)
    if access is None or access.argument not in launch.tensors:
        return verdict
    if why := _unchecked(code, access) or bad_index(launch, code, ran.accesses, access):
        return replace(verdict, diagnosis=why)
    if _strides(launch, verdict):
        return verdict
    call = _call(launch, access)
    is_masked = not access.mask.all() or (call is not None and any(k.arg == "mask" for k in call.keywords))
    why = ""
    if access.elements.ndim == 1 and (size := _named(launch, launch.tensors[access.argument].numel())):
        why = _past_the_end(launch, access, size, is_masked, call)
    elif access.elements.ndim == 2 or (not is_masked and _is_row(launch, access)):
        why = _past_an_edge(verdict, launch, ran, access)
    if flag := _only_if(launch, access.site):
        why = f"{why or _MASK}; {flag}"
    return replace(verdict, diagnosis=why)


def _unchecked(code: compiler.Program, access: Access) -> str:
    """Return what an access through a block pointer lacks, which takes no mask; "" for other pointers."""
    for op in code.module.operations():
        if op.name != f"tt.{access.kind}" or op.location.line != access.site.line:
            continue
        if op.operands[0].type.element.startswith("!tt.ptr<tensor"):
            axes = range(access.elements.ndim)
            checked = {
                int(each)
                for each in re.findall(r"\d+", op.attributes.get("boundaryCheck", "").partition(":")[2])
            }
            if checked >= set(axes):
                return f"the shape that tl.make_block_ptr gets is larger than {access.argument}"
            return f"pass boundary_check=({', '.join(map(str, axes))}{',' * (len(axes) == 1)})"
    return ""


def _past_the_end(launch: Launch, access: Access, size: str, is_masked: bool, call: ast.Call | None) -> str:
    """Return what the mask of a vector lacks. size: the number's name. call: the access, if it's known."""
    name, offsets = access.argument, "the offsets"
    has = f"{name} has {size} = {launch.tensors[name].numel()} elements"
    least, which = ("0", "below 0") if (access.elements[access.bad] < 0).any() else (size, f"from {size} on")
    if is_masked:
        return (
            f"{has}, but the mask lets offsets {which} through: compare the offsets themselves with {least}"
        )
    match call and call.args[0]:
        case ast.BinOp(ast.Name(base), ast.Add(), added) | ast.BinOp(added, ast.Add(), ast.Name(base)):
            if base == name and len(text := ast.unparse(added)) <= LONGEST:
                offsets = text if isinstance(added, ast.Name) else f"({text})"
                return f"{has}: add mask={offsets} {'>=' if least == '0' else '<'} {least}"
    return f"{has}: compare the offsets with {least} in a mask"


def _is_row(launch: Launch, access: Access) -> bool:
    """Whether a vector belongs to a row of a matrix, because each program has its own row."""
    shape = launch.tensors[access.argument].shape
    if len(shape) != 2 or launch.full_grid[0] != shape[0] or access.elements[0] < 0:
        return False
    return int(access.elements[0]) // shape[1] == access.program[0]


def _past_an_edge(verdict: Verdict, launch: Launch, ran: Run, access: Access) -> str:
    """Return which axis a mask leaves out, as `past_an_edge` does; a vector is a tile with one row."""
    if access.elements.ndim == 1:
        parts = {name: getattr(access, name)[None] for name in ("elements", "mask", "bad")}
        access = replace(access, **parts)
    tensor = launch.tensors[access.argument]
    if access.elements.ndim != 2 or tensor.dim() < 2:
        return ""
    dims = tuple(_named(launch, size) or str(size) for size in tensor.shape)
    puzzle: Any = SimpleNamespace(tensors=[Argument(access.argument, tensor.dtype, dims)], ends=None)
    case: Any = SimpleNamespace(numbers=launch.numbers)
    found = past_an_edge(verdict, puzzle, case, replace(ran, accesses=(access,)))
    if not found:
        return ""
    facts, cure, rest = found.diagnosis.partition(CURE)
    if cure and (access.elements >= tensor.numel()).all():
        return f"{facts}; {_NOTHING_TO_DO}{cure.removeprefix(': ')}{rest}"
    return found.diagnosis


def _named(launch: Launch, size: int) -> str:
    """Return the parameter that says a size; "" if several may, or none does.

    The kernel compares something with it. If it compares nothing, its products show which one is a stride.
    """
    names = [name for name, value in launch.numbers.items() if value == size]
    constants = {p.name for p in launch.kernel.params if p.is_constexpr}
    compared, factors = set(), set()
    for node in nodes(launch.kernel):
        if isinstance(node, ast.Compare):
            compared |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factors |= {side.id for side in (node.left, node.right) if isinstance(side, ast.Name)}
    numbers = [n for n in names if n not in constants]
    found = [n for n in names if n in compared] or [n for n in numbers if n not in factors] or numbers
    return found[0] if len(found) == 1 else ""


def _call(launch: Launch, access: Access) -> ast.Call | None:
    """Return the load, store or atomic in the kernel's source, if it is clear which one it is."""
    found = []
    for node in nodes(launch.kernel):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        is_access = node.func.attr.startswith((access.kind, f"{access.kind}_"))
        if is_access and any(site_in(launch.kernel, line) == access.site for line in lines):
            found.append(node)
    return found[0] if len(found) == 1 else None


def _only_if(launch: Launch, site: Site) -> str:
    """Say which constant chooses a line instead of others, such as ``EVEN_K``; "" if none does."""
    constants = {p.name for p in launch.kernel.params if p.is_constexpr}
    for node in nodes(launch.kernel):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.orelse:
            lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.lineno) + 1)
            name = node.test.id
            if name in constants and any(site_in(launch.kernel, line) == site for line in lines):
                return f"this line runs because {name} is {launch.arguments[name]} in this launch"
    return ""
