"""Launching machine code: what the driver is handed, for a driver that only takes notes."""

import ctypes
import json

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.timing import driver
from puzzles_lib.timing.driver import Binary, Loaded, TensorMap, parameters

TTIR = (
    'tt.func public @k(%x_desc: !tt.tensordesc<tensor<16x128xsi16>> loc("x_desc"(#loc)), '
    '%x_desc_0: i32 loc("x_desc"(#loc)), %x_desc_1: i32 loc("x_desc"(#loc)), '
    '%x_desc_2: i64 loc("x_desc"(#loc)), %x_desc_3: i64 loc("x_desc"(#loc)), '
    '%y_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("y_ptr"(#loc)), '
    '%N: i32 loc("N"(#loc1))) attributes {noinline = false} {'
)
PTX = """.visible .entry k(
	.param .align 64 .b8 k_param_0[128],
	.param .u32 k_param_1,
	.param .u32 k_param_2,
	.param .u64 k_param_3,
	.param .u64 k_param_4,
	.param .u64 .ptr .global .align 1 k_param_5,
	.param .u32 k_param_6,
	.param .u64 .ptr .global .align 1 k_param_7,
	.param .u64 .ptr .global .align 1 k_param_8
)"""
MAP = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [16, 64], "fp4_padded": False}


def a_binary(**changed) -> Binary:
    told = {"cubin": b"\x7fELF\0code", "name": "k", "warps": 8, "shared": 100 << 10, "scratch": 0}
    told |= {"parameters": parameters(TTIR, PTX), "maps": (MAP,)}
    return Binary(**(told | changed))


class Notes:
    """A driver that keeps what it is handed."""

    def __init__(self, status: int = 0):
        self.calls, self.status = [], status

    def __getattr__(self, name: str):
        def called(*arguments):
            self.calls.append((name, arguments))
            if name == "cuLaunchKernel":
                self.values = self._read(arguments[9])
            if name == "cuTensorMapEncodeTiled":
                self.aligned = ctypes.addressof(arguments[0]) % 64 == 0
            return self.status

        return called

    def _read(self, pointers):
        kinds = [*(kind for _, kind in a_binary().parameters), "u64", "u64"]
        told = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "b8[128]": ctypes.c_char * 128}
        return [told[k].from_address(p).value for k, p in zip(kinds, pointers, strict=True)]

    def named(self, name: str):
        return [arguments for called, arguments in self.calls if called == name]


@pytest.fixture
def notes(monkeypatch):
    kept = Notes()
    monkeypatch.setattr(driver, "_driver", lambda: kept)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))

    class Stream:
        cuda_stream = 77

        def synchronize(self):
            pass

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    return kept


def values():
    x = torch.zeros(32, 768, dtype=torch.bfloat16)
    return {"x_desc": TensorDescriptor.from_tensor(x, [16, 128]), "y_ptr": torch.zeros(8), "N": 5, "BLOCK": 9}


def test_parameters_have_their_names_from_one_and_their_types_from_the_other():
    of_descriptor = [("x_desc", kind) for kind in ("b8[128]", "u32", "u32", "u64", "u64")]
    assert parameters(TTIR, PTX) == (*of_descriptor, ("y_ptr", "u64"), ("N", "u32"))
    with pytest.raises(ValueError, match="7 parameters in Triton IR, 8 in PTX"):
        parameters(TTIR, PTX.replace("\t.param .u32 k_param_6,\n", ""))


def test_a_binary_travels_as_json():
    assert Binary.from_dict(json.loads(json.dumps(a_binary().as_dict()))) == a_binary()


def test_a_launch_hands_the_driver_what_the_kernel_takes(notes):
    given = values()
    Loaded(a_binary()).launch((3, 4, 7), given)
    (_, *grid, x, y, z, shared, stream, _, extra) = notes.named("cuLaunchKernel")[0]
    assert (grid, (x, y, z), shared, stream.value, extra) == ([3, 4, 7], (256, 1, 1), 100 << 10, 77, None)
    assert notes.values[1:] == [32, 768, 768, 1, given["y_ptr"].data_ptr(), 5, 0, 0]
    assert [call[1:] for call in notes.named("cuFuncSetAttribute")] == [(8, 100 << 10)]


def test_the_map_of_a_descriptor_has_the_last_axis_first(notes):
    given = values()
    Loaded(a_binary()).launch((1,), given)
    ((_, kind, rank, address, dims, pitch, box, ones, *others),) = notes.named("cuTensorMapEncodeTiled")
    assert (kind, rank, address.value) == (9, 2, given["x_desc"].base.data_ptr())  # 9: bfloat16
    assert (list(dims), pitch[0], list(box), list(ones)) == ([768, 32], 2 * 768, [64, 16], [1, 1])
    assert others == [0, 3, 2, 0] and notes.aligned


def test_a_map_counts_bytes():
    x = TensorDescriptor.from_tensor(torch.zeros(6, 4, 8, dtype=torch.int32), [2, 4, 8])
    made = TensorMap.of(x, {**MAP, "elem_size": 4, "elem_type": 3, "block_size": [2, 4, 8]})
    assert (made.shape, made.pitch, made.tile, made.kind) == ((8, 4, 6), (32, 128), (8, 4, 2), 3)


def test_little_shared_memory_need_not_be_asked_for(notes):
    Loaded(a_binary(shared=48 << 10))
    assert not notes.named("cuFuncSetAttribute")


def test_what_the_driver_refuses_is_an_error(notes):
    notes.status = 98
    with pytest.raises(RuntimeError, match=r"cuModuleLoadData: \? \(98\)"):
        Loaded(a_binary())


def test_other_arguments_than_the_kernel_takes_are_refused():
    with pytest.raises(TypeError, match="k: x_desc takes 5 parameters, but has 1"):
        a_binary().flattened({**values(), "x_desc": torch.zeros(3)})


def test_another_gpu_is_refused(monkeypatch, notes):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(RuntimeError, match=r"compiled for compute capability 9.0, but this GPU has 8.0"):
        Loaded(a_binary())


def test_no_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="needs a CUDA device"):
        Loaded(a_binary())
