"""Stamped lines for the tests: a pen that writes the next lines of a journal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from endstop.core.chain import genesis, link
from endstop.core.codec import frame, stamp, type_of
from endstop.core.events import Context, Event, SessionError, SessionStart
from endstop.store.blobs import Sealed, pack
from endstop.store.journal import Draft, Position
from endstop.store.sessions import NewSession

SALT = "00112233445566778899aabbccddeeff"


def new(session_id: str, workspace: str = "/w", parent: str | None = None) -> NewSession:
    """A session to register."""
    return NewSession(id=session_id, kind="goal", created=1.0, workspace=workspace, salt=SALT, objective="do it", parent=parent)


def start(session_id: str) -> SessionStart:
    """The first event of a journal."""
    return SessionStart(
        session_id=session_id,
        version=1,
        producer="test",
        start_time=stamp(1.0),
        kind="goal",
        context=Context(cwd="/w"),
        salt=SALT,
    )


def note(text: str) -> Event:
    """Some event with a text in it."""
    return SessionError(error_type="test", message=text, hint="none")


class Pen:
    """Stamps events one after the other; ``seq`` and ``hash`` are where it stands."""

    def __init__(self, session_id: str, seq: int = 0, hash: str | None = None, last: str | None = None) -> None:
        self.session_id = session_id
        self.seq = seq
        self.hash = hash or genesis(session_id)
        self.last = last
        self.blobs: list[Sealed] = []

    @classmethod
    def at(cls, session_id: str, position: Position) -> Pen:
        """A pen that goes on where a journal ends."""
        return cls(session_id, position.seq, position.hash, position.id)

    def line(self, event: Event) -> bytes:
        """The event, stamped for the next place."""
        data, kept = pack(event, SALT)
        self.blobs += kept
        self.seq += 1
        name = f"{self.session_id}-{self.seq}"
        line = frame(
            data, type_of(event), id=name, seq=self.seq, prev=self.hash, timestamp=stamp(1.0 + self.seq), parent=self.last
        )
        self.hash, self.last = link(line), name
        return line

    def lines(self, *texts: str) -> list[bytes]:
        """Several notes; before the very first comes the start of the session."""
        first = [self.line(start(self.session_id))] if self.seq == 0 else []
        return first + [self.line(note(text)) for text in texts]


def journal(session_id: str, count: int) -> list[bytes]:
    """A whole journal of ``count`` lines."""
    return Pen(session_id).lines(*(f"note {number}" for number in range(2, count + 1)))


def control(session_id: str, *texts: str, phase: str | None = None) -> Callable[[Position], Draft]:
    """What ``append_control`` asks for: notes stamped for wherever the journal ends."""
    return lambda position: Draft(Pen.at(session_id, position).lines(*texts), phase)


def scribe(*arguments: object) -> subprocess.Popen[str]:
    """Another process that works on a store, see ``tests.store.scribe``."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.scribe", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
