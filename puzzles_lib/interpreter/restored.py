"""Triton put back as it was, for those who let something else patch it."""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping

import triton
import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction

from puzzles_lib.interpreter.limits import undone_after_fork


@contextlib.contextmanager
def triton_restored(*more: object) -> Iterator[None]:
    """Whatever happens inside, Triton is afterwards as it was before; so are the attributes of ``more``."""
    kept = [(owner, dict(vars(owner))) for owner in (*patched(), *more)]
    rewritten = dict(stock.InterpretedFunction.rewritten_fn)
    depth = sys.getrecursionlimit()
    stock.InterpretedFunction.rewritten_fn.clear()

    def put_back() -> None:
        sys.setrecursionlimit(depth)
        for owner, attributes in kept:
            _put_back(owner, attributes)
        stock.InterpretedFunction.rewritten_fn.clear()
        stock.InterpretedFunction.rewritten_fn.update(rewritten)

    try:
        with undone_after_fork(put_back):
            yield
    finally:
        put_back()


def forget_interpreter(namespace: dict[str, object], names: Collection[str]) -> None:
    """Take out of a kernel's namespace, a notebook's, what Triton's interpreter has put there.

    names: those that stood there before. It copies all of its own module's names; what others have added
    in the meantime stays.
    """
    own = vars(stock)
    for name in own.keys() & namespace.keys() - names:
        if namespace[name] is own[name]:
            del namespace[name]


def patched() -> list[object]:
    """Modules, classes and objects of Triton that its own interpreter patches, and triton-viz."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[:2] == ["triton", "language"]]
    classes = [c for c in vars(stock).values() if isinstance(c, type) and c.__module__ == stock.__name__]
    others = [triton, JITFunction, tl.tensor, tl.core.tensor_descriptor_base]
    return [*modules, *classes, *others, stock, stock.interpreter_builder]


def _put_back(owner: object, attributes: Mapping[str, object]) -> None:
    for name, value in list(vars(owner).items()):
        if name not in attributes:
            delattr(owner, name)
        elif value is not attributes[name]:
            setattr(owner, name, attributes[name])
    for name in attributes.keys() - vars(owner).keys():
        setattr(owner, name, attributes[name])
