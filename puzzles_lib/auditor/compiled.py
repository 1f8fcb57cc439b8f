"""Audit the kernels that `torch.compile` writes, on a machine without a GPU.

TorchInductor can write Triton for tensors on the CPU, but has no backend to run it with. Here its launches
go to the audit. Its blocks are made smaller, because a small tensor is otherwise one program, in which no
race between programs can show.
"""

import contextlib
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from triton.runtime.autotuner import Config

LARGEST_BLOCK = 16  # along an axis
_BLOCK = re.compile(r"[XYZ]BLOCK|R\d*_?BLOCK")


@contextlib.contextmanager
def writing_triton(launch: Callable[..., Any], largest_block: int = LARGEST_BLOCK) -> Iterator[None]:
    """Have `torch.compile` write Triton for CPU tensors, and hand each launch to ``launch``.

    launch: called with a stand-in for an autotuned kernel, the launch's arguments, and its configurations.
    Code that was compiled before the block is compiled again within it, and once more after it.

    Raises RuntimeError if Inductor can't write Triton for the code.
    """
    import torch._dynamo  # seconds, so only here
    import torch._inductor.config
    import torch._inductor.exc
    from torch._inductor.runtime import triton_heuristics as heuristics

    def run(tuner: Any, *args: Any, stream: object = None, benchmark_run: bool = False, **kwargs: Any) -> Any:
        constants = tuner.triton_meta.get("constants", {})
        for parameter in tuner.fn.params:  # Inductor says itself which arguments of 1 are constants
            parameter.do_not_specialize = parameter.name not in constants and not parameter.is_constexpr
        configs = tuner.configs
        if tuner.heuristic_type != heuristics.HeuristicType.USER_AUTOTUNE:  # not a kernel of the user's
            configs = list({str(c): c for c in (_capped(each, largest_block) for each in configs)}.values())
        tuned = _Tuned(tuner.fn, configs)
        names = [each.name for each in tuner.fn.params if not each.is_constexpr]
        extra = dict(zip(tuner.inductor_meta.get("extra_launcher_args", ()), args[len(names) :], strict=True))
        given = {**constants, **dict(zip(names, args, strict=False)), **kwargs}

        def grid(meta: dict[str, Any]) -> tuple[int, ...]:
            options = tuned.best_config.all_kwargs() if tuned.best_config else {}
            known = {**meta, **options, **extra}
            return tuple(heuristics.GridExpr.from_meta(tuner.inductor_meta, known).eval_slow(known))

        return launch(tuned, (), {**given, "grid": grid}, configs)

    settings = {
        "cpu_backend": "triton",
        "force_disable_caches": True,
        "compile_threads": 1,
    }
    torch._dynamo.reset()
    try:
        with (
            torch._inductor.config.patch(settings),
            mock.patch.object(heuristics.CachingAutotuner, "precompile", lambda *_, **__: None),
            mock.patch.object(heuristics.CachingAutotuner, "run", run),
        ):
            yield
    except torch._inductor.exc.InductorError as error:
        raise RuntimeError(f"audited: {_in_words(error)}") from None
    finally:
        torch._dynamo.reset()


def _in_words(error: Exception) -> str:
    """Say why `torch.compile` wrote no Triton for the code, and what to do."""
    if "CppTemplate" in str(error):
        return (
            "on the CPU, torch.compile writes C++ instead of Triton for some operators, such as "
            "flex_attention, so they can't be audited: exclude them, for example with "
            "torch.compiler.disable(flex_attention), and the rest is audited"
        )
    words = textwrap.shorten(str(error), 300, placeholder=" ...")
    return f"torch.compile can't write Triton for this code on the CPU ({words}): compile less of it"


class _Tuned:
    """What `triton.autotune` would have made of one of Inductor's kernels."""

    perf_model = early_config_prune = None
    restore_value = reset_to_zero = ()
    user_defined_pre_hook = True  # Inductor restores what it changes by itself

    def __init__(self, kernel: Any, configs: list[Config]):
        self.fn = self.base_fn = kernel
        self.configs, self.arg_names = configs, kernel.arg_names
        self.nargs: dict[str, Any] = {}
        self.best_config: Config | None = None

    def pre_hook(self, *_: object, **__: object) -> None:
        """Do nothing before a launch."""


def _capped(config: Config, largest: int) -> Config:
    """Return a configuration whose blocks have at most that many elements along an axis."""
    values = {
        name: min(value, largest) if _BLOCK.fullmatch(name) else value
        for name, value in config.kwargs.items()
    }
    return Config(values, num_warps=config.num_warps, num_stages=config.num_stages)
