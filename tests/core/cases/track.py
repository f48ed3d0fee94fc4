"""Calls of other systems put through the stall rules: what ours would have said to them."""

from __future__ import annotations

from typing import Any

from endstop.core import stall
from endstop.core.identity import digests, identity
from endstop.core.messages import ToolSpec
from endstop.core.stall import Rules, Seen, Stall

LAPS = 5
"""Laps within which a loop has to end: the fifth equal call is refused, and the second refusal ends it."""


class Track:
    """One run: calls in batches, edits, words and people, as the kernel would count them."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.stall, self.rules = Stall(), rules or Rules()
        self.seq, self.files, self.noticed = 0, 0, 0
        self.called = False  # in this round
        self.refused: list[str] = []
        self.stall.saw("0")

    @property
    def halted(self) -> str:
        """The rule that ended it, or nothing."""
        if self.stall.halt is not None:
            return self.stall.halt.rule
        return "no action" if self.stall.silent >= self.rules.no_action.halt else ""

    def human(self) -> None:
        """A person speaks."""
        self.stall.progress()
        self.called = False

    def words(self) -> None:
        """The model speaks and asks for no tool: a round is over."""
        self.stall.silent = 0 if self.called else self.stall.silent + 1
        self.called = False

    def edited(self) -> None:
        """Files are not what they were."""
        self.files += 1

    def batch(self, *calls: dict[str, Any]) -> None:
        """Calls of one answer: tool, effect, arguments, result, ok, way, poller."""
        self.stall.batch = set()
        for one in calls:
            self._call(**one)

    def wrong(self, unknown: bool) -> None:
        """A call of no tool, or with arguments that are none."""
        self.stall.batch = set()
        stall.count_wrong(self.stall, self.rules, self._seen("", "x", "", False, "", "", False), unknown)
        self._notices()

    def denied(self, tool: str, arguments: dict[str, Any]) -> None:
        """A call that a rule refused."""
        self.stall.batch = set()
        stall.count_denied(self.stall, self.rules, self._seen(identity(tool, arguments), tool, "", False, "", "", False))
        self._notices()

    def _call(
        self,
        tool: str,
        arguments: dict[str, Any],
        result: str,
        effect: str = "write",
        ok: bool = True,
        way: str = "failed",
        poller: bool = False,
    ) -> None:
        spec = ToolSpec(name=tool, description="", parameters={}, effect=effect, poller=poller)  # type: ignore[arg-type]
        ident = identity(tool, arguments)
        self.called = True
        if stall.near(self.stall, self.rules, spec, ident):
            self.stall.saw(str(self.files))
        seen = self._seen(ident, tool, result, ok, "" if ok else way, effect, poller)
        refused = stall.refusal(self.stall, self.rules, spec, ident, seen.call_id)
        if refused is not None:
            self.refused.append(refused.rule)
            stall.count_refused(self.stall, self.rules, seen, refused.rule)
        elif self.rules.on:
            stall.ran(self.stall)
            stall.count(self.stall, self.rules, seen)
        self._notices()

    def _seen(self, ident: str, tool: str, result: str, ok: bool, way: str, effect: str, poller: bool) -> Seen:
        self.seq += 1
        return Seen(
            seq=self.seq,
            call_id=f"c{self.seq}",
            tool=tool,
            ident=ident,
            success=ok,
            norm=digests(result)[1],
            size=len(result),
            way=way,
            effect=effect,
            poller=poller,
        )

    def _notices(self) -> None:
        self.noticed += len(self.stall.due)
        self.stall.due = []
