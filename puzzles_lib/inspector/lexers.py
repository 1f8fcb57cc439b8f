"""Highlight stages: Pygments lexers for languages that Pygments lacks, and tokens as short HTML.

The colors are in the style sheet of `puzzles_lib.inspector.page`. Without it (on GitHub, or in an output that
JupyterLab does not trust yet) ``<b>`` is still bold and ``<i>`` italic.
"""

import functools
import html
from collections.abc import Iterator

from pygments.lexer import Lexer, RegexLexer, bygroups
from pygments.lexers.asm import LlvmLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text, _TokenType


class MlirLexer(RegexLexer):
    """MLIR as Triton prints it: operations, types, attributes."""

    name = "MLIR"
    tokens = {
        "root": [
            (r"//.*", Comment),
            (r'"(?:[^"\\\n]|\\.)*"', String),
            (r"%[\w$.#-]+", Name.Variable),
            (r"@[\w$.-]+", Name.Function),
            (r"\^\w+", Name.Label),
            (r"#[\w.]+", Name.Decorator),
            (r"![\w.]+|\b(?:tensor|vector|index|none|b?f(?:16|32|64|8\w*)|tf32|u?i\d+)\b", Keyword.Type),
            (r"(\d+x)+", Number),
            (r"-?\b(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\b", Number),
            (r"\b[a-z]\w*(?:\.\w+)+\b|\b(?:module|attributes)\b", Keyword),
            (r"\w+|\s+|.", Text),
        ]
    }


class AssemblyLexer(RegexLexer):
    """PTX, SASS and AMD's assembly: the instruction and its parts."""

    name = "GPU assembly"
    tokens = {
        "root": [
            (r"//.*|;[ \t].*", Comment),
            (r'"(?:[^"\\\n]|\\.)*"', String),
            (r"^[$.\w]+:", Name.Label),
            (r"^([ \t]*)(\.\w+)", bygroups(Text, Name.Decorator)),
            (  # an address (SASS only), a predicate, the instruction
                r"^([0-9a-f]{4,}[ ]+)?([ ]*)(@!?%?\w+[ ]+)?([A-Za-z][\w.:]*)",
                bygroups(Comment, Text, Name.Decorator, Keyword),
            ),
            (r"\.(?:param|reg|b|u|s|f|global|shared|align|ptr|pred)(?:8|16|32|64)?\b", Keyword.Type),
            (r"\w+|[ \t]+|\n|.", Text),
        ]
    }


_LEXERS: dict[str, type[Lexer]] = {
    "python": PythonLexer,
    "ttir": MlirLexer,
    "ttgir": MlirLexer,
    "llir": LlvmLexer,
    "ptx": AssemblyLexer,
    "amdgcn": AssemblyLexer,
    "sass": AssemblyLexer,
}
# The most specific first. Everything else has the text's color, so that the HTML in a notebook stays small.
_TAGS: tuple[tuple[_TokenType, str, str], ...] = (
    (Comment, "<i>", "</i>"),
    (Keyword.Type, "<bdi>", "</bdi>"),
    (Name.Decorator, "<bdi>", "</bdi>"),
    (Keyword, "<b>", "</b>"),
    (Operator.Word, "<b>", "</b>"),
    (String, "<em>", "</em>"),
)


@functools.cache
def _lexer(language: str) -> Lexer:
    return _LEXERS[language](stripnl=False, ensurenl=False)


def highlight(lines: list[str], language: str) -> list[str]:
    """Return each line as HTML. language: ``"python"`` or the name of a stage."""
    if not lines:
        return []
    done: list[str] = []
    current: list[str] = []
    for kind, text in _merged(_lexer(language).get_tokens("\n".join(lines))):
        opening, closing = next(((o, c) for t, o, c in _TAGS if kind in t), ("", ""))
        for number, piece in enumerate(text.split("\n")):
            if number:
                done.append("".join(current))
                current = []
            escaped = html.escape(piece, quote=False)
            current.append(f"{opening}{escaped}{closing}" if piece.strip() else escaped)
    return [*done, "".join(current)]


def _merged(tokens: Iterator[tuple[_TokenType, str]]) -> Iterator[tuple[_TokenType, str]]:
    """Return the tokens with neighbors of the same look joined."""
    before, held = Text, ""
    for kind, text in tokens:
        look = next((t for t, _, _ in _TAGS if kind in t), Text)
        if look is before:
            held += text
        else:
            if held:
                yield before, held
            before, held = look, text
    if held:
        yield before, held
