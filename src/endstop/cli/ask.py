"""Questions and permission requests, asked at the terminal where the goal runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from endstop.cli import out, view
from endstop.core import events as ev
from endstop.core.calls import APPROVED
from endstop.core.codec import Entry
from endstop.core.events import Decision, Event
from endstop.core.goal import State
from endstop.errors import UsageError

DENIED = "denied-interactively-by-user"
YES = frozenset({"y", "yes", "allow"})
NO = frozenset({"n", "no", "deny"})
STOP = frozenset({"s", "stop"})


Asked = ev.QuestionAsked | ev.PermissionRequested


class Board(Protocol):
    """Where questions are put; see ``screen.Screen``."""

    def hold(self, lines: list[str]) -> None:
        """A person is asked."""
        ...

    def go_on(self) -> None:
        """The person has answered."""
        ...


class Asker:
    """Shows what is open, one at a time, and turns typed lines into answers.

    Args:
        control: takes the answer's event.
        leave: the terminal was closed (end of input).
    """

    def __init__(self, screen: Board, control: Callable[[Event], None], leave: Callable[[], None], by: str) -> None:
        self._screen, self._control, self._leave, self._by = screen, control, leave, by
        self._open: dict[str, Asked] = {}
        self._shown = ""
        self._rest = b""

    def listen(self, already: list[Asked]) -> None:
        """Show what is open ``already``, and read lines from standard input as they are typed."""
        self.begin(already)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def begin(self, already: list[Asked]) -> None:
        """Show what is open already."""
        for asked in already:
            self._open[asked.question_id if isinstance(asked, ev.QuestionAsked) else asked.request_id] = asked
        self._show()

    @property
    def open(self) -> Asked | None:
        """What is asked now."""
        return self._open.get(self._shown)

    def stop(self) -> None:
        """Read no more."""
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def take(self, entry: Entry) -> None:
        """Learn what is asked, and what is answered, here or elsewhere."""
        match entry.event:
            case ev.QuestionAsked(question_id=id) as asked:
                self._open[id] = asked
            case ev.PermissionRequested(request_id=id) as wanted:
                self._open[id] = wanted
            case ev.QuestionAnswered(question_id=id) | ev.QuestionExpired(question_id=id):
                self._open.pop(id, None)
            case ev.PermissionCompleted(request_id=id) | ev.GrantExpired(request_id=id):
                self._open.pop(id, None)
            case ev.GoalEnded() | ev.GoalPaused() | ev.GoalClosing():
                self._open.clear()
            case _:
                return
        self._show()

    def line(self, text: str) -> None:
        """Take a typed line as the answer to what is shown."""
        asked = self.open
        if asked is None or not text.strip():
            return
        try:
            event = reply(asked, text, self._by)
        except UsageError as error:
            self._screen.hold([f"  {error.message} ({error.hint})"])
            return
        self._control(event)

    def _show(self) -> None:
        first = next(iter(self._open), "")
        if first == self._shown:
            return
        held, self._shown = self._shown, first
        if first:
            self._screen.hold(question_lines(self._open[first]))
        elif held:
            self._screen.go_on()

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            self.stop()
            self._leave()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for typed in lines:
            self.line(typed.decode(errors="replace"))


def open_asks(entries: list[Entry], state: State) -> list[Asked]:
    """What a person is asked and has not answered, the oldest first."""
    found: list[Asked] = []
    for entry in entries:
        match entry.event:
            case ev.QuestionAsked(question_id=id) as question:
                known = state.questions.get(id)
                if known is not None and known.answer is None and not known.expired:
                    found.append(question)
            case ev.PermissionRequested(request_id=id) as request:
                grant = state.grants.get(id)
                if grant is not None and not grant.kind:
                    found.append(request)
    return found


def reply(asked: Asked, text: str, by: str) -> Event:
    """The event that a typed answer is.

    Raises:
        UsageError: it is none of the options, or neither yes nor no.
    """
    text = text.strip()
    if isinstance(asked, ev.PermissionRequested):
        return decision(asked.request_id, text, by)
    return answered(asked.question_id, asked.options, asked.allow_freeform, text, by)


def answered(id: str, options: list[str], freeform: bool, text: str, by: str) -> ev.QuestionAnswered:
    """An answer to a question: an option by its number or its words, or free text where that is allowed.

    Raises:
        UsageError: it is none of the options, or a number beyond them.
    """
    number = int(text) if text.isdecimal() else 0
    if 1 <= number <= len(options):
        return ev.QuestionAnswered(question_id=id, answer=options[number - 1], option=number - 1, by=by)
    if text in options:
        return ev.QuestionAnswered(question_id=id, answer=text, option=options.index(text), by=by)
    if options and (text.isdecimal() or not freeform):
        there = ", ".join(f"{number} {option}" for number, option in enumerate(options, 1))
        what = f"there is no option {text}" if text.isdecimal() else "that is none of the options"
        raise UsageError(what, hint=f"{there}{', or your own words' if freeform else ''}")
    return ev.QuestionAnswered(question_id=id, answer=text, by=by)


def decision(id: str, text: str, by: str) -> ev.PermissionCompleted:
    """A permission: yes, no and perhaps why, or stop."""
    word, _, why = text.partition(" ")
    word, why = word.lower().rstrip(",:."), why.strip()
    if word in YES and not why:
        return ev.PermissionCompleted(request_id=id, result=Decision(kind=APPROVED), scope="once", by=by)
    if word in NO or word in STOP:
        return ev.PermissionCompleted(
            request_id=id,
            result=Decision(kind=DENIED),
            scope="once",
            by=by,
            feedback=why or None,
            stop=True if word in STOP else None,
        )
    raise UsageError("that is neither yes nor no", hint="yes, no, no and why, or stop to end the turn")


def question_lines(asked: Asked) -> list[str]:
    """What a person is asked, and how to answer."""
    width = out.columns()
    if isinstance(asked, ev.PermissionRequested):
        return permission_lines(asked.permission_request, asked.risk, asked.why, width)
    how = "a number" if asked.options else "your own words"
    if asked.options and asked.allow_freeform:
        how += ", or your own words"
    options = [f"{number}. {option}" for number, option in enumerate(asked.options, 1)]
    return ["", *view.row("QUESTION", asked.question, width), *view.rows("", options, width), *view.row("", f"({how})", width)]


def _exactly(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def permission_lines(request: dict[str, Any], risk: str, why: str, width: int) -> list[str]:
    """What wants to run, whole: nobody can allow what he cannot read."""
    arguments = request.get("arguments", {})
    given = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    what = [part for name, value in given.items() for part in f"{name}: {_exactly(value)}".splitlines()]
    lines = ["", *view.row("PERMISSION", f"{request.get('toolName', 'a tool')} ({risk})", width)]
    lines += view.rows("", what, width) + view.row("why asked", why, width)
    return [*lines, *view.row("", "(yes: this once; no; no and why; stop: refuse and end the turn)", width)]
