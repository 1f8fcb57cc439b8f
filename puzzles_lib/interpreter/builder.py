"""Triton's interpreter builder, with every memory access guarded, bfloat16 and float8 put right.

Triton executes a kernel on the CPU by giving the front end's builder NumPy arrays where a compiler
would have it emit IR. Subclassing that builder changes what an operation does without touching what
the learner wrote.
"""

import functools
import sys
from dataclasses import dataclass

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from puzzles_lib.dtypes import DTYPES, DType, of_triton
from puzzles_lib.float8 import NO_FLOAT8_ARITHMETIC, refused_cast, refused_constant
from puzzles_lib.interpreter import arithmetic, libdevice, taint
from puzzles_lib.interpreter.arithmetic import PRODUCT, SPREAD, Fused, Product
from puzzles_lib.interpreter.memory import Halt, Memory
from puzzles_lib.interpreter.records import Program, Stop

PRINT_LIMIT = 100  # lines that a run may print
PRINT_WIDTH = 2000  # characters of each
DESCRIPTOR_BYTES = (
    16  # that divide where a tensor's rows begin, for NVIDIA's TMA and so for `TensorDescriptor`
)


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


_CODED = {row.triton.name: row for row in DTYPES if row.code}
_BFLOAT16, _E5M2 = of_triton(tl.bfloat16), of_triton(tl.float8e5)


def _coded(handle: TensorHandle) -> DType | None:
    """The dtype of a block that is held as bits; None where NumPy computes on it as it is."""
    row = _CODED.get(handle.dtype.scalar.name)
    return row if row is not None and handle.data.dtype == row.storage else None


def _computing(handle: TensorHandle) -> DType | None:
    """The same, for arithmetic. Triton compiles none on float8."""
    row = _coded(handle)
    if row is not None and row.is_float8:
        raise TypeError(NO_FLOAT8_ARITHMETIC)
    return row


def _widened(handle: TensorHandle) -> np.ndarray:
    row = _coded(handle)
    return handle.data if row is None else row.code.widen(handle.data)


def float8_e5m2_to_bfloat16(bits: np.ndarray) -> np.ndarray:
    """As Triton compiles it, bits shifted into place and multiplied by 2**112 (sm_80, sm_90, sm_100).

    So infinity becomes 65536, and NaN a number beyond it, as on an H200.
    """
    halves = bits.astype(np.uint16) << 8
    small = _BFLOAT16.widen((halves & 0x8000) | (halves & 0x7FFF) >> 3)
    return _BFLOAT16.narrow(small * np.float32(2.0**112))


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

_SEM = {
    ir.MEM_SEMANTIC.ACQUIRE: "acquire",
    ir.MEM_SEMANTIC.RELEASE: "release",
    ir.MEM_SEMANTIC.ACQUIRE_RELEASE: "acq_rel",
    ir.MEM_SEMANTIC.RELAXED: "relaxed",
}
_SCOPE = {ir.MEM_SYNC_SCOPE.GPU: "gpu", ir.MEM_SYNC_SCOPE.CTA: "cta", ir.MEM_SYNC_SCOPE.SYSTEM: "sys"}


_DESCRIPTOR_ATOMICS = {
    ir.DESCRIPTOR_REDUCE_KIND.ADD: np.add,
    ir.DESCRIPTOR_REDUCE_KIND.MIN: np.minimum,
    ir.DESCRIPTOR_REDUCE_KIND.MAX: np.maximum,
    ir.DESCRIPTOR_REDUCE_KIND.AND: np.bitwise_and,
    ir.DESCRIPTOR_REDUCE_KIND.OR: np.bitwise_or,
    ir.DESCRIPTOR_REDUCE_KIND.XOR: np.bitwise_xor,
}

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


@dataclass(frozen=True)
class _Options(InterpreterOptions):
    num_warps: int = 4  # what a launch has that says nothing


@taint.tracked
class GuardedBuilder(InterpreterBuilder):
    """Executes one run's operations. ``memory`` is set for the time of a run."""

    memory: Memory

    def __init__(self) -> None:
        super().__init__()
        # debug turns tl.device_assert on; overflow checks would double a run's time
        self.options = _Options(debug=True, sanitize_overflow=False)

    def start(self, memory: Memory, grid: Program, quiet: bool, said: set[str]) -> None:
        """What follows belongs to a new run. said: what `tl.static_print` does not show again."""
        self.memory, self.grid, self.quiet, self.said, self.printed = memory, grid, quiet, said, 0

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
        on = self._lanes(ptrs, mask)
        fill = None if other is None else other.data
        before = len(self.memory.accesses)
        values, labels = self.memory.load(ptrs.data, on, fill, of_triton(element_type), taint.labels(other))
        result = taint.mark(TensorHandle(values, element_type), labels)
        self._record(before, result)
        if is_volatile:
            self.memory.looked(ptrs.data, values)
        return result

    def create_addptr(self, ptr, offset):
        moved = self.memory.addresses.moved(ptr.data, offset.data, _size(ptr.dtype.scalar))
        return TensorHandle(moved, ptr.dtype)

    def create_tensor_pointer_store(self, ptr, value, boundary_check, cache_modifier, eviction_policy):
        pointers, mask = self._tile(ptr, boundary_check)
        return self.create_masked_store(pointers, value, mask, cache_modifier, eviction_policy)

    def _tile(self, ptr, boundary_check):
        """What a block pointer points to, and which lanes are inside along the axes that are checked."""
        elements, inside = np.zeros((), np.int64), np.ones(tuple(ptr.block_shape), bool)
        for axis, block in enumerate(ptr.block_shape):
            along = ptr.offsets[axis].data.astype(np.int64) + np.arange(block)
            along = along.reshape(-1, *[1] * (len(ptr.block_shape) - 1 - axis))
            elements = elements + along * ptr.strides[axis].data
            if axis in boundary_check:
                inside &= (along >= 0) & (along < ptr.shape[axis].data)
        return self._at(ptr.base, elements), inside

    def _at(self, base, elements):
        """Pointers to these elements, counted from where ``base`` points."""
        moved = self.memory.addresses.moved(base.data, elements, _size(base.dtype.scalar))
        return TensorHandle(moved, base.dtype.scalar)

    def create_tensor_pointer_load(self, ptr, boundary_check, padding_option, *how):
        pointers, mask = self._tile(ptr, boundary_check)
        padding = None if padding_option is None else _padding(pointers, padding_option)
        return self.create_masked_load(pointers, mask, padding, *how)

    def create_make_tensor_descriptor(self, base, shape, strides, *how):
        size, address = base.dtype.element_ty.primitive_bitwidth // 8, int(base.data.item())
        buffer = self.memory.buffer_at(base.data)
        of = f"of {buffer.name}_ptr's descriptor" if buffer else "of this descriptor"
        rule = f"multiples of {DESCRIPTOR_BYTES}: a GPU does not check, and moves other elements"
        if beyond := address % DESCRIPTOR_BYTES:
            raise ValueError(f"the first row {of} begins {beyond} bytes too far on, allowed are {rule}")
        for step in (int(stride.data.item()) for stride in strides[:-1]):
            if step * size % DESCRIPTOR_BYTES:
                apart = f"{step * size} bytes ({step} elements) apart"
                raise ValueError(f"rows {of} begin {apart}, allowed are {rule}")
        return super().create_make_tensor_descriptor(base, shape, strides, *how)

    def create_descriptor_load(self, desc, indices, *how):
        pointers, mask = self._within(desc, indices)
        return self.create_masked_load(pointers, mask, _padding(pointers, desc.padding), *how, False)

    def create_descriptor_store(self, desc, value, indices):
        pointers, mask = self._within(desc, indices)
        self.create_masked_store(pointers, value, mask, None, None)

    def create_descriptor_gather(self, desc, rows, column, type):
        pointers, mask = self._within(desc, [rows, column])
        return self.create_masked_load(pointers, mask, _padding(pointers, desc.padding), None, None, False)

    def create_descriptor_scatter(self, desc, value, rows, column):
        pointers, mask = self._within(desc, [rows, column])
        self.create_masked_store(pointers, value, mask, None, None)

    def create_masked_store(self, ptrs, value, mask, cache_modifier, eviction_policy):
        dtype = of_triton(ptrs.get_element_ty()).storage
        on = self._lanes(ptrs, mask)
        before = len(self.memory.accesses)
        self.memory.store(ptrs.data, value.data, on, dtype, taint.labels(value))
        self._record(before, value)

    def _record(self, before, values, *operands):
        """Tell of the accesses that were noted since, and what they carried."""
        if self.memory.recorder:
            self.memory.recorder.accessed(self.memory.accesses[before:], values, *operands)

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        orders = _SEM[sem], _SCOPE[scope]
        return self._atomic(_ATOMICS[rmwOp], ptr, val, mask, rmwOp is not ir.ATOMIC_OP.XCHG, orders)

    def create_descriptor_reduce(self, kind, desc, value, indices):
        pointers, mask = self._within(desc, indices)
        self._atomic(_DESCRIPTOR_ATOMICS[kind], pointers, value, mask, True, ("relaxed", "gpu"))

    def _atomic(self, operation, ptr, val, mask, reads, orders):
        row = _computing(val)

        def in_code(old, new):
            return row.code.narrow(operation(row.code.widen(old), row.code.widen(new)))

        on, dtype = self._lanes(ptr, mask), val.data.dtype
        self.memory.use(taint.labels(val), on)
        before = len(self.memory.accesses)
        old, labels = self.memory.atomic(
            in_code if row and reads else operation, ptr.data, [val.data], on, dtype, reads, *orders
        )
        result = taint.mark(TensorHandle(old, val.dtype.scalar), labels)
        self._record(before, result, val)
        return result

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        def operation(old, expected, new):
            return np.where(_bits(old) == _bits(expected), new, old)

        self._lanes(ptr, None)
        self.memory.use(taint.joined(taint.labels(cmp), taint.labels(val)))
        operands, orders = [cmp.data, val.data], (_SEM[sem], _SCOPE[scope])
        before = len(self.memory.accesses)
        old, labels = self.memory.atomic(operation, ptr.data, operands, None, val.data.dtype, True, *orders)
        result = taint.mark(TensorHandle(old, cmp.dtype.scalar), labels)
        self._record(before, result, cmp, val)
        return result

    def _lanes(self, ptrs, mask):
        """A mask as an array; it and the addresses must be defined."""
        on = None if mask is None else _mask_array(mask)
        if self.memory.sources:
            self.memory.use(taint.labels(mask))
            self.memory.use(taint.labels(ptrs), on)
        return on

    def _within(self, desc, indices):
        """Where a descriptor's block lies, and which lanes are inside of its tensor.

        An index that is a block itself names rows one by one.
        """
        elements, inside = np.zeros((), np.int64), np.array(True)
        for axis, (index, block) in enumerate(zip(indices, desc.block_shape, strict=True)):
            self.memory.use(taint.labels(index))
            along = index.data.astype(np.int64) + (np.arange(block) if index.data.size == 1 else 0)
            along = along.reshape(-1, *[1] * (len(indices) - 1 - axis))
            elements = elements + along * desc.strides[axis].data
            inside = inside & (along >= 0) & (along < desc.shape[axis].data)
        return self._at(desc.base, elements), inside

    def create_assume(self, condition):
        if not condition.data.all():
            text = f"false hint: what tl.assume(...) says is not so in program {self.memory.program}"
            advice = "the compiler counts on it: on a GPU anything may happen then"
            raise Halt(Stop("false hint", text, self.memory.site(), advice))

    def create_barrier(self):
        self.memory.ordering.barrier()
        return TensorHandle(np.zeros(1, np.int32), tl.int32)

    def create_bitcast(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if target.is_ptr():
            self.memory.casts |= not source.is_ptr() or _size(source) != _size(target)
        found = super().create_bitcast(src, dst_type)
        if source.is_ptr() == target.is_ptr():
            return found
        self.memory.tells_addresses |= source.is_ptr()
        addresses = self.memory.addresses
        if addresses.elsewhere:
            told = addresses.numbers(src.data) if source.is_ptr() else addresses.pointers(found.data)
            found.data = told.view(found.data.dtype)
        return found

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

    def get_all_ones_value(self, type):
        storage = of_triton(type).storage
        return TensorHandle(~np.zeros(1, storage), type.scalar)

    @arithmetic.moving
    def create_splat(self, ret_ty, arg):
        data = np.empty(tuple(ret_ty.shape), arg.data.dtype)
        data[...] = arg.data
        return TensorHandle(data, arg.dtype.scalar)

    def create_flip(self, arg, axis):
        return TensorHandle(np.flip(arg.data, axis), arg.dtype.scalar)

    def create_cat(self, lhs, rhs):
        return TensorHandle(super().create_cat(lhs, rhs).data[::-1], lhs.dtype.scalar)  # any order

    create_expand_dims = arithmetic.moving(InterpreterBuilder.create_expand_dims)
    create_trans = arithmetic.moving(InterpreterBuilder.create_trans)

    @arithmetic.moving
    def create_broadcast(self, arg, shape):
        result = super().create_broadcast(arg, shape)
        result.attr[SPREAD] = arg.data
        return result

    @arithmetic.moving
    def create_reshape(self, arg, shape, allow_reorder):
        data = arg.data.ravel()[::-1] if allow_reorder else arg.data
        return TensorHandle(data.reshape(shape), arg.dtype.scalar)

    def create_gather(self, src, indices, axis):
        places = np.clip(indices.data, 0, src.data.shape[axis] - 1)
        return TensorHandle(np.take_along_axis(src.data, places, axis), src.dtype.scalar)

    def create_join(self, lhs, rhs):
        data = np.stack([lhs.data, rhs.data.view(lhs.data.dtype)], -1)  # of two signs the first's
        return TensorHandle(data, lhs.dtype.scalar)

    def create_select(self, condition, lhs, rhs):
        return TensorHandle(
            np.where(condition.data, lhs.data.view(rhs.data.dtype), rhs.data), rhs.dtype.scalar
        )

    def create_histogram(self, data, bins, mask):
        on = np.ones(data.data.shape, bool) if mask is None else mask.data
        on = on & (data.data >= 0) & (data.data < bins)
        counts = np.bincount(data.data[on].astype(np.int64), minlength=bins)
        return TensorHandle(counts.astype(np.int32), tl.int32)

    def create_clampf(self, arg, lo, hi, propagate_nans):
        if propagate_nans == ir.PROPAGATE_NAN.ALL:
            return self.create_minimumf(self.create_maximumf(arg, lo), hi)
        return self.create_minnumf(self.create_maxnumf(arg, lo), hi)

    def create_ashr(self, lhs, rhs):
        signed = f"i{lhs.data.itemsize}"
        shifted = np.right_shift(lhs.data.view(signed), rhs.data.view(signed))
        return TensorHandle(shifted.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_frem(self, lhs, rhs):
        """As compiled, ``x - trunc(x / y) * y``: where x / y is large, that is no remainder."""
        if lhs.data.dtype != np.float32:
            return self.binary_op(lhs, rhs, np.fmod)
        return self.binary_op(lhs, rhs, _remainder)

    def create_umulhi(self, lhs, rhs):
        unsigned = [TensorHandle(_bits(h.data), h.dtype) for h in (lhs, rhs)]
        product = super().create_umulhi(*unsigned)
        return TensorHandle(product.data.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_extern_elementwise(self, libName, libPath, symbol, argList, retType, isPure):
        result = libdevice.call(symbol, [argument.data for argument in argList])
        storage = of_triton(retType).storage
        whole = storage.kind in "iu" and result.dtype.kind == "f"
        data = float_to_integer(result, storage) if whole else result.astype(storage)
        return TensorHandle(data, retType.scalar)

    def create_inline_asm(self, inlineAsm, constraints, values, type, isPure, pack):
        raise NotImplementedError(
            "inline assembly runs on a GPU only: the course has no assembler, write it in tl.*"
        )

    # ---- constants: a compiler keeps as many bits as fit

    def _integer(self, value, dtype):
        storage = of_triton(dtype).storage
        bits = np.array([int(value) & (1 << 8 * storage.itemsize) - 1], f"u{storage.itemsize}")
        return TensorHandle(bits.view(storage), dtype)

    get_int8 = functools.partialmethod(_integer, dtype=tl.int8)
    get_int16 = functools.partialmethod(_integer, dtype=tl.int16)
    get_int32 = functools.partialmethod(_integer, dtype=tl.int32)
    get_int64 = functools.partialmethod(_integer, dtype=tl.int64)
    get_uint8 = functools.partialmethod(_integer, dtype=tl.uint8)
    get_uint16 = functools.partialmethod(_integer, dtype=tl.uint16)
    get_uint32 = functools.partialmethod(_integer, dtype=tl.uint32)
    get_uint64 = functools.partialmethod(_integer, dtype=tl.uint64)

    # ---- bfloat16, which stock Triton computes on its raw bits: compute in float32, round once

    def get_bf16(self, value):
        # The compiler's goes through std::to_string, which keeps six decimals: 2**-32 is 0 there.
        as_compiled = float(f"{np.float32(value):f}")
        return self._rounded(np.array([as_compiled]), _BFLOAT16)

    def _rounded(self, output: np.ndarray, row: DType) -> TensorHandle:
        return TensorHandle(row.code.narrow(output), row.triton)

    def binary_op(self, lhs, rhs, op):
        return self._counted(self._of_two(lhs, rhs, op))

    def _counted(self, result: TensorHandle) -> TensorHandle:
        """The result, each of its floats an operation."""
        if result.dtype.scalar.is_floating():
            self.memory.flops += result.data.size
        return result

    def _of_two(self, lhs, rhs, op):
        row = _computing(lhs)
        if row is None or op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
            result = super().binary_op(lhs, rhs, op)
        else:
            result = TensorHandle(op(_widened(lhs), _widened(rhs)), tl.float32)
            if result.data.dtype != bool:
                return self._rounded(result.data, row)
        if result.data.dtype == bool:
            result.dtype = tl.int1  # Triton leaves a comparison the dtype of what it compared
        return result

    def unary_op(self, arg, op):
        if row := _computing(arg):
            return self._counted(self._rounded(op(_widened(arg)), row))
        return self._counted(super().unary_op(arg, op))

    def create_fma(self, x, y, z):
        wide = [_widened(h).astype(np.float64) for h in (x, y, z)]
        result = wide[0] * wide[1] + wide[2]  # the product of two float32 is exact
        self.memory.flops += 2 * result.size
        if row := _computing(z):
            return self._rounded(result, row)
        return TensorHandle(result.astype(z.data.dtype), z.dtype.scalar)

    # ---- a product and a sum that the compiler makes one step, and a sum of products that is a dot to it

    def create_fmul(self, lhs, rhs):
        result = self.binary_op(lhs, rhs, np.multiply)
        site = self.memory.site() if self.memory.arithmetic.as_compiled else None
        blocks, row = (lhs.data, rhs.data, result.data), _coded(result)
        spread = lhs.attr.get(SPREAD), rhs.attr.get(SPREAD)
        result.attr[PRODUCT] = Product(
            lambda: arithmetic.lost(*(map(row.code.widen, blocks) if row else blocks)), site, spread
        )
        return result

    def create_fadd(self, lhs, rhs):
        return self._sum(lhs, rhs, np.add)

    def create_fsub(self, lhs, rhs):
        return self._sum(lhs, rhs, np.subtract)

    def _sum(self, lhs, rhs, op):
        """A sum or a difference; as compiled, the first product that it takes is fused."""
        result = self.binary_op(lhs, rhs, op)
        product = lhs.attr.get(PRODUCT) or rhs.attr.get(PRODUCT)
        if product is None:
            return result
        notes = self.memory.arithmetic
        notes.products = True
        if notes.as_compiled:
            minus = op is np.subtract and PRODUCT not in lhs.attr
            error = -product.lost() if minus else product.lost()
            exact = op(_widened(lhs).astype(np.float64), _widened(rhs)) + error
            return self._fused(result, exact, error, product.site)
        if not notes.cancels and (zero := _widened(result) == 0).any():
            notes.cancels = bool((zero & (product.lost() != 0)).any())
        return result

    def _fused(self, result, exact, error, site):
        """A sum of which this much would be lost, done in one step."""
        row = _coded(result)
        fused = row.code.narrow(exact) if row else exact.astype(result.data.dtype)
        data = np.where(error != 0, fused, result.data)
        changed = data != result.data
        if changed.any():
            cancels = bool((changed & (_widened(result) == 0)).any())
            self.memory.arithmetic.fused[Fused(site, self.memory.site(), cancels)] = None
        return TensorHandle(data, result.dtype)

    def sum_as_dot(self, handle, axis):
        """A sum of products that the compiler makes a dot, as it is compiled; None where it does not."""
        operands = arithmetic.dot_operands(handle, axis)
        if operands is None:
            return None
        notes = self.memory.arithmetic
        notes.in_tf32[self.memory.site()] = None
        dot = _product(*map(float32_to_tf32, operands), np.float32)
        fits = dot.shape == np.delete(handle.data.shape, axis)  # or it does not compile
        return dot if notes.as_compiled and fits.all() else None

    def create_rsqrt(self, arg):
        return self.unary_op(arg, lambda values: 1 / np.sqrt(values))

    def create_erf(self, arg):
        if row := _computing(arg):
            return self._rounded(stock.np_erf_fp32(_widened(arg)), row)
        return super().create_erf(arg)

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        return self._recorded_dot(self._dot(a, b, d, input_precision), a, b, d)

    def _recorded_dot(self, result, *operands):
        self.memory.arithmetic.dots = True
        self.memory.flops += 2 * result.data.size * operands[0].data.shape[-1]
        if self.memory.recorder:
            self.memory.recorder.dotted(*operands, result)
        return result

    def _dot(self, a, b, d, input_precision):
        # float8 is summed in float32; Hopper's tensor cores keep fewer bits: 6e-5 of sum(|a| |b|) is lost.
        left, right = _widened(a), _widened(b)
        if input_precision == ir.INPUT_PRECISION.TF32 and left.dtype == right.dtype == np.float32:
            left, right = float32_to_tf32(left), float32_to_tf32(right)
        dtype = d.data.dtype
        if row := _computing(d):
            return self._rounded(_product(left, right, np.float32) + _widened(d), row)
        if dtype.kind in "iu":  # sums of products of int8 are exact in float64
            product = _product(left, right, np.float64).astype(np.int64)
        else:
            product = _product(left, right, np.float64 if dtype == np.float64 else np.float32).astype(dtype)
        return TensorHandle((product + d.data).astype(dtype, copy=False), d.dtype.scalar)

    def create_dot_scaled(self, a, a_scale, a_format, b, b_scale, b_format, fast_math, a_k_pack, b_k_pack, d):
        left = _unpacked(a, a_format, -1 if a_k_pack else -2)
        right = _unpacked(b, b_format, -2 if b_k_pack else -1)
        if a_scale is not None:
            left = left * _scales(a_scale, left.shape[-1])
        if b_scale is not None:
            right = right * np.swapaxes(_scales(b_scale, right.shape[-2]), -1, -2)
        return TensorHandle(_product(left, right, np.float32) + d.data, d.dtype.scalar)

    def cast_impl(self, src, dst_type):
        row, target = _coded(src), of_triton(dst_type)
        if row is target:
            return TensorHandle(src.data, target.triton)
        if row is _E5M2 and target is _BFLOAT16:
            return TensorHandle(float8_e5m2_to_bfloat16(src.data), target.triton)
        if row:
            src = TensorHandle(row.code.widen(src.data), tl.float32)
        if target.code:
            return self._rounded(src.data.astype(np.float32), target)
        if target.triton.is_int() and target.triton.primitive_bitwidth > 1 and src.data.dtype.kind == "f":
            return TensorHandle(float_to_integer(src.data, target.storage), target.triton)
        return super().cast_impl(src, dst_type)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        source, target = of_triton(src.dtype), of_triton(dst_type)
        towards_zero = rounding_mode == ir.ROUNDING_MODE.RTZ
        if told := refused_cast(source.triton, target.triton, towards_zero):
            raise TypeError(told)
        if towards_zero and target.code:
            return TensorHandle(target.code.narrow(_widened(src), towards_zero=True), target.triton)
        if source.code or target.code:
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    def create_fp_trunc(self, src, dst_type):
        if told := refused_constant(
            src.data.flat[0], dst_type
        ):  # float8 of a block is made by create_fp_to_fp
            raise TypeError(told)
        return self.cast_impl(src, dst_type)

    # ---- printing

    def print(self, text: str) -> None:
        """Show text, unless the run is quiet or has printed enough."""
        for line in text.splitlines(keepends=True) if not self.quiet else ():
            self.printed += 1
            if self.printed > PRINT_LIMIT:
                self.quiet = True
                line = f"... (only the first {PRINT_LIMIT} lines are shown)\n"
            elif len(line) > PRINT_WIDTH:
                line = f"{line[:PRINT_WIDTH]}...\n"
            try:
                sys.stdout.write(line)
            except (AttributeError, OSError, ValueError):  # there is none, or it is full or closed
                self.quiet = True
            if self.quiet:
                break

    def create_print(self, prefix, hex, values, isSigned):
        for value in values if not self.quiet else ():
            words = [str(self.memory.program), prefix.strip(), shown(value, hex)]
            self.print(" ".join(word for word in words if word) + "\n")


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of float32, the difference rounded once (PTX of Triton 3.7.1 for sm_90: div.rn, cvt.rzi, fma.rn)."""
    whole = np.trunc(x / y).astype(np.float64)
    left = x.astype(np.float64) - whole * y.astype(np.float64)
    return np.where(np.isinf(y), x, left.astype(np.float32))


def _product(left: np.ndarray, right: np.ndarray, dtype: type) -> np.ndarray:
    """By torch, because its number of threads can be set: NumPy's wait for each other on busy machines."""
    tensors = (torch.from_numpy(np.ascontiguousarray(x, dtype)) for x in (left, right))
    return torch.matmul(*tensors).numpy()


def _unpacked(block: TensorHandle, kind: ir.ScaleDotElemTypeTY, axis: int) -> np.ndarray:
    """A scaled dot's operand as float32. Of two fp4 in a byte the lower half comes first."""
    if kind != ir.ScaleDotElemTypeTY.E2M1:
        return _widened(block).astype(np.float32)
    halves = np.stack([block.data & 15, block.data >> 4], axis + block.data.ndim + 1)
    shape = list(block.data.shape)
    shape[axis] *= 2
    return (_E2M1[halves & 7] * np.where(halves & 8, -1, 1)).astype(np.float32).reshape(shape)


def _scales(scale: TensorHandle, count: int) -> np.ndarray:
    """One for each of ``count`` elements along K. As bytes they are exponents, 255 is NaN."""
    values = _widened(scale)
    if _coded(scale) is None:
        values = np.where(values == 255, np.nan, np.exp2(values.astype(np.float32) - 127))
    return np.repeat(values.astype(np.float32), count // values.shape[-1], -1)


def shown(value: TensorHandle, hex: bool = False) -> str:
    """A block's values, or the one of a scalar."""
    data = _widened(value)
    one = (lambda n: f"{n:#04x}") if hex and data.dtype.kind in "iu" else str
    return (
        one(data.flat[0])
        if data.size == 1
        else np.array2string(data, 75, threshold=1000, formatter={"int": one} if hex else None)
    )


def _padding(pointers: TensorHandle, option: ir.PADDING_OPTION) -> TensorHandle:
    """Zero or NaN for each pointer's element. Stock Triton's NaN is 0 where a dtype is held as bits."""
    row = of_triton(pointers.get_element_ty())
    value = np.nan if option == ir.PADDING_OPTION.PAD_NAN else 0
    return TensorHandle(np.full(pointers.data.shape, row.narrow(np.array(value))), row.triton)


def _size(pointer: tl.dtype) -> int:
    return of_triton(pointer.element_ty).storage.itemsize


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _mask_array(mask: TensorHandle | np.ndarray) -> np.ndarray:
    """Block pointers bring their mask as a bare array."""
    return (mask.data if isinstance(mask, TensorHandle) else mask).astype(bool, copy=False)
