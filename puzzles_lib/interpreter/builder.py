"""Triton's interpreter builder, with every memory access guarded and bfloat16 put right.

Triton executes a kernel on the CPU by giving the front end's builder NumPy arrays where a compiler
would have it emit IR. Subclassing that builder changes what an operation does without touching what
the learner wrote.
"""

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from puzzles_lib.interpreter.memory import Memory

PRINT_LIMIT = 100  # lines that a run may print


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """Exact: bfloat16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float32_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round to nearest, ties to even, as GPUs and torch do; NaN stays NaN."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _is_bfloat16(handle: TensorHandle) -> bool:
    return handle.dtype.scalar == tl.bfloat16 and handle.data.dtype == np.uint16


def _widened(handle: TensorHandle) -> np.ndarray:
    return bfloat16_to_float32(handle.data) if _is_bfloat16(handle) else handle.data


_ATOMICS = {
    ir.ATOMIC_OP.ADD: np.add,
    ir.ATOMIC_OP.FADD: np.add,
    ir.ATOMIC_OP.MIN: np.minimum,
    ir.ATOMIC_OP.UMIN: np.minimum,
    ir.ATOMIC_OP.MAX: np.maximum,
    ir.ATOMIC_OP.UMAX: np.maximum,
    ir.ATOMIC_OP.AND: np.bitwise_and,
    ir.ATOMIC_OP.OR: np.bitwise_or,
    ir.ATOMIC_OP.XOR: np.bitwise_xor,
    ir.ATOMIC_OP.XCHG: lambda old, new: new,
}


class GuardedBuilder(InterpreterBuilder):
    """Executes one run's operations. ``memory`` is set for the time of a run."""

    memory: Memory

    def __init__(self) -> None:
        super().__init__()
        # debug turns tl.device_assert on; overflow checks would double a run's time
        self.options = InterpreterOptions(debug=True, sanitize_overflow=False)
        self.quiet = False
        self.printed = 0

    # ---- memory

    def create_load(self, ptr, cache_modifier, eviction_policy, is_volatile):
        return self.create_masked_load(ptr, None, None, cache_modifier, eviction_policy, is_volatile)

    def create_store(self, ptr, val, cache_modifier, eviction_policy):
        return self.create_masked_store(ptr, val, None, cache_modifier, eviction_policy)

    def create_masked_load(self, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile):
        element_type = ptrs.get_element_ty()
        values = self.memory.load(
            ptrs.data,
            _mask_array(mask),
            None if other is None else other.data,
            stock._get_np_dtype(element_type),
            element_type == tl.bfloat16,
        )
        return TensorHandle(values, element_type)

    def create_masked_store(self, ptrs, value, mask, cache_modifier, eviction_policy):
        dtype = stock._get_np_dtype(ptrs.get_element_ty())
        self.memory.store(ptrs.data, value.data, _mask_array(mask), dtype)

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        operation = _ATOMICS[rmwOp]
        if _is_bfloat16(val) and rmwOp is not ir.ATOMIC_OP.XCHG:
            plain = operation

            def operation(old, new):
                return float32_to_bfloat16(plain(bfloat16_to_float32(old), bfloat16_to_float32(new)))

        reads = rmwOp is not ir.ATOMIC_OP.XCHG
        old = self.memory.atomic(operation, ptr.data, val.data, _mask_array(mask), val.data.dtype, reads)
        return TensorHandle(old, val.dtype.scalar)

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        expected = np.broadcast_to(cmp.data, ptr.data.shape)
        # Lanes of a tile may meet on one element, so they go one after the other.
        old = np.zeros(ptr.data.shape, val.data.dtype)
        new = np.broadcast_to(val.data, ptr.data.shape)
        for lane in np.ndindex(ptr.data.shape):
            one = (slice(None),) if not lane else tuple(slice(i, i + 1) for i in lane)
            want = expected[one]
            old[one] = self.memory.atomic(
                lambda now, value, want=want: np.where(now == want.ravel(), value, now),
                ptr.data[one],
                new[one],
                None,
                val.data.dtype,
            )
        return TensorHandle(old, cmp.dtype.scalar)

    # ---- bfloat16, which stock Triton computes on its raw bits: compute in float32, round once

    def get_bf16(self, value):
        return TensorHandle(float32_to_bfloat16(np.array([value])), tl.bfloat16)

    def _rounded(self, output: np.ndarray, dtype: tl.dtype) -> TensorHandle:
        if output.dtype == np.bool_:
            return TensorHandle(output, tl.int1)
        return TensorHandle(float32_to_bfloat16(output), dtype.scalar)

    def binary_op(self, lhs, rhs, op):
        if _is_bfloat16(lhs) and op not in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
            return self._rounded(op(_widened(lhs), _widened(rhs)), lhs.dtype)
        return super().binary_op(lhs, rhs, op)

    def unary_op(self, arg, op):
        if _is_bfloat16(arg):
            return self._rounded(op(_widened(arg)), arg.dtype)
        return super().unary_op(arg, op)

    def ternary_op(self, lhs, rhs, other, op):
        if op is np.clip and _is_bfloat16(other):
            return self._rounded(op(_widened(lhs), _widened(rhs), _widened(other)), other.dtype)
        return super().ternary_op(lhs, rhs, other, op)

    def create_fma(self, x, y, z):
        if _is_bfloat16(z):
            return self._rounded(_widened(x) * _widened(y) + _widened(z), z.dtype)
        return super().create_fma(x, y, z)

    def create_rsqrt(self, arg):
        return self.unary_op(arg, lambda values: 1 / np.sqrt(values))

    def create_erf(self, arg):
        if _is_bfloat16(arg):
            return self._rounded(stock.np_erf_fp32(_widened(arg)), arg.dtype)
        return super().create_erf(arg)

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        if _is_bfloat16(a) or _is_bfloat16(b):
            product = np.matmul(_widened(a), _widened(b)) + _widened(d)
            return (
                self._rounded(product, d.dtype) if _is_bfloat16(d) else TensorHandle(product, d.dtype.scalar)
            )
        return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)

    def cast_impl(self, src, dst_type):
        target = dst_type.scalar
        if _is_bfloat16(src):
            if target == tl.bfloat16:
                return TensorHandle(src.data, target)
            return super().cast_impl(TensorHandle(_widened(src), tl.float32), dst_type)
        if target == tl.bfloat16:
            return TensorHandle(float32_to_bfloat16(src.data.astype(np.float32)), target)
        return super().cast_impl(src, dst_type)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        if _is_bfloat16(src) or dst_type.scalar == tl.bfloat16:
            if rounding_mode == ir.ROUNDING_MODE.RTZ and dst_type.scalar == tl.bfloat16:
                bits = np.ascontiguousarray(src.data, np.float32).view(np.uint32) >> 16
                return TensorHandle(bits.astype(np.uint16), tl.bfloat16)
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    # ---- printing

    def may_print(self) -> bool:
        """Whether another line may be printed; says so once when the limit is reached."""
        self.printed += 1
        if self.printed == PRINT_LIMIT + 1 and not self.quiet:
            print(f"... (only the first {PRINT_LIMIT} lines are shown)")
        return not self.quiet and self.printed <= PRINT_LIMIT

    def create_print(self, prefix, hex, values, isSigned):
        if self.may_print():
            shown = [TensorHandle(_widened(v), tl.float32) if _is_bfloat16(v) else v for v in values]
            super().create_print(prefix, hex, shown, isSigned)


def _mask_array(mask: TensorHandle | np.ndarray | None) -> np.ndarray | None:
    """Block pointers bring their mask as a bare array."""
    return mask.data if isinstance(mask, TensorHandle) else mask
