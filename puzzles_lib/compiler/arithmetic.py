"""Find the lines whose compiled code computes something else than the line says: see `runner.arithmetic`."""

import linecache
from collections.abc import Mapping
from dataclasses import dataclass

from triton.runtime.jit import JITFunction

from puzzles_lib.compiler.frontend import translate
from puzzles_lib.compiler.locations import read
from puzzles_lib.compiler.lowering import build
from puzzles_lib.source import Refusal, Site
from puzzles_lib.translator.targets import Target


@dataclass(frozen=True)
class Steps:
    """Lines. fused: whose product and sum are one instruction. in_tf32: with a dot in TF32."""

    kernel: JITFunction
    fused: frozenset[int | None]
    in_tf32: frozenset[int | None]

    def has(self, lines: frozenset[int | None], site: Site) -> bool:
        """Return whether a line is one of these; for a line of another file, whether there are any."""
        own = linecache.getline(self.kernel.fn.__code__.co_filename, site.line).strip() == site.source
        return site.line in lines if own else bool(lines)


def steps(
    kernel: JITFunction, arguments: Mapping[str, object], target: Target, num_warps: int
) -> Steps | Refusal:
    """Return which sums of products are fused or in TF32; a Refusal if the kernel doesn't compile to PTX.

    arguments: as for `front_end`. This takes half a second of CPU time; the result is kept on disk.
    """
    translation = translate(kernel, arguments, target, num_warps=num_warps)
    if isinstance(translation, Refusal):
        return translation
    built = build(translation)
    if "ptx" not in built.texts:
        return built.refusal or Refusal("there is no PTX of it")

    def having(words: str, stage: str) -> frozenset[int | None]:
        lines = read(stage, built.texts[stage], translation.above)
        return frozenset(line.source for line in lines if words in line.text)

    return Steps(kernel, having("fma.rn", "ptx"), having("inputPrecision = tf32", "ttir"))
