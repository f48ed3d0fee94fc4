"""Whether a journal is what was written, from its bytes alone (and, where there is one, a head remembered elsewhere).

    ok          every line follows the one before
    torn_tail   the last line is incomplete, all before it hold: a write that did not finish
    truncated   all lines hold, but the remembered head lies beyond the last one
    missing     there are no lines, or one is not there
    fork        two lines claim the same place behind the same line
    rewritten   all lines hold, but the one at the remembered head is another
    tampered    a line, or a blob it names, is not what was written

Without a remembered head the last line has nothing that vouches for it: changing or cutting it there cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from endstop.core.chain import genesis, link
from endstop.errors import UsageError
from endstop.store.blobs import Get, has_blobs, named

Word = Literal["ok", "torn_tail", "truncated", "missing", "fork", "rewritten", "tampered"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. ``count`` lines hold, the last of them at ``head`` (seq, hash). ``gaps`` are noted in the journal.

    ``blobs`` counts those that are intact, ``erased`` names those that are gone (which is allowed).
    """

    verdict: Word
    first_bad: int | None = None
    why: str = ""
    count: int
    head: tuple[int, str]
    gaps: list[tuple[int, int]] = []
    blobs: int = 0
    erased: list[str] = []


class _Link(msgspec.Struct):
    seq: int
    prev: str
    type: str


class _Data(msgspec.Struct):
    data: msgspec.Raw


class _Start(msgspec.Struct):
    sessionId: str
    salt: str = ""


class _Gap(msgspec.Struct):
    from_: int = msgspec.field(name="from")
    to: int


_link = msgspec.json.Decoder(_Link)
_data = msgspec.json.Decoder(_Data)
_gap = msgspec.json.Decoder(_Gap)
_start = msgspec.json.Decoder(_Start)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, ValueError)


class _Bad(Exception):
    def __init__(self, verdict: Word, seq: int, why: str) -> None:
        super().__init__(why)
        self.verdict: Word = verdict
        self.seq = seq


class _Contents:
    """What stands inside the lines and matters here: noted gaps and, with a getter, the blobs."""

    def __init__(self, get: Get | None) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.intact = 0
        self.erased: list[str] = []
        self._get = get
        self._salt = b""

    def take(self, seq: int, kind: str, line: bytes) -> None:
        try:
            if kind == "gap.noted":
                gap = _gap.decode(_data.decode(line).data)
                self.gaps.append((gap.from_, gap.to))
            if self._get is not None and kind == "session.start":
                self._salt = bytes.fromhex(_start.decode(_data.decode(line).data).salt)
            if self._get is not None and has_blobs(line):
                self._blobs(seq, self._get, msgspec.json.decode(_data.decode(line).data))
        except _UNREADABLE as error:
            raise _Bad("tampered", seq, f"the data of line {seq} cannot be read: {error}") from None

    def _blobs(self, seq: int, get: Get, data: object) -> None:
        for name in named(data):
            content = get(name)
            if content is None:
                self.erased.append(name)
            elif sha256(self._salt + content).hexdigest() != name:
                raise _Bad("tampered", seq, f"the blob {name} of line {seq} was altered")
            else:
                self.intact += 1


def verify_lines(
    session_id: str, lines: Iterable[bytes], *, head: tuple[int, str] | None = None, get: Get | None = None
) -> Verdict:
    """Check a journal. Pure; the lines come without newlines.

    Args:
        session_id: whose journal this should be.
        head: (seq, hash) that somebody remembers; a journal that has grown since then is fine.
        get: content of a blob by its hash, None for erased ones; without it blobs are not checked.
    """
    hashes = [genesis(session_id)]
    contents = _Contents(get)
    try:
        _follow(iter(lines), hashes, contents, head)
        _compare(hashes, head)
        bad = None
    except _Bad as found:
        bad = found
    return Verdict(
        verdict=bad.verdict if bad else "ok",
        first_bad=bad.seq if bad else None,
        why=str(bad) if bad else "" if head else "no head is remembered: a changed or cut end cannot be seen",
        count=len(hashes) - 1,
        head=(len(hashes) - 1, hashes[-1]),
        gaps=contents.gaps,
        blobs=contents.intact,
        erased=contents.erased,
    )


def verify_file(path: Path, *, head: tuple[int, str] | None = None) -> Verdict:
    """Check an exported or mirrored journal. The first line says whose it is.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            first = file.readline()
            file.seek(0)
            return verify_lines(_owner(first), (line.removesuffix(b"\n") for line in file), head=head)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), hint="name a journal in JSON lines") from None


def _owner(first: bytes) -> str:
    try:
        return _start.decode(_data.decode(first).data).sessionId
    except _UNREADABLE:
        return ""


def _follow(lines: Iterator[bytes], hashes: list[str], contents: _Contents, head: tuple[int, str] | None) -> None:
    """Walk the chain, adding the hash of each line that holds."""
    last = hashes[0]
    for seq, line in enumerate(lines, 1):
        try:
            found = _link.decode(line)
        except _UNREADABLE as error:
            raise _unreadable(seq, error, lines, head) from None
        if found.seq != seq or found.prev != last:
            raise _broken(found, line, hashes, list(lines))
        if b"gap.noted" in line or found.type == "session.start" or has_blobs(line):
            contents.take(seq, found.type, line)
        last = link(line)
        hashes.append(last)


def _compare(hashes: list[str], head: tuple[int, str] | None) -> None:
    """Hold a sound chain against the remembered head."""
    count = len(hashes) - 1
    if count == 0 and (head is None or head[0] > 0):
        raise _Bad("missing", 1, "there are no lines")
    if head is None:
        return
    if head[0] > count:
        raise _Bad("truncated", count + 1, f"the journal ends at {count}, but {head[0]} lines were written")
    if hashes[head[0]] != head[1]:
        raise _Bad("rewritten", head[0], f"line {head[0]} is not the remembered one: it, or lines before it, changed")


def _unreadable(seq: int, error: Exception, rest: Iterator[bytes], head: tuple[int, str] | None) -> _Bad:
    if next(rest, None) is not None:
        return _Bad("tampered", seq, f"line {seq} cannot be read: {error}")
    if head and head[0] > seq:
        return _Bad("truncated", seq, f"the journal ends inside line {seq}, but {head[0]} lines were written")
    return _Bad("torn_tail", seq, f"line {seq} is incomplete")


def _broken(found: _Link, line: bytes, hashes: list[str], rest: list[bytes]) -> _Bad:
    """Why ``found`` does not follow the lines before it."""
    wanted = len(hashes)
    if found.seq == wanted:
        return _altered(line, hashes, rest)
    if found.prev == hashes[-1]:
        return _Bad("tampered", wanted, f"line {wanted} says it is number {found.seq}")
    if found.seq > wanted:
        if any(_seq_of(later) == wanted for later in rest):
            return _Bad("tampered", wanted, f"line {found.seq} stands where {wanted} belongs")
        return _Bad("missing", wanted, f"line {wanted} is not there: {found.seq} follows {wanted - 1}")
    if found.seq > 0 and link(line) == hashes[found.seq]:
        return _Bad("tampered", wanted, f"line {found.seq} stands there again where {wanted} belongs")
    if found.seq > 0 and found.prev == hashes[found.seq - 1]:
        return _Bad("fork", found.seq, f"two different lines claim to be number {found.seq}")
    return _Bad("tampered", wanted, f"line {found.seq} stands where {wanted} belongs")


def _altered(line: bytes, hashes: list[str], rest: list[bytes]) -> _Bad:
    """The link between two neighbours is broken: it is the later one that changed if the line after it does not know it."""
    wanted = len(hashes)
    if wanted == 1:
        return _Bad("tampered", 1, "line 1 does not begin the journal of this session")
    after = _prev_of(rest[0]) if rest else None
    if after is not None and after != link(line):
        return _Bad("tampered", wanted, f"line {wanted} was altered: neither neighbour fits it")
    return _Bad("tampered", wanted - 1, f"line {wanted - 1} was altered: line {wanted} was built on another one")


def _seq_of(line: bytes) -> int | None:
    try:
        return _link.decode(line).seq
    except _UNREADABLE:
        return None


def _prev_of(line: bytes) -> str | None:
    try:
        return _link.decode(line).prev
    except _UNREADABLE:
        return None
