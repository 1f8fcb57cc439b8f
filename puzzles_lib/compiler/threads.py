"""Find out which thread of a program holds which lane of a block that is loaded or stored.

The compiler decides this: TTGIR has a layout for each access (`layouts`). TTGIR is made here for a GPU that
need not be present, with as many warps as the launch asks for.

    accesses = memory_accesses(gpu_dialect(kernel, arguments, target, num_warps=4))
    accesses[0].threads()  # of each element: warp * threads of a warp + lane

A thread may load or store several of its elements by one instruction; PTX says how many (`taken_at_once`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from triton.runtime.jit import JITFunction

from puzzles_lib.compiler.copies import Copies
from puzzles_lib.compiler.frontend import gpu_dialect, translate
from puzzles_lib.compiler.layouts import Layout, blocks, read_layout
from puzzles_lib.compiler.locations import Line, read
from puzzles_lib.compiler.lowering import build
from puzzles_lib.runner import HeldBy, Holders, TakenAtOnce
from puzzles_lib.source import Refusal, Site, statements, with_helpers
from puzzles_lib.translator.targets import Target


@dataclass(frozen=True)
class MemoryAccess:
    """A load, store or atomic of global memory in TTGIR.

    kind: ``"load"``, ``"store"`` or ``"atomic"``.
    line: the line in the kernel's file; None if the compiler doesn't say.
    shape: that of the block; ``()`` for one element.
    layout: None for one element, which all threads load and the first one stores.
    alone: whether each thread uses its copy of a loaded value only for its own lane, or the copy does no harm
    for another reason (see `copies`). Then copies that are not stored don't matter.
    ahead: whether the compiler moves the load to an earlier iteration of its loop.
    stored: whether the loaded values are only stored, lane by lane, perhaps by other threads. A value from
    another warp then passes a barrier before its store.
    early: whether the load is done before any thread can store to the tensor.
    """

    kind: str
    line: int | None
    shape: tuple[int, ...]
    layout: Layout | None
    alone: bool = False
    ahead: bool = False
    stored: bool = False
    early: bool = False

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        """Return whether the block has this shape. A run records one element as a block of one."""
        return self.shape == shape or (self.shape == () and shape == (1,))

    def threads(self) -> np.ndarray:
        """Return int, in the block's shape: the thread that holds each element, the lowest of several.

        For a store, that thread stores it. A thread's number is warp * threads of a warp + its lane.
        """
        if self.layout is None:
            return np.zeros(self.shape, int)
        table = self.layout.table  # [warps, lanes, registers, axes]
        warps, lanes, registers, axes = table.shape
        flat = np.ravel_multi_index(tuple(table.reshape(-1, axes).T), self.shape)
        owner = np.full(int(np.prod(self.shape)), warps * lanes)
        np.minimum.at(owner, flat, np.repeat(np.arange(warps * lanes), registers))
        return owner.reshape(self.shape)

    def is_held_by_several(self) -> bool:
        """Return whether more than one thread holds some element."""
        if self.layout is None:
            return True
        table = self.layout.table
        warps, lanes, registers, axes = table.shape
        flat = np.ravel_multi_index(tuple(table.reshape(-1, axes).T), self.shape)
        size = int(np.prod(self.shape))
        return np.unique(np.repeat(np.arange(warps * lanes), registers) * size + flat).size > size

    def taken_at_once(self, many: int) -> np.ndarray:
        """Return int [instructions, many]: flat indices of the ``many`` elements of each instruction.

        They are in consecutive registers of a thread. The result is empty if a thread has fewer.
        """
        if self.layout is None:
            return np.zeros((0, many), int)
        every = np.ravel_multi_index(np.moveaxis(self.layout.table, -1, 0), self.shape)
        differ = [1 << bit for bit, step in enumerate(self.layout.register) if not any(step)]
        own = [r for r in range(self.layout.registers) if not any(r & bit for bit in differ)]
        if len(own) % many:
            return np.zeros((0, many), int)
        return np.unique(every[..., own].reshape(-1, many), axis=0)

    def holders(self) -> Holders:
        several = self.kind == "load" and (self.ahead or (self.is_held_by_several() and not self.alone))
        return Holders(self.threads().ravel(), several, self.stored and not self.ahead, self.early)


_OPERATIONS = {
    "tt.load": "load",
    "tt.store": "store",
    "tt.atomic_rmw": "atomic",
    "tt.atomic_cas": "atomic",
    "ttg.async_copy_global_to_local": "load",
    "amdg.buffer_load": "load",
    "amdg.buffer_store": "store",
    "amdg.buffer_atomic_rmw": "atomic",
    "amdg.buffer_atomic_cas": "atomic",
}
_OPERATION = re.compile(r"^\s*(?:(%[\w#]+)(?::\d+)? = )?\"?([a-z_]+\.[\w.]+)\"?(.*)$")


def memory_accesses(ttgir: str, above: int = 0) -> tuple[MemoryAccess, ...]:
    """Return every access of global memory in TTGIR, in its order. above: as for `locations.read`.

    Raises ValueError for a layout that `read_layout` does not read.
    """
    lines = read("ttgir", ttgir, above)
    texts = _uniquely_named([line.text for line in lines])
    users = _users(texts)
    copies = Copies(ttgir, texts)
    found = []
    for line, text in zip(lines, texts, strict=True):
        match = _OPERATION.match(text)
        if match is None or (kind := _OPERATIONS.get(match[2])) is None:
            continue
        shape, layout = _block(ttgir, match[3])
        alone, stored = (
            kind == "load" and match[1] is not None and _is_stored(match[1], users, by)
            for by in (_LANE_BY_LANE, _SAME_LANE)
        )
        if kind == "load" and match[1] is not None and not alone:
            alone = copies.do_nothing(match[1], layout)
        ahead = "async_copy" in match[2]
        access = MemoryAccess(kind, line.source, shape, layout, alone, ahead, stored)
        if kind == "load" and match[1] is not None and len(shape) < 2:
            early = copies.comes_in_time(match[1], alone) if not shape else copies.is_summed_in_time(match[1])
            access = replace(access, early=early and not (shape and access.holders().several))
        if kind == "load" and match[1] is not None and not access.early:
            access = replace(access, early=copies.is_added_up_in_time(match[1]))
        found.append(access)
    return tuple(found)


def _block(ttgir: str, operation: str) -> tuple[tuple[int, ...], Layout | None]:
    """Return the shape and layout of the first block in an operation's type; () and None without one."""
    shape, name = next(blocks(operation[operation.rindex(" : ") :]), ((), ""))
    return shape, read_layout(ttgir, name, shape) if shape else None


# ---- what becomes of a value

# Each thread computes these for the lanes that it holds itself, and stores what it has.
_LANE_BY_LANE = re.compile(
    r"arith\.|math\.|tt\.(addptr|bitcast|fp_to_fp|int_to_ptr|ptr_to_int|clampf|extern_elementwise"
    r"|precise_sqrt|precise_divf|mulhiui)$"
)
_SAME_LANE = re.compile(rf"{_LANE_BY_LANE.pattern}|ttg\.convert_layout$")  # and perhaps another thread
_STORES = ("tt.store", "amdg.buffer_store")


def _users(lines: list[str]) -> Mapping[str, list[tuple[str, str | None]]]:
    """For each value, the operations that use it, with the value that each of them gives.

    lines: with names that are unique, as `_uniquely_named` makes them.
    """
    users: dict[str, list[tuple[str, str | None]]] = {}
    for line in lines:
        match = _OPERATION.match(line)
        result, name, rest = match.groups() if match else (None, "", line)
        for used in set(re.findall(_NAME, rest)):
            users.setdefault(used, []).append((name, result))
    return users


_NAME = re.compile(r"%\w+")
_RESULTS = re.compile(r"\s*%\w+(?::\d+)?(?:, %\w+)* = ")
_HEADS = re.compile(r"iter_args\((.*?)\) ->|\^bb\d+\((.*)\):")  # where a region names its own values


def _uniquely_named(lines: Sequence[str]) -> list[str]:
    """The lines of MLIR text with a name of its own for each value.

    A printed name is unique within a region only: two loops side by side may both have an ``%x``.
    """
    scopes: list[dict[str, str]] = [{}]
    counts: dict[str, int] = {}

    def define(name: str) -> str:
        counts[name] = counts.get(name, -1) + 1
        scopes[-1][name] = unique = f"{name}__{counts[name]}" if counts[name] else name
        return unique

    def use(match: re.Match[str]) -> str:
        return next((scope[match[0]] for scope in reversed(scopes) if match[0] in scope), match[0])

    renamed = []
    for line in lines:
        text = line.strip()
        if text.startswith("}"):  # also "} else {", whose region has a scope of its own
            scopes.pop()
            scopes = scopes or [{}]
        match = _RESULTS.match(line)
        head = match[0] if match else ""
        results, rest = re.findall(_NAME, head), line[len(head) :]
        opens = text.endswith("{")
        own = set(re.findall(r"(%\w+) = %", " ".join(map(str, _HEADS.findall(rest))))) if opens else set()
        own |= set(re.findall(r"(%\w+):", rest)) if text.startswith(("^", "tt.func")) else set()
        own |= set(re.findall(r"scf\.for (%\w+) =", rest))
        rest = _NAME.sub(lambda m: m[0] if m[0] in own else use(m), rest)  # noqa: B023
        for name in results:
            define(name)
        head = _NAME.sub(use, head)
        if opens:
            scopes.append({})
        for name in own:
            define(name)
        renamed.append(head + _NAME.sub(lambda m: use(m) if m[0] in own else m[0], rest))  # noqa: B023
    return renamed


def _is_stored(value: str, users: Mapping[str, list[tuple[str, str | None]]], by: re.Pattern[str]) -> bool:
    """Whether all copies of a value go into stores and nowhere else, by these operations."""
    todo, seen = [value], {value}
    while todo:
        for name, result in users.get(todo.pop(), []):
            if name in _STORES:
                continue
            if not by.match(name) or result is None:
                return False
            if result not in seen:
                seen.add(result)
                todo.append(result)
    return True


# ---- for a guarded run


def held_by(
    kernel: JITFunction,
    arguments: Mapping[str, object],
    target: Target,
    num_warps: int,
    known: dict[str, str | Refusal] | None = None,
) -> HeldBy | Refusal:
    """Return a function that finds the holders of each access's lanes, in the kernel as compiled.

    arguments: as for `front_end`. known: as for `gpu_dialect`. Returns a Refusal if the kernel cannot be
        compiled that far, or its layouts cannot be read.
    """
    text = gpu_dialect(kernel, arguments, target, known, num_warps=num_warps)
    if isinstance(text, Refusal):
        return text
    try:
        accesses = memory_accesses(text)
    except ValueError as error:
        return Refusal(str(error))
    matching = _matching(kernel, accesses)

    def holders(kind: str, site: Site, shape: tuple[int, ...]) -> Holders | None:
        found = [access.holders() for access in matching(kind, site, shape)]
        if not found:
            return None
        one = found[0]
        same = all(f.several == one.several and np.array_equal(f.first, one.first) for f in found)
        return replace(one, early=all(f.early for f in found)) if same else None

    return holders


def taken_at_once(
    kernel: JITFunction, arguments: Mapping[str, object], target: Target, num_warps: int
) -> TakenAtOnce | Refusal:
    """Return which lanes of an access one instruction loads or stores, in the kernel as compiled.

    arguments: as for `front_end`. target: one of NVIDIA's. The kernel is compiled to PTX once, and the result
        is kept. Returns a Refusal if it cannot be compiled that far, or its layouts cannot be read.
    """
    translated = translate(kernel, arguments, target, num_warps=num_warps)
    if isinstance(translated, Refusal):
        return translated
    built = build(translated)
    if "ptx" not in built.texts:
        return built.refusal or Refusal("there is no PTX of it")
    try:
        matching = _matching(kernel, memory_accesses(built.texts["ttgir"], translated.above))
    except ValueError as error:
        return Refusal(str(error))
    first_line = _first_lines(kernel)
    by_line: dict[int | None, int] = {site.line: first for site, first in first_line.items()}
    widest: dict[tuple[str, int | None], int] = {}
    for kind, line, size in _sizes(read("ptx", built.texts["ptx"], translated.above)):
        key = kind, by_line.get(line)
        widest[key] = max(widest.get(key, 0), size)

    def lanes(kind: str, site: Site, shape: tuple[int, ...], element: int) -> Sequence[np.ndarray]:
        many = widest.get((kind, first_line.get(site)), 0) // element
        return [access.taken_at_once(many) for access in matching(kind, site, shape)] if many > 1 else []

    return lanes


_INSTRUCTION = re.compile(r"\b(ld|st|atom|red)\.[\w.:]*?global[\w.:]*?(?:\.v(\d))?\.[a-z]+(\d+)(x2)?\s")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\S* .*?\], (0x[0-9a-f]+|\d+)")
_KINDS = {"ld": "load", "st": "store", "atom": "atomic", "red": "atomic"}


def _sizes(ptx: Sequence[Line]) -> list[tuple[str, int | None, int]]:
    """Of each access of global memory in PTX: its kind, its line in the kernel, the bytes it takes."""
    found = []
    for line in ptx:
        if match := _INSTRUCTION.search(line.text):
            name, vector, bits, twice = match.groups()
            size = int(vector or 1) * int(bits) * (2 if twice else 1) // 8
            found.append((_KINDS[name], line.source, size))
        elif match := _COPY.search(line.text):
            found.append(("load", line.source, int(match[1], 0)))
    return found


def _matching(
    kernel: JITFunction, accesses: Sequence[MemoryAccess]
) -> Callable[[str, Site, tuple[int, ...]], list[MemoryAccess]]:
    """Finds those that an access of a run may be: of its kind, its statement and its shape."""
    first_line = _first_lines(kernel)
    by_line: dict[int | None, int] = {site.line: first for site, first in first_line.items()}

    def matching(kind: str, site: Site, shape: tuple[int, ...]) -> list[MemoryAccess]:
        statement = first_line.get(site)
        return [
            access
            for access in accesses
            if statement is not None
            and access.kind == kind
            and by_line.get(access.line) == statement
            and access.has_shape(shape)
        ]

    return matching


def _first_lines(kernel: JITFunction) -> dict[Site, int]:
    """For each line in the kernel's file, where its innermost statement begins."""
    file = kernel.fn.__code__.co_filename
    found: dict[Site, int] = {}
    for function in with_helpers(kernel):
        if function.fn.__code__.co_filename == file:
            for _, sites in statements(function):
                found |= dict.fromkeys(sites, sites[0].line)
    return found
