"""Translate a kernel with Triton's front end, in a child process, for each of several launches."""

import ctypes
import functools
import linecache
import os
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import triton.language as tl
from triton._C import libtriton
from triton._C.libtriton import ir, nvidia, passes
from triton.backends.compiler import Language
from triton.compiler.compiler import ASTSource, make_backend
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction

from puzzles_lib.source import Refusal, Site, calls_itself, nodes, with_helpers
from puzzles_lib.translator import marks, observer, wording
from puzzles_lib.translator.environment import forget_settings, variables
from puzzles_lib.translator.forked import Answer, Place
from puzzles_lib.translator.shared import SUSPICIOUS
from puzzles_lib.translator.targets import Target

RUNNING = ("run", "record")  # texts that are wanted in order to be run
_PTX = 87  # the version for which shared memory is counted; a test fails if it changes


@functools.cache
def backend_of(target: Target) -> Any:
    """Return Triton's backend for a target."""
    return make_backend(target.gpu)


@functools.cache
def context_of(target: Target) -> Any:
    """Return MLIR's context with the dialects of a target's kernels. Call this only in a child."""
    context = ir.context()
    ir.load_dialects(context)
    backend_of(target).load_dialects(context)
    return context


def warm_up(target: Target) -> None:
    """Do once what every child would do first. Call this only in a process that just forks children."""
    context_of(target)
    for function in vars(tl.standard).values():
        if isinstance(function, JITFunction):
            nodes(function)


@dataclass(frozen=True)
class Work:
    """Launches of one kernel to translate.

    options: as for a launch. files: those with the learner's functions. The noted place is a line of one of
    them; files count from 1.
    wanted: which text to send back; "" for none.

    - ``"source"``: before any pass
    - ``"run"``: the same in MLIR's generic form, which `ir` reads, with the course's own marks
    - ``"record"``: with marks at each statement, too
    - ``"ttgir"``: in Triton's GPU dialect
    - ``"shared"``: the number of bytes of shared memory
    """

    kernel: JITFunction
    sources: Sequence[ASTSource]
    target: Target
    options: Mapping[str, object]
    wanted: str
    files: Sequence[str]

    def prepare(self, place: Place) -> Answer:
        """Return the function that translates a launch. It is called in the child."""
        forget_settings(variables())
        backend = backend_of(self.target)
        options = backend.parse_options(dict(self.options))
        seen = observer.watch(list(self.files), place)
        if self.wanted in RUNNING:
            _print_generically()
            marks.put(seen, dict.fromkeys(self.files, 0), recorded=self.wanted == "record")
        context = context_of(self.target)

        def answer(number: int) -> dict[str, object]:
            seen.start()
            seen.demand.stages = options.num_stages
            return _one(self, self.sources[number], context, backend, options, seen)

        return answer


def _print_generically() -> None:
    """Have MLIR print every operation in one form. For good, so only in a child that prints nothing else."""
    library = ctypes.CDLL(libtriton.__file__)
    library._ZN4mlir27registerAsmPrinterCLOptionsEv()  # mlir::registerAsmPrinterCLOptions()
    arguments = (ctypes.c_char_p * 2)(b"triton", b"--mlir-print-op-generic")
    library.LLVMParseCommandLineOptions(len(arguments), arguments, None)


def site(files: Sequence[str], number: int, line: int) -> Site:
    """Return a line of the file with this number; 0 is for an unknown file."""
    return Site(line, linecache.getline(files[number - 1], line).strip() if number else "")


def _one(
    work: Work, source: ASTSource, context: Any, backend: Any, options: Any, seen: observer.Seen
) -> dict[str, object]:
    """Return an opinion as JSON types."""
    said = os.memfd_create("said")
    os.dup2(said, 2)  # MLIR's verifier writes its explanation there
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        module, refusal = _module_or_refusal(work.kernel, source, context, backend, options, seen, said)
        if work.wanted in ("ttgir", "shared") and module and not refusal:
            module, refusal = _lowered(module, backend, options, said)
        if work.wanted == "shared" and module:
            module = _shared_bytes(module, backend.target.arch)
    os.close(said)
    notes = dict.fromkeys(filter(None, map(wording.of_warning, warned)))
    text = str(module) if work.wanted and module is not None else ""
    large = seen.demand.total > SUSPICIOUS and asdict(site(work.files, *seen.demand.place))
    return {
        "ir": text,
        "refusal": refusal and asdict(refusal),
        "notes": list(notes),
        "large": large or None,
        "said": list(seen.said),
        "functions": [asdict(function) for function in seen.functions] if work.wanted == "record" else [],
    }


def _module_or_refusal(
    kernel: JITFunction,
    source: ASTSource,
    context: Any,
    backend: Any,
    options: Any,
    seen: observer.Seen,
    said: int,
) -> tuple[object, Refusal | None]:
    codegen_fns, module_map = backend.get_codegen_implementation(options), backend.get_module_map()
    try:
        module = source.make_ir(backend.target, options, codegen_fns, module_map, context)
    except MemoryError:
        return None, Refusal(wording.TOO_LARGE)
    except CompilationError as error:
        if fault := _fault_of_ours(error):
            raise fault from None
        return None, wording.of_compilation(error, seen, with_helpers(kernel), calls_itself(kernel))
    except RecursionError:
        return None, Refusal(wording.RECURSION if calls_itself(kernel) else wording.TOO_DEEP)
    except Exception as error:
        if fault := _fault_of_ours(error):
            raise fault from None
        return None, _verifier_says(said) or Refusal(wording.one_line(f"{type(error).__name__}: {error}"))
    module.context = context
    return module, wording.of_return(seen)


def _fault_of_ours(error: BaseException) -> BaseException | None:
    """Return the innermost error if it is a fault of the course's own code; None if it is the kernel's.

    What the course raises about a kernel is a TypeError, and a value of the kernel's may lack any attribute.
    """
    while inner := error.__cause__ or error.__context__:  # Triton wraps what its visitor's methods raise
        error = inner
    if error.__traceback__ is None or not isinstance(error, _FAULTS):
        return None
    if isinstance(error, AttributeError) and isinstance(error.obj, _VALUES):
        return None
    frame, _ = [*traceback.walk_tb(error.__traceback__)][-1]
    return error if frame.f_globals.get("__package__") == __package__ else None


_FAULTS = (AttributeError, ImportError, LookupError, NameError)
_VALUES = (tl.core.base_value, tl.core.base_type, int, float, str, tuple, list, type(None))  # in a kernel


def _lowered(module: Any, backend: Any, options: Any, said: int) -> tuple[object, Refusal | None]:
    """Return the module in the GPU's dialect."""
    stages: dict[str, Callable] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata = dict(options.__dict__)
    try:
        for name in ("ttir", "ttgir"):
            module = stages[name](module, metadata)
    except Exception as error:
        return None, _verifier_says(said) or Refusal(wording.one_line(f"{type(error).__name__}: {error}"))
    return module, None


def _shared_bytes(module: Any, capability: int) -> int:
    """Return the shared memory that the compiler uses for a module in NVIDIA's dialect."""
    manager = ir.pass_manager(module.context)
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, capability, _PTX)
    manager.run(module, "shared")
    return module.get_int_attr("ttg.shared")


def _verifier_says(said: int) -> Refusal | None:
    """Return the words of MLIR's message, ``file:line:column: error: words``."""
    os.lseek(said, 0, os.SEEK_SET)
    text = os.read(said, 1 << 20).decode(errors="replace")
    found = re.search(r"^(.*):(\d+):\d+: error: (.*)$", text, re.MULTILINE)
    if not found:
        return None
    line = linecache.getline(found[1], int(found[2])).strip()
    return Refusal(wording.of_verifier(found[3], line), Site(int(found[2]), line))
