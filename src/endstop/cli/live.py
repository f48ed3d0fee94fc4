"""The live view of a terminal: the course of the goal scrolls by, below it stands how things are now."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from endstop.cli import out, view, words
from endstop.cli.screen import Plain, Screen
from endstop.core.codec import Entry
from endstop.core.goal import State, active_now, open_calls
from endstop.core.limits import show
from endstop.store.verify import Verdict

WORDS = 400
"""Characters of the model's last words that are kept."""
BAR = 24
_COLOURS = {
    "done (verified)": "bold green",
    "done (claimed)": "bold yellow",
    "capped": "bold yellow",
    "stuck": "bold red",
    "blocked": "bold red",
    "failed": "bold red",
}


class LiveScreen:
    """See ``screen.Screen``."""

    def __init__(
        self, state: Callable[[], State], clock: Callable[[], float] = time.time, console: Console | None = None
    ) -> None:
        self._state, self._clock = state, clock
        self._console = console or Console(highlight=False)
        self._said = ""
        self._live = Live(get_renderable=self._picture, console=self._console, refresh_per_second=4, transient=True)
        self.watch: Callable[[str], None] | None = self._hear

    def start(self, about: dict[str, Any], state: State) -> None:
        """See ``screen.Screen``."""
        self._print(view.start(about, state, self._console.width))
        self._live.start()

    def take(self, entry: Entry, state: State) -> None:
        """See ``screen.Screen``."""
        lines = view.progress(entry, state, self._console.width)
        if lines:
            self._said = ""
            self._print(lines)

    def hold(self, lines: list[str]) -> None:
        """See ``screen.Screen``."""
        self._live.stop()
        self._print(lines)

    def go_on(self) -> None:
        """See ``screen.Screen``."""
        self._live.start()

    def stop(self) -> None:
        """See ``screen.Screen``."""
        self._live.stop()

    async def end(self, state: State, record: Verdict, now: float) -> None:
        """See ``screen.Screen``."""
        first, *rest = view.summary(state, record, now, self._console.width)
        self._console.print()
        self._console.print(Text(first, style=_COLOURS.get(view.standing(state), "bold")))
        self._print(rest)

    def _hear(self, words: str) -> None:
        self._said = (self._said + words)[-WORDS:]

    def _print(self, lines: list[str]) -> None:
        self._console.print(Text("\n".join(lines)), soft_wrap=True)

    def _picture(self) -> RenderableType:
        return picture(self._state(), self._clock(), self._said, self._console.width)


def watching(state: Callable[[], State], *, quiet: bool = False) -> Screen:
    """The view for where this is typed: live at a terminal that can move its cursor, plain lines elsewhere."""
    if sys.stdout.isatty() and not quiet and os.environ.get("TERM") != "dumb":
        return LiveScreen(state)
    return Plain(quiet=quiet)


def picture(state: State, now: float, said: str, width: int) -> RenderableType:
    """How things are now: phase, limits as bars, what runs, gates, what is missing, the last words."""
    goal = state.goal
    if goal is None:
        return Text("")
    parts: list[RenderableType] = [Text(f"{'─' * min(width, 79)}\n{view.standing(state)}", style="bold")]
    parts.append(_bars(state, now, goal.caps))
    for label, texts in (
        ("runs", [_running(call.request.name, call.request.arguments) for call in open_calls(state) if call.state == "started"]),
        ("missing", view.missing(state)[:3]),
    ):
        parts += [Text(line) for line in view.rows(label, texts, width)]
    for text in view.gate_rows(state):
        green = text.startswith("green")
        parts.append(Text(view.row("gate", text, width)[0], style="green" if green else "red"))
    if said.strip():
        first = f"  {'says':<{view.LABEL - 1}} "
        parts.append(Text(first + out.line(said)[-(width - len(first)) :], style="dim"))
    return Group(*parts)


def _running(name: str, arguments: Any) -> str:
    return f"{name} {words.call(arguments)}"[:200]


def _bars(state: State, now: float, caps: dict[str, float]) -> Table:
    table = Table.grid(padding=(0, 1))
    for axis, cap in view.in_order(caps):
        if axis in ("output/call", "tool-calls/turn", "tool-calls/round"):
            continue
        used = active_now(state, now) if axis == "active" else state.spend.used(axis, now)
        if axis.startswith("tool:") and not used:
            continue
        bar = ProgressBar(total=cap, completed=min(used, cap), width=BAR)
        table.add_row(Text(f"  {axis:<{view.LABEL - 1}}"), bar, Text(f"{show(axis, used)} of {show(axis, cap)}"))
    return table
