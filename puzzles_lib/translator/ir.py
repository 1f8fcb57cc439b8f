"""Read Triton IR: text in MLIR's generic form becomes operations, values and regions.

In the generic form every operation looks the same, on every version of Triton:

    %x:2 = "scf.for"(%a, %b) <{axis = 0 : i32}> ({ ... }) {more = true} : (i32, i32) -> (i32, i32) loc(#loc3)

A printed name is unique within a region only, but a `Value` is always one value. Nothing of the text is
executed, and a text longer than `MOST_CHARACTERS` is not read.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MOST_CHARACTERS = 8_000_000


class Unreadable(ValueError):
    """The text is not IR that this module can read."""


@dataclass(frozen=True, slots=True)
class Type:
    """A value's type: the shape of a block, () for a single value, and the type of an element.

    element: such as ``"f32"``, ``"i1"``, ``"!tt.ptr<f32>"``; for what is not a block, the whole type.
    """

    shape: tuple[int, ...]
    element: str

    @property
    def is_pointer(self) -> bool:
        """Return whether the elements are addresses."""
        return self.element.startswith("!tt.ptr<")

    @property
    def pointee(self) -> "Type":
        """Return the type that a pointer points to; for a descriptor, the block that it moves."""
        inner = self.element[self.element.index("<") + 1 : -1]
        if self.element.startswith("!tt.tensordesc<") and not inner.startswith("tensor<"):
            inner = f"tensor<{inner}>"
        return read_type(_split(inner)[0])


@functools.lru_cache(maxsize=4096)
def read_type(text: str) -> Type:
    """Return a type from its text."""
    match = re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", text)
    if match is None:
        return Type((), text)
    element = _split(match[2])[0]  # a layout may follow
    return Type(tuple(int(n) for n in match[1].split("x")[:-1]), element)


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the source. name: the variable that the value was made for; "" for none."""

    file: str = ""
    line: int = 0
    column: int = 0
    name: str = ""


NOWHERE = Location()


@dataclass(eq=False, slots=True)
class Value:
    """A result of an operation (``maker``), or an argument of a block. number: its place in the function."""

    type: Type
    number: int
    location: Location = NOWHERE
    maker: "Operation | None" = None
    users: "list[Operation]" = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Operation:
    """One operation. attributes: by name, as text. successors: the blocks that it may go on with."""

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    regions: "tuple[Region, ...]" = ()
    successors: tuple[str, ...] = ()
    location: Location = NOWHERE

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute such as ``0 : i32`` as a number."""
        text = self.attributes.get(name)
        return default if text is None else int(text.split(" : ")[0])

    def flag(self, name: str) -> bool:
        """Return whether an attribute is there and not ``false``."""
        return self.attributes.get(name, "false") != "false"

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an attribute such as ``array<i32: 1, 0>`` as numbers."""
        text = self.attributes.get(name, "")
        inner = text[text.index(":") + 1 : -1] if ":" in text else ""
        return tuple(int(n) for n in inner.split(",")) if inner else ()

    def text(self, name: str) -> str:
        """Return an attribute that is a string, without quotes and escapes."""
        return unescaped(self.attributes.get(name, ""))

    def segments(self) -> tuple[tuple[Value, ...], ...]:
        """Return the operands in groups, for an operation with optional operands."""
        found, at = [], 0
        for size in self.integers("operandSegmentSizes"):
            found.append(self.operands[at : at + size])
            at += size
        return tuple(found)


def is_read_unsigned(op: Operation) -> bool:
    """Return whether an operation's result is taken for an integer without a sign."""
    todo = list(op.results[0].users)
    while todo:
        user = todo.pop()
        if user.name in ("arith.extui", "arith.uitofp"):
            return True
        if user.name in ("tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.splat", "tt.trans"):
            todo += user.results[0].users
    return False


@dataclass(eq=False, slots=True)
class Block:
    """Operations that run one after another. label: such as ``"^bb1"``."""

    label: str
    arguments: tuple[Value, ...] = ()
    operations: list[Operation] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Region:
    """The blocks of a body, the first of which is its entry."""

    blocks: list[Block] = field(default_factory=list)

    @property
    def entry(self) -> Block:
        return self.blocks[0]


@dataclass(eq=False, slots=True)
class Function:
    """A function. values: how many it has. public: whether it's the kernel itself."""

    name: str
    region: Region
    values: int
    public: bool
    location: Location

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.region.entry.arguments


@dataclass(frozen=True, eq=False)
class Module:
    """The functions of one text, by name."""

    functions: Mapping[str, Function]

    @property
    def kernel(self) -> Function:
        return next(each for each in self.functions.values() if each.public)

    def operations(self) -> Iterator[Operation]:
        """Yield all operations, also those within others."""
        regions = [function.region for function in self.functions.values()]
        while regions:
            for block in regions.pop().blocks:
                for operation in block.operations:
                    yield operation
                    regions += operation.regions


def unescaped(text: str) -> str:
    r"""Return a quoted string's text. MLIR writes a byte that is not a letter as ``\E9``."""
    inner = text[1:-1] if text.startswith('"') else text
    if "\\" not in inner:
        return inner
    raw = re.sub(
        rb"\\([0-9A-Fa-f]{2}|.)",
        lambda m: bytes([int(m[1], 16)]) if len(m[1]) == 2 else m[1],
        inner.encode(),
    )
    return raw.decode(errors="replace")


# ---- reading

_NAME = r"%[\w.$\-]+"
_HEAD = re.compile(
    rf'(?:({_NAME}(?::\d+)?(?:, {_NAME}(?::\d+)?)*) = )?"([\w.]+)"\(([^()]*)\)(?:\[([^\]]*)\])?'
)
_PLACE = re.compile(r'("(?:[^"\\]|\\.)*"):(\d+):(\d+)')
_NAMED = re.compile(r'("(?:[^"\\]|\\.)*")(?:\((.*)\))?')
_BLOCK = re.compile(r"(\^\w+)(?:\((.*)\))?:(?: *//.*)?$")


def read_module(text: str) -> Module:
    """Read a module's text. Raise `Unreadable`, with the line, if the text is not as expected."""
    if len(text) > MOST_CHARACTERS:
        raise Unreadable(f"the IR has {len(text)} characters, but at most {MOST_CHARACTERS} are read")
    lines, definitions = [], {}
    for line in text.splitlines():
        if line.startswith("#"):
            name, _, value = line.partition(" = ")
            definitions[name] = value
        elif stripped := line.strip():
            lines.append(stripped)
    return _Reader(lines, _Locations(definitions)).module()


class _Locations:
    """Resolves ``loc(...)``."""

    def __init__(self, definitions: Mapping[str, str]):
        self.definitions = definitions
        self.known: dict[str, Location] = {}

    def read(self, text: str) -> Location:
        """Return the location within ``loc(...)``."""
        found = self.known.get(text)
        if found is None:
            self.known[text] = NOWHERE  # should a location lead to itself
            self.known[text] = found = self._resolved(text)
        return found

    def _resolved(self, text: str) -> Location:
        if text.startswith("#"):
            whole = self.definitions.get(text, "")
            return self.read(whole[4:-1]) if whole.startswith("loc(") else NOWHERE
        if match := _PLACE.fullmatch(text):
            return Location(unescaped(match[1]), int(match[2]), int(match[3]))
        if match := _NAMED.fullmatch(text):
            inner = self.read(match[2]) if match[2] else NOWHERE
            return Location(inner.file, inner.line, inner.column, unescaped(match[1]))
        if match := re.match(r"callsite\((.*) at ", text):
            return self.read(match[1])
        if match := re.match(r"fused(?:<.*>)?\[(.*)\]$", text):
            return next((found for part in _split(match[1]) if (found := self.read(part)).line), NOWHERE)
        return NOWHERE


class _Reader:
    def __init__(self, lines: Sequence[str], locations: _Locations):
        self.lines, self.at, self.locations = lines, 0, locations
        self.scopes: list[dict[str, Value]] = []
        self.count = 0

    def module(self) -> Module:
        """Return the functions of a module."""
        if not self.lines or not self.lines[0].startswith('"builtin.module"'):
            raise Unreadable("the text does not begin with a module")
        self.scopes = [{}]
        top = self.operation()
        functions = {}
        for each in top.regions[0].entry.operations if top.regions[0].blocks else ():
            if each.name == "tt.func" and each.regions and each.regions[0].blocks:
                name = each.text("sym_name")
                public = each.text("sym_visibility") == "public"
                functions[name] = Function(
                    name, each.regions[0], each.integer("values"), public, each.location
                )
        if not any(function.public for function in functions.values()):
            raise Unreadable("the module has no kernel")
        return Module(functions)

    def fail(self, line: str) -> Unreadable:
        return Unreadable(f"line of IR that cannot be read: {line[:120]}")

    def operation(self) -> Operation:
        """Return the operation whose first line is the current one."""
        line = self.lines[self.at]
        self.at += 1
        match = _HEAD.match(line)
        if match is None:
            raise self.fail(line)
        outer = self.count
        if is_function := match[2] == "tt.func":  # its values are numbered from 0
            self.count = 0
        operands = tuple(self.value(name) for name in match[3].split(", ")) if match[3] else ()
        rest = line[match.end() :]
        own: Mapping[str, str] = {}
        regions: list = []
        if rest.endswith(" ({"):
            own, rest = _attributes_of(rest)
            if rest != " ({":
                raise self.fail(line)
            rest = self.regions(regions)
        try:
            attributes, types, location = self.tail(rest)
        except ValueError:
            raise self.fail(line) from None
        if own:
            attributes = {**own, **attributes}
        if is_function:
            attributes = {**attributes, "values": str(self.count)}
            self.count = outer
        results = self.results(match[1], types, location)
        made = Operation(
            match[2], operands, results, attributes, tuple(regions),
            tuple(match[4].split(", ")) if match[4] else (), location,
        )  # fmt: skip
        for operand in operands:
            operand.users.append(made)
        for result in results:
            result.maker = made
        return made

    def regions(self, regions: list[Region]) -> str:
        """Return what follows an operation's regions, which are added to ``regions``."""
        while True:
            regions.append(self.region())
            line = self.lines[self.at]
            self.at += 1
            if line.startswith("})"):
                return line[2:]
            if line != "}, {":
                raise self.fail(line)

    def region(self) -> Region:
        """Return the region whose first line is the current one; stop at the line that ends it."""
        region = Region()
        self.scopes.append({})
        while self.at < len(self.lines) and not self.lines[self.at].startswith("}"):
            line = self.lines[self.at]
            if line.startswith("^") and (match := _BLOCK.match(line)):
                self.at += 1
                region.blocks.append(Block(match[1], self.block_arguments(match[2] or "")))
                continue
            if not region.blocks:
                region.blocks.append(Block("^bb0"))
            region.blocks[-1].operations.append(self.operation())
        if self.at >= len(self.lines):
            raise Unreadable("the text ends within a region")
        self.scopes.pop()
        return region

    def block_arguments(self, text: str) -> tuple[Value, ...]:
        found = []
        for part in _split(text):
            name, _, kind = part.partition(": ")
            kind, location = self.located(kind)
            found.append(self.define(name, read_type(kind), location))
        return tuple(found)

    def results(self, names: str | None, types: Sequence[Type], location: Location) -> tuple[Value, ...]:
        if not names:
            return tuple(self.define("", each, location) for each in types)
        keys = []
        for name in names.split(", "):
            name, _, count = name.partition(":")
            keys += [f"{name}#{i}" for i in range(int(count))] if count else [name]
        if len(keys) != len(types):
            raise Unreadable(f"{names} are {len(types)} values")
        return tuple(self.define(key, each, location) for key, each in zip(keys, types, strict=True))

    def define(self, name: str, kind: Type, location: Location) -> Value:
        value = Value(kind, self.count, location)
        self.count += 1
        self.scopes[-1][name] = value
        return value

    def value(self, name: str) -> Value:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise Unreadable(f"{name} is used before it is defined")

    def tail(self, text: str) -> tuple[Mapping[str, str], Sequence[Type], Location]:
        """An operation's attributes, the types of its results and its location, at the end of its text.

        Raises ValueError if the text isn't that.
        """
        at = text.rfind(" loc(#")
        if at >= 0 and text.find(")", at) == len(text) - 1:  # not in quotes, which would be closed after it
            return *_tail(text[:at]), self.locations.read(text[at + 5 : -1])
        attributes, rest = _attributes_of(text)
        rest, location = self.located(rest)
        return attributes, _types(rest), location

    def located(self, text: str) -> tuple[str, Location]:
        """Return a text without the ``loc(...)`` at its end, and the location."""
        at = text.rfind(" loc(")
        if at < 0 or not text.endswith(")"):
            return text, NOWHERE
        return text[:at], self.locations.read(text[at + 5 : -1])


_OPEN, _CLOSE = "<([{", ">)]}"
_MARKS = re.compile(r'"(?:\\.|[^"\\])*"?|->|[<(\[{>)\]},]', re.DOTALL)  # or a quoted text, or an arrow


def _levels(text: str, at: int = 0) -> Iterator[tuple[int, str, int]]:
    """Yield each bracket and comma from ``at`` on, with its place and the brackets that are open after it.

    Those in quotes and the arrow ``->`` do not count.
    """
    depth = 0
    for found in _MARKS.finditer(text, at):
        mark = found[0]
        if len(mark) == 1 and mark != '"':
            depth += (mark in _OPEN) - (mark in _CLOSE)
            yield found.start(), mark, depth


def _closing(text: str, at: int) -> int:
    """Return the place of the bracket that closes the one at ``at``."""
    for place, mark, depth in _levels(text, at):
        if mark in _CLOSE and not depth:
            return place
    raise Unreadable(f"a bracket that nothing closes: {text[:120]}")


def _split(text: str) -> list[str]:
    """Return the parts between the commas of the outermost level."""
    if "," not in text:
        return [text.strip()] if text.strip() else []
    parts, start = [], 0
    for place, mark, depth in _levels(text):
        if mark == "," and not depth:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


@functools.lru_cache(maxsize=4096)  # a kernel has few, each many times
def _tail(text: str) -> tuple[Mapping[str, str], Sequence[Type]]:
    attributes, rest = _attributes_of(text)
    return attributes, _types(rest)


def _attributes_of(text: str) -> tuple[dict[str, str], str]:
    """The attributes at the beginning of a text, ``<{...}>`` or ``{...}`` or both, and what follows."""
    found: dict[str, str] = {}
    for opening, closing in ((" <{", "}>"), (" {", "}")):
        if text.startswith(opening):
            end = _closing(text, len(opening) - 1)
            found |= _attributes(text[len(opening) : end])
            text = text[end + len(closing) :]
    return found, text


def _types(text: str) -> Sequence[Type]:
    """The types of the results, from ``: (...) -> ...``; raises ValueError if it isn't that."""
    if not text.startswith(" : ("):
        raise ValueError(text)
    given = text[_closing(text, 3) + 5 :]
    given = given[1:-1] if given.startswith("(") and given.endswith(")") else given
    return tuple(read_type(each) for each in _split(given)) if given else ()


def _attributes(text: str) -> dict[str, str]:
    found = {}
    for part in _split(text):
        name, equals, value = part.partition(" = ")
        found[name.strip('"')] = value if equals else "unit"
    return found
