"""Stall rules that look across checks and at answers: no progress, oscillation, degenerate text."""

from __future__ import annotations

import re
from collections import Counter

from endstop.core.stall import Notice, Rule, Rules, Stall, Tally, halt
from endstop.core.wording import NOTICED

LEAST_TEXT = 400
"""Characters below which an answer is not looked at for repetition."""
LEAST_SENTENCE = 12
TIMES = 8
"""Times a sentence stands in one answer, filling half of it, that make it degenerate."""
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]+")


def stands(stall: Stall, rules: Rules, seq: int, standing: str, fingerprint: str, red: bool, call_id: str | None) -> None:
    """A claim was confronted or returned.

    Args:
        standing: what is missing, what the gates say and the fingerprint: equal if nothing changed.
        red: a gate does not pass.
        call_id: the claim's call, whose result takes a notice.
    """
    if standing != stall.standing:
        stall.standing, stall.no_progress = standing, Tally()
    _count(stall, rules, rules.no_progress, "no progress", stall.no_progress, seq, call_id)
    if not red or (stall.visited and stall.visited[-1] == fingerprint):
        return
    if fingerprint in stall.visited:
        _count(stall, rules, rules.oscillation, "oscillation", stall.oscillation, seq, call_id)
    stall.visited = [*stall.visited[-63:], fingerprint]


def _count(stall: Stall, rules: Rules, rule: Rule, name: str, tally: Tally, seq: int, call_id: str | None) -> None:
    tally.add(seq)
    if rules.on and tally.count >= rule.notice and call_id:
        text = NOTICED[name].format(n=tally.count)
        stall.due.append(Notice(name, tally.count, "claim", tally.seqs[-8:], text, None, call_id))
    if rules.on and tally.count >= rule.halt:
        halt(stall, name, tally, "claim")


def repeated(text: str) -> str | None:
    """The sentence an answer says over and over, or None."""
    if len(text) < LEAST_TEXT:
        return None
    sentences = Counter(found for found in map(str.strip, _SENTENCE.findall(text + "\n")) if len(found) >= LEAST_SENTENCE)
    if not sentences:
        return None
    sentence, times = sentences.most_common(1)[0]
    return sentence if times >= TIMES and times * len(sentence) >= len(text) / 2 else None


def cut(stall: Stall, rules: Rules, seq: int, text: str) -> str:
    """The text as it goes into the window: a degenerate one ends after its sentence was said once."""
    sentence = repeated(text) if rules.on else None
    if sentence is None:
        return text
    tally = stall.degenerate
    tally.add(seq)
    if tally.count >= rules.degenerate_text.notice:
        said = NOTICED["degenerate text"]
        stall.due.append(Notice("degenerate text", tally.count, "answer", tally.seqs[-8:], said))
    if tally.count >= rules.degenerate_text.halt:
        halt(stall, "degenerate text", tally, "answer")
    return f"{text[: text.index(sentence) + len(sentence)]} …"
