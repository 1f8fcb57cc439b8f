"""Everything that a person reads keeps the house rules for English: `words.yml`, and short sentences."""

import ast
from functools import cache

import pytest

from tests import words

NOT_VERBS = {
    "A",
    "An",
    "From",
    "How",
    "In",
    "It",
    "Like",
    "Only",
    "So",
    "The",
    "This",
    "What",
    "Where",
    "Whether",
}


@pytest.mark.parametrize("rule", words.rules(), ids=lambda rule: rule.expected)
def test_a_rule_finds_what_it_replaces(rule):
    for before, after in rule.specs:
        assert rule.rewritten(before) == after
        assert rule.why in "".join(words.faults(before))


def test_a_long_sentence_is_found_and_code_is_not():
    long = "word " * 40
    assert list(words.faults(f"Short. {long}.")) == [f"40 words: {long[:70]}..."]
    assert not list(words.faults(f"A `{long}` and\n\n```\n{long}\n```\n\n    {long}\n| {long} |\n"))


def test_all_files_keep_the_rules():
    faults = [line for path in words.files() for line in words.found_in(path)]
    assert not faults, "\n".join(faults)


@cache
def public_docstrings():
    """Return place, first line and the rest of each public docstring in the library, and its node."""
    found = []
    for path in sorted((words.ROOT / "puzzles_lib").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        outer = [tree]
        while outer:
            node = outer.pop()
            if text := ast.get_docstring(node):
                first, _, rest = text.partition("\n")
                found.append(
                    (f"{path.relative_to(words.ROOT)}:{getattr(node, 'lineno', 1)}", first, rest, node)
                )
            outer += [
                each
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.ClassDef) and not each.name.startswith("_")
                if not isinstance(node, ast.FunctionDef)
            ]
    return found


def test_a_docstring_begins_with_a_line_of_its_own():
    assert not [
        f"{place} {first}" for place, first, rest, _ in public_docstrings() if rest.strip() == rest != ""
    ]


def test_a_functions_docstring_begins_with_a_verb():
    """A spec begins with its formula, and a property with what it is."""
    faults = []
    for place, first, _, node in public_docstrings():
        word = first.split()[0].rstrip(",")
        if not isinstance(node, ast.FunctionDef) or "[Tensor" in ast.unparse(node.args):
            continue
        if any("property" in ast.unparse(each) for each in node.decorator_list):
            continue
        if word in NOT_VERBS or (word.istitle() and word.endswith("s") and not word.endswith("ss")):
            faults.append(f"{place} {first}")
    assert not faults, "\n".join(faults)
