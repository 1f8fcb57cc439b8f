"""Triton's interpreter builder, with every memory access guarded and bfloat16 put right.

Triton executes a kernel on the CPU by giving the front end's builder NumPy arrays where a compiler
would have it emit IR. Subclassing that builder changes what an operation does without touching what
the learner wrote.
"""

import sys

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from puzzles_lib.interpreter import libdevice
from puzzles_lib.interpreter.memory import Memory
from puzzles_lib.interpreter.records import Program

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


def float32_to_tf32(values: np.ndarray) -> np.ndarray:
    """Round to the 10 bits that a tensor core takes of a float32; NaN and infinities stay."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def float_to_integer(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cut the fraction off, as PTX's ``cvt.rzi`` does: what is out of range becomes the nearest that is not.

    There are no conversions to 8 bits: Triton keeps the lower half of a 16-bit integer. NaN becomes 0, or
    the sign bit alone where either side has 64 bits.
    """
    wide = np.dtype(f"{np.dtype(dtype).kind}{max(np.dtype(dtype).itemsize, 2)}")
    limits = np.iinfo(wide)
    nan = 0 if wide.itemsize < 8 and values.dtype.itemsize < 8 else 1 << 8 * wide.itemsize - 1
    whole = np.trunc(values.astype(np.float64, copy=False))
    integers = np.where(whole >= float(limits.max), limits.max, whole.astype(wide))
    integers = np.where(whole <= float(limits.min), limits.min, integers)
    if np.isnan(whole).any():
        integers = np.where(np.isnan(whole), np.array(nan, f"u{wide.itemsize}").view(wide), integers)
    return integers.astype(wide).astype(dtype)


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

    def start(self, memory: Memory, grid: Program, quiet: bool) -> None:
        """What follows belongs to a new run."""
        self.memory, self.grid, self.quiet, self.printed = memory, grid, quiet, 0

    def create_get_program_id(self, axis):
        return TensorHandle(np.array([self.memory.program[axis]], np.int32), tl.int32)

    def create_get_num_programs(self, axis):
        return TensorHandle(np.array([self.grid[axis]], np.int32), tl.int32)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        what = name.removeprefix("create_").replace("_", " ")
        raise NotImplementedError(
            f"{what}: runs on a GPU only, the course's interpreter has no such operation"
        )

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

        dtype, reads = val.data.dtype, rmwOp is not ir.ATOMIC_OP.XCHG
        old = self.memory.atomic(operation, ptr.data, [val.data], _mask_array(mask), dtype, reads)
        return TensorHandle(old, val.dtype.scalar)

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        def operation(old, expected, new):
            return np.where(_bits(old) == _bits(expected), new, old)

        old = self.memory.atomic(operation, ptr.data, [cmp.data, val.data], None, val.data.dtype)
        return TensorHandle(old, cmp.dtype.scalar)

    def create_bitcast(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if target.is_ptr():
            self.memory.casts |= not source.is_ptr() or _size(source) != _size(target)
        return super().create_bitcast(src, dst_type)

    create_int_to_ptr = create_ptr_to_int = create_bitcast

    # ---- where Triton's own differs from a GPU

    def create_add(self, lhs, rhs):
        return self.binary_op(lhs, rhs, np.bitwise_xor if lhs.data.dtype == bool else np.add)  # modulo 2

    def create_sub(self, lhs, rhs):
        return self.binary_op(lhs, rhs, np.bitwise_xor if lhs.data.dtype == bool else np.subtract)

    def create_maxnumf(self, lhs, rhs):
        return self.binary_op(lhs, rhs, np.fmax)  # NaN loses; np.maximum lets it win

    def create_minnumf(self, lhs, rhs):
        return self.binary_op(lhs, rhs, np.fmin)

    def create_clampf(self, arg, lo, hi, propagate_nans):
        if propagate_nans == ir.PROPAGATE_NAN.ALL:
            return self.create_minimumf(self.create_maximumf(arg, lo), hi)
        return self.create_minnumf(self.create_maxnumf(arg, lo), hi)

    def create_umulhi(self, lhs, rhs):
        unsigned = [TensorHandle(_bits(h.data), h.dtype) for h in (lhs, rhs)]
        product = super().create_umulhi(*unsigned)
        return TensorHandle(product.data.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_extern_elementwise(self, libName, libPath, symbol, argList, retType, isPure):
        result = libdevice.call(symbol, [argument.data for argument in argList])
        return TensorHandle(result.astype(stock._get_np_dtype(retType.scalar)), retType.scalar)

    def create_inline_asm(self, inlineAsm, constraints, values, type, isPure, pack):
        raise NotImplementedError("inline assembly runs on a GPU only")

    # ---- bfloat16, which stock Triton computes on its raw bits: compute in float32, round once

    def get_bf16(self, value):
        # The compiler's goes through std::to_string, which keeps six decimals: 2**-32 is 0 there.
        as_compiled = float(f"{np.float32(value):f}")
        return TensorHandle(float32_to_bfloat16(np.array([as_compiled])), tl.bfloat16)

    def _rounded(self, output: np.ndarray, dtype: tl.dtype) -> TensorHandle:
        return TensorHandle(float32_to_bfloat16(output), dtype.scalar)

    def binary_op(self, lhs, rhs, op):
        if not _is_bfloat16(lhs) or op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
            result = super().binary_op(lhs, rhs, op)
        else:
            result = TensorHandle(op(_widened(lhs), _widened(rhs)), tl.float32)
            if result.data.dtype != bool:
                return self._rounded(result.data, lhs.dtype)
        if result.data.dtype == bool:
            result.dtype = tl.int1  # Triton leaves a comparison the dtype of what it compared
        return result

    def unary_op(self, arg, op):
        if _is_bfloat16(arg):
            return self._rounded(op(_widened(arg)), arg.dtype)
        return super().unary_op(arg, op)

    def create_fma(self, x, y, z):
        wide = [_widened(h).astype(np.float64) for h in (x, y, z)]
        result = wide[0] * wide[1] + wide[2]  # the product of two float32 is exact
        if _is_bfloat16(z):
            return self._rounded(result, z.dtype)
        return TensorHandle(result.astype(z.data.dtype), z.dtype.scalar)

    def create_rsqrt(self, arg):
        return self.unary_op(arg, lambda values: 1 / np.sqrt(values))

    def create_erf(self, arg):
        if _is_bfloat16(arg):
            return self._rounded(stock.np_erf_fp32(_widened(arg)), arg.dtype)
        return super().create_erf(arg)

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        if a.dtype.scalar.is_fp8() or b.dtype.scalar.is_fp8():
            return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)
        left, right = _widened(a), _widened(b)
        if input_precision == ir.INPUT_PRECISION.TF32 and left.dtype == right.dtype == np.float32:
            left, right = float32_to_tf32(left), float32_to_tf32(right)
        dtype = d.data.dtype
        if _is_bfloat16(d):
            return self._rounded(_product(left, right, np.float32) + _widened(d), d.dtype)
        if dtype.kind in "iu":  # sums of products of int8 are exact in float64
            product = _product(left, right, np.float64).astype(np.int64)
        else:
            product = _product(left, right, np.float64 if dtype == np.float64 else np.float32).astype(dtype)
        return TensorHandle((product + d.data).astype(dtype, copy=False), d.dtype.scalar)

    def cast_impl(self, src, dst_type):
        target = dst_type.scalar
        if _is_bfloat16(src):
            if target == tl.bfloat16:
                return TensorHandle(src.data, target)
            return super().cast_impl(TensorHandle(_widened(src), tl.float32), dst_type)
        if target == tl.bfloat16:
            return TensorHandle(float32_to_bfloat16(src.data.astype(np.float32)), target)
        if target.is_int() and target.primitive_bitwidth > 1 and src.data.dtype.kind == "f":
            return TensorHandle(float_to_integer(src.data, stock._get_np_dtype(target)), target)
        return super().cast_impl(src, dst_type)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        if _is_bfloat16(src) or dst_type.scalar == tl.bfloat16:
            if rounding_mode == ir.ROUNDING_MODE.RTZ and dst_type.scalar == tl.bfloat16:
                bits = np.ascontiguousarray(src.data, np.float32).view(np.uint32) >> 16
                bits = np.where(np.isnan(src.data), 0x7FC0, bits)
                return TensorHandle(bits.astype(np.uint16), tl.bfloat16)
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    # ---- printing

    def print(self, text: str) -> None:
        """Show text, unless the run is quiet or has printed enough."""
        for line in text.splitlines(keepends=True) if not self.quiet else ():
            self.printed += 1
            if self.printed > PRINT_LIMIT:
                self.quiet = True
                line = f"... (only the first {PRINT_LIMIT} lines are shown)\n"
            sys.stdout.write(line)
            if self.quiet:
                break

    def create_print(self, prefix, hex, values, isSigned):
        for value in values:
            words = [str(self.memory.program), prefix.strip(), shown(value, hex)]
            self.print(" ".join(word for word in words if word) + "\n")


def _product(left: np.ndarray, right: np.ndarray, dtype: type) -> np.ndarray:
    """By torch, because its number of threads can be set: NumPy's wait for each other on busy machines."""
    tensors = (torch.from_numpy(np.ascontiguousarray(x, dtype)) for x in (left, right))
    return torch.matmul(*tensors).numpy()


def shown(value: TensorHandle, hex: bool = False) -> str:
    """A block's values, or the one of a scalar."""
    data = _widened(value)
    one = (lambda n: f"{n:#04x}") if hex and data.dtype.kind in "iu" else str
    return (
        one(data.flat[0])
        if data.size == 1
        else np.array2string(data, formatter={"int": one} if hex else None)
    )


def _size(pointer: tl.dtype) -> int:
    return stock._get_np_dtype(pointer.element_ty).itemsize


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _mask_array(mask: TensorHandle | np.ndarray | None) -> np.ndarray | None:
    """Block pointers bring their mask as a bare array."""
    mask = mask.data if isinstance(mask, TensorHandle) else mask
    return None if mask is None else mask.astype(bool, copy=False)
