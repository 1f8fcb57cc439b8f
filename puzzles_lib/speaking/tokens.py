"""Text to tokens and back, by byte pairs, as GPT-2 and SmolLM2 do it.

A text is cut into words. A word begins as its bytes. Then the pair of neighbors that comes first in the list
of merges becomes one token, again and again. Method: Sennrich, Haddow and Birch, *Neural Machine Translation
of Rare Words with Subword Units* (ACL, 2016).
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property

_SHORT = re.compile("'(?:s|t|re|ve|m|ll|d)")
# L, N: letters and numbers; W: white space other than a blank; O: everything else
_WORD = re.compile(" ?L+|N| ?O+|[ W]+(?![LO])|[ W]")


def _visible() -> dict[int, str]:
    """Return the character that stands for each byte in a list of tokens."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in plain)
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}


VISIBLE = _visible()
_BYTE = {character: byte for byte, character in VISIBLE.items()}


class Tokens:
    """A model's list of tokens, and its merges in order, each ``"left right"``."""

    def __init__(self, names: Sequence[str], merges: Sequence[str]):
        self.names, self._merges = names, merges
        self._words: dict[str, list[int]] = {}

    @cached_property
    def number(self) -> dict[str, int]:
        """A token's number by its name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _rank(self) -> dict[str, int]:
        return {merge: rank for rank, merge in enumerate(self._merges)}

    def encode(self, text: str) -> list[int]:
        """Return the tokens' numbers. What looks like a special token is text, too."""
        return [number for word in words(text) for number in self._encoded(word)]

    def bytes(self, number: int) -> bytes:
        """Return what a token stands for. Of a special token, that's its name."""
        name = self.names[number]
        return bytes(_BYTE[c] for c in name) if all(c in _BYTE for c in name) else name.encode()

    def _encoded(self, word: str) -> list[int]:
        if word not in self._words:
            parts = [VISIBLE[byte] for byte in word.encode()]
            while pairs := [f"{a} {b}" for a, b in zip(parts, parts[1:], strict=False)]:
                best = min(pairs, key=lambda pair: self._rank.get(pair, len(self._rank)))
                if best not in self._rank:
                    break
                parts = _merged(parts, best)
            self._words[word] = [self.number[part] for part in parts]
        return self._words[word]


def _merged(parts: list[str], pair: str) -> list[str]:
    """Return the parts with each ``pair`` of neighbors, from the left, as one."""
    found, place = [], 0
    while place < len(parts):
        both = f"{parts[place]} {parts[place + 1]}" if place + 1 < len(parts) else ""
        found.append(both.replace(" ", "") if both == pair else parts[place])
        place += 2 if both == pair else 1
    return found


def words(text: str) -> list[str]:
    """Cut a text into words: letters, single digits, and the rest. The words joined are the text.

    A blank before letters, or before the rest, is part of their word.
    """
    kinds = "".join(_kind(character) for character in text)
    found, place = [], 0
    while place < len(text):
        match = _SHORT.match(text, place) or _WORD.match(kinds, place)
        assert match, place
        found.append(text[place : match.end()])
        place = match.end()
    return found


def _kind(character: str) -> str:
    if character == " ":
        return " "
    if character.isspace():
        return "W"
    kind = unicodedata.category(character)[0]
    return kind if kind in "LN" else "O"
