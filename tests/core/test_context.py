"""What the model sees: a head that stays and a window that only grows."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from endstop.core import events as ev
from endstop.core.context import SYSTEM, Window, describe, measure, measure_head, opening
from endstop.core.messages import AssistantText, Head, ToolRequest, ToolSpec, ToolText, UserText
from tests.core.sim import Sim, call, says, spec

QUEUED = ev.GoalQueued(
    goal_id="g", objective="  make it green  ", limits={"turns": 5.0, "cost": 2.0}, model="m", fallbacks=[], workspace="/w",
    priority=0, policy=ev.Policy(mode="ask", allow=["shell(git *)"], deny=["shell(rm *)"], network=True),
    contract=ev.Contract(
        gates=[ev.Gate(gate_id="g", run="make test")], deliverables=["out.md"], inputs=["tests/a.py"], rubric=" be short "
    ),
)  # fmt: skip


def test_the_opening_says_goal_contract_rights_and_limits() -> None:
    """The first message holds all that stays true for the goal."""
    text = opening(QUEUED)
    for part in (
        "# Goal\nmake it green",
        "# Workspace\n/w",
        "exits with status 0: make test",
        "new or changed: out.md",
        "stays as it is: tests/a.py",
        "- be short",
        "mode ask",
        "network allowed",
        "allowed: shell(git *)",
        "denied: shell(rm *)",
        "turns 5,",
        "cost 2.00 usd",
    ):
        assert part in text


def test_an_opening_without_contract_and_limits_says_nothing_of_them() -> None:
    """No empty headings."""
    text = opening(msgspec.structs.replace(QUEUED, contract=ev.Contract(), limits={}, policy=ev.Policy()))
    assert "What done means" not in text
    assert "# Limits" not in text
    assert "no network in the shell" in text
    assert describe(ev.Contract()) == ""


def test_a_sent_message_is_never_rewritten() -> None:
    """Consecutive requests share every message but what came last, whatever was noticed or warned of."""
    sim = Sim(
        lambda s: says("", *[call("look", n=len(s.asked) // 3)] * 2) if len(s.asked) < 12 else says("words"),
        tools={"look": (spec("look", "read"), lambda a: (True, "the same answer, every time"))},
        limits={"turns": 13.0},
    )
    sent: list[list[object]] = []
    model = sim.model

    def watch(s: Sim) -> object:
        sent.append(list(s.state.window.messages))
        return model(s)

    sim.model = watch  # type: ignore[assignment]
    sim.run()
    assert len(sent) > 8
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    assert "stall.noticed" in sim.types
    assert "limit.warned" in sim.types


def test_the_request_hash_changes_with_every_request_and_replays() -> None:
    """turn_start names what was sent before it: a rolling digest of all messages."""
    sim = Sim(
        lambda s: says("", call("look", n=len(s.asked))),
        tools={"look": (spec("look", "read"), lambda a: (True, str(a)))},
        limits={"turns": 5.0},
    )
    sim.run()
    hashes = [e.request_hash for e in sim.of(ev.TurnStart)]
    assert len(set(hashes)) == len(hashes) >= 5


def test_a_notice_joins_the_result_it_is_about() -> None:
    """As long as the result was not sent; else it waits for the next message."""
    window = Window()
    window.add(ToolText("c1", "one"), 1)
    window.add(ToolText("c2", "two"), 1)
    size = window.size
    window.note("c1", "[endstop] é")
    assert window.messages == [ToolText("c1", "one\n[endstop] é"), ToolText("c2", "two")]
    assert window.size == size + len("\n[endstop] é".encode())
    window.seal(2)
    window.note("c1", "late")
    window.note(None, "general")
    assert window.messages == [ToolText("c1", "one\n[endstop] é"), ToolText("c2", "two")]
    assert window.notes == ["late", "general"]


@pytest.mark.parametrize("last", [ToolText("c", "text"), UserText("text")])
def test_notes_join_the_newest_message(last: ToolText | UserText) -> None:
    """They are sent with it, once, and counted."""
    window = Window()
    window.add(last, 1)
    window.notes = ["a", "b"]
    window.seal(2)
    assert window.messages[-1].text == "text\n\na\nb"
    assert window.notes == []
    assert window.size == measure(window.messages[-1])


def test_notes_without_a_new_message_become_one() -> None:
    """Where the newest message is sent already, or is the model's own."""
    window = Window()
    window.seal(2)
    window.notes = ["first"]
    window.seal(2)
    window.notes = ["second"]
    window.seal(2)
    window.add(AssistantText("mine"), 1)
    window.notes = ["third"]
    window.seal(2)
    assert [m.text for m in window.messages] == ["first", "second", "mine", "third"]
    assert window.sealed == 4


def test_the_digest_follows_the_messages() -> None:
    """Same messages, same digest; any change shows; sealing nothing new still moves it on."""
    windows = [Window(), Window(), Window()]
    for window, text in zip(windows, ("a", "a", "b"), strict=True):
        window.add(UserText(text), 1)
        window.seal(2)
    assert windows[0].digest == windows[1].digest != windows[2].digest


def test_sizes_are_bytes_and_count_everything_that_is_sent() -> None:
    """Names, arguments and opaque state count; text that no UTF-8 holds does not break it."""
    assert measure(UserText("ü")) == 2 + 60
    assert measure(ToolText("c", "\ud800x")) == 2 + 60
    bare = measure(AssistantText("hi"))
    asked = measure(AssistantText("hi", (ToolRequest("c", "look", {"path": "abc"}),), "opaque"))
    assert asked - bare == len("opaque") + 60 + len("look") + len('{"path":"abc"}')
    raw = measure(AssistantText("hi", (ToolRequest("c", "look", '{"broken'),)))
    assert raw > bare + 60
    with pytest.raises(TypeError):
        measure("no message")  # type: ignore[arg-type]


def test_the_head_counts_its_tools() -> None:
    """System text, names, descriptions and schemas."""
    tool = ToolSpec(name="t", description="desc", parameters={"type": "object"})
    assert measure_head(Head("sys")) == 3 + 60
    assert measure_head(Head("sys", (tool,))) == 3 + 60 + 60 + 1 + 4 + len('{"type":"object"}')


def test_the_system_text_names_the_ways_out() -> None:
    """The model is told how a goal ends."""
    for word in ("task_complete", "report_blocked", "ask_user"):
        assert word in SYSTEM
