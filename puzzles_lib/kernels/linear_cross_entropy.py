"""A linear layer and its cross entropy in one operator, which keeps the logits of some rows at a time.

With logits = x weightᵀ and p = softmax(logits):

    loss    = log-sum-exp of a row of logits, less the logit of the row's label
    dlogits = (p - one_hot(label)) · scale       scale: 1, or 1 / (rows that have a label) for the mean
    dx = dlogits weight,   dweight = dlogitsᵀ x

The loss of a part of the rows needs no other row, and neither do its gradients. So a part's logits are made,
reduced, replaced by dlogits where they are, multiplied twice and forgotten, before the next part comes. The
gradients are ready when the loss is. Backward multiplies them by the gradient of the loss, a number: in
place, unless the graph is kept for another backward.

torch computes the products. The kernel here does what is between them: it reads a row of logits twice and
writes it once. A part is an eighth of the rows, or more if their logits take at most 2^28 bytes. So the
weight's gradient is a sum of few products, each rounded to its dtype. Liger Kernel also computes the
gradients part by part in the forward pass (Hsu et al., 2024, arXiv:2410.10989).
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels.common import check_dtype, check_integer

DTYPES = (torch.float32, torch.bfloat16, torch.float64)
REDUCTIONS = ("mean", "sum")
PARTS = 8
FEW_BYTES = 2**28  # of logits: parts that are this small need not be smaller
BLOCK, WARPS = 4096, 8


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    label: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the cross entropy of the logits x weightᵀ, without keeping all of them in memory.

    It is differentiable in x and weight.

    x: [..., K]. weight: [V, K], V at least 1. Both are float32, bfloat16 or (on the CPU) float64, on one
        device. Logits are rounded to this dtype, as torch's linear layers do.
    label: int64 [...], the class of each row, from 0 to V - 1. A row with the label ``ignore_index`` has no
        loss and no gradient.
    reduction: "mean", over the rows that aren't ignored, or "sum".

    Returns a scalar, float32 (float64 if x is float64). The mean of no rows is NaN, as in torch, and its
    gradients are 0. Any other label outside 0 to V - 1 gives NaN. The gradients are computed along with the
    loss, if x or weight needs one. They can't be differentiated again.

    Raises TypeError for another dtype, and ValueError for shapes, devices or options that do not fit.
    """
    _check(x, weight, label, ignore_index, reduction)
    gradients = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    rows = x.reshape(-1, x.shape[-1])
    loss, _, _ = _linear_cross_entropy(
        rows, weight, label.reshape(-1), ignore_index, reduction == "mean", gradients
    )
    return loss


def _check(x, weight, label, ignore_index, reduction) -> None:
    for name, value in (("x", x), ("weight", weight)):
        check_dtype(name, value, DTYPES)
    check_dtype("label", label, (torch.int64,))
    if x.dtype != weight.dtype:
        raise TypeError(f"weight must be {x.dtype} like x, but is {weight.dtype}")
    if x.dtype == torch.float64 and x.is_cuda:
        raise TypeError("x must be float32 or bfloat16 on a GPU, but is torch.float64")
    for name, value in (("weight", weight), ("label", label)):
        if value.device != x.device:
            raise ValueError(f"{name} must be on the device of x, {x.device}, but is on {value.device}")
    if weight.dim() != 2 or weight.shape[0] == 0:
        raise ValueError(
            f"weight must have shape (V, K) with V of at least 1, but has shape {tuple(weight.shape)}"
        )
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"x must have shape (..., {weight.shape[1]}), but has shape {tuple(x.shape)}")
    if label.shape != x.shape[:-1]:
        raise ValueError(f"label must have shape {tuple(x.shape[:-1])}, but has shape {tuple(label.shape)}")
    check_integer("ignore_index", ignore_index)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be 'mean' or 'sum', but is {reduction!r}")


def rows_of_a_part(rows: int, classes: int, itemsize: int) -> int:
    """Return how many rows' logits are kept at a time."""
    few = FEW_BYTES // (classes * itemsize) // 64 * 64
    return max(1, min(rows, max(few, -(-rows // PARTS))))


# ---- torch, the reference


def losses_ref(
    logits: torch.Tensor,
    label: torch.Tensor,
    loss: torch.Tensor,
    scale: torch.Tensor,
    ignore_index: int,
    gradients: bool,
) -> None:
    """Fill loss [rows] from logits [rows, classes] and label [rows].

    If ``gradients``, replace the logits by their gradients times ``scale``.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    lse = wide.logsumexp(1)
    is_label = torch.arange(wide.shape[1], device=wide.device) == label[:, None]
    chosen = torch.where(is_label, wide, 0.0).sum(1)
    used = label != ignore_index
    bad = used & ~is_label.any(1)
    loss.copy_(torch.where(used, lse - chosen, 0.0).masked_fill_(bad, torch.nan))
    if gradients:
        p = (wide - lse[:, None]).exp_()
        p = torch.where(used[:, None], (p - is_label.to(p.dtype)) * scale, 0.0)
        logits.copy_(p.masked_fill_(bad[:, None], torch.nan))


# ---- Triton


@triton.jit
def _losses_kernel(
    logits_ptr, label_ptr, loss_ptr, scale_ptr, V, ignore_index,
    GRADIENTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss of a row, and with GRADIENTS its dlogits in the place of its logits."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(label_ptr + row)
    used = label != ignore_index
    first = logits_ptr + row * V
    n = tl.arange(0, BLOCK)
    found = (label >= 0) & (label < V)
    chosen = tl.load(first + label, mask=found, other=float("nan")).to(tl.float32)
    top = tl.full([BLOCK], -3.0e38, tl.float32)  # of each lane
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        mask = start + n < V
        x = tl.load(first + start + n, mask=mask, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL)
        total = total * tl.exp(top - new) + tl.exp(x - new)
        top = new
    most = tl.max(top, 0)
    lse = most + tl.log(tl.sum(total * tl.exp(top - most), 0))
    tl.store(loss_ptr + row, tl.where(used, lse - chosen, 0.0))
    if GRADIENTS:
        scale = tl.load(scale_ptr)
        tl.debug_barrier()  # all threads have read chosen, and one of them overwrites it
        bad = tl.where(found, 0.0, float("nan"))
        for start in range(0, V, BLOCK):
            mask = start + n < V
            x = tl.load(first + start + n, mask=mask, other=0.0).to(tl.float32)
            p = tl.exp(x - lse) - tl.where(start + n == label, 1.0, 0.0) + bad
            p = tl.where(used, p * scale, 0.0)
            tl.store(first + start + n, p.to(logits_ptr.dtype.element_ty), mask=mask)


def _on_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda


def _losses(logits, label, loss, scale, ignore_index: int, gradients: bool) -> None:
    """`losses_ref`, by the kernel if the logits are on a GPU. logits: contiguous."""
    if not _on_gpu(logits):
        losses_ref(logits, label, loss, scale, ignore_index, gradients)
        return
    block = min(BLOCK, triton.next_power_of_2(logits.shape[1]))
    with torch.cuda.device(logits.device):
        _losses_kernel[(logits.shape[0],)](
            logits, label, loss, scale, logits.shape[1], ignore_index,
            GRADIENTS=gradients, BLOCK=block, num_warps=WARPS,
        )  # fmt: skip


# ---- the operator that torch knows


@torch.library.custom_op("bit_by_bit::linear_cross_entropy", mutates_args=())
def _linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, label: torch.Tensor, ignore_index: int, mean: bool, gradients: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss, dx and dweight; without ``gradients`` these are empty."""
    loss, dx, dweight = _empty(x, weight, gradients)
    rows, part = x.shape[0], rows_of_a_part(x.shape[0], weight.shape[0], x.element_size())
    count = (label != ignore_index).sum().to(loss.dtype)
    scale = 1 / count.clamp(min=1) if mean else torch.ones_like(count)
    losses = torch.empty(rows, dtype=loss.dtype, device=x.device)
    label = label.contiguous()
    for first in range(0, rows, part):
        some = slice(first, min(first + part, rows))
        logits = x[some] @ weight.t()
        _losses(logits, label[some], losses[some], scale, ignore_index, gradients)
        if gradients:
            torch.mm(logits, weight, out=dx[some])
            if first:
                dweight.addmm_(logits.t(), x[some])
            else:
                torch.mm(logits.t(), x[some], out=dweight)
        del logits
    if gradients and not rows:
        dweight.zero_()
    loss.copy_(losses.sum() / count if mean else losses.sum())
    return loss, dx, dweight


def _empty(x, weight, gradients: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    loss = x.new_empty((), dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
    if not gradients:
        return loss, x.new_empty(0), x.new_empty(0)
    return loss, x.new_empty(x.shape), weight.new_empty(weight.shape)


@_linear_cross_entropy.register_fake
def _(x, weight, label, ignore_index, mean, gradients):
    return _empty(x, weight, gradients)


def _keep(ctx, inputs, output) -> None:
    _, dx, dweight = output
    ctx.mark_non_differentiable(dx, dweight)
    ctx.save_for_backward(dx, dweight)
    ctx.set_materialize_grads(False)


def _backward(ctx, dloss, *unused):
    if dloss is None:
        return (None,) * 6
    times = torch.mul if torch._C._autograd._get_current_graph_task_keep_graph() else torch.Tensor.mul_
    gradients = [
        times(each, dloss.to(each.dtype)) if wanted else None
        for each, wanted in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
    ]
    return (*gradients, None, None, None, None)


_linear_cross_entropy.register_autograd(_backward, setup_context=_keep)
