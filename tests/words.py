"""Finds sentences that break the house rules for English: ``python -m tests.words`` lists them.

The rules are in `words.yml`; besides them, a sentence has at most `MOST_WORDS` words.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
RULES = Path(__file__).with_name("words.yml")
MOST_WORDS = 30


@dataclass(frozen=True)
class Rule:
    """A habit: a pattern, what to write instead, and why. specs: (text, rewritten text)."""

    pattern: re.Pattern
    expected: str
    why: str
    specs: tuple[tuple[str, str], ...]

    def rewritten(self, text: str) -> str:
        """Return the text with what to write instead."""
        return self.pattern.sub(self.template, text)

    @property
    def template(self) -> str:
        """What to write instead, in Python's notation."""
        return re.sub(r"\$(\d)", r"\\\1", self.expected)


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of `words.yml`."""
    found = []
    for rule in yaml.safe_load(RULES.read_text("utf-8"))["rules"]:
        _, pattern, flags = rule["pattern"][0], *rule["pattern"][1:].rsplit("/", 1)
        options = sum({"i": re.IGNORECASE, "m": re.MULTILINE}[flag] for flag in flags)
        specs = tuple((spec["from"], spec["to"]) for spec in rule.get("specs", ()))
        found.append(Rule(re.compile(pattern, options), rule["expected"], rule["prh"], specs))
    return tuple(found)


def faults(text: str) -> Iterator[str]:
    """Yield what is wrong with a text in Markdown."""
    prose = without_code(text)
    for rule in rules():
        for found in rule.pattern.finditer(prose):
            instead = found.expand(rule.template).strip()
            yield f'"{found[0].strip()}" -> "{instead}": {rule.why}'
    for sentence in sentences(prose):
        count = len(re.findall(r"[\w'’-]+", sentence))
        if count > MOST_WORDS:
            yield f"{count} words: {' '.join(sentence.split())[:70]}..."


def without_code(text: str) -> str:
    """Return Markdown without code, formulas, tables and addresses, which all become one word."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(?: {4,}|\t).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"``.*?``|`[^`\n]*`|\$[^$\n]*\$", " code ", text)
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    return re.sub(r"<[^>\n]*>|https?://\S+", "", text)


def sentences(prose: str) -> Iterator[str]:
    """Yield the sentences of a text: a paragraph or an item of a list ends one, too."""
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>#]|\d+\.) )|\n(?=\w+: )", prose):
        yield from re.split(r"(?<=[.!?:])[\"'”)*]*\s+", part)


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each text that a person reads in a file, with its place."""
    if path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
            if cell["cell_type"] == "markdown":
                yield f"cell {number}", "".join(cell["source"])
    elif path.suffix == ".md":
        yield "", re.sub("^fits: .*$", "", path.read_text("utf-8"), flags=re.MULTILINE)  # not shown
    else:
        yield from _of_source(path.read_text("utf-8"))


def _of_source(source: str) -> Iterator[tuple[str, str]]:
    """Yield docstrings, messages and comments of Python. Values in a message become one word each."""
    nodes = list(ast.walk(ast.parse(source)))
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "code" for part in node.values)
            text = "".join(map(str, parts))
            if not _is_code(text):
                yield f"line {node.lineno}", text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
            if id(node) in documents:
                yield f"line {node.lineno}", _dedented(text)
            elif len(re.findall(r"[a-z]{2,}", text)) > 2 and " " in text.strip() and not _is_code(text):
                yield f"line {node.lineno}", text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield f"line {token.start[0]}", token.string.lstrip("# ")


def _is_code(text: str) -> bool:
    """Return whether a string is HTML, CSS, JavaScript or a pattern, not a message."""
    return bool(re.search(r"</?\w|\w\{|=>|\(\?[:<=!P]|\[\^", text))


def _dedented(text: str) -> str:
    """Return a docstring without its indentation; what is indented further is code, or goes on a line."""
    first, *rest = text.splitlines() or [""]
    least = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    lines = [first, *(line[least:] for line in rest)]
    # an indented line after one that isn't blank continues it
    for number in range(1, len(lines)):
        if lines[number].startswith("    ") and lines[number - 1].strip():
            before = lines[number - 1]
            if not before.startswith("    "):
                lines[number] = lines[number].strip()
    return "\n".join(lines)


def files() -> list[Path]:
    """Return all files whose English is checked."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("solutions/*.ipynb"), *ROOT.glob("puzzles_lib/chapters/*/*.md")]
    return sorted([*found, *(ROOT / "puzzles_lib").rglob("*.py")])


def found_in(path: Path) -> Iterator[str]:
    """Yield the faults of a file, each with its place."""
    for place, text in texts(path):
        for fault in faults(text):
            yield f"{path.relative_to(ROOT)} {place}: {fault}"


if __name__ == "__main__":
    wanted = [Path(name).resolve() for name in sys.argv[1:]] or files()
    print("\n".join(line for path in wanted for line in found_in(path)))
