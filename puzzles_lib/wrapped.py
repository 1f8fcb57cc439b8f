"""Kernels within `triton.autotune` and `triton.heuristics`: what these would launch them with.

Neither needs a GPU for that: a configuration is a table of constants, a heuristic a function of the
launch's arguments. Only which configuration is the fastest would have to be measured.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.jit import JITFunction

from puzzles_lib.runner import TimeLimitReached, time_limit
from puzzles_lib.source import Refusal

CALL_SECONDS = 2.0  # that a heuristic, or what prunes configurations, may take
LAUNCH = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")  # are no parameters of kernels
_USUAL = {"num_stages": 3, "num_ctas": 1}  # of a triton.Config, and not worth a word

T = TypeVar("T")


@dataclass(frozen=True)
class Configuration:
    """What the wrappers give to one launch: values by parameter, and options such as ``num_warps``.

    As text: ``"configuration 2 of 3: BLOCK=64, num_warps=8"``; ``""`` where there is nothing to tell.
    number: which of autotune's configurations, from 0; count: how many there are.
    """

    number: int
    count: int
    values: Mapping[str, object]
    options: Mapping[str, int]

    def __str__(self) -> str:
        told = {n: v for n, v in self.options.items() if _USUAL.get(n) != v}
        parts = [f"{name}={value}" for name, value in {**self.values, **told}.items()]
        if self.count > 1:
            return f"configuration {self.number + 1} of {self.count}: {', '.join(parts)}"
        return f"with {', '.join(parts)}" if self.values else ""


@dataclass(frozen=True)
class Wrapped:
    """A kernel and what is around it, the outermost first; nothing, for a plain one."""

    kernel: JITFunction
    layers: tuple[Autotuner | Heuristics, ...] = ()

    @property
    def autotuner(self) -> Autotuner | None:
        return next((layer for layer in self.layers if isinstance(layer, Autotuner)), None)

    @property
    def count(self) -> int:
        """How many configurations there are."""
        return len(self.autotuner.configs) if self.autotuner else 1

    @property
    def gives(self) -> frozenset[str]:
        """The names that the wrappers have values for."""
        configs = self.autotuner.configs if self.autotuner else []
        names = {name for config in configs for name in config.kwargs}
        heuristics = [layer.values for layer in self.layers if isinstance(layer, Heuristics)]
        return frozenset(names.union(*heuristics))

    def unfit(self, fixed: Collection[str]) -> str:
        """Why no launch can work; "" where it may. fixed: names that the puzzle alone has values for."""
        if sum(isinstance(layer, Autotuner) for layer in self.layers) > 1:
            return "two triton.autotune are around one kernel: keep one"
        parameters = {parameter.name for parameter in self.kernel.params}
        for name in sorted(self.gives - set(LAUNCH)):
            if name not in parameters:
                return f"{self._source(name)} gives {name}, which is no parameter of the kernel"
            if name in fixed:
                return f"{self._source(name)} gives {name}, which is the puzzle's to say"
        if self.autotuner:
            if any(config.pre_hook for config in self.autotuner.configs):
                return "a configuration has a pre_hook, which the course does not run: leave it out"
            for option in ("reset_to_zero", "restore_value"):
                for name in getattr(self.autotuner, option):
                    if name not in parameters:
                        return f"autotune's {option} names {name}, which is no parameter of the kernel"
        return ""

    def configuration(self, number: int, given: Mapping[str, object]) -> Configuration | Refusal | None:
        """What the wrappers give to a launch with these arguments; None where autotune would prune it.

        given: the launch's arguments by name, without what the wrappers give.
        """
        values: dict[str, object] = {}
        for layer in self.layers:
            if isinstance(layer, Autotuner):
                config = layer.configs[number]
                kept = self._kept(layer, {**given, **values})
                if isinstance(kept, Refusal):
                    return kept
                if config not in kept:
                    return None
                if twice := sorted(values.keys() & config.kwargs.keys()):
                    return _refusal(f"a heuristic around autotune gives {twice[0]}, and a configuration, too")
                values |= {n: v for n, v in config.all_kwargs().items() if v is not None}
                continue
            for name, heuristic in layer.values.items():
                value = _called(lambda: heuristic({**given, **values}), f"the heuristic for {name}")  # noqa: B023
                if isinstance(value, Refusal):
                    return value
                values[name] = value
        for name, value in values.items():
            if not isinstance(value, int | float | str | tl.dtype | None):
                what = type(value).__name__
                return _refusal(f"{self._source(name)} gives {name} a {what}, allowed are numbers")
        options = {name: values.pop(name) for name in LAUNCH if name in values}
        return Configuration(number, self.count, values, options)

    def _kept(self, tuner: Autotuner, arguments: Mapping[str, object]) -> list[Config] | Refusal:
        """The configurations that autotune would try. Its model of which is fast is not asked."""
        if tuner.early_config_prune is None:
            return tuner.configs
        prune = tuner.early_config_prune
        return _called(lambda: list(prune(tuner.configs, dict(arguments), **arguments)), "early_config_prune")

    def _source(self, name: str) -> str:
        heuristics = (layer for layer in self.layers if isinstance(layer, Heuristics))
        return "a heuristic" if any(name in layer.values for layer in heuristics) else "a configuration"


def unwrap(kernel: object) -> Wrapped | None:
    """A ``@triton.jit`` function with what is around it; None for anything else."""
    layers = []
    while isinstance(kernel, Autotuner | Heuristics):
        layers.append(kernel)
        kernel = kernel.fn
    if type(kernel).__name__ == "InterpretedFunction":  # TRITON_INTERPRET has been set since
        kernel = JITFunction(kernel.fn)
    return Wrapped(kernel, tuple(layers)) if isinstance(kernel, JITFunction) else None


def _called(function: Callable[[], T], what: str) -> T | Refusal:
    """What a function of the learner's returns, or how it fails."""
    try:
        with time_limit(CALL_SECONDS, inside=function):
            return function()
    except TimeLimitReached:
        return _refusal(f"{what} takes more than {CALL_SECONDS:g} s")
    except (Exception, SystemExit) as error:
        words = " ".join(str(error).split())[:120]
        return _refusal(f"{what} raises {type(error).__name__}{': ' * bool(words)}{words}")


def _refusal(message: str) -> Refusal:
    return Refusal(message, kind="signature")


def is_wrapped(kernel: object) -> bool:
    """Whether autotune or heuristics are around it."""
    return isinstance(kernel, Autotuner | Heuristics)
