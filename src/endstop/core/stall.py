"""Stall rules: repetition without progress, seen inside turns and across rounds.

Identity of a call = tool + SHA-256 of its canonical arguments, no prose. Counters belong to the goal, per rule and identity,
and calls need not be adjacent, so cycles of any period fall under ``repeat``. Refused and cached calls count and keep the
result of the last real one. Two things reset:

    (a) ``repeat`` of a call that gives a result not seen from it before, ``failing`` of a call that succeeds or fails in a
        way not seen before, ``same failure`` of a tool that succeeds
    (b) everything, when the fingerprint takes a value never seen in this goal, a failing gate passes or fails in fewer
        tests, or a human speaks

and nothing else: not prose, notices, plan edits or a resume after a crash. Thresholds were calibrated on 500 SWE-bench runs
that all ended by the model's own claim (the table and its source are in docs/stall-rules.md).
"""

from __future__ import annotations

from typing import Any

import msgspec

from endstop.core.messages import ToolSpec
from endstop.core.wording import NOTICED, REFUSED

NEVER = 10**9


class Rule(msgspec.Struct, frozen=True):
    """Counts at which a rule notices, refuses and halts. NEVER switches a step off."""

    notice: int
    refuse: int = NEVER
    halt: int = NEVER


class Rules(msgspec.Struct, frozen=True):
    """All thresholds. ``refusals`` of repeat and failing together halt; ``on`` False switches every rule off."""

    on: bool = True
    repeat: Rule = Rule(3, 5)
    failing: Rule = Rule(2, 5)
    same_failure: Rule = Rule(3, 8, 11)
    same_answer: Rule = Rule(4, 8, 12)
    poller: Rule = Rule(10, NEVER, 20)
    denied: Rule = Rule(1, 2, 5)
    unknown_tool: Rule = Rule(1, NEVER, 5)
    malformed: Rule = Rule(1, NEVER, 12)
    no_action: Rule = Rule(1, NEVER, 2)
    no_progress: Rule = Rule(2, NEVER, 4)
    oscillation: Rule = Rule(2, NEVER, 4)
    degenerate_text: Rule = Rule(1, NEVER, 2)
    refusals: int = 2


MANY = 25
"""Times one call may give one result in a goal, whatever resets lay between, before it is noticed once more."""
SHORT_ANSWER = 24
"""Characters below which equal answers say nothing ("ok", "[]")."""
TABLE = 512
"""Counters kept per rule; the oldest goes first."""
NEVER_COUNTED = frozenset({"not_run_question", "interrupted", "cancelled"})
NO_IDENTITY = frozenset({"malformed", "unknown_tool"})


class Tally(msgspec.Struct, gc=False):
    """One counter with what people want to know of it."""

    count: int = 0
    seqs: list[int] = msgspec.field(default_factory=list)
    names: set[str] = msgspec.field(default_factory=set)  # identities counted here (variants)

    def add(self, seq: int) -> None:
        """Count one more, remembering the last 25 places."""
        self.count += 1
        self.seqs = [*self.seqs[-24:], seq]


class Same(msgspec.Struct, gc=False):
    """What is known of one identity since the last reset."""

    repeat: Tally = msgspec.field(default_factory=Tally)
    failing: Tally = msgspec.field(default_factory=Tally)
    seen: list[str] = msgspec.field(default_factory=list)  # masked hashes of results, newest last
    ways: list[str] = msgspec.field(default_factory=list)  # ways it failed
    failed: bool = False
    at: int = 0  # running number of its last call
    period: int | None = None


class Notice(msgspec.Struct, frozen=True):
    """A rule's word on one call, waiting to be journalled."""

    rule: str
    count: int
    identity: str
    seqs: list[int]
    text: str
    period: int | None = None
    tool_call_id: str | None = None


class Stall(msgspec.Struct):
    """All counters of one goal."""

    same: dict[str, Same] = msgspec.field(default_factory=dict)
    failures: dict[str, dict[str, Tally]] = msgspec.field(default_factory=dict)  # tool -> way it fails -> count
    failing_as: dict[str, str] = msgspec.field(default_factory=dict)  # tool -> the way its last call failed
    answers: dict[str, dict[str, Tally]] = msgspec.field(default_factory=dict)  # tool -> hash of an answer -> count
    answering: dict[str, str] = msgspec.field(default_factory=dict)  # tool -> hash of its last answer
    denials: dict[str, int] = msgspec.field(default_factory=dict)
    denied: Tally = msgspec.field(default_factory=Tally)
    unknown: Tally = msgspec.field(default_factory=Tally)
    malformed: Tally = msgspec.field(default_factory=Tally)
    refusals: Tally = msgspec.field(default_factory=Tally)
    standing: str = ""  # missing, gates and fingerprint at the last confrontation or return
    no_progress: Tally = msgspec.field(default_factory=Tally)
    visited: list[str] = msgspec.field(default_factory=list)  # fingerprints of failed checks, one after the other
    oscillation: Tally = msgspec.field(default_factory=Tally)
    degenerate: Tally = msgspec.field(default_factory=Tally)
    totals: dict[str, int] = msgspec.field(default_factory=dict)  # call and result -> times in the goal
    silent: int = 0  # rounds in a row without a call
    calls: int = 0
    polls: int = 0  # times a poller was parked since the last reset
    park: bool = False  # a poller stands at its last threshold
    batch: set[str] = msgspec.field(default_factory=set)  # what already counted in this batch
    fingerprints: set[str] = msgspec.field(default_factory=set)
    due: list[Notice] = msgspec.field(default_factory=list)
    halt: Notice | None = None
    halted: bool = False  # the halt stands in the journal
    recovered: bool = False  # the one recovery turn was taken

    def progress(self) -> None:
        """Reset (b): counters start again; the recovery turn stays taken."""
        fresh = Stall(
            calls=self.calls,
            fingerprints=self.fingerprints,
            recovered=self.recovered,
            batch=self.batch,
            visited=self.visited,
            totals=self.totals,
        )
        for name in self.__struct_fields__:
            setattr(self, name, getattr(fresh, name))

    def saw(self, fingerprint: str) -> None:
        """A fingerprint was taken; a value never seen is progress."""
        if fingerprint not in self.fingerprints:
            first = not self.fingerprints
            self.fingerprints.add(fingerprint)
            if not first:
                self.progress()


def keep(table: dict[str, Any], key: str, make: type[Any]) -> Any:
    """The counter under ``key``, newest last; the table stays bounded."""
    found = table.pop(key, None)
    if found is None:
        found = make()
        if len(table) >= TABLE:
            del table[next(iter(table))]
    table[key] = found
    return found


# ------------------------------------------------------------------------------------------------- before a call: refuse?


def refusal(stall: Stall, rules: Rules, spec: ToolSpec, ident: str, call_id: str) -> Notice | None:
    """Why this call would be refused now, or None. O(1)."""
    if not rules.on or spec.effect == "attached" or spec.poller:
        return None
    known = stall.same.get(ident)
    if known is not None:
        for name, tally, rule in (("repeat", known.repeat, rules.repeat), ("failing", known.failing, rules.failing)):
            if tally.count + 1 >= rule.refuse:
                return _refused(name, tally, ident, call_id, known.period)
    failing = _now(stall.failures, stall.failing_as, spec.name)
    if failing is not None and spec.effect != "shell" and failing.count + 1 >= rules.same_failure.refuse:
        return _refused("same failure", failing, spec.name, call_id)
    answer = _now(stall.answers, stall.answering, spec.name)
    if answer is not None and answer.count + 1 >= rules.same_answer.refuse and ident not in answer.names:
        return _refused("same answer", answer, spec.name, call_id)
    return None


def _now(table: dict[str, dict[str, Tally]], at: dict[str, str], tool: str) -> Tally | None:
    """The count of what a tool came to last: what its next call would most likely come to."""
    way = at.get(tool)
    return None if way is None else table[tool].get(way)


def _refused(rule: str, tally: Tally, ident: str, call_id: str, period: int | None = None) -> Notice:
    count = tally.count + 1
    return Notice(rule, count, ident, tally.seqs[-8:], REFUSED[rule].format(n=count), period, call_id)


def near(stall: Stall, rules: Rules, spec: ToolSpec, ident: str) -> bool:
    """Whether one more call like this would reach a threshold: then it is worth looking for progress first. O(1)."""
    if not rules.on or spec.effect == "attached":
        return False
    known = stall.same.get(ident)
    if known is not None and (
        known.repeat.count + 1 >= rules.repeat.notice or (known.failed and known.failing.count + 1 >= rules.failing.notice)
    ):
        return True
    failing = _now(stall.failures, stall.failing_as, spec.name)
    if failing is not None and failing.count + 1 >= rules.same_failure.notice:
        return True
    answer = _now(stall.answers, stall.answering, spec.name)
    return answer is not None and answer.count + 1 >= rules.same_answer.notice


# --------------------------------------------------------------------------------------------- after a result: count it


class Seen(msgspec.Struct, frozen=True):
    """One result as the rules see it. ``way`` names how it failed: an error code with its type, or the exit status."""

    seq: int
    call_id: str
    tool: str
    ident: str
    success: bool
    norm: str
    size: int
    way: str = ""
    effect: str = "write"
    poller: bool = False
    waiting: bool = False  # exit 75: waiting for someone, no failure


def count(stall: Stall, rules: Rules, seen: Seen) -> None:
    """Count a result that came from a run or from memory."""
    stall.calls += 1
    known: Same = keep(stall.same, seen.ident, Same)
    known.period = stall.calls - known.at if known.at else None
    known.at = stall.calls
    if f"ident {seen.ident}" in stall.batch:
        return
    stall.batch.add(f"ident {seen.ident}")
    _count_same(known, seen)
    if seen.poller:
        _notice_poller(stall, rules, known, seen)
        return
    failed = not seen.success and not seen.waiting
    total = f"{seen.ident} {seen.norm}"
    stall.totals[total] = keep(stall.totals, total, int) + 1
    if failed and known.failing.count >= rules.failing.notice:
        _notice(stall, rules.failing, "failing", known.failing, seen.ident, seen)
    elif known.repeat.count >= rules.repeat.notice:
        _notice(stall, rules.repeat, "repeat", known.repeat, seen.ident, seen, known.period)
    elif stall.totals[total] == MANY:
        _notice(stall, rules.repeat, "many", Tally(MANY, [seen.seq]), seen.ident, seen)
    if failed:
        _count_failure(stall, rules, seen)
        return
    stall.failures.pop(seen.tool, None)
    stall.failing_as.pop(seen.tool, None)
    _count_answer(stall, rules, seen)


def _count_same(known: Same, seen: Seen) -> None:
    if seen.norm not in known.seen:
        known.seen = [*known.seen[-15:], seen.norm]
        known.repeat = Tally()
    known.repeat.add(seen.seq)
    if seen.success or seen.waiting:
        if known.failed:
            known.repeat = Tally()
            known.repeat.add(seen.seq)
        known.failing, known.failed, known.ways = Tally(), False, []
        return
    if seen.way not in known.ways:
        known.ways = [*known.ways[-7:], seen.way]
        known.failing = Tally()
    known.failing.add(seen.seq)
    known.failed = True


def _count_failure(stall: Stall, rules: Rules, seen: Seen) -> None:
    stall.failing_as[seen.tool] = seen.way
    tally: Tally = keep(keep(stall.failures, seen.tool, dict), seen.way, Tally)
    _variant(stall, rules.same_failure, "same failure", tally, seen)


def _count_answer(stall: Stall, rules: Rules, seen: Seen) -> None:
    if seen.effect not in ("read", "read_outside"):
        return
    if seen.size < SHORT_ANSWER:
        stall.answering.pop(seen.tool, None)
        return
    stall.answering[seen.tool] = seen.norm
    tally: Tally = keep(keep(stall.answers, seen.tool, dict), seen.norm, Tally)
    _variant(stall, rules.same_answer, "same answer", tally, seen)


def _variant(stall: Stall, rule: Rule, name: str, tally: Tally, seen: Seen) -> None:
    """Count different calls that come to the same, at most one a batch: parallel calls are one thought."""
    if seen.ident in tally.names or f"{name} {seen.tool}" in stall.batch:
        return
    stall.batch.add(f"{name} {seen.tool}")
    if len(tally.names) < TABLE:
        tally.names.add(seen.ident)
    tally.add(seen.seq)
    if tally.count >= rule.notice:
        _notice(stall, rule, name, tally, seen.tool, seen)


def _notice(stall: Stall, rule: Rule, name: str, tally: Tally, ident: str, seen: Seen, period: int | None = None) -> None:
    if f"notice {name}" in stall.batch or any(n.tool_call_id == seen.call_id for n in stall.due):
        return  # one a rule and batch, one a result: the first is the narrowest
    stall.batch.add(f"notice {name}")
    every = f", every {period} calls" if period and period > 1 else ""
    text = NOTICED[name].format(n=tally.count, refuse=rule.refuse, period=every)
    stall.due.append(Notice(name, tally.count, ident, tally.seqs[-8:], text, period, seen.call_id))


def _notice_poller(stall: Stall, rules: Rules, known: Same, seen: Seen) -> None:
    if known.repeat.count == rules.poller.notice:
        _notice(stall, rules.poller, "poller", known.repeat, seen.ident, seen)
    if known.repeat.count >= rules.poller.halt:
        known.repeat = Tally()
        stall.park = True


def count_refused(stall: Stall, rules: Rules, seen: Seen, rule: str) -> None:
    """Count a call that a rule refused: it keeps the result of the last real one, and refusals of a batch are one."""
    known = stall.same.get(seen.ident)
    if known is not None:
        known.repeat.add(seen.seq)
        if known.failed:
            known.failing.add(seen.seq)
    if f"refused {rule}" in stall.batch:
        return
    stall.batch.add(f"refused {rule}")
    if rule in ("repeat", "failing"):
        if "refusal" not in stall.batch:
            stall.batch.add("refusal")
            stall.refusals.add(seen.seq)
        if stall.refusals.count >= rules.refusals:
            tally = known.repeat if known is not None and rule == "repeat" else stall.refusals
            halt(stall, rule, tally, seen.ident)
        return
    table, at = (stall.failures, stall.failing_as) if rule == "same failure" else (stall.answers, stall.answering)
    same = _now(table, at, seen.tool)
    if same is None:
        return
    same.add(seen.seq)
    if same.count >= (rules.same_failure.halt if rule == "same failure" else rules.same_answer.halt):
        halt(stall, rule, same, seen.tool)


def count_wrong(stall: Stall, rules: Rules, seen: Seen, unknown: bool) -> None:
    """Count a call of an unknown tool, or one whose arguments do not parse or fit; once a batch, in a row."""
    name, tally, rule = (
        ("unknown tool", stall.unknown, rules.unknown_tool) if unknown else ("malformed", stall.malformed, rules.malformed)
    )
    if name in stall.batch or not rules.on:
        return
    stall.batch.add(name)
    tally.add(seen.seq)
    if tally.count >= rule.notice:
        _notice(stall, rule, name, tally, seen.tool, seen)
    if tally.count >= rule.halt:
        halt(stall, name, tally, seen.tool)


def count_denied(stall: Stall, rules: Rules, seen: Seen) -> None:
    """Count a call that a rule or a person refused."""
    first = seen.ident not in stall.denials
    keep(stall.denials, seen.ident, int)
    stall.denials[seen.ident] += 1
    if "denied" in stall.batch:
        return
    stall.batch.add("denied")
    stall.denied.add(seen.seq)
    if rules.on and first:
        _notice(stall, rules.denied, "denied", stall.denied, seen.ident, seen)
    if rules.on and stall.denied.count >= rules.denied.halt:
        halt(stall, "denied", stall.denied, seen.ident)


def ran(stall: Stall) -> None:
    """A call of a known tool ran: what is counted in a row starts again."""
    stall.unknown, stall.malformed = Tally(), Tally()


def halt(stall: Stall, rule: str, tally: Tally, ident: str) -> None:
    """A rule wants the goal to stop; the first one stands."""
    if stall.halt is None:
        stall.halt = Notice(rule, tally.count, ident, tally.seqs[-8:], f"{rule}: {tally.count} times ({ident.split(':')[0]})")
