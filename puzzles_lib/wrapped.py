"""Find what `triton.autotune` and `triton.heuristics` would launch a kernel with.

This needs no GPU: a configuration is a table of constants, and a heuristic is a function of the launch's
arguments. Only which configuration is the fastest would have to be measured.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.jit import JITFunction

from puzzles_lib.runner import TimeLimitReached, time_limit
from puzzles_lib.source import Refusal

CALL_SECONDS = 2.0  # the time limit of a heuristic, or of a function that prunes configurations
LAUNCH = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")  # not parameters of kernels
_USUAL = {"num_stages": 3, "num_ctas": 1}  # fields of a triton.Config that are not shown

T = TypeVar("T")


@dataclass(frozen=True)
class Configuration:
    """The wrappers' values for one launch: values by parameter, and options such as ``num_warps``.

    As text: ``"configuration 2 of 3: BLOCK=64, num_warps=8"``; ``""`` if there is nothing to show.
    number: the number of autotune's configuration, from 0. count: how many there are.
    pre_hook: what autotune calls before each launch of this configuration.
    """

    number: int
    count: int
    values: Mapping[str, object]
    options: Mapping[str, int]
    pre_hook: Callable[[dict[str, object]], object] | None = None

    def prepare(self, arguments: Mapping[str, object]) -> Refusal | None:
        """Call the configuration's ``pre_hook``, as each launch does; return how it fails, if it does.

        arguments: by name. The hook may change the tensors, and the block shapes of descriptors.
        """
        hook = self.pre_hook
        if hook is None:
            return None
        found = called(lambda: hook({**arguments, **self.options}), "the pre_hook of a configuration")
        return found if isinstance(found, Refusal) else None

    def __str__(self) -> str:
        told = {n: v for n, v in self.options.items() if _USUAL.get(n) != v}
        parts = [f"{name}={value}" for name, value in {**self.values, **told}.items()]
        if self.count > 1:
            return f"configuration {self.number + 1} of {self.count}: {', '.join(parts)}"
        return f"with {', '.join(parts)}" if self.values else ""


@dataclass(frozen=True)
class Wrapped:
    """A kernel and its wrappers, the outermost first; a plain kernel has none.

    num_warps: what the launch asks for by itself; 0 if it leaves that to the wrappers or to Triton.
    """

    kernel: JITFunction
    layers: tuple[Autotuner | Heuristics, ...] = ()
    num_warps: int = 0

    @property
    def autotuner(self) -> Autotuner | None:
        return next((layer for layer in self.layers if isinstance(layer, Autotuner)), None)

    @property
    def count(self) -> int:
        """The number of configurations."""
        return len(self.autotuner.configs) if self.autotuner else 1

    @property
    def gives(self) -> frozenset[str]:
        """The names that the wrappers set."""
        configs = self.autotuner.configs if self.autotuner else []
        names = {name for config in configs for name in config.kwargs}
        heuristics = [layer.values for layer in self.layers if isinstance(layer, Heuristics)]
        return frozenset(names.union(*heuristics))

    @property
    def has_heuristics(self) -> bool:
        """Return whether a heuristic sets something."""
        return any(isinstance(layer, Heuristics) for layer in self.layers)

    def unfit(self, fixed: Collection[str]) -> str:
        """Return why no launch can work; "" if one may. fixed: the names that only the puzzle sets."""
        if sum(isinstance(layer, Autotuner) for layer in self.layers) > 1:
            return "the kernel has two triton.autotune decorators: keep one"
        parameters = {parameter.name for parameter in self.kernel.params}
        for name in sorted(self.gives - set(LAUNCH)):
            if name not in parameters:
                return f"{self._source(name)} sets {name}, which is not a parameter of the kernel"
            if name in fixed:
                return f"{self._source(name)} sets {name}, but the puzzle sets it"
        for config in self.autotuner.configs if self.autotuner else ():
            warps = config.num_warps
            if type(warps) is not int or warps < 1 or warps & (warps - 1):
                return f"a configuration has num_warps={warps!r}, but it must be a power of 2"
        if self.autotuner:
            for option in ("keys", "reset_to_zero", "restore_value"):
                names = getattr(self.autotuner, option)
                if (text := "".join(map(str, names))) not in list(names) and text in parameters:
                    told = f'autotune\'s {option.replace("keys", "key")} must be a list, such as ["{text}"]'
                    return f'{told}, but is the text "{text}"'
                for name in names if option != "keys" else ():
                    if name not in parameters:
                        return f"autotune's {option} names {name}, which is not a parameter of the kernel"
        return ""

    def twice(self, args: Sequence[object], kwargs: Collection[str]) -> str:
        """Return the name of what a launch passes although the wrappers set it; "" if there is none.

        Triton 3.7 fails there, with one exception: a heuristic replaces what is passed by name.
        """
        configs = self.autotuner.configs if self.autotuner else []
        tuned = {
            name for config in configs for name, value in config.all_kwargs().items() if value is not None
        }
        by_place = {parameter.name for parameter in self.kernel.params[: len(args)]}
        return min((by_place & self.gives) | (set(kwargs) & tuned), default="")

    def configuration(self, number: int, given: Mapping[str, object]) -> Configuration | Refusal | None:
        """Return the wrappers' values for a launch with these arguments; None if autotune would prune it.

        given: the launch's arguments by name, without the wrappers' values.
        """
        values: dict[str, object] = {}
        hook = None
        for layer in self.layers:
            if isinstance(layer, Autotuner):
                config = layer.configs[number]
                hook = config.pre_hook
                kept = self._kept(layer, {**given, **values})
                if isinstance(kept, Refusal):
                    return kept
                if config not in kept:
                    return None
                own = {name: value for name, value in config.all_kwargs().items() if value is not None}
                if twice := sorted(values.keys() & own.keys()):
                    return _refusal(f"both a heuristic around autotune and a configuration set {twice[0]}")
                values |= own
                continue
            for name, heuristic in layer.values.items():
                value = called(lambda: heuristic({**given, **values}), f"the heuristic for {name}")  # noqa: B023
                if isinstance(value, Refusal):
                    return value
                values[name] = value
        for name, value in values.items():
            if not isinstance(value, int | float | str | tl.dtype | None):
                what = type(value).__name__
                return _refusal(f"{self._source(name)} sets {name} to a {what}, but only numbers are allowed")
        options: dict[str, Any] = {name: values.pop(name) for name in LAUNCH if name in values}
        return Configuration(number, self.count, values, options, hook)

    def _kept(self, tuner: Autotuner, arguments: Mapping[str, object]) -> list[Config] | Refusal:
        """Return the configurations that autotune would try, without asking its performance model.

        It prunes only if there are several.
        """
        if tuner.early_config_prune is None or len(tuner.configs) < 2:
            return tuner.configs
        prune = tuner.early_config_prune
        found = called(lambda: prune(tuner.configs, dict(arguments), **arguments), "early_config_prune")
        if found is None:
            return _refusal("early_config_prune must return a list of configurations, but returns None")
        return found if isinstance(found, Refusal) else list(found)

    def _source(self, name: str) -> str:
        heuristics = (layer for layer in self.layers if isinstance(layer, Heuristics))
        return "a heuristic" if any(name in layer.values for layer in heuristics) else "a configuration"


def unwrap(kernel: Any) -> Wrapped | None:
    """Return a ``@triton.jit`` function with its wrappers; None for anything else."""
    layers = []
    while isinstance(kernel, Autotuner | Heuristics):
        layers.append(kernel)
        kernel = kernel.fn
    if type(kernel).__name__ == "InterpretedFunction":  # TRITON_INTERPRET has been set since
        kernel = JITFunction(kernel.fn)
    return Wrapped(kernel, tuple(layers)) if isinstance(kernel, JITFunction) else None


def called(function: Callable[[], T], what: str) -> T | Refusal:
    """Return the result of a learner's function, or how it fails."""
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
    """Return whether autotune or heuristics wrap the kernel."""
    return isinstance(kernel, Autotuner | Heuristics)
