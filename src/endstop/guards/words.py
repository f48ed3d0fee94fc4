"""Words of a command line, of which parts may only be known while it runs, and patterns that they are compared with.

A word is text in which three marks stand for what cannot be told. A pattern is a list of words; ``*`` alone stands for any
number of words, inside a word for any characters. Two questions are asked of both: does the pattern match whatever the marks
turn into (``always``), and can it match at all (``may``)?
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise, product

PART = "\ue000"
"""Any text inside one word: what a quoted expansion gives."""
MANY = "\ue001"
"""Any text, also none and also several words: what an expansion without quotes gives."""
GLOB = "\ue002"
"""The names that ``*``, ``?`` or ``[…]`` find: several words too, but known to be files."""
OPEN, COMMA, CLOSE, GAP = "\ue003", "\ue004", "\ue005", "\ue006"
LEFT, RIGHT = "\ue007", "\ue008"
"""Braces and the comma between alternatives, where a value falls apart into words, brackets: only while a word is read."""
RESERVED = re.compile("[\ue000-\ue00f]")
MARKS = frozenset((PART, MANY, GLOB))
_COMPUTED = re.compile(f"[{PART}{MANY}]")
_SEVERAL = re.compile(f"[{MANY}{GLOB}]")
_BRACKETS = re.compile(f"{LEFT}[^{LEFT}{RIGHT}/]+{RIGHT}")
_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
_MOST = 64  # words that one with braces becomes
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL)


def computed(word: str) -> bool:
    """Whether part of a word comes from an expansion."""
    return bool(_COMPUTED.search(word))


def known(word: str) -> bool:
    """Whether every character of a word is known."""
    return MARKS.isdisjoint(word)


def blank(word: str) -> bool:
    """Whether no character of a word is known."""
    return MARKS.issuperset(word) and bool(word)


def unescape(text: str) -> str:
    """What ``$'text'`` means."""
    text = _ESCAPE.sub(_escaped, text)
    return text.partition("\0")[0]  # bash cuts it there


def _escaped(found: re.Match[str]) -> str:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal:
        code = int(hexadecimal, 16)
        return chr(code) if code < 0x110000 else "?"
    if found[4]:
        return chr(int(found[4], 8) & 255)
    if found[5]:
        return chr(ord(found[5].upper()) & 31)
    return _ESCAPES.get(found[6], found[6] if found[6] in "\\'\"?" else found[0])


def unfold(text: str) -> list[str] | None:
    """The words that text with alternatives and gaps becomes; None if they are too many to tell."""
    text = _BRACKETS.sub(GLOB, text).replace(LEFT, "[").replace(RIGHT, "]")
    words = _alternatives(text) if text.count(OPEN) <= _MOST else None
    return None if words is None else [part for word in words for part in _parts(word)]


def _parts(word: str) -> list[str]:
    return [part for part in word.split(GAP) if part] if GAP in word else [word]


def _alternatives(text: str) -> list[str] | None:
    """Brace expansion, outermost braces from the left."""
    start = text.find(OPEN)
    if start < 0:
        return [text.replace(COMMA, ",").replace(CLOSE, "}")]
    depth, cuts = 0, [start]
    for at in range(start, len(text)):
        depth += (text[at] == OPEN) - (text[at] == CLOSE)
        if depth == 0:
            break
        if depth == 1 and text[at] == COMMA:
            cuts.append(at)
    if depth or len(cuts) == 1:  # no alternatives: this brace is only a character
        return _alternatives(text[:start] + "{" + text[start + 1 :])
    cuts.append(at)
    middles = [_alternatives(text[left + 1 : right]) for left, right in pairwise(cuts)]
    ends = _alternatives(text[at + 1 :])
    if ends is None or None in middles:
        return None
    words = [text[:start] + middle + end for several in middles for middle, end in product(several or (), ends)]
    return words if len(words) <= _MOST else None


def always(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether words match, whatever their marks turn into: a mark is only met by a ``*``."""
    reached = _closed(pattern, {0})
    for word in words:
        stars = _stars(pattern, reached)
        following = {at + 1 for at in reached - stars if at < len(pattern) and _meets(pattern[at], word, False)}
        reached = _closed(pattern, following | stars)
    return len(pattern) in reached


def may(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether words can match, if their marks turn into the right text."""
    reached = _closed(pattern, {0})
    for word in words:
        several = _SEVERAL.search(word)
        following = _stars(pattern, reached) | (reached if several and blank(word) else set())
        first = word[: word.index(MANY) + 1] if MANY in word else word  # where it may fall apart
        for at in reached:
            if at < len(pattern) and _meets(pattern[at], first, True):
                following |= set(range(at + 1, len(pattern) + 1)) if several else {at + 1}
        reached = _closed(pattern, following)
    return len(pattern) in reached


def _stars(pattern: Sequence[str], reached: set[int]) -> set[int]:
    return {at for at in reached if at < len(pattern) and pattern[at] == "*"}


def _closed(pattern: Sequence[str], reached: set[int]) -> set[int]:
    """Places reached, and those behind a ``*`` that stands for nothing."""
    closed = set(reached)
    for at in reached:
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            closed.add(at)
    return closed


def _meets(pattern: str, word: str, open_: bool) -> bool:
    """Whether one word meets a pattern; ``open_``: with the right text for its marks, else with any."""
    if known(word):
        return fnmatchcase(word, pattern)
    tokens = _tokens(pattern)
    reached = _closed(tokens, {0})
    for character in word:
        following = _stars(tokens, reached)
        if character not in MARKS:
            following |= {at + 1 for at in reached - following if at < len(tokens) and fnmatchcase(character, tokens[at])}
        elif open_ and reached:
            following |= set(range(min(reached), len(tokens) + 1))
        reached = _closed(tokens, following)
    return len(tokens) in reached


@cache
def _tokens(pattern: str) -> tuple[str, ...]:
    """``*``, or a pattern of one character each."""
    return tuple(_TOKEN.findall(pattern))
