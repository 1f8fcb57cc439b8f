"""Everything that a person reads keeps the house rules for English: `words.yml`, and short sentences."""

import pytest

from tests import words

FILES = {str(path.relative_to(words.ROOT)): path for path in words.files()}


@pytest.mark.parametrize("rule", words.rules(), ids=lambda rule: rule.expected)
def test_a_rule_finds_what_it_replaces(rule):
    for before, after in rule.specs:
        assert rule.rewritten(before) == after
        assert rule.why in "".join(words.faults(before))


def test_a_long_sentence_is_found_and_code_is_not():
    long = "word " * 40
    assert list(words.faults(f"Short. {long}.")) == [f"40 words: {long[:70]}..."]
    assert not list(words.faults(f"A `{long}` and\n\n```\n{long}\n```\n\n    {long}\n| {long} |\n"))


def test_all_files_but_the_exempt_ones_keep_the_rules():
    faults = [
        line for name, path in FILES.items() if name not in words.exempt() for line in words.found_in(path)
    ]
    assert not faults, "\n".join(faults)


def test_an_exempt_file_still_needs_it():
    kept = [name for name in words.exempt() if name not in FILES or not any(words.found_in(FILES[name]))]
    assert not kept, f"these can leave tests/words_exempt.yml: {kept}"
