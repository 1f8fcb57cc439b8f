"""Catch the launches of Triton kernels in ordinary code, instead of sending them to a GPU.

While `caught` is active, `JITFunction.run` and `Autotuner.run` are replaced: ``kernel[grid](...)``,
``kernel.run(...)``, heuristics, hooks and library decorators all end there.
"""

import contextlib
import enum
import functools
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

import torch
import triton
from torch._library.triton import set_wrap_triton_enabled
from torch.utils._python_dispatch import _disable_current_modes
from triton.runtime import _allocation
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from puzzles_lib.auditor.compiled import writing_triton
from puzzles_lib.auditor.graphs import launching
from puzzles_lib.auditor.guard import MORE
from puzzles_lib.auditor.launch import Copies, Launch, NoAddress, Place, bind

_OWN = Path(__file__).parent
_TRITON = Path(triton.__file__).parent


class Ran(enum.Enum):
    """What came of a launch."""

    REFUSED = 0  # a GPU could not launch it: autotune tries another configuration
    IN_PART = 1  # results may be missing
    WHOLLY = 2


OnLaunch = Callable[[Launch], Ran]
"""Runs a launch."""

OnUntried = Callable[[Launch, str], None]
"""Gets a launch in a configuration of autotune for which no time is left, and a sentence that says so."""


class OnTuning(Protocol):
    """An observer of launches that autotune repeats.

    now: returns what it knows of the tensors, to go with a copy of them. back: called with that when they
    are restored. again: runs a launch that autotune repeats to measure it. differs: called if such a run
    has changed results.
    """

    def now(self) -> Any: ...
    def back(self, then: Any) -> None: ...
    def again(self, launch: Launch) -> Ran: ...
    def differs(self, kernel: str, name: str, place: Place | None) -> None: ...


class CannotLaunch(Exception):
    """A launch that a GPU would refuse, in a configuration of autotune."""


@contextlib.contextmanager
def caught(
    on_launch: OnLaunch,
    on_error: Callable[[str, Exception], None],
    all_configurations: bool = True,
    configuration: int | None = None,
    on_tuning: "OnTuning | None" = None,
    compiled: int = 0,
    on_untried: OnUntried | None = None,
    seconds: float = math.inf,
    twice: bool = False,
) -> Iterator[None]:
    """Hand each launch of the block to ``on_launch``.

    on_error: called with the kernel's name and the exception if a launch cannot be bound.
    all_configurations: run each configuration of `triton.autotune` once, instead of only the first that can
    be launched.
    configuration: run only the configuration with this number, counting those that autotune would try.
    twice: run an autotuned kernel a second time, on the tensors that the first run has changed. ``on_tuning``
    runs it.
    compiled: also catch kernels that `torch.compile` writes, whose blocks then have at most this many
    elements along an axis.
    seconds: CPU time of this thread for all configurations of one launch. The first is run in any case.
    on_untried: called with each launch for which no time is left.
    """
    catcher = _Catcher(on_launch, on_error, all_configurations, configuration, on_tuning, on_untried, seconds)
    catcher.twice = twice
    with one_thread():
        was = JITFunction.run, Autotuner.run, JITFunction.warmup, triton.testing.do_bench
        bench_graph = triton.testing.do_bench_cudagraph
        JITFunction.run, Autotuner.run, JITFunction.warmup = catcher.launches(), catcher.tunes(), _warmed_up
        if compiled:  # torch's compiler must not compile the audit
            JITFunction.run, Autotuner.run = map(torch.compiler.disable, (JITFunction.run, Autotuner.run))
        triton.testing.do_bench = triton.testing.do_bench_cudagraph = benched
        try:
            with contextlib.ExitStack() as stack:
                if not compiled:
                    stack.enter_context(set_wrap_triton_enabled(False))  # of `torch.library.triton_op`
                if compiled:
                    stack.enter_context(writing_triton(catcher.tuned, compiled))
                elif "torch._dynamo" in sys.modules:  # functions that were compiled before run as they are
                    stack.enter_context(torch.compiler.set_stance("force_eager"))
                yield
        finally:
            JITFunction.run, Autotuner.run, JITFunction.warmup, triton.testing.do_bench = was
            triton.testing.do_bench_cudagraph = bench_graph


MOST_RESTORED = 192 << 20  # bytes of tensors that are restored for each configuration of autotune
PATIENCE_S = 300.0  # that a thread waits for the audits of another one
_turn = threading.RLock()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let one thread at a time replace methods of Triton and torch, and restore them afterwards.

    Raises RuntimeError if another thread's audits take longer than `PATIENCE_S` seconds.
    """
    if not _turn.acquire(timeout=PATIENCE_S):
        raise RuntimeError(f"audit: another thread has been auditing for {PATIENCE_S:g} s: wait for it")
    try:
        yield
    finally:
        _turn.release()


class _Catcher:
    def __init__(
        self,
        on_launch: OnLaunch,
        on_error: Callable[[str, Exception], None],
        all_configurations: bool,
        chosen: int | None,
        on_tuning: "OnTuning | None",
        on_untried: OnUntried | None,
        seconds: float,
    ):
        self.on_launch, self.on_error, self.all_configurations = on_launch, on_error, all_configurations
        self.chosen, self.on_tuning, self.on_untried, self.seconds = chosen, on_tuning, on_untried, seconds
        self.configuration, self.configurations = "", 0
        self.tuning = self.twice = False
        self.ran_wholly = True

    def launches(self) -> Callable:
        def run(kernel: JITFunction, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            if warmup:
                return Compiled(kernel, kwargs)
            for hook in kernel.pre_run_hooks:
                hook(*args, **kwargs)
            again = functools.partial(kernel.run, *args, grid=grid, warmup=False, **kwargs)
            with launching(again, [*args, *kwargs.values()]), plain():
                try:
                    launch = bind(kernel, grid, args, kwargs, placed())
                    launch = replace(
                        launch, configuration=self.configuration, configurations=self.configurations
                    )
                except (TypeError, NoAddress):
                    raise
                except Exception as error:
                    self.ran_wholly = False
                    self.on_error(kernel.__name__, error)
                    return Compiled(kernel, kwargs)
                ran = self.on_launch(launch)
            self.ran_wholly &= ran is Ran.WHOLLY
            if ran is Ran.REFUSED and self.tuning:
                raise CannotLaunch(kernel.__name__)
            return Compiled(kernel, kwargs)

        return run

    def tunes(self) -> Callable:
        def run(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            again = functools.partial(tuner.run, *args, **kwargs)
            try:
                with launching(again, [*args, *kwargs.values()]):
                    return self._each(tuner, _pruned(tuner, kwargs), args, kwargs)
            finally:
                tuner.nargs = None
                self._end()

        return run

    def tuned(self, tuner: Any, args: tuple, kwargs: dict[str, Any], configs: list[Config]) -> None:
        """Launch a kernel that `torch.compile` has written."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            self._each(tuner, configs, args, kwargs)
        finally:
            self._end()

    def _end(self) -> None:
        self.configuration, self.configurations, self.tuning = "", 0, False

    def _each(self, tuner: Autotuner, configs: list[Config], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Launch configurations one after the other, each on the tensors as they were.

        In the end the tensors hold what one of them has left: one that ran wholly, if there is any.
        """
        chosen = kept = current = None
        whole = False
        tensors = {str(n): v for n, v in enumerate((*args, *kwargs.values())) if isinstance(v, torch.Tensor)}
        with plain():
            is_copied = len(configs) > 1 and _can_be_copied(tensors)
            before = self._moment(tensors) if is_copied else None
        after: _Moment | None = None
        left = list(enumerate(configs))
        if self.chosen is not None:
            left = left[self.chosen % len(left) :] + left[: self.chosen % len(left)]
        started = time.thread_time()
        while left and (chosen is None or time.thread_time() < started + self.seconds):
            number, config = left.pop(0)
            self._name(number, configs)
            self.tuning = len(configs) > 1
            first = chosen is None
            self.ran_wholly = True
            try:
                self._launch(tuner, config, args, kwargs)
            except CannotLaunch:
                current = None
            else:
                chosen, current = chosen or config, config
                if not self.all_configurations or self.chosen is not None:
                    return None
                if before is not None and (self.ran_wholly or not whole):
                    kept, whole = config, self.ran_wholly
                    with plain():
                        after = self._moment(tensors)
            if first and chosen is not None:
                took = time.thread_time() - started
                if took * (len(left) + 1) > self.seconds:
                    left = _most_different_first(left, config)
            if before is not None and left:
                self._restore(tensors, before)
        if left:
            self._untried(tuner, left, configs, args, kwargs)
            current = None
        if kept is not None and after is not None:
            if kept is not current:
                self._restore(tensors, after)
            if whole and self.chosen is None and before is not None:
                self._twice(tuner, kept, args, kwargs, tensors, before, after)
            tuner.best_config = kept
        if chosen is None:
            self.tuning = False
            return self._launch(tuner, configs[0], args, kwargs)
        return None

    def _moment(self, tensors: dict[str, torch.Tensor]) -> "_Moment":
        return _Moment(Copies(tensors), self.on_tuning.now() if self.on_tuning else None)

    def _restore(self, tensors: dict[str, torch.Tensor], moment: "_Moment") -> None:
        with plain():
            for name, tensor in moment.copies.kept().items():
                tensors[name].untyped_storage().copy_(tensor.untyped_storage())
        if self.on_tuning:
            self.on_tuning.back(moment.known)

    def _name(self, number: int, configs: list[Config]) -> None:
        """Note which configuration the next launch has, unless there is no other."""
        if len(configs) > 1:
            self.configuration = f"configuration {number + 1} of {len(configs)}: {_told(configs[number])}"
            self.configurations = len(configs)

    def _untried(
        self,
        tuner: Autotuner,
        left: list[tuple[int, Config]],
        configs: list[Config],
        args: tuple,
        kwargs: dict[str, Any],
    ) -> None:
        """Hand out the launches of the configurations for which no time is left."""
        why = (
            f"too large to judge: {len(left)} of {len(configs)} configurations of autotune; the others took "
            f"the {self.seconds:g} s of CPU time that all of them share; {MORE}"
        )
        launches = self.on_launch

        def untried(launch: Launch) -> Ran:
            if self.on_untried is not None:
                self.on_untried(launch, f"{launch.name}: {why}")
            return Ran.IN_PART

        self.on_launch = untried
        try:
            for number, config in sorted(left, key=lambda each: each[0]):
                self._name(number, configs)
                self._launch(tuner, config, args, kwargs)
        finally:
            self.on_launch = launches

    def _twice(
        self,
        tuner: Autotuner,
        config: Config,
        args: tuple,
        kwargs: dict[str, Any],
        tensors: dict[str, torch.Tensor],
        before: "_Moment",
        after: "_Moment",
    ) -> None:
        """Launch once more on what a launch has left, as autotune does to measure its configurations."""
        if self.on_tuning is None or not self.twice or tuner.user_defined_pre_hook:
            return
        names = dict(enumerate([*tuner.arg_names[: len(args)], *kwargs]))
        kept = {*tuner.restore_value, *tuner.reset_to_zero}
        told = {each: names.get(int(each), "a tensor") for each in tensors}
        was, left = before.copies.kept(), after.copies.kept()
        with plain():
            restored = {tensors[n].untyped_storage().data_ptr() for n in tensors if told[n] in kept}
            changed = [n for n in tensors if not alike(was[n], left[n])]
            changed = [n for n in changed if tensors[n].untyped_storage().data_ptr() not in restored]
        if not changed:
            return
        launches, self.on_launch = self.on_launch, self.on_tuning.again
        self.ran_wholly = True
        try:
            self._launch(tuner, config, args, kwargs)
        except CannotLaunch:
            pass
        finally:
            self.on_launch = launches
        with plain():
            other = [told[n] for n in changed if not alike(left[n], tensors[n])]
        self._restore(tensors, after)
        if other and self.ran_wholly:
            self.on_tuning.differs(tuner.base_fn.__name__, other[0], placed())

    def _launch(self, tuner: Autotuner, config: Config, args: tuple, kwargs: dict[str, Any]) -> Any:
        twice = kwargs.keys() & config.kwargs.keys()
        if twice and len(tuner.configs) > 1:
            told = "Make sure that you don't re-define auto-tuned symbols."  # as Triton does
            raise ValueError(f"Conflicting meta-parameters: {', '.join(sorted(twice))}. {told}")
        every = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(every)
        if len(tuner.configs) > 1:
            tuner.pre_hook(every)
        tuner.best_config = config
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


class _Moment(NamedTuple):
    """Tensors as they were, and what an observer knew of them."""

    copies: Copies
    known: Any


def _pruned(tuner: Autotuner, kwargs: dict[str, Any]) -> list[Config]:
    """The configurations that are worth a try. A model of the time that asks a GPU prunes none."""
    if len(tuner.configs) < 2:
        return tuner.configs
    model = tuner.perf_model
    try:
        return tuner.prune_configs(kwargs)
    except Exception:
        if model is None:
            raise
    tuner.perf_model = None
    try:
        return tuner.prune_configs(kwargs)
    finally:
        tuner.perf_model = model


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values, apart from rounding."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    one, other = one.double(), other.double()
    size = torch.where(one.isfinite(), one.abs(), 0.0)
    slack = 2e-3 * size + 2e-3 * (size.max() if size.numel() else 0.0)
    near = (one == other) | (one.isnan() & other.isnan()) | ((one - other).abs() <= slack)
    return bool(near.all())


def allocator_is_set() -> bool:
    """Return whether `triton.set_allocator` has been called. Without it, a launch that needs memory fails."""
    return _allocation._allocator.get() is not _allocation._NULL_ALLOCATOR


def _most_different_first(left: list[tuple[int, Config]], first: Config) -> list[tuple[int, Config]]:
    """Return configurations in an order of which any beginning is a good sample.

    Other constants come before other numbers of warps and stages, which matter less here. Neighbors in the
    list are alike, so the order jumps: the middle, the quarters, ...
    """
    seen = [first.kwargs]
    new: list[tuple[int, Config]] = []
    old: list[tuple[int, Config]] = []
    for number, config in (left[place] for place in spread(len(left))):
        (old if config.kwargs in seen else new).append((number, config))
        seen.append(config.kwargs)
    return new + old


def spread(count: int) -> list[int]:
    """Return the numbers below ``count``, so that any beginning is spread over all of them."""
    return sorted(range(count), key=lambda each: int(f"{each:0{count.bit_length()}b}"[::-1], 2))


def _told(config: Config) -> str:
    values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _can_be_copied(tensors: dict[str, torch.Tensor]) -> bool:
    """Whether tensors have memory, and not too much of it. Launches on larger ones store nothing here."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors.values()}
    return sum(storages.values()) <= MOST_RESTORED and all(t.device.type == "cpu" for t in tensors.values())


class Compiled:
    """A stand-in for a compiled kernel: it can be launched, but its number of registers etc. is made up."""

    n_regs, n_spills, n_max_threads, shared = 64, 0, 1024, 16 << 10
    function = module = 0

    def __init__(self, kernel: JITFunction, given: dict[str, Any]):
        self.kernel, self.given, self.name = kernel, given, kernel.__name__
        numbers = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, **given}
        self.metadata = SimpleNamespace(shared=self.shared, name=self.name, **numbers)
        self.asm = dict.fromkeys(("ttir", "ttgir", "llir", "ptx", "cubin"), "")

    def _init_handles(self) -> None:
        pass

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            placed = {parameter.name for parameter in self.kernel.params[: len(args)]}
            named = {name: value for name, value in self.given.items() if name not in placed}
            return self.kernel.run(*args, grid=grid, warmup=False, **{**named, **kwargs})

        return launch


def _warmed_up(kernel: JITFunction, *_: Any, grid: Any = None, **kwargs: Any) -> Compiled:
    """Nothing is compiled ahead: there is no GPU."""
    return Compiled(kernel, kwargs)


def benched(fn: Callable, *_: Any, quantiles: Any = None, return_mode: str = "mean", **__: Any) -> Any:
    """Run ``fn`` once instead of measuring it, and report 1 millisecond."""
    fn()
    if quantiles is not None:
        return [1.0] * len(quantiles) if len(quantiles) > 1 else 1.0
    return [1.0] if return_mode == "all" else 1.0


def placed() -> Place | None:
    """Return where the user's code has launched a kernel, or asked a tensor for a number."""
    frame: FrameType | None = sys._getframe(1)
    user: list[FrameType] = []  # the launch, and what has called it, up to the audited function
    while frame is not None:
        file = frame.f_code.co_filename
        path = Path(file)
        if user and path.is_relative_to(_OWN):
            caller = _of(user[-1]) if user[-1] is not user[0] else None
            return replace(_of(user[0]), caller=caller)
        if not (path.is_relative_to(_OWN) or path.is_relative_to(_TRITON) or "/torch/" in file):
            user.append(frame)
        frame = frame.f_back
    return _of(user[0]) if user else None


def _of(frame: FrameType) -> Place:
    """Return the place of the call that a frame is in."""
    positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    first, last = positions[0] or frame.f_lineno, positions[1] or frame.f_lineno
    return Place(frame.f_code.co_filename, first, last)


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Hide what is done in the block from torch's modes."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield
