"""What chapter 16 says about the reader's own operator, functions and layer."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import JITFunction

from puzzles_lib import session
from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import PUZZLES
from puzzles_lib.stubs import has_hole

GRADIENTS = ("dx", "dw", "db")
MOST_STRIDE = 100
WIDE = 76  # letters per line of what a test has found


def unsolved(*kernels: JITFunction) -> str:
    """Return which of these kernels have a hole, or don't pass `check` as they are now; "" if all pass."""
    if holes := [kernel.__name__ for kernel in kernels if has_hole(kernel)]:
        return f"not solved yet: {' and '.join(holes)}. Then run this cell again."
    puzzles = {f"{puzzle.name}_kernel": puzzle for puzzle in PUZZLES}
    passed = {
        kernel.__name__: session.verdict_on(puzzles[kernel.__name__], kernel)
        for kernel in kernels
        if kernel.__name__ in puzzles
    }
    if failing := [name for name, verdict in passed.items() if verdict is False]:
        some = " and ".join(failing)
        return f"not judged yet: check has found a fault in {some}. Correct it, then run this cell again."
    if unseen := [name for name, verdict in passed.items() if verdict is None]:
        return f"not judged yet: {' and '.join(unseen)}. Run the cell with its check, then this one."
    return ""


def examined(op: Callable, *inputs: object, names: Sequence[str] = ()) -> str:
    """Return what opcheck's tests find about an operator for these inputs: each failure, and who passes.

    names: those of the results, in order.
    """
    found = opcheck(op, inputs, raise_exception=False)
    failing = {test: str(result).strip() for test, result in found.items() if result != "SUCCESS"}
    if not failing:
        return f"all {len(found)} tests: ok"
    lines = []
    for test, result in failing.items():
        lines.append(f"{test} FAILS:")
        result = _promise(result, names) or _ALIAS.get(_alias(result), result)
        lines.append(textwrap.indent(textwrap.fill(result, WIDE), "    "))
    lines.append(f"the other {len(found) - len(failing)}: ok")
    return "\n".join(lines)


def kept_in_a_plan(op: Callable) -> str:
    """Return whether a compiled model without a use for the results of an operator keeps its ReLU of x."""

    def evaluated(x: Tensor) -> Tensor:
        op(x)
        return x

    torch.compiler.reset()  # after eight compilations of one function, torch would run it uncompiled
    made = [
        each(torch.tensor([[-1.0, 2.0]]))[0].tolist()
        for each in (evaluated, torch.compile(evaluated, backend="aot_eager"))
    ]
    same = "ok" if made[0] == made[1] else "not solved yet"
    return f"plain: {made[0]}, compiled: {made[1]}: {same}"


_PAIR = {
    "shape": r"Shapes torch\.Size\((.+?)\) and torch\.Size\((.+?)\)",
    "strides": r"Strides are (\(.*?\)) and (\(.*?\))",
    "dtype": r"Dtypes torch\.(\w+) and torch\.(\w+)",
    "device": r"Devices (\S+) and (\S+)",
}
"""What a real result and a fake one have, in torch's messages."""


def _promise(result: str, names: Sequence[str]) -> str:
    """Return what a fake promises and what is real, from torch's message; "" for any other message."""
    if "mismatched tensor metadata" not in result:
        return ""
    place = re.search(r"output\[(\d+)\]", result)
    whose = f"{names[int(place[1])]}'s" if names and place else "the"
    for what, pattern in _PAIR.items():
        if found := re.search(pattern, result):
            fake = "are" if what == "strides" else "is"
            return f"{whose} real {what} {fake} {found[1]}, but the fake promises {found[2]}"
    return ""


_ALIAS = {
    "True False": "the fake returns x itself, but the function returns new memory",
    "False True": "the function returns x itself, but the fake promises new memory",
}


def _alias(result: str) -> str:
    """Return whether the fake and the function return their input, from torch's message; "" if not said."""
    found = re.search(r"outputs_alias_inputs check (True|False) != (True|False)", " ".join(result.split()))
    return " ".join(found.groups()) if found else ""


def argument_names(changes: Any, *inputs: str) -> tuple[str, ...]:
    """Return the names of the inputs that a schema says are changed, or print what is wrong and return ().

    inputs: the names that the operator has.
    """
    listed = isinstance(changes, tuple | list | set)
    if listed and all(isinstance(each, str) and each in inputs for each in changes):
        return tuple(changes)
    if changes == "unknown":
        wrong = 'that says that a call may change anything. Name the inputs, as in ("a",)'
    elif isinstance(changes, str):
        wrong = 'a tuple of one name needs a comma, as in ("a",)'
    elif not listed:
        wrong = "it must be a tuple of names"
    elif any(not isinstance(each, str) for each in changes):
        wrong = "names are strings, so they need quotes"
    else:
        wrong = f"the inputs of the operator are: {', '.join(inputs)}"
    shown = " ".join(repr(changes).split())
    print(f"changes can't be {shown}: {wrong}. For now, the schema says that nothing is changed.")
    return ()


VIEWS = (
    ((5, 33), (33, 1), torch.float32),
    ((5, 33), (1, 5), torch.float32),
    ((7, 64), (128, 2), torch.bfloat16),
    ((3, 4), (0, 1), torch.int32),
)
"""Shapes, strides and dtypes that a fake is tried with."""


def promised_rows(op: Callable) -> str:
    """Return whether the fake of an operator that copies x into rows is honest, in a line for each x."""
    lines = []
    for shape, strides, dtype in VIEWS:
        size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        x = torch.ones(size, dtype=dtype).as_strided(shape, strides)
        lines.append(f"{_name(dtype)} {list(shape)}, strides {strides}: {examined(op, x)}")
    try:
        device = op(torch.ones(5, 33, device="meta")).device.type
        told = "ok" if device == "meta" else f"FAILS. The fake's y is on {device}, wherever x is"
    except Exception as error:
        told = f"FAILS. {_told(error)}"
    return "\n".join([*lines, f"x on another device: {told}"])


def differentiated(op: Callable, x: Tensor) -> str:
    """Return what opcheck and gradcheck find about an operator's backward, for an x that needs a gradient."""
    told = checked(op, [x])
    return told if told.startswith("not solved") else f"{examined(op, x)}\ngradcheck: {told}"


def examined_at(op: Callable, shape: tuple[int, int], strides: object) -> str:
    """Return what opcheck's tests find for an x of this shape with the reader's strides."""
    if strides is ...:
        return "not answered yet: the question above asks for strides"
    if not are_strides(strides):
        return f"strides must be two whole numbers from 0 to {MOST_STRIDE}, but is {strides!r}"
    size = 1 + sum((n - 1) * MOST_STRIDE for n in shape)
    return examined(op, torch.randn(size).as_strided(shape, strides))  # type: ignore[arg-type]


def are_strides(value: object) -> bool:
    """Return whether a value is a pair of strides from 0 to `MOST_STRIDE`."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(type(stride) is int and 0 <= stride <= MOST_STRIDE for stride in value)
    )


def checked(function: Callable, inputs: Sequence[object], names: Sequence[str] = ("dx",)) -> str:
    """Return "True" or "False" as gradcheck says, or why it can't: a gradient is missing, or an error.

    names: those of the gradients, in the order of the inputs that need one. The first element of the first
    wrong gradient is shown after "False"; with no names, nothing is.
    """
    tensors = [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]
    try:
        y = function(*inputs)
        if None in torch.autograd.grad(y, tensors, torch.ones_like(y), allow_unused=True):
            return "not solved yet: backward returns None for a gradient that is needed"
        if gradcheck(function, tuple(inputs), raise_exception=False):
            return "True"
        return "False" + _first_wrong(function, inputs, tensors, names)
    except Exception as error:
        return _told(error)


def _first_wrong(
    function: Callable, inputs: Sequence[Any], tensors: Sequence[Tensor], names: Sequence[str]
) -> str:
    """Return the first element of a gradient that isn't what central differences measure; "" if none is.

    As in gradcheck, dy is 1 at one element of the output and 0 elsewhere, for each of them, and the tolerance
    is gradcheck's. So a bfloat16 dy is exact.
    """
    y = function(*inputs)
    found: list[list[Tensor]] = [[] for _ in tensors]  # by tensor, then by element of the output
    for dy in torch.eye(y.numel(), dtype=y.dtype):
        made = torch.autograd.grad(y, tensors, dy.view(y.shape), retain_graph=True)
        for rows, gradient in zip(found, made, strict=True):
            rows.append(gradient.flatten())
    for name, tensor, rows in zip(names, tensors, found, strict=False):
        gradient = torch.stack(rows)
        slopes = [_slope(function, inputs, tensor, n) for n in range(tensor.numel())]
        measured = torch.stack(slopes, dim=1)
        wrong = ~torch.isclose(gradient, measured, rtol=1e-3, atol=1e-5)
        if wrong.any():
            n = int(wrong.any(0).nonzero()[0])
            of = int(wrong[:, n].nonzero()[0])
            got, place = gradient[of, n] + 0.0, _at(n, tensor.shape)
            some = f"{int(wrong.any(0).sum())} of {tensor.numel()} elements of {name} are wrong"
            told = f"{name}{place} is {got:.4f}, but measured {measured[of, n]:.4f}; {some}"
            return f". If dy is 1 at {_at(of, y.shape)} and 0 elsewhere, {told}"
    return ""


def _at(n: int, shape: torch.Size) -> str:
    """Return the place of element n of a tensor, as in "[2, 0]"."""
    return str([int(index) for index in torch.unravel_index(torch.tensor(n), shape)])


def _slope(function: Callable, inputs: Sequence[Any], tensor: Tensor, n: int) -> Tensor:
    """Return how much each element of the output changes with element n of one of the inputs."""
    ends = []
    for step in (1e-6, -1e-6):
        moved = tensor.detach().clone()
        moved.view(-1)[n] += step
        with torch.no_grad():
            ends.append(function(*(moved if each is tensor else each for each in inputs)).flatten())
    return (ends[0] - ends[1]) / 2e-6


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def gradients(
    kernel: JITFunction,
    function: type[torch.autograd.Function],
    inputs: Sequence[Any],
    where: bool = False,
) -> str:
    """Return what is wrong with the gradients of x, weight and bias, or else what gradcheck says.

    kernel: puzzle 27's. inputs: those of ``function``; the first three are x, weight and bias. where: whether
    the words stand for x exactly, so that the first wrong element can be shown.
    """
    if told := unsolved(kernel):
        return told
    try:
        found = faults(_gradients(function, inputs), inputs)
    except Exception as error:
        return _told(error)
    needed = [name for name, each in zip(GRADIENTS, inputs[:3], strict=True) if each.requires_grad]
    return "; ".join(found) or f"gradcheck says {checked(function.apply, inputs, needed if where else ())}"


def under_autocast(
    kernel: JITFunction, function: type[torch.autograd.Function], inputs: Sequence[Any]
) -> str:
    """Return the dtypes of the gradients that a backward returns after a forward in bfloat16.

    dx may be bfloat16 like dy, because torch casts it. dw and db are sums in float32: it's reported if a
    backward rounds them to bfloat16.
    """
    if told := unsolved(kernel):
        return told
    try:
        with torch.autocast("cpu", torch.bfloat16):
            y = function.apply(*inputs)
        dy = torch.randn(y.shape, generator=_generator()).to(y.dtype)  # sums of it need more than 8 bits
        made = _gradients(function, inputs, y, dy)
    except Exception as error:
        return _told(error)
    if odd := [name for name, each in _named(made) if not isinstance(each, Tensor | None)]:
        return f"{odd[0]} must be a tensor or None"
    lines = [f"{name}: {None if each is None else _name(each.dtype)}" for name, each in _named(made)]
    for name, each in _named(made):
        if each is None:
            lines.append(f"{name} is None, but it's needed")
        elif name != "dx" and torch.equal(each.float(), each.bfloat16().float()):
            lines.append(f"{name} is rounded to bfloat16: your kernel has summed it in float32, so keep that")
        elif name != "dx" and each.dtype != torch.float32:
            lines.append(f"{name} must be float32, like its tensor")
        elif name == "dx" and not torch.equal(each.float(), each.bfloat16().float()):
            lines.append("dx: the product ran in float32, because dy was cast. Cast weight instead")
    if len(lines) == len(GRADIENTS):
        lines.append(_without_autocast(function, inputs))
    return "\n".join(lines)


def _without_autocast(function: type[torch.autograd.Function], inputs: Sequence[Any]) -> str:
    """Return whether dx is still as exact as its dtype, in float32 and float64, now that autocast works."""
    for dtype in (torch.float32, torch.float64):
        own = [each.detach().to(dtype).requires_grad_() for each in inputs[:3]]
        y = function.apply(*own, *inputs[3:])
        dy = torch.randn(y.shape, generator=_generator(), dtype=dtype)
        try:
            dx = _gradients(function, own, y, dy)[0]
        except Exception as error:
            return f"but without autocast, {_told(error)}. Cast to dy's dtype, whatever it is"
        wanted = dy @ own[1].detach()
        if dx is None or dx.dtype != dtype or (dx - wanted).norm() > 1e-5 * wanted.norm():
            return f"but without autocast, dx isn't as exact as {_name(dtype)}: cast to dy's dtype"
    return "ok, and without autocast dx is still exact"


def _named(made: Sequence[Tensor | None]) -> list[tuple[str, Tensor | None]]:
    return list(zip(GRADIENTS, made, strict=True))


RESULTS = GRADIENTS[1:]
_NO_SEQUENCE = "is not an instance of 'sequence'"


def promised(kernel: JITFunction, op: Callable, pack: Callable) -> str:
    """Return what opcheck finds about the operator that makes dw and db, in a line for each need of them."""
    if told := unsolved(kernel):
        return told
    x, dy = (torch.randn(shape, generator=_generator()) for shape in ((5, 70), (5, 3)))
    kept, lines = pack(x, 7), []
    for name, for_weight, for_bias in ASKED:
        inputs = (dy.bfloat16(), *kept, x.shape[1], for_weight, for_bias)
        try:
            made = op(*(each.to("meta") if isinstance(each, Tensor) else each for each in inputs))
            if any(each is None for each in made):
                if for_weight and for_bias:
                    return "not solved yet: the fake returns None"
                told = "a gradient that isn't needed is a tensor without elements, as the operator makes it"
                lines.append(f"{name + ':':10} FAILS. The fake returns None: {told}")
                continue
            if here := [result for result, each in zip(RESULTS, made, strict=True) if not each.is_meta]:
                told = "make it with dy.new_empty, which uses dy's device"
                lines.append(f"{name + ':':10} FAILS. {here[0]} isn't on dy's device: {told}")
                continue
            found = examined(op, *inputs, names=RESULTS)
        except Exception as error:
            told = _told(error)
            if _NO_SEQUENCE in told or "expected a sequence" in told:
                told = "The fake must return two tensors, dw and db"
            found = f"FAILS. {told}"
        lines.append(f"{name + ':':10} {found}")
    return "\n".join(lines)


ASKED = (
    ("dw and db", True, True),
    ("only dw", True, False),
    ("only db", False, True),
    ("neither", False, False),
)


def seeds(seed_layers: Callable, model: torch.nn.Sequential, steps: int) -> str:
    """Return which two layers or steps share a seed, or that a step's seeds change when it's seeded again.

    Return "" if each layer has another seed in each step, and the same one whenever the step is run.
    """
    seen: dict[object, str] = {}
    for step in range(steps):
        seed_layers(model, step)
        for place, layer in enumerate(model):
            if isinstance(layer, torch.nn.Linear):
                here = f"layer {place} in step {step}"
                if type(layer.seed) is not int:
                    return f"{here}: its seed must be an integer, but is {layer.seed!r}"
                if layer.seed < 0:
                    return f"{here}: its seed must be at least 0, but is {layer.seed}"
                if layer.seed in seen:
                    return f"{here} has the seed {layer.seed}, like {seen[layer.seed]}"
                seen[layer.seed] = here
    given = {layer: layer.seed for layer in model if isinstance(layer, torch.nn.Linear)}
    seed_layers(model, steps - 1)
    if any(layer.seed != seed for layer, seed in given.items()):
        return "the same step gets other seeds when it's asked again, so no run can be repeated"
    return ""


def same_gradients(plain: Callable, compiled: Callable, images: Tensor, labels: Tensor) -> str:
    """Return whether a compiled model has the loss and the gradients of the plain one."""
    torch.compiler.reset()  # as in `kept_in_a_plan`
    try:
        (loss, *own), (other, *others) = (
            _loss_and_gradients(each, images, labels) for each in (plain, compiled)
        )
    except Exception as error:
        return f"FAILS. {_told(error)}"
    if not torch.equal(loss, other):
        return f"the losses differ: {loss:.4f}, but {other:.4f} compiled"
    wrong = sum(not torch.equal(a, b) for a, b in zip(own, others, strict=True))
    if wrong:
        return f"the losses are the same, but {wrong} of {len(own)} gradients differ"
    return f"the loss and all {len(own)} gradients are the same"


def _loss_and_gradients(model: Any, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))


NEEDS = {
    "first layer": (False, True, True),
    "frozen weight": (True, False, True),
    "frozen bias": (True, True, False),
    "all frozen": (True, False, False),
    "no bias": (True, True, None),
}
"""Whether x, weight and bias need a gradient, in layers of these kinds; None for a bias that there isn't."""


def needed(kernel: JITFunction, function: type[torch.autograd.Function], pack: Callable) -> str:
    """Return, in a line for each of `NEEDS`, whether a backward returns what is needed and nothing else."""
    if told := unsolved(kernel):
        return told
    lines = []
    for name, needs in NEEDS.items():
        shapes = (3, 16), (2, 16), (2,)
        x, weight, bias = (
            None if need is None else torch.randn(shape, generator=_generator()).requires_grad_(need)
            for need, shape in zip(needs, shapes, strict=True)
        )
        inputs = [x, weight, bias, 7, pack]
        try:
            found = "; ".join(faults(_gradients(function, inputs), inputs))
        except Exception as error:
            found = _told(error)
        wanted = [gradient for gradient, need in zip(GRADIENTS, needs, strict=True) if need]
        lines.append(f"{name + ':':14} {found or 'ok, only ' + ' and '.join(wanted)}")
    return "\n".join(lines)


def _gradients(
    function: Any, inputs: Sequence[Any], y: Tensor | None = None, dy: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    """Return dx, dw and db as a backward returns them.

    y: what forward has returned; None to call it. dy: None for ones.
    """
    y = function.apply(*inputs) if y is None else y
    return tuple(function.backward(y.grad_fn, torch.ones_like(y) if dy is None else dy)[:3])


def faults(found: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[str]:
    """Return what is wrong with the form of dx, dw and db, the gradients of the first three inputs.

    Each must be None if it isn't needed. Otherwise it must have the shape and the dtype of its input.
    """
    faulty = []
    for name, of, gradient, tensor in zip(GRADIENTS, ("x", "weight", "bias"), found, inputs[:3], strict=True):
        if gradient is None:
            needs = tensor is not None and tensor.requires_grad
            faulty += [f"{name} is None, but {of} needs a gradient"] if needs else []
        elif not isinstance(gradient, Tensor):
            faulty.append(f"{name} must be a tensor or None")
        elif tensor is None:
            faulty.append(f"{name} must be None: there is no {of}")
        elif not tensor.requires_grad:
            faulty.append(f"{name} must be None: {of} needs no gradient")
        elif gradient.shape != tensor.shape:
            turned = gradient.dim() == 2 and gradient.T.shape == tensor.shape
            shapes = f"{name} is {list(gradient.shape)}, but {of} is {list(tensor.shape)}"
            faulty.append(shapes + (": it's transposed" if turned else ""))
        elif gradient.dtype != tensor.dtype:
            faulty.append(f"{name} is {_name(gradient.dtype)}, but {of} is {_name(tensor.dtype)}")
    return faulty


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def same_words(words: object, wanted: Tensor) -> str:
    """Return whether the reader's 2-bit words are the library's: True, or how they differ."""
    if words is None:
        return "not solved yet"
    if not isinstance(words, Tensor):
        return f"False: words must be a tensor, not {type(words).__name__}"
    if words.shape != wanted.shape:
        return f"False: yours are {list(words.shape)}, the library's {list(wanted.shape)}"
    if words.dtype == wanted.dtype:
        return str(torch.equal(words, wanted)) + _order_of_fields(words, wanted)
    same = torch.equal(words.to(wanted.dtype), wanted)
    kinds = f"yours are {_name(words.dtype)}, the library's {_name(wanted.dtype)}"
    return f"False: {kinds}" + (", otherwise the same" if same else "")


def _order_of_fields(words: Tensor, wanted: Tensor) -> str:
    """Return which codes share one of the reader's words, if it's a common slip; "" otherwise."""
    places = 2 * torch.arange(8)[:, None, None]
    fields = wanted[None].long() >> places & 3  # [8, 16, columns]

    def packed(codes: Tensor) -> Tensor:
        return (codes << places).sum(0).to(wanted.dtype)

    if torch.equal(words, wanted):
        return ""
    if torch.equal(words, packed(fields.flip(0))):
        return ": your fields are in reverse order. Field 0 is the lowest bits"
    if torch.equal(words, packed(fields.reshape(16, 8, -1).transpose(0, 1))):
        return ": your words hold neighboring rows, but the rows of a word are 16 apart"
    if torch.equal(words, (fields << places // 2).sum(0).to(wanted.dtype)):
        return ": your fields are one bit apart, but a code has two bits"
    if torch.equal(words, fields.sum(0).to(wanted.dtype)):
        return ": your words are the sums of eight codes. Shift each code to its place first"
    if torch.equal(words, wanted.to(torch.int8).to(wanted.dtype)):
        return ": fields 4 to 7 are lost, as if they had been shifted in an integer of 8 bits"
    own = words[None].long() >> places & 3
    wrong = [str(f) for f in range(8) if not torch.equal(own[f], fields[f])]
    if len(wrong) == 8:
        return ": all eight fields are wrong"
    return f": {', '.join(wrong)} of the fields 0 to 7 {'are' if len(wrong) > 1 else 'is'} wrong"


def relu(
    function: type[torch.autograd.Function],
    kernels: Sequence[JITFunction],
    kept: Callable[[], int],
    most: int,
) -> str:
    """Return what is said about a ReLU that keeps bits: its gradient, then its model's bytes.

    kernels: those that the model runs. kept: counts the bytes that the model keeps for backward. most: how
    many it may keep.
    """
    x = torch.randn(5, 16, dtype=torch.float64, generator=_generator()).requires_grad_()
    try:
        own = function.apply(x).grad_fn
        saved = own.saved_tensors
    except Exception as error:
        return _told(error)
    form = _form_of_bits(saved, x, own)
    if (told := checked(function.apply, [x])) != "True":
        raised = re.match(r"\w+(Error|Exception): ", told)
        return form if form and raised else f"gradcheck: {told}{_order_of_bits(saved, x)}"
    near = torch.linspace(-4e-3, 4e-3, 81, dtype=torch.float64)[:80].view(5, 16)  # has a 0
    near = near.round(decimals=4).requires_grad_()
    (dx,) = torch.autograd.grad(function.apply(near).sum(), near)
    near = near.detach()
    if (wrong := dx != (near > 0)).any():
        value = float(near[wrong].abs().min())
        if not value:
            return "gradcheck: True, but where x is 0, dx is dy. In torch it's 0 there"
        value = float(near[wrong & (near.abs() == value)][0])
        told = "dx is dy, not 0" if value < 0 else "dx is 0, not dy"
        return f"gradcheck: True, but where x is {value:g}, {told}"
    if told := unsolved(*kernels):
        return f"gradcheck: True\n{told}"
    bytes_kept = kept()
    told = f"gradcheck: True\n{bytes_kept / 1e3:.0f} kB are kept for backward"
    if bytes_kept <= most:
        return told
    told = f"{told}, more than {most / 1e3:.0f} kB"
    if saved and not form:
        return f"{told}. What is saved for backward is right, so something else keeps x, such as ctx.x"
    return told + (f". {form[0].upper()}{form[1:]}" if saved else "")


def _form_of_bits(saved: Sequence[Tensor], x: Tensor, own: Any) -> str:
    """Return what is wrong with the form of what a ReLU saves: it must be uint8, with a byte for 8 of x.

    own: what its forward calls ctx.
    """
    if not saved:
        held = [name for name, each in vars(own).items() if isinstance(each, Tensor)]
        if held:
            return f"forward keeps ctx.{held[0]}, but backward unpacks what ctx.save_for_backward has saved"
        return "not solved yet: forward saves nothing for backward"
    if len(saved) > 1:
        return f"{len(saved)} tensors are saved, but backward unpacks one"
    (bits,), wanted = saved, [x.shape[0], x.shape[1] // 8]
    if bits.dtype == torch.uint8 and list(bits.shape) == wanted:
        return ""
    return (
        f"for an x of {list(x.shape)}, the saved tensor is {_name(bits.dtype)} {list(bits.shape)}, "
        f"but should be uint8 {wanted}"
    )


def _order_of_bits(saved: Sequence[Tensor], x: Tensor) -> str:
    """Return a sentence if a byte's bits are in reverse order; "" otherwise."""
    bits = (~(x <= 0)).unflatten(1, (-1, 8)).long()
    reverse = (bits << 7 - torch.arange(8)).sum(2)
    is_reverse = len(saved) == 1 and saved[0].shape == reverse.shape and torch.equal(saved[0].long(), reverse)
    return ". The bits of each byte are in reverse order: element 0 is the lowest bit" if is_reverse else ""


_COMPUTED_ANYWAY = ("setStorage", "cannot reshape tensor of 0 elements")
"""What torch says if an operator doesn't return early for an x without elements."""


_SPAN = re.compile(r"(?:ValueError: )?run:\s+x\s+has\s+shape\s+\((\d+),\),\s+but\s+\S+\s+is\s+\d+")
"""What `run` says of an x that doesn't end at its last element. It would give the formula away."""

MOST_OTHERS = 0.05  # of words: float32 and float64 may disagree about a code now and then


def contract(pack: Callable, spec: Callable, inputs: Iterable[Tensor]) -> Iterator[str]:
    """Yield whether an operator that packs x keeps the chapter's contract, in a line for each x.

    spec: like ``pack``, with the correct results.
    """
    for x in inputs:
        try:
            given = x.clone()
            results = pack(x, 3)
            told = _SPAN.sub(_OF_A_COPY, examined(pack, x, 3))  # the call with x itself passed
            if "setStorage" in told:
                told = f"FAILS. {_BEYOND}"
            elif x.numel() and _copies(pack, x):
                told = f"FAILS. {_COPIED}"
            elif x.numel():
                told += _unlike(results, spec(given, 3))
        except Exception as error:
            told = f"FAILS. {_told(error)}"
            if x.numel() == 0 and (_SPAN.search(told) or any(words in told for words in _COMPUTED_ANYWAY)):
                told = "FAILS. Return early: there are no elements to compute with"
            elif x.numel() and "setStorage" in told:
                told = f"FAILS. {_BEYOND}"
            elif _NO_SEQUENCE in told:
                what = "None" if "'NoneType'" in told else "one thing"
                told = f"FAILS. The operator returns {what}, but must return words, scale and minimum"
        told = _SPAN.sub(lambda found, x=x: _about_the_end(int(found[1]), x), told)  # type: ignore[misc]
        yield f"x {list(x.shape)}, strides {x.stride()}: {told}"
    refused = {
        "a bfloat16 x": torch.zeros(5, 70, dtype=torch.bfloat16),
        "a bfloat16 x without elements": torch.zeros(0, 70, dtype=torch.bfloat16),
        "an x of three axes": torch.zeros(2, 5, 70),
    }
    for name, x in refused.items():
        try:
            pack(x, 3)
        except TypeError as error:
            yield f"{name}: ok, refused. {error}"
        except Exception as error:
            yield f"{name}: FAILS. {_told(error)}"
        else:
            yield f"{name}: FAILS. It isn't refused"


_BEYOND = "size is too large for these strides: it goes beyond the end of x's memory"
_OF_A_COPY = (
    "size must follow from x's shape and strides: the test's copy of x has the same ones, but more memory"
)
_COPIED = "x is copied before your kernel reads it. Your kernel reads any strides, so give it x's own memory"


class _Copied(TorchDispatchMode):
    """Notes whether an operation copies a matrix of x's elements, in x's dtype, somewhere else."""

    def __init__(self, x: Tensor):
        super().__init__()
        self.x, self.found = x, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made, x = func(*args, **(kwargs or {})), self.x
        if args and isinstance(one := args[0], Tensor) and isinstance(made, Tensor):
            of_x = one.shape == x.shape and one.dtype == x.dtype and _memory(one) == _memory(x)
            elsewhere = made.is_floating_point() and _memory(made) != _memory(x)
            self.found |= of_x and elsewhere and made.numel() == x.numel()
        return made


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _copies(pack: Any, x: Tensor) -> bool:
    """Return whether an operator's own code copies x as it is, before its kernels run."""
    with _Copied(x) as mode:
        pack._init_fn(x, 3)  # the plain function: an operator hides what it does from a mode
    return mode.found


def _about_the_end(size: int, x: Tensor) -> str:
    """Return what is wrong with a ``size`` that isn't what x spans."""
    span = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    last = f"x[{x.shape[0] - 1}, {x.shape[1] - 1}], the last element"
    if size < span:
        return f"size is {size}, but {last}, is further from x[0, 0] than that"
    return f"size is {size}, but {last}, comes earlier"


def _unlike(results: Sequence[Tensor], wanted: Sequence[Tensor]) -> str:
    """Return how the results of an operator that packs differ from the correct ones; "" if they don't."""
    for name, one, other in zip(("words", "scale", "minimum"), results, wanted, strict=True):
        if one.shape != other.shape:
            return f", but {name} must be {list(other.shape)} and is {list(one.shape)}"
        off = int((one != other).sum())
        if off > (MOST_OTHERS * other.numel() if name == "words" else 0):
            return f", but {off} of {other.numel()} {name} are wrong"
    return ", and the results are correct"


def _told(error: Exception) -> str:
    """Return an error's type and first line, without the file in which torch implements an operator."""
    line, *rest = str(error).strip().splitlines() or [""]
    if line.endswith(":") and (more := next(filter(None, map(str.strip, rest)), "")):
        line = f"{line} {more}"
    line = re.sub(r"^(\w+) \(with implementation in .*?\): (.*?)\. .*", r"\1: \2", line)
    for pattern, words in _IN_WORDS.items():
        if found := re.search(pattern, line):
            return words.format(*(_DTYPES.get(each, each) for each in found.groups()))
    return f"{type(error).__name__}: {line}"


_DTYPES = {"c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32", "double": "float64"}
_IN_WORDS = {
    r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)": (
        "a product of [{0}, {1}] and [{2}, {3}] doesn't exist: {1} columns, but {2} rows"
    ),
    r"expected m1 and m2 to have the same dtype, but got: (\S+) != (\S+)": (
        "torch can't multiply {0} by {1}: a product's factors need the same dtype"
    ),
}
"""torch's messages on products, by pattern, in plain words."""
