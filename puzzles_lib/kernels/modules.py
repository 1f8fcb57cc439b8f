"""Pack the activations of a model: every layer keeps what its backward pass needs in a few bits.

    from puzzles_lib.kernels.modules import pack_activations, report

    model = pack_activations(model)  # 4 bits, rounded to the nearest code
    print(report(model))  # what was packed, and why the rest was not

The layers themselves are in `puzzles_lib.kernels.layers`. The layers for other libraries' classes are in
`puzzles_lib.kernels.lookalikes`. `puzzles_lib.kernels.checkpoints` packs what gradient checkpointing keeps.
"""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.kernels import sharing
from puzzles_lib.kernels.bitpack import check_bits
from puzzles_lib.kernels.common import DTYPES, check_integer, check_model
from puzzles_lib.kernels.layers import (
    SLOPED,
    TRAINED,
    PackedDropout,
    PackedGELU,
    PackedLayerNorm,
    PackedLinear,
    PackedMLP,
    PackedReLU,
    PackedRMSNorm,
    PackedSiLU,
    Quantizing,
    Sloped,
)
from puzzles_lib.kernels.lookalikes import (
    OTHER,
    Gated,
    LookAlike,
    look_alike,
    pack_functions,
    unpack_functions,
)
from puzzles_lib.kernels.quantize import check_group_size
from puzzles_lib.kernels.rounding import rounding_of

__all__ = [
    "PackedDropout", "PackedGELU", "PackedLayerNorm", "PackedLinear", "PackedMLP", "PackedRMSNorm",
    "PackedReLU", "PackedSiLU", "Report", "pack_activations", "report", "seed_rounding", "unpack_activations",
]  # fmt: skip

PACKED = {
    nn.Linear: PackedLinear,
    nn.ReLU: PackedReLU,
    nn.GELU: PackedGELU,
    nn.SiLU: PackedSiLU,
    nn.LayerNorm: PackedLayerNorm,
    nn.RMSNorm: PackedRMSNorm,
    nn.Dropout: PackedDropout,
    nn.Sequential: PackedMLP,
}
PLAIN = {packed: plain for plain, packed in PACKED.items()}
_MLPS = [[PackedLinear, kind, PackedLinear] for kind in SLOPED]


def pack_activations(
    model: nn.Module,
    bits: int = 4,
    group_size: int = 256,
    *,
    slope_bits: int = 4,
    rounding: str | None = None,
    predicate: Callable[[str, nn.Module], bool] | None = None,
    extra: Mapping[type[nn.Module], type[nn.Module]] | None = None,
) -> nn.Module:
    """Make the layers of a model keep what they need for backward in a few bits, and return the model.

    Start with 4 bits, the default. These layers get packed:

    - nn.Linear, nn.ReLU, nn.GELU, nn.SiLU, nn.LayerNorm, nn.RMSNorm and nn.Dropout,
    - an nn.Sequential of a linear layer, an activation and a linear layer, which becomes a `PackedMLP`,
    - nn.MultiheadAttention, and the activation function of nn.TransformerEncoderLayer,
    - Conv1D, norms and activations of transformers and timm, if they compute the same as torch's layer on a
      few test values,
    - the product in these libraries' gated MLPs (such as Llama's), and their mixtures of gated experts. The
      factors of the product are kept in ``slope_bits`` bits, because each is the other's slope.

    Each stays the same object, with its parameters, buffers, hooks and ``state_dict``. `report` shows what
    was packed and what was not. An in-place ReLU stays as it is, because it keeps nothing of its own. Layers
    that are packed already get the new options.

    The losses of a byte language model show what to choose (1500 steps, three seeds, against torch's 0.897;
    ``python -m puzzles_lib.bench language``): 8 bits +0.003 and 4 bits +0.002, within the seeds' spread;
    2 bits +0.012, 2 bits stochastic +0.030, 1 bit stochastic +0.17. 1 bit, nearest, doesn't train.

    A small MLP on images of digits behaves differently (``python -m puzzles_lib.bench digits``). With
    stochastic 2-bit codes, its loss stays within 0.001 of float32's on average. With the nearest codes, its
    loss falls a little faster than float32's. Try both on your model.

    Language models have columns that are far larger than others. If one column of 512 is 100 times larger,
    the weight gradients of the others suffer: their cosine is 0.997 with 8 bits, 0.64 with 4 and 0.30 with 2.

    Gradient checkpointing keeps less than packing does, but a step takes 20 to 40% longer. If you
    need it, `puzzles_lib.kernels.pack_checkpoints` packs what it keeps.

    bits, group_size, rounding: those of `PackedLinear`.
    slope_bits: 1, 2, 4 or 8. These bits keep the slopes of GELU and SiLU, as in `PackedGELU`, and the factors
        of gated MLPs.
    predicate: a function of the name and the module of each layer that could be packed. If it returns False,
        that layer is left alone. Call `pack_activations` again with a predicate to give some layers other
        bits than the rest.
    extra: a dict from a class of your own to the packed class that computes the same, such as
        ``{MyLinear: PackedLinear}``. Both are compared on a few test values.

    Call this function before the model is wrapped (compile, DDP, FSDP2), and after LoRA layers are added:
    then the layers that train are packed, while frozen ones keep nothing anyway. `unpack_activations` undoes
    it.

    Warns if nothing could be packed. Raises TypeError if ``model`` is not a module, if ``predicate`` is not a
    function, or if ``extra`` is not a dict. Raises ValueError for any other ``bits``, ``group_size``,
    ``slope_bits`` or ``rounding``, and if a class in ``extra`` computes something else.
    """
    check_model(model)
    if predicate is not None and not callable(predicate):
        what = type(predicate).__name__
        raise TypeError(f"predicate must be a function of a name and a module, but is a {what}")
    check_bits(bits)
    check_group_size(group_size)
    check_bits(slope_bits, "slope_bits")
    rounding = rounding_of(bits, rounding)
    extra = _checked_extra(extra)
    found = 0
    for name, module in list(model.named_modules()):
        packed = _packed_class(module, extra)
        if not isinstance(packed, type) or predicate is not None and not predicate(name, module):
            continue
        found += 1
        if isinstance(module, nn.Sequential):
            continue
        module.__class__ = packed
        if isinstance(module, Quantizing):
            module.set_format(bits, group_size, rounding)
            _note_whether_frozen(module)
        if isinstance(module, Sloped):
            module.set_slope_bits(slope_bits)
    for module in list(model.modules()):
        if type(module) is nn.Sequential and [type(m) for m in module] in _MLPS:
            module.__class__ = PackedMLP
    found += pack_functions(model, slope_bits, predicate)
    _share_within(model)
    if not found:
        warnings.warn("pack_activations found nothing to pack: see report(model)", stacklevel=2)
    return model


def _note_whether_frozen(module: Quantizing) -> None:
    """Let a linear layer that trains say so if it's frozen later, when it is of no use."""
    vars(module).pop(TRAINED, None)
    if hasattr(module, "in_width") and all(p.requires_grad for p in module.parameters(recurse=False)):
        setattr(module, TRAINED, True)


def _packed_class(module: nn.Module, extra: Mapping[type, type]) -> type[nn.Module] | str:
    """Return the class that a module gets, or why it gets none."""
    kind = type(module)
    if kind in PLAIN or isinstance(module, LookAlike):
        return kind
    if any(p.dtype not in DTYPES for p in module.parameters(recurse=False)):
        dtype = next(p.dtype for p in module.parameters(recurse=False) if p.dtype not in DTYPES)
        return f"its parameters are {dtype}"
    if isinstance(module, nn.ReLU) and module.inplace:
        return "in place: it keeps nothing of its own"
    if kind is nn.Dropout and (module.inplace or not module.p):
        return OTHER
    if kind is nn.Sequential:
        return PackedMLP if [type(m) for m in module] in _MLPS else "a container"
    return PACKED[kind] if kind in PACKED else look_alike(module, extra.get(kind))


def _checked_extra(extra: Mapping[type, type] | None) -> Mapping[type, type]:
    if extra is not None and not isinstance(extra, Mapping):
        raise TypeError(f"extra must be a dict of packed classes, but is {type(extra).__name__}")
    for kind, packed in (extra or {}).items():
        fitting = PLAIN.keys() - {PackedMLP, PackedDropout}
        if packed not in fitting:
            allowed = ", ".join(sorted(each.__name__ for each in fitting))
            name = getattr(kind, "__name__", repr(kind))
            raise ValueError(f"extra[{name}] must be one of {allowed}, but is {packed!r}")
    return extra or {}


def _share_within(module: nn.Module) -> set[int]:
    """Let the smallest modules share that contain two linear layers of one width, such as q, k and v.

    Returns the widths of the inputs of layers in this module that have nothing to share yet.
    """
    if isinstance(module, Quantizing) and getattr(module, "in_width", None):
        return {module.in_width}
    found = [_share_within(child) for child in module.children()]
    widths = set().union(*found)
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)  # of which a parent has the ``forward``
    if isinstance(module, containers) or sum(map(len, found)) == len(widths):
        return widths
    sharing.share(module)
    return set()


def unpack_activations(model: nn.Module) -> nn.Module:
    """Undo `pack_activations`: every packed layer becomes what it was. Returns the model.

    Raises TypeError if ``model`` is not a module.
    """
    check_model(model)
    unpack_functions(model)
    for module in list(model.modules()):
        sharing.unshare(module)
        plain = module.plain_class if isinstance(module, LookAlike) else PLAIN.get(type(module))
        if plain is None:
            continue
        if isinstance(module, Quantizing):
            module.set_format(module.bits, module.group_size, "nearest")  # without a seed
            del module.bits, module.group_size, module.rounding
            vars(module).pop(TRAINED, None)
        if isinstance(module, Sloped):
            del module.slope_bits
        module.__class__ = plain
    return model


def seed_rounding(model: nn.Module, seed: int) -> None:
    """Let every layer that rounds stochastically use the random numbers of ``seed`` from now on.

    You don't have to call this function: without it, random numbers come from the data. If you want to choose
    them, call it before each step, with the step's number. The same seed gives the same codes. All layers
    draw from that one seed, so that layers that read one input can share its codes, compiled or not. If you
    capture a CUDA graph, call this function before the capture.

    In distributed training, give each rank its own seeds, so that their errors cancel. The seeds are buffers
    of the layers, and DDP copies buffers that it knows from rank 0 to the others. So wrap the model in DDP
    before the first call of this function, or pass ``broadcast_buffers=False`` to DDP.

    seed: an integer that fits in 64 bits.

    Raises TypeError if ``seed`` is not an integer or ``model`` is not a module, and ValueError if ``seed``
    doesn't fit in 64 bits.
    """
    check_integer("seed", seed)
    check_model(model)
    for module in model.modules():
        if isinstance(module, Quantizing):
            module.set_seed(seed)


# ---- what was packed


@dataclass(frozen=True)
class Line:
    """One layer in a report.

    name: the module's name in the model. kind: the name of its class. packed: what is kept for backward, such
    as ``"slopes of 4 bits"``; "" if the layer isn't packed. why: why it isn't packed. cosine: the cosine
    between the weight's gradients with and without packing; None if they weren't computed.
    """

    name: str
    kind: str
    packed: str
    why: str
    cosine: float | None = None


@dataclass(frozen=True)
class Report:
    """What `report` returns. ``print`` shows it as a table.

    lines: a `Line` for each layer that has parameters or computes an activation. before, after: the bytes
    that autograd keeps for backward without and with packing, not counting parameters; None if `report` got
    no inputs.
    """

    lines: Sequence[Line]
    before: int | None = None
    after: int | None = None

    def __str__(self) -> str:
        rows = [("layer", "class", "kept for backward", "cosine")]
        for line in self.lines:
            cosine = "" if line.cosine is None else f"{line.cosine:.4f}"
            rows.append((line.name, line.kind, line.packed or f"as in torch: {line.why}", cosine))
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        text = ["  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in rows]
        count = sum(bool(line.packed) for line in self.lines)
        text.append(f"{count} of {len(self.lines)} layers are packed")
        if self.before:
            share = f"{self.after / self.before:.2f} of the bytes"
            text.append(f"autograd keeps {self.after:,} bytes, and {self.before:,} without packing: {share}")
        return "\n".join(text)


def _is_packed(module: nn.Module) -> bool:
    return type(module) in PLAIN or isinstance(module, LookAlike)


def report(
    model: nn.Module, *inputs: Any, loss: Callable[[Any], torch.Tensor] | None = None, **named: Any
) -> Report:
    """Return what `pack_activations` packed of a model, and why it left the rest unchanged.

    inputs, named: if any are given, a packed and an unpacked copy of the model are called with them. The
        report then says how many bytes autograd keeps in each.
    loss: a function of the model's output that returns a scalar. If given, it is differentiated in both
        copies, and the report has the cosine between the two gradients of each weight.

    Raises TypeError if ``model`` is not a module or ``loss`` is not a function.
    """
    check_model(model)
    if loss is not None and not callable(loss):
        raise TypeError(f"loss must be a function of the model's output, but is {type(loss).__name__}")
    cosines: dict[str, float] = {}
    before = after = None
    if inputs or named:
        plain = unpack_activations(copy.deepcopy(model))
        after, got = _kept_by(copy.deepcopy(model), inputs, named, loss)
        before, want = _kept_by(plain, inputs, named, loss)
        for name, gradient in got.items():
            other = want.get(name)
            if other is not None and gradient.dim() > 1:
                pair = gradient.flatten().double(), other.flatten().double()
                cosines[name.rpartition(".")[0]] = float(F.cosine_similarity(*pair, dim=0))
    lines = []
    untouched = not any(_is_packed(module) for module in model.modules())
    for name, module in model.named_modules():
        made = _packed_class(module, {})
        told = isinstance(made, type)
        inside = {id(p) for child in module.children() for p in child.parameters()}
        own = [p for p in module.parameters(recurse=False) if id(p) not in inside]
        is_packed = _is_packed(module)
        if isinstance(module, nn.Sequential) or not own and made == OTHER:
            continue
        if name.endswith(".out_proj") and isinstance(model.get_submodule(name[:-9]), LookAlike):
            continue  # of an attention, which uses its weight itself
        why = (
            ""
            if is_packed
            else made
            if not told
            else "pack_activations has not packed this model"
            if untouched
            else "it was added after pack_activations, or a predicate excluded it"
        )
        if own and not any(p.requires_grad for p in own):
            why = why and "frozen"
        parent = model.get_submodule(name.rpartition(".")[0])
        last = isinstance(parent, Gated) and parent.has_last(module)
        kept = "the factors of its MLP" if last else _format_of(module) if is_packed else ""
        lines.append(Line(name, type(module).__name__, kept, why, cosines.get(name)))
    return Report(lines, before, after)


def _format_of(module: nn.Module) -> str:
    weight = getattr(module, "weight", None)
    if isinstance(module, Quantizing):
        if weight is not None and not weight.requires_grad and isinstance(module, nn.Linear):
            return "nothing: frozen"
        codes = f"{module.bits} bits, {module.rounding}"
        if isinstance(module, Sloped):
            factors = f"factors of {module.slope_bits} bits"
            return f"{codes}; {factors}" if list(module.parameters(recurse=False)) else factors
        return codes
    return f"slopes of {module.slope_bits} bits" if isinstance(module, Sloped) else "1 bit"


def _kept_by(
    model: nn.Module, inputs: tuple, named: Mapping[str, Any], loss: Callable | None
) -> tuple[int, dict[str, torch.Tensor]]:
    """Return the bytes that autograd keeps of a call, and the gradients of the weights."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(*inputs, **named)
    if loss is None:
        return sum(kept.values()), {}
    model.zero_grad(set_to_none=True)
    loss(output).backward()
    return sum(kept.values()), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
