"""Secrets out of everything that is recorded: known values, what has the shape of a key, and what a name calls secret.

A line is looked at before it is recorded. Nearly all hold nothing, so ``line_may_hold`` answers that from the bytes, cheaply:
it drops all letters that no mark has (``bytes.translate`` is the fastest thing there is), looks for the marks in the little
that is left, and makes sure of a find in the line itself. Only then are the texts taken apart and cleaned.

Not seen: a value that is split over two texts, or base64 that is broken into lines.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import msgspec

SHORTEST = 8
"""Characters below which a value is too common to be replaced."""
NAMES = (
    *("password", "passwd", "passphrase", "secret", "token", "api_key", "access_key", "secret_key", "private_key"),
    *("authorization", "credential", "credentials"),
)
"""Endings of names whose values are secret; "_" may be "-" or missing."""
_HARMLESS = re.compile(r"(?:page|next|continuation|cancel|cancellation|sync)token$")
_MADE = "[redacted:"
_MARK = re.compile(r"\[redacted:[^\]\n]*\]")
_PLAIN = re.compile(r"[^\s;&|<>()$`]*")


def _made(label: str) -> str:
    return f"{_MADE}{label}]"


def marked(data: Any) -> bool:
    """Whether a secret was taken out of this plain data."""
    return _MADE.encode() in msgspec.json.encode(data)


def hides_only_words(recorded: str, given: str) -> bool:
    """Whether what was taken out of a command line is nothing but words, or parts of them: nothing that could be a command."""
    first, *pieces = _MARK.split(recorded)
    at = len(first)
    if not given.startswith(first):
        return False
    for number, piece in enumerate(pieces, 1):
        found = len(given) - len(piece) if number == len(pieces) else given.find(piece, at)
        if found < at or not given.startswith(piece, found) or not _PLAIN.fullmatch(given, at, found):
            return False
        at = found + len(piece)
    return at == len(given)


# ----------------------------------------------------------------------------------------------------------------- shapes


class Shape(NamedTuple):
    """What a kind of secret looks like. ``marks`` stand in every one of them; group ``v``, or all, is replaced."""

    kind: str
    marks: tuple[str, ...]
    pattern: str


# Patterns begin with plain letters, which are found fastest. What must stand before them is looked at behind them: "sk-"
# begins a word, or follows an escaped line end.
_SK = r"sk-(?:(?<![A-Za-z0-9]sk-)|(?<=\\[nrt]sk-))"
SHAPES = (
    Shape(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----(?=[\s\S]{0,300}?[A-Za-z0-9+/=]{24})"
        r"(?:(?!-----|\n\[?… )[\s\S]){24,20000}(?:-----END [A-Z0-9 ]{0,30}-----|\Z|(?=(?:-----[A-Z0-9 -]{0,40})?\n\[?… ))",
    ),
    Shape("anthropic-key", ("sk-",), _SK + r"ant-[A-Za-z0-9_-]{10,}"),
    Shape("openai-key", ("sk-",), _SK + r"(?=[\w-]*[0-9])(?=[\w-]*[A-Za-z0-9]{16})[A-Za-z0-9_-]{20,}"),
    Shape(
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    ),
    Shape("aws-key", ("AKIA", "ASIA"), r"A[KS]IA(?<![A-Z0-9]A[KS]IA)[A-Z0-9]{16}(?![A-Z0-9])"),
    Shape("slack-token", ("xox",), r"xox[a-z]-(?=[A-Za-z-]*[0-9])[A-Za-z0-9-]{10,}"),
    Shape("google-key", ("AIza",), r"AIza[A-Za-z0-9_-]{30,}"),
    Shape("jwt", ("eyJ",), r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]*"),
    Shape("bearer", ("Bearer ",), r"Bearer\s+(?P<v>(?=[\w.~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,})"),
    Shape("url-password", ("://",), r"""://[^\s/:@"'<>\\]{0,200}:(?!\*+@|%[a-z]@)(?P<v>[^\s/@"'<>{}$\[\]\\]{1,200})@"""),
)
_KEY_END = re.compile(r"(?: *[0-9]+\t)?-----END [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(r"(?: *[0-9]+\t)?[A-Za-z0-9+/=]{1,80}\s*")
_PATTERNS = [(shape, re.compile(shape.pattern, re.ASCII)) for shape in SHAPES]


def _clean_shapes(text: str) -> str:
    for shape, pattern in _PATTERNS:
        if any(mark in text for mark in shape.marks):
            text = pattern.sub(partial(_put, shape.kind), text)
    return _drop_key_ends(text) if "PRIVATE KEY" in text else text


def _drop_key_ends(text: str) -> str:
    """Without private keys of which only the end is there."""
    kept: list[str] = []
    at = 0
    for found in _KEY_END.finditer(text):
        above = text[at : found.start()].splitlines(keepends=True)
        while above and _KEY_LINE.fullmatch(above[-1]):
            above.pop()
        start = at + sum(map(len, above))
        kept += (text[at:start], _made("private-key") if start < found.start() else found[0])
        at = found.end()
    return "".join((*kept, text[at:]))


def _put(kind: str, found: re.Match[str]) -> str:
    """The match with its secret part replaced."""
    if "v" not in found.re.groupindex:
        return _made(kind)
    start, end = found.span("v")
    return found[0][: start - found.start()] + _made(kind) + found[0][end - found.start() :]


# ------------------------------------------------------------------------------------------------------------------- cuts

EDGE = 2_048
"""Characters of a line that are dropped at most on either side of a cut: what is left of a secret that the cut went through
cannot be known by its look."""
_CUT = re.compile(r"\A…|(?:\A|\n)\[?… ?\(?[0-9]+ (?:bytes|characters) left out\)?(?: …)?\]?\n|\n\[…\]\n")
_LINE_CUT = re.compile(r"… \(line of [0-9]+ bytes, cut\)")
_WORD_END = re.compile(r"""[^\s"',;…]*\Z""")
_LONGEST_WORD = 512
_CUT_MARK = "…".encode()
_MAY_BE_CUT = re.compile(rb'[0-9] (?:bytes|characters) left out|[0-9] bytes, cut\)|"\xe2\x80\xa6|\[\xe2\x80\xa6\]')


def _drop_edges(text: str) -> str:
    """A shortened text without what stands right at its cuts: an ellipsis takes its place, and is left where it stands."""
    if "…" not in text:
        return text
    kept: list[str] = []
    at = 0
    for found in _CUT.finditer(text):
        start, end = found.span()
        line = max(text.rfind("\n", at, start) + 1, start - EDGE, at)
        edge = text[line:start]
        kept += (text[at:line], edge if not edge or edge[-1] == "…" else "…", found[0])
        at = end
        if found[0].rstrip("]\n").endswith("…") and end < len(text):  # the same text goes on behind it
            over = text.find("\n", end, end + EDGE)
            at = over if over >= 0 else min(end + EDGE, len(text))
            kept.append("…" if text[end] not in "…\n" else text[end:at])
    return _drop_words("".join((*kept, text[at:])))


def _drop_words(text: str) -> str:
    """Without the last word of lines that were cut."""
    kept: list[str] = []
    at = 0
    for found in _LINE_CUT.finditer(text):
        word = _WORD_END.search(text, max(at, found.start() - _LONGEST_WORD), found.start())
        kept += (text[at : word.start() if word else found.start()], found[0])
        at = found.end()
    return "".join((*kept, text[at:]))


# ------------------------------------------------------------------------------------------------------------------ names

_SCHEME = "(?:[Bb]earer|[Bb]asic|[Tt]oken|[Dd]igest)"
_VALUE = re.compile(
    rf"""[\\"'\]]{{0,4}}[ ]*(?P<is>:=|=>|=|:(?!-))[ \t]*(?:{_SCHEME}[ ](?P<a>[\w+/=.~-]{{8,4096}})"""
    rf"""|[bBrRuUfF]{{0,2}}(?P<q>\\*["'])(?:{_SCHEME}[ ])?(?P<v>[^\s"']{{8,4096}}?)(?P=q)"""
    r"""|(?P<w>[\w+/=.~!@#%^&*-]{8,4096}+)(?![\w(\[{<$]))"""
)
_BEFORE = re.compile(r"[A-Za-z0-9_.-]{0,40}$")
_CODE = re.compile(r"[A-Za-z_]+[0-9]{0,2}(?:\.[A-Za-z_]+[0-9]{0,2})*")
_PATH = re.compile(r"[~.]{0,2}(?:/[\w.-]+){2,}/?")
_WORDS = re.compile(r"[A-Za-z]+(?:[ _./:-][A-Za-z]+)+|[A-Za-z]{1,15}")


def _is_secret(found: re.Match[str], name: str) -> bool:
    """Whether what is assigned to a secret name is a value: not code that computes it, a type, a path or a placeholder."""
    value = found["a"] or found["v"] or found["w"]
    if value.startswith((_MADE, "$", "%", "<", "{", "***", "...")) or "://" in value or _PATH.fullmatch(value):
        return False
    if found["v"]:
        return "{" not in value and not _WORDS.fullmatch(value)
    if found["a"]:
        return not _WORDS.fullmatch(value)
    if found["is"] == "=" and name.isupper() and found.end("is") == found.start("w"):
        return not value.isdecimal() and "." not in value  # an environment file
    return not value.isdecimal() and not _CODE.fullmatch(value) and any(character.isdecimal() for character in value)


# --------------------------------------------------------------------------------------------------------------- prefilter

_ALL = bytes(range(256))
Sieve = tuple[bytes, bytes]
"""Arguments of ``bytes.translate``: what becomes what, and what is dropped."""


def _sieve(keep: bytes, become: dict[bytes, bytes]) -> Sieve:
    table = bytearray(_ALL)
    for sources, target in become.items():
        for source in sources:
            table[source] = target[0]
    return bytes(table), bytes(byte for byte in _ALL if byte not in keep)


_UPPER = bytes(range(ord("A"), ord("Z") + 1))
_LOWERED = {bytes([upper]): bytes([upper + 32]) for upper in _UPPER}
_FOR_SHAPES = _sieve(_UPPER + b"yzxghpk_-", {})
_FOR_NAMES = _sieve(b"pswdkzct:=PSWDKZCT", {**_LOWERED, b"=": b":"})
_FOLDED = _sieve(bytes(byte for byte in _ALL if byte not in b" \t\"'\\]_-"), {**_LOWERED, b"=": b":"})


def _sieve_marks(marks: Iterable[bytes], sieve: Sieve) -> dict[bytes, list[bytes]]:
    """What is left of each mark, and which marks that stands for. One that holds another is left to the other."""
    left = {mark: mark.translate(*sieve) for mark in marks}
    shortest = {mark: min((other for other in left.values() if other in mine), key=len) for mark, mine in left.items()}
    return {mine: [mark for mark in left if shortest[mark] == mine] for mine in dict.fromkeys(shortest.values())}


def _shape_marks() -> list[tuple[bytes, re.Pattern[bytes]]]:
    """Each mark as the sieve leaves it, with a pattern that makes sure. Where the end of a text ends the secret, the mark
    itself must do, as a line goes on behind its texts. Addresses have a rare mark of their own, the @."""
    patterns: dict[bytes, list[str]] = {}
    for shape in SHAPES[:-1]:
        for mark in shape.marks:
            patterns.setdefault(mark.encode(), []).append(mark if r"\Z" in shape.pattern else shape.pattern)
    left = _sieve_marks(patterns, _FOR_SHAPES)
    sure = {mine: dict.fromkeys(pattern for mark in marks for pattern in patterns[mark]) for mine, marks in left.items()}
    return [(mine, re.compile("|".join(wanted).encode())) for mine, wanted in sure.items()]


_MARKS = _shape_marks()
_URL = re.compile(SHAPES[-1].pattern.encode())


# --------------------------------------------------------------------------------------------------------------- redactor


class Redactor:
    """Replaces secrets by ``[redacted:KIND]`` or ``[redacted:NAME]``.

    Args:
        values: secrets as they are, replaced wherever they stand, also as base64, in URLs and in JSON.
        names: further endings of names whose values are secret, beside ``NAMES``.
    """

    def __init__(self, values: Collection[str] = (), names: Collection[str] = ()) -> None:
        self._forms: list[tuple[str, str]] = []
        self._needles: list[bytes] = []
        known = dict.fromkeys((*NAMES, *(re.sub(r"[\s-]+", "_", name.strip().lower()) for name in names if name.strip())))
        self._names = [re.compile("[_-]?".join(map(re.escape, name.split("_")))) for name in known]
        words = [_bare(name) for name in known]
        self._endings = tuple(words)
        self._words = _sieve_marks([f"{word}:".encode() for word in words], _FOR_NAMES)
        for value in values:
            self.register(value)

    def register(self, value: str, name: str = "secret") -> None:
        """Replace ``value`` from now on, calling it ``name``. Values under ``SHORTEST`` characters are too common for that."""
        value = value.strip().encode("utf-8", "replace").decode()  # an environment may hold bytes that are no text
        if len(value) < SHORTEST:
            return
        known = {form for form, _ in self._forms}
        self._forms += [(form, name) for form in dict.fromkeys(_forms(value)) if len(form) >= SHORTEST and form not in known]
        self._forms.sort(key=lambda entry: -len(entry[0]))
        both = ((form.encode("utf-8", "replace"), msgspec.json.encode(form)[1:-1]) for form, _ in self._forms)
        self._needles = list(dict.fromkeys(needle for pair in both for needle in pair))

    def line_may_hold(self, data: bytes) -> bool:
        """Whether a line of JSON, or a text as UTF-8, may hold a secret. False is certain, as far as ``clean`` would find one."""
        if self._needles and any(needle in data for needle in self._needles):
            return True
        sieved = data.translate(*_FOR_SHAPES)
        for mark, pattern in _MARKS:  # at every event, so no generator
            if mark in sieved and pattern.search(data):
                return True
        if b"@" in data and _URL.search(data):
            return True
        if _CUT_MARK in data and _MAY_BE_CUT.search(data):
            return True
        sieved = data.translate(*_FOR_NAMES)
        hits = [words for mark, words in self._words.items() if mark in sieved]
        if not hits:
            return False
        folded = data.translate(*_FOLDED)
        return any(word in folded for words in hits for word in words)

    def clean(self, text: str) -> str:
        """The text without secrets."""
        for form, name in self._forms:
            text = text.replace(form, _made(name))
        return self._clean_names(_clean_shapes(text))

    def clean_data(self, data: Any, *, shortened: bool = False) -> Any:
        """Builtins without secrets: every text cleaned, and the texts under secret keys replaced as a whole.

        Args:
            shortened: texts may have been shortened: what stands at their cuts goes too, as it may be half of a secret.
        """
        if isinstance(data, str):
            return _drop_edges(self.clean(data)) if shortened else self.clean(data)
        if isinstance(data, dict):
            return {self.clean_data(key): self._clean_entry(key, value, shortened) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return type(data)([self.clean_data(item, shortened=shortened) for item in data])
        return data

    def _clean_entry(self, key: Any, value: Any, shortened: bool) -> Any:
        if isinstance(value, str) and isinstance(key, str) and value and self._is_secret_name(key):
            return value if value.startswith(_MADE) else _made(key)
        return self.clean_data(value, shortened=shortened)

    def _is_secret_name(self, name: str) -> bool:
        bare = _bare(name)
        return bare.endswith(self._endings) and not _HARMLESS.search(bare)

    def _clean_names(self, text: str) -> str:
        pieces: list[str] = []
        done = 0
        for start, end, name in sorted(self._assigned(text)):
            if start >= done:
                pieces += (text[done:start], _made(name))
                done = end
        return "".join((*pieces, text[done:])) if pieces else text

    def _assigned(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where values of secret names stand: start, end, name."""
        low = text.lower()
        if len(low) != len(text):  # a letter that grows would shift all that follows
            low = "".join(character.lower() if character.isascii() else character for character in text)
        for pattern in self._names:
            for found in pattern.finditer(low):
                value = _VALUE.match(text, found.end())
                if value is None:
                    continue
                before = _BEFORE.search(text, max(0, found.start() - 40), found.start())
                name = (before[0] if before else "") + text[found.start() : found.end()]
                if _is_secret(value, name) and not _HARMLESS.search(_bare(name)):
                    yield *value.span(next(group for group in "avw" if value[group])), name


def _bare(name: str) -> str:
    return re.sub(r"""[\s"'\\\]_-]+""", "", name.lower())


def _forms(value: str) -> Iterator[str]:
    """A value as it may stand in a text: itself, escaped for JSON and URLs, inside of base64 at any offset."""
    yield value
    yield json.dumps(value)[1:-1]
    yield msgspec.json.encode(value).decode()[1:-1]
    for quoted in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    for offset in range(3):
        data = bytes(offset) + value.encode("utf-8", "surrogatepass")
        first, last = (offset * 8 + 5) // 6, len(data) * 8 // 6
        yield b64encode(data).decode()[first:last]
        yield urlsafe_b64encode(data).decode()[first:last]
