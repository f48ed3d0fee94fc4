"""Rules across checks and over answers: oscillation, degenerate text, and one result many times over."""

from __future__ import annotations

import pytest

from endstop.core import events as ev
from endstop.core import stall
from endstop.core.drift import cut, repeated, stands
from endstop.core.messages import AssistantText
from endstop.core.stall import NEVER, Rule, Rules, Stall
from tests.core.sim import Sim, call, says, spec

RULES = Rules()
GATED = ev.Contract(gates=[ev.Gate(gate_id="g", run="test")], judge="none", confront="never")


def test_a_workspace_that_goes_back_and_forth_is_stuck() -> None:
    """Two versions in turn, the gate red with both: noticed the second time it is back, halted at the fourth."""

    def edit(arguments: dict) -> tuple[bool, str]:
        sim.files["f"] = arguments["text"]
        return True, f"wrote {len(sim.asked)}"

    def model(s: Sim):
        turn = len(s.asked)
        return says("", call("edit", text="ab"[turn // 2 % 2])) if turn % 2 else says("", call("task_complete", summary="x"))

    sim = Sim(model, tools={"edit": (spec("edit", "edit"), edit)}, contract=GATED, gates=lambda g, s: ("fail", 1), limits={})
    ended = sim.run()
    assert ended.phase == "stuck"
    assert ended.handoff["detail"]["rule"] == "oscillation"
    noticed = [n.count for n in sim.of(ev.StallNoticed) if n.rule == "oscillation"]
    assert noticed[:2] == [2, 3]


def test_staying_where_it_is_or_going_on_is_no_oscillation() -> None:
    """The same fingerprint twice in a row, new ones, and green gates do not count."""
    state = Stall()
    for seq, fingerprint in enumerate(["a", "a", "b", "b", "c", "d"], 1):
        stands(state, RULES, seq, fingerprint, fingerprint, True, None)
    stands(state, RULES, 7, "x", "a", False, None)
    assert state.oscillation.count == 0


LOOP = "I will now check the file again to be sure. " * 12


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Done.",
        "ok. " * 200,
        "".join(f"Step {n}: read file number {n} and look at it. " for n in range(40)),
        "def f():\n    return 1\n" * 3 + "and many other lines that differ from each other\n" * 2 + "x" * 300,
    ],
)
def test_ordinary_answers_are_left_alone(text: str) -> None:
    """Short ones, lists whose lines differ, code with a few equal lines."""
    assert repeated(text) is None
    assert cut(Stall(), RULES, 1, text) == text


def test_an_answer_that_repeats_itself_is_cut_and_the_second_one_halts() -> None:
    """The window keeps the sentence once; a notice says why; two such answers are a halt."""
    sim = Sim(
        lambda s: says(LOOP, call("look", n=len(s.asked))), tools={"look": (spec("look", "read"), lambda a: (True, str(a)))}
    )
    ended = sim.run()
    assert ended.handoff["detail"]["rule"] == "degenerate text"
    first = next(m for m in sim.state.window.messages if isinstance(m, AssistantText))
    assert first.text.count("check the file") == 1
    assert next(n.rule for n in sim.of(ev.StallNoticed)) == "degenerate text"
    assert sim.of(ev.AssistantMessage)[0].content == LOOP


def test_one_result_25_times_is_noticed_once_more_whatever_progress_lay_between() -> None:
    """A look at the same thing after each edit is honest; at the 25th time it is said once."""

    def edit(arguments: dict) -> tuple[bool, str]:
        sim.files["f"] = str(arguments["n"])
        return True, f"wrote {arguments['n']}"

    tools = {"edit": (spec("edit", "edit"), edit), "look": (spec("look", "shell"), lambda a: (True, "the same as ever"))}

    def model(s: Sim):
        turn = len(s.asked)
        if turn > 60:
            return says("", call("task_complete", summary="x"))
        return says("", call("edit", n=turn)) if turn % 2 else says("", call("look"))

    sim = Sim(model, tools=tools, limits={})
    ended = sim.run()
    assert ended.phase == "done"
    many = [n for n in sim.of(ev.StallNoticed) if n.rule == "many"]
    assert [n.count for n in many] == [stall.MANY]
    assert not sim.of(ev.StallBlocked)


def test_a_threshold_of_its_own_holds_back_the_notice() -> None:
    """The text is cut all the same."""
    state, rules = Stall(), Rules(degenerate_text=Rule(2, NEVER, 3))
    text = "The same sentence again, over and over. " * 40
    assert len(cut(state, rules, 1, text)) < 100
    assert state.due == []
    cut(state, rules, 2, text)
    assert [notice.rule for notice in state.due] == ["degenerate text"]
