"""Limits on every axis, in its own unit, reserved before spending."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.limits import (
    AXES,
    CLOSING,
    DEFAULTS,
    Full,
    Reservation,
    Spend,
    axis_of,
    call_full,
    closing_reserve,
    deadline,
    expected_input,
    parse,
    reserve,
    show,
    warnings,
)
from endstop.core.messages import Price, Usage
from endstop.core.stall import Rules
from endstop.errors import UsageError
from tests.core.sim import Sim, call, says, spec

PRICE = Price(input=1e-6, output=4e-6, cache_read=1e-7, cache_write=2e-6)
ROOMY = {"turns": 50.0, "rounds": 15.0}
FREE = Rules(on=False)
FILE = ev.Contract(deliverables=["out"], judge="none")


# ------------------------------------------------------------------------------------------------------------ how they are said


@pytest.mark.parametrize(
    ("text", "axis", "cap"),
    [
        ("cost=2usd", "cost", 2.0),
        ("cost=0.5$", "cost", 0.5),
        ("cost=3", "cost", 3.0),
        ("tokens=400k", "tokens", 400_000.0),
        ("tokens=1.5M", "tokens", 1_500_000.0),
        ("turns=60", "turns", 60.0),
        ("wall=45m", "wall", 2700.0),
        ("wall=90", "wall", 90.0),
        ("active=1.5h", "active", 5400.0),
        ("wall=7d", "wall", 604_800.0),
        (" turns = 5 ", "turns", 5.0),
        ("tool:shell=3", "tool:shell", 3.0),
        ("turns=none", "turns", None),
        ("cost=NONE", "cost", None),
    ],
)
def test_a_limit_is_said_in_its_own_unit(text: str, axis: str, cap: float | None) -> None:
    """Axis, amount and unit; none switches it off, explicitly."""
    assert parse(text) == (axis, cap)


BAD = (
    "|turns|turns=|bogus=1|tool:=1|turns=-1|turns=0|turns=1.5|turns=many|cost=2eur|cost=2k|wall=3y|wall=5k|tokens=5m5|tokens=1usd"
)
BAD += "|turns=1h|cost=0|tokens=0.5|turns=nan|turns=inf|cost=1e9"


@pytest.mark.parametrize("text", BAD.split("|"))
def test_what_is_no_limit_is_said_with_a_remedy(text: str) -> None:
    """Unknown axes, missing values, wrong units and amounts that are none."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.hint
    assert caught.value.where


def test_defaults_are_finite_and_the_documented_ones() -> None:
    """Nothing runs unbounded unless somebody says so."""
    assert DEFAULTS == {
        "cost": 5.0,
        "tokens": 5e6,
        "turns": 200,
        "rounds": 15,
        "tool-calls": 600,
        "tool-calls/turn": 24,
        "tool:web_search": 50,
        "verifications": 6,
        "active": 4 * 3600.0,
        "wall": 7 * 86400.0,
        "output/call": 16_000,
    }
    assert all(cap < inf for cap in DEFAULTS.values())
    assert {"input-tokens", "output-tokens", "tool-calls/round"} == set(AXES) - set(DEFAULTS)


@pytest.mark.parametrize(
    ("axis", "amount", "text"),
    [
        ("cost", 1.254, "1.25 usd"),
        ("cost", 0.0, "0.00 usd"),
        ("cost", 0.0012, "0.00120 usd"),
        ("tokens", 412_345, "412k tokens"),
        ("tokens", 5_000_000, "5M tokens"),
        ("tokens", 1_250_000, "1.25M tokens"),
        ("turns", 60, "60 turns"),
        ("tool:shell", 3, "3 calls"),
        ("wall", 2700, "45m"),
        ("wall", 59, "59s"),
        ("wall", 5400, "1.5h"),
        ("wall", 604_800, "7d"),
    ],
)
def test_amounts_are_shown_in_words(axis: str, amount: float, text: str) -> None:
    """Short, with the unit."""
    assert show(axis, amount) == text


def test_any_tool_has_a_limit_and_nothing_else_is_made_up() -> None:
    """tool:NAME is an axis for every name; a typo is an error."""
    assert axis_of("tool:pay").unit == "calls"
    with pytest.raises(UsageError, match="toolcalls"):
        axis_of("toolcalls")


# ---------------------------------------------------------------------------------------------------------------- reservation


def fits(spend: Spend, caps: dict[str, float], **more: Any) -> Reservation | Full:
    """A reservation of 1000 in and at most 16000 out."""
    wanted = {"input": 1000, "want": 16_000, "price": None, "keep": {}, "turn": True} | more
    return reserve(spend, caps, **wanted)


def test_without_caps_all_of_the_model_is_reserved() -> None:
    """Output is what the model can give."""
    room = fits(Spend(), {})
    assert isinstance(room, Reservation)
    assert (room.max_output, room.input) == (16_000, 1000)
    assert room.amounts == {"tokens": 17_000.0, "input-tokens": 1000.0, "output-tokens": 16_000.0}


@pytest.mark.parametrize(
    ("caps", "output"),
    [
        ({"output/call": 4000.0}, 4000),
        ({"tokens": 6000.0}, 5000),
        ({"output-tokens": 3000.0}, 3000),
        ({"tokens": 2024.0}, 1024),
        ({"tokens": 50_000.0}, 16_000),
    ],
)
def test_output_is_what_still_fits(caps: dict[str, float], output: int) -> None:
    """The tightest axis bounds it."""
    room = fits(Spend(), caps)
    assert isinstance(room, Reservation)
    assert room.max_output == output


@pytest.mark.parametrize(
    ("caps", "axis"),
    [
        ({"tokens": 2023.0}, "tokens"),
        ({"tokens": 500.0}, "tokens"),
        ({"output-tokens": 1023.0}, "output-tokens"),
        ({"input-tokens": 999.0}, "input-tokens"),
        ({"turns": 0.0}, "turns"),
    ],
)
def test_a_call_that_could_hardly_answer_does_not_start(caps: dict[str, float], axis: str) -> None:
    """Under 1024 tokens of output, or over any axis, is full."""
    full = fits(Spend(), caps)
    assert isinstance(full, Full)
    assert full.axis == axis


def test_a_model_with_a_small_output_is_not_asked_for_more() -> None:
    """A model that gives at most 500 tokens starts with 500."""
    room = fits(Spend(), {"tokens": 1600.0}, want=500)
    assert isinstance(room, Reservation)
    assert room.max_output == 500


def test_money_is_reserved_at_the_dearer_input() -> None:
    """Cache writes may cost more than input: the upper bound counts them."""
    room = fits(Spend(), {"cost": 1.0}, price=PRICE)
    assert isinstance(room, Reservation)
    assert room.amounts["cost"] == pytest.approx(1000 * 2e-6 + 16_000 * 4e-6)
    tight = fits(Spend(), {"cost": 0.010}, price=PRICE)
    assert isinstance(tight, Reservation)
    assert tight.max_output == 2000
    full = fits(Spend(cost=0.5), {"cost": 0.505}, price=PRICE)
    assert isinstance(full, Full)
    assert (full.axis, full.spent, full.cap) == ("cost", 0.5, 0.505)


def test_money_binds_only_where_a_price_is_known() -> None:
    """Without a price the other axes bind; free output is bounded by input alone."""
    assert isinstance(fits(Spend(cost=99.0), {"cost": 1.0}), Reservation)
    free = Price(input=1e-6, output=0.0, cache_read=0.0, cache_write=0.0)
    assert isinstance(fits(Spend(), {"cost": 0.001}, price=free), Reservation)
    assert isinstance(fits(Spend(), {"cost": 0.0009}, price=free), Full)


def test_the_judge_does_not_count_on_turns() -> None:
    """Turns are calls of the agent's model."""
    assert isinstance(fits(Spend(turns=5), {"turns": 5.0}), Full)
    assert isinstance(fits(Spend(turns=5), {"turns": 5.0}, turn=False), Reservation)


def test_what_is_kept_back_is_not_reserved() -> None:
    """The closing reserve is not spent on work."""
    keep = {"turns": 1.0, "tokens": 9000.0}
    assert isinstance(fits(Spend(turns=3), {"turns": 5.0}, keep=keep), Reservation)
    assert isinstance(fits(Spend(turns=4), {"turns": 5.0}, keep=keep), Full)
    room = fits(Spend(), {"tokens": 20_000.0}, keep=keep)
    assert isinstance(room, Reservation)
    assert room.max_output == 10_000


def test_expected_input_is_the_last_report_and_what_came_since() -> None:
    """Bytes before the first report, then report plus bytes since, never under a third of a token a byte."""
    assert expected_input(Spend(), 3000, 3000) == 1000
    spend = Spend(last_input=500, last_output=100)
    assert expected_input(spend, 99_999, 300) == 700
    spend.ratio = 0.5
    assert expected_input(spend, 99_999, 300) == 750


@pytest.mark.parametrize(
    ("caps", "kept"),
    [
        ({}, True),
        ({"turns": 5.0}, True),
        ({"turns": 4.0}, False),
        ({"tokens": 45_000.0}, True),
        ({"tokens": 44_999.0}, False),
        ({"input-tokens": 39_999.0}, False),
        ({"output-tokens": 4999.0}, False),
        ({"wall": 450.0}, True),
        ({"wall": 449.0}, False),
        ({"active": 449.0}, False),
        ({"cost": 0.1}, True),
        ({"cost": 0.09}, False),
    ],
)
def test_the_closing_reserve_never_takes_more_than_a_fifth(caps: dict[str, float], kept: bool) -> None:
    """Where it would, nothing is kept back and no model closes."""
    reserve_ = closing_reserve(caps, PRICE)
    assert bool(reserve_) is kept
    if kept:
        assert reserve_ == CLOSING | {"cost": pytest.approx(8000 * 2e-6 + 1000 * 4e-6)}


@pytest.mark.parametrize(
    ("caps", "axis"),
    [
        ({"tool-calls": 7.0}, "tool-calls"),
        ({"tool-calls/turn": 5.0}, "tool-calls/turn"),
        ({"tool-calls/round": 6.0}, "tool-calls/round"),
        ({"tool:pay": 4.0}, "tool:pay"),
        ({"tool:other": 1.0, "tool-calls": 8.0}, None),
        ({}, None),
    ],
)
def test_calls_that_start_together_are_counted_together(caps: dict[str, float], axis: str | None) -> None:
    """Two that begin with it count beside what was used, on the whole and for the tool."""
    spend = Spend(calls=5, turn_calls=3, round_calls=4, by_tool={"pay": 2})
    full = call_full(spend, caps, "pay", 2, 2)
    assert (full.axis if full else None) == axis


def test_the_deadline_is_wall_or_active_whichever_is_first() -> None:
    """In epoch seconds, less what is kept for closing; infinite without both."""
    spend = Spend(since=1000.0)
    assert deadline(spend, {}, {}, 1100.0, 5.0) == inf
    assert deadline(spend, {"wall": 500.0}, {}, 1100.0, 5.0) == 1500.0
    assert deadline(spend, {"wall": 500.0, "active": 30.0}, {}, 1100.0, 5.0) == 1125.0
    assert deadline(spend, {"wall": 500.0}, {"wall": 90.0, "active": 90.0}, 1100.0, 5.0) == 1410.0


def test_one_warning_an_axis_at_four_fifths() -> None:
    """Axes of a turn or round are not warned of; one that was is not again."""
    spend = Spend(turns=8, calls=79, turn_calls=24, since=0.0, by_tool={"pay": 4})
    caps = {"turns": 10.0, "tool-calls": 100.0, "tool-calls/turn": 24.0, "wall": 100.0, "tool:pay": 5.0}
    assert [w.axis for w in warnings(spend, caps, 80.0)] == ["turns", "wall", "tool:pay"]
    spend.warned = {"turns", "wall", "tool:pay"}
    assert warnings(spend, caps, 99.0) == []


def test_spend_is_told_on_every_axis() -> None:
    """Reports name all additive axes and each tool."""
    spend = Spend(cost=0.1234567, input=10, output=5, turns=1, by_tool={"b": 2, "a": 1}, since=100.0)
    told = spend.as_dict(160.0)
    assert told["cost"] == 0.123457
    assert (told["tokens"], told["wall"], told["tool:a"], told["tool:b"]) == (15, 60.0, 1.0, 2.0)
    assert spend.used("output/call", 0) == 0
    with pytest.raises(KeyError):
        spend.used("bogus", 0)


# --------------------------------------------------------------------------------------------------------- held by the kernel


def busy(tokens: tuple[int, int] = (100, 20), **arguments: Any) -> Any:
    """A model that always makes one new call."""
    return lambda s: says("", call("pay", n=len(s.asked), **arguments), tokens=tokens)


PAY = {"pay": (spec("pay"), lambda a: (True, f"paid {a['n']}"))}
SEARCH = {"web": (spec("web", "read_outside"), lambda a: (True, f"found {a['n']}"))}


@pytest.mark.parametrize(
    ("axis", "cap"),
    [("turns", 10.0), ("tokens", 60_000.0), ("input-tokens", 60_000.0), ("output-tokens", 20_000.0), ("cost", 0.5)],
)
def test_a_full_pot_caps_with_a_closing_turn_inside_the_cap(axis: str, cap: float) -> None:
    """Limit, unit, scope, spent and cap are named; the handoff turn is the last one and fits too."""
    sim = Sim(busy((3000, 900)), tools=PAY, limits={axis: cap}, rules=FREE, price=PRICE)
    priced(sim)
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "capped"
    detail = ended.handoff["detail"]
    assert (detail["limit"], detail["cap"], detail["unit"]) == (axis, cap, AXES[axis].unit)
    assert sim.asked[-1].purpose == "close"
    assert [a.purpose for a in sim.asked[:-1]] == ["work"] * (len(sim.asked) - 1)
    assert sim.state.spend.used(axis, sim.now) <= cap
    assert ended.handoff["summary"] == "handoff"


def priced(sim: Sim) -> None:
    """Usage is reported with the price's cost."""
    record = sim.record

    def with_cost(*events: ev.Event) -> None:
        for event in events:
            if isinstance(event, ev.AssistantUsage):
                cost = PRICE.cost(Usage(event.input_tokens, event.output_tokens))
                event = ev.AssistantUsage(**{f: getattr(event, f) for f in event.__struct_fields__} | {"cost": cost})
            record(event)

    sim.record = with_cost  # type: ignore[method-assign]


@pytest.mark.parametrize(("axis", "cap"), [("turns", 4.0), ("tokens", 40_000.0), ("active", 400.0), ("wall", 400.0)])
def test_where_closing_would_eat_a_fifth_no_model_closes(axis: str, cap: float) -> None:
    """The handoff is written from state alone, and all of the cap is there for work."""
    sim = Sim(busy((3000, 900)), tools=slow(60.0), limits={axis: cap}, rules=FREE)
    ended = sim_time(sim).run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", axis)
    assert all(a.purpose == "work" for a in sim.asked)
    assert ended.handoff["summary"] == ""
    if axis == "turns":
        assert len(sim.asked) == 4


CLOCK: list[Sim] = []


def slow(seconds: float) -> Any:
    """A payment that takes its time."""

    def play(arguments: dict[str, Any]) -> tuple[bool, str]:
        CLOCK[-1].now += seconds
        return True, f"paid {arguments['n']}"

    return {"pay": (spec("pay"), play)}


def sim_time(sim: Sim) -> Sim:
    """The sim whose clock slow tools move."""
    CLOCK[:] = [sim]
    return sim


@pytest.mark.parametrize("axis", ["active", "wall"])
def test_time_caps_with_room_for_the_closing_turn(axis: str) -> None:
    """90 seconds are kept back for it."""
    sim = sim_time(Sim(busy(), tools=slow(100.0), limits={axis: 1000.0}, rules=FREE))
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", axis)
    assert sim.asked[-1].purpose == "close"
    assert sim.state.spend.used(axis, sim.now) <= 1000.0 + 100.0  # one tool that ran through is the driver's to end


def test_parked_time_counts_to_wall_and_not_to_active() -> None:
    """Six waits of an hour leave active time where it was."""
    sim = Sim(lambda s: says("", call("wait", seconds=3600, n=len(s.asked))), limits={"active": 3600.0, "turns": 6.0}, rules=FREE)
    ended = sim.run()
    assert ended is not None
    assert ended.handoff["detail"]["limit"] == "turns"
    assert ended.handoff["spend"]["wall"] > 5 * 3600
    assert ended.handoff["spend"]["active"] < 60


@pytest.mark.parametrize(("axis", "cap", "executed"), [("tool-calls", 5.0, 5), ("tool:pay", 4.0, 4)])
def test_over_a_limit_of_calls_nothing_runs_and_the_claim_still_counts(axis: str, cap: float, executed: int) -> None:
    """Every call beyond gets its result over_limit; a claim spends nothing of it and is checked."""
    claim = ev.Contract(judge="none", confront="never")
    sim = Sim(
        lambda s: (
            says("", call("task_complete"))
            if len(s.asked) == 4
            else says("", *[call("pay", n=n + 10 * len(s.asked)) for n in range(3)])
        ),
        tools=PAY,
        contract=claim,
        limits=ROOMY | {axis: cap},
        rules=FREE,
    )
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert len(sim.executed) == executed
    over = [c for c in sim.of(ev.ToolComplete) if c.error and c.error.code == "over_limit"]
    assert len(over) == 9 - executed
    assert all(not c.executed and axis in c.result.content for c in over)


def test_calls_of_one_turn_and_round_have_their_own_limits() -> None:
    """A turn's limit starts again with the next turn, a round's with the next round."""
    sim = Sim(
        lambda s: says("hm") if len(s.asked) == 3 else says("", *[call("pay", n=n + 10 * len(s.asked)) for n in range(5)]),
        tools=PAY,
        contract=FILE,
        limits={"turns": 8.0, "rounds": 9.0, "tool-calls/turn": 3.0, "tool-calls/round": 4.0},
        rules=FREE,
    )
    sim.run()
    assert len(sim.executed) == 3 + 1 + 3 + 1


def test_parallel_calls_of_one_tool_do_not_overrun_its_limit() -> None:
    """Reads start together; the tool's own limit counts those that start beside them."""
    sim = Sim(
        lambda s: says("", *[call("web", n=n) for n in range(6)]) if len(s.asked) == 1 else says("", call("web", n=99)),
        tools=SEARCH,
        limits=ROOMY | {"tool:web": 4.0, "turns": 2.0},
        rules=FREE,
    )
    sim.run()
    assert len(sim.executed) == 4


def test_rounds_are_capped_and_named() -> None:
    """A nudge that opens no further round closes the goal."""
    sim = Sim(
        lambda s: says("", call("pay", n=len(s.asked))) if len(s.asked) % 2 else says("hm"),
        tools=PAY,
        limits={"rounds": 3.0},
        contract=FILE,
    )
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"], sim.state.spend.rounds) == ("capped", "rounds", 3)


def test_a_human_cannot_open_a_round_that_does_not_fit() -> None:
    """What he writes between rounds is worked on only where a round is left; it is not lost for a resume."""
    sim = Sim(lambda s: says("hm"), limits={"rounds": 1.0, "turns": 50.0}, contract=FILE)
    sim.until(effects.CallModel)
    assert isinstance(sim.step(), effects.Record)
    assert not sim.state.round_open
    sim.hear("use tabs")
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, sim.state.spend.rounds) == ("capped", 1)
    sim.resume(limits={"rounds": 2.0})
    sim.until(effects.CallModel)
    assert "use tabs" in sim.prompt
    assert sim.state.spend.rounds == 2


def test_verifications_are_capped_before_the_check_that_does_not_fit() -> None:
    """Returned claims count; the one that would be over is not checked and says so."""
    red = ev.Contract(gates=[ev.Gate(gate_id="g", run="t")], judge="none", confront="never")
    sim = Sim(
        lambda s: says("", call("pay", n=len(s.asked)), call("task_complete", summary="x")),
        tools=PAY,
        contract=red,
        gates=lambda g, s: ("fail", 1),
        limits=ROOMY | {"verifications": 2.0},
        rules=FREE,
    )
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"], sim.state.spend.verifications) == ("capped", "verifications", 2)
    assert "not checked" in ended.missing
    assert len(sim.of(ev.GoalReturned)) == 2


def test_confrontations_and_refused_claims_do_not_count() -> None:
    """Only a check that ended in a return or an end is a verification."""
    sim = Sim(lambda s: says("", call("task_complete", summary="x")), contract=ev.Contract(judge="none"))
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert len(sim.of(ev.GoalConfronted)) == 1
    assert sim.state.spend.verifications == 1


def test_a_judge_that_does_not_fit_caps_the_goal() -> None:
    """The claim is not judged, which is said; the judge is not asked."""
    sim = Sim(
        lambda s: says("", call("task_complete", summary="x"), tokens=(500, 50)),
        contract=ev.Contract(confront="never"),
        judge=lambda s: pytest.fail("asked"),
        limits=ROOMY | {"tokens": 4000.0},
    )
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["limit"]) == ("capped", "tokens")
    assert "not judged" in ended.missing


def test_the_judge_reads_less_where_less_fits() -> None:
    """24 k tokens of evidence, else half of it, else 4 k."""
    budgets = []
    for tokens in (200_000.0, 24_000.0, 8_000.0):
        sim = Sim(
            lambda s: says("", call("task_complete", summary="x")),
            contract=ev.Contract(confront="never"),
            limits=ROOMY | {"tokens": tokens},
            judge=lambda s: ev.GoalJudged(result="verdict", achieved=True, missing=[], because=[1], raw=""),
        )
        budgets.append(sim.until(effects.AskJudge).budget // 3)
        assert sim.state.spend.reserved == {}
    assert budgets == [24_000, 12_000, 4_000]


def test_warned_once_also_across_a_crash_and_a_resume() -> None:
    """The notice at 80 % is in the conversation, one for the limit."""
    sim = Sim(busy(), tools=PAY, limits={"turns": 10.0}, rules=FREE)
    for _ in range(9):
        sim.until(effects.CallModel)
        sim.until(effects.RunTools)
        sim.crash()
        sim.until(effects.Look)
    assert len(sim.of(ev.LimitWarned)) == 1
    sim.run()
    sim.resume()
    sim.run()
    assert [(w.limit, w.unit, w.scope, w.spent, w.cap) for w in sim.of(ev.LimitWarned)] == [("turns", "turns", "goal", 8.0, 10.0)]
    assert sim.prompt.count("80% of the limit turns") == 1


def test_unreported_usage_is_estimated_and_what_came_since_the_last_report_still_counts() -> None:
    """A stream without usage costs its reservation, marked, and the next request is not taken for smaller than it is."""
    big = "x" * 30_000

    def model(sim: Sim) -> Any:
        answer = says("", call("pay", n=len(sim.asked)))
        return answer if len(sim.asked) in (1, 4) else type(answer)(answer.text, answer.requests, "stop", None)

    tools = {"pay": (spec("pay"), lambda a: (True, big + str(a["n"])))}
    sim = Sim(model, tools=tools, limits=ROOMY, rules=FREE)
    starts = [sim.until(effects.CallModel).events[-1].reserved["input-tokens"] for _ in range(4)]
    assert sim.state.spend.estimated
    assert starts[1] > 10_000
    assert starts[2] > 20_000
    assert starts[3] > 30_000


def test_the_dearest_tokens_a_byte_seen_are_assumed_from_then_on() -> None:
    """A provider that counts more tokens than expected once is believed."""
    sim = Sim(busy((4000, 20)), tools=PAY, limits=ROOMY, rules=FREE)
    sim.until(effects.CallModel)
    assert sim.state.spend.ratio > 1 / 3
    ratio = sim.state.spend.ratio
    sim.model = busy((10, 20))
    sim.until(effects.CallModel)
    assert sim.state.spend.ratio == ratio


def test_with_no_limits_and_no_rules_it_is_a_plain_loop() -> None:
    """A hundred equal calls run, nothing is refused, noticed or capped; the claim still decides."""
    sim = Sim(
        lambda s: says("", call("look")) if len(s.asked) <= 300 else says("", call("task_complete", summary="x")),
        tools={"look": (spec("look", "read"), lambda a: (True, "the same answer, every time"))},
        limits={},
        rules=FREE,
    )
    ended = sim.run(5000)
    assert ended is not None
    assert ended.phase == "done"
    assert len(sim.executed) == 300
    assert not {"stall.noticed", "stall.blocked", "limit.warned", "limit.reached"} & set(sim.types)


def test_axes_that_are_off_do_not_bind() -> None:
    """Only what has a cap is a limit."""
    sim = Sim(
        lambda s: says("", call("pay", n=len(s.asked))) if len(s.asked) < 40 else says("", call("task_complete")),
        tools=PAY,
        limits={},
    )
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert len(sim.executed) == 39


def test_a_hint_to_a_goal_that_is_full_of_rounds_opens_none() -> None:
    """Asked before its end, a human who only hints raises nothing: it ends as it was about to."""
    sim = Sim(
        lambda s: says("hm"),
        contract=FILE,
        limits={"rounds": 1.0, "turns": 50.0},
        reachable=True,
        policy=ev.Policy(on_halt="ask"),
    )
    sim.until(effects.Wait)
    sim.hear("try harder")
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, sim.state.spend.rounds) == ("capped", 1)
