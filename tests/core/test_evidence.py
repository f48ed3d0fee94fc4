"""What is known of workspace and criteria: fresh or stale, red or green, and what that shows."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects
from endstop.core import events as ev
from endstop.core.evidence import (
    Evidence,
    GateState,
    absent,
    confrontation,
    discriminating,
    finished,
    fresh,
    gate_report,
    last_try,
    may_show,
    red_gates,
    standing,
    tampered,
)
from tests.core.sim import Sim, call, says, spec

GATE = ev.Gate(gate_id="g", run="make test")
GATED = ev.Contract(gates=[GATE], judge="none")


def run(outcome: str, exit_code: int | None = None, **more: Any) -> ev.GateFinished:
    """A gate's end."""
    return ev.GateFinished(
        gate_id="g",
        outcome=outcome,
        exit_code=exit_code,
        output=more.pop("output", "tail"),
        duration_ms=1,
        fingerprint="f",
        stale=False,
        **more,
    )


def look(purpose: str = "claim", **more: Any) -> ev.WorkspaceObserved:
    """A look at a workspace."""
    wanted = {"world": 0, "fingerprint": "f", "paths": [], "diff": "", "protected": []} | more
    return ev.WorkspaceObserved(purpose=purpose, **wanted)


# ------------------------------------------------------------------------------------------------------------------- freshness


@pytest.mark.parametrize(
    ("change", "still"),
    [
        ({}, True),
        ({"world": 1}, False),
        ({"fingerprint": "other"}, False),
    ],
)
@pytest.mark.parametrize("outcome", ["pass", "fail"])
def test_a_result_holds_only_in_its_world_and_workspace(outcome: str, change: dict[str, Any], still: bool) -> None:
    """An effectful call or another fingerprint makes it stale, green or red."""
    seen = Evidence(fingerprint="f")
    state = seen.gates.setdefault("g", GateState())
    assert not fresh(seen, GATE)
    finished(seen, state, run(outcome), 5)
    assert fresh(seen, GATE)
    for name, value in change.items():
        setattr(seen, name, value)
    assert fresh(seen, GATE) is still


def test_a_broken_result_is_never_fresh() -> None:
    """Broken is no answer."""
    seen = Evidence(fingerprint="f")
    finished(seen, seen.gates.setdefault("g", GateState()), run("broken", 126), 5)
    assert not fresh(seen, GATE)


def test_world_never_falls_and_ends_a_row_of_reads() -> None:
    """Touching it raises it by one."""
    seen = Evidence(reads=9)
    seen.touch()
    assert (seen.world, seen.reads) == (1, 0)


@pytest.mark.parametrize(
    ("before", "after", "better"),
    [
        (run("fail", 1), run("pass", 0), True),
        (run("fail", 1, failing=["a", "b"]), run("fail", 1, failing=["a"]), True),
        (run("fail", 1, failing=["a"]), run("fail", 1, failing=["a", "b"]), False),
        (run("fail", 1, failing=["a"]), run("fail", 1, failing=["b"]), False),
        (run("fail", 1), run("fail", 1, failing=["a"]), False),
        (run("fail", 1, failing=["a"]), run("fail", 1), False),
        (run("pass", 0), run("pass", 0), False),
        (run("broken", 126), run("pass", 0), False),
    ],
)
def test_progress_is_a_red_gate_that_passes_or_fails_in_fewer_tests(
    before: ev.GateFinished, after: ev.GateFinished, better: bool
) -> None:
    """Nothing else of a gate is progress; unknown numbers of tests are not compared."""
    seen, state = Evidence(), GateState(baseline="fail")
    finished(seen, state, before, 1)
    assert finished(seen, state, after, 2) is better


def test_a_command_that_was_missing_at_the_start_is_red_until_the_work_brings_it() -> None:
    """127 at the start is work to do; where the command was there before, it is broken."""
    seen = Evidence()
    first = GateState()
    finished(seen, first, run("broken", 127), 1)
    assert (first.outcome, first.broken, first.absent) == ("fail", 0, True)
    first.baseline = first.outcome
    finished(seen, first, run("broken", 127), 2)
    assert (first.outcome, first.broken) == ("fail", 0)
    there = GateState(baseline="fail")
    finished(seen, there, run("broken", 127), 1)
    assert (there.outcome, there.broken) == ("broken", 1)
    other = GateState()
    finished(seen, other, run("broken", 126), 1)
    assert (other.outcome, other.broken) == ("broken", 1)


def test_broken_runs_are_counted_in_a_row() -> None:
    """A run that says anything starts again; after a wait one more broken run is enough."""
    seen = Evidence(parks=2, judge_broken=5)
    state = seen.gates.setdefault("g", GateState(baseline="pass"))
    for n in range(1, 4):
        finished(seen, state, run("broken", 126), n)
        assert state.broken == n
    last_try(seen, 3)
    assert (state.broken, seen.judge_broken, seen.parks) == (2, 2, 2)
    finished(seen, state, run("fail", 1), 9)
    assert (state.broken, seen.parks) == (0, 0)


# ------------------------------------------------------------------------------------------------------------- missing, shown


@pytest.mark.parametrize(
    ("start", "now", "missing"),
    [
        ("absent", "absent", "deliverable absent: out.md"),
        ("absent", "empty", "deliverable empty: out.md"),
        ("a1", "a1", "deliverable unchanged since the start: out.md"),
        ("a1", "absent", "deliverable absent: out.md"),
        ("absent", "a1", None),
        ("a1", "b2", None),
    ],
)
def test_a_deliverable_is_there_not_empty_and_not_as_at_the_start(start: str, now: str, missing: str | None) -> None:
    """All three, and then it has shown something."""
    contract = ev.Contract(deliverables=["out.md"])
    seen = Evidence(baseline=look("baseline", deliverables={"out.md": start}), look=look(deliverables={"out.md": now}))
    assert absent(seen, contract) == ([missing] if missing else [])
    assert discriminating(seen, contract) == ([] if missing else ["deliverable out.md"])


def test_nothing_seen_is_nothing_there() -> None:
    """Without a look every deliverable is missing and no input is known to be changed."""
    contract = ev.Contract(deliverables=["out.md"])
    assert absent(Evidence(), contract) == ["deliverable absent: out.md"]
    assert tampered(Evidence(), contract) == []
    assert discriminating(Evidence(), contract) == []


@pytest.mark.parametrize(("protect", "refused"), [("refuse", True), ("restore", True), ("flag", False)])
def test_a_changed_named_input_is_missing_unless_it_is_only_flagged(protect: Any, refused: bool) -> None:
    """Named ones refuse the claim; other protected files are only shown."""
    seen = Evidence(look=look(named=["tests/a.py"], protected=["tests/a.py", "setup.cfg"]))
    missing = tampered(seen, ev.Contract(protect=protect))
    assert missing == (["verifier input modified: tests/a.py"] if refused else [])


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, ["gate fails: make test (not run)"]),
        (GateState(outcome="fail", exit_code=2), ["gate fails: make test (exit 2)"]),
        (GateState(outcome="fail"), ["gate fails: make test"]),
        (GateState(outcome="fail", failing=["a", "b"]), ["gate fails: make test (a, b)"]),
        (GateState(outcome="fail", failing=["a", "b", "c", "d", "e"]), ["gate fails: make test (a, b, c and 2 more)"]),
        (GateState(outcome="pass"), []),
    ],
)
def test_a_red_gate_is_missing_with_what_is_known_of_it(state: GateState | None, text: list[str]) -> None:
    """Failing tests where they are known, else the exit status."""
    assert red_gates(Evidence(gates={"g": state} if state else {}), GATED) == text


@pytest.mark.parametrize(
    ("baseline", "outcome", "world", "shown"),
    [
        ("fail", "pass", 0, True),
        ("pass", "pass", 0, False),
        ("broken", "pass", 0, False),
        ("", "pass", 0, False),
        ("fail", "fail", 0, False),
        ("fail", "pass", 1, False),
    ],
)
def test_a_gate_discriminates_if_it_was_red_and_is_freshly_green(baseline: str, outcome: str, world: int, shown: bool) -> None:
    """Green before and after shows nothing; green from an earlier world neither."""
    seen = Evidence(baseline=look("baseline"), world=world, fingerprint="f")
    seen.gates["g"] = GateState(baseline=baseline, outcome=outcome, world=0, fingerprint="f")
    assert bool(discriminating(seen, GATED)) is shown


@pytest.mark.parametrize(
    ("seen", "contract", "may"),
    [
        (Evidence(), ev.Contract(deliverables=["a"]), False),
        (Evidence(baseline=look("baseline")), ev.Contract(deliverables=["a"]), True),
        (Evidence(baseline=look("baseline"), gates={"g": GateState(baseline="fail")}), GATED, True),
        (Evidence(baseline=look("baseline"), gates={"g": GateState(baseline="pass")}), GATED, False),
        (Evidence(baseline=look("baseline"), gates={"g": GateState()}), GATED, False),
    ],
)
def test_readiness_needs_something_that_was_red_or_absent(seen: Evidence, contract: ev.Contract, may: bool) -> None:
    """Without it no criterion could show anything."""
    assert may_show(seen, contract) is may


def test_untouched_is_as_at_the_start() -> None:
    """Nothing was begun, or a look after all of it found the fingerprint of the baseline."""
    assert Evidence().untouched
    seen = Evidence(world=2, looked=1, fingerprint="f", baseline=look("baseline"))
    assert not seen.untouched
    seen.looked = 2
    assert seen.untouched
    seen.fingerprint = "other"
    assert not seen.untouched


def test_no_progress_compares_missing_gates_and_fingerprint() -> None:
    """Any of the three makes another standing; the order in which gates ran does not."""
    seen = Evidence(fingerprint="f", gates={"b": GateState(outcome="fail", failing=["x"]), "a": GateState(outcome="pass")})
    base = standing(seen, ["m"])
    assert base == standing(Evidence(fingerprint="f", gates=dict(reversed(list(seen.gates.items())))), ["m"])
    assert base != standing(seen, ["n"])
    seen.gates["b"].failing = []
    assert base != standing(seen, ["m"])
    seen.gates["b"].failing = ["x"]
    seen.fingerprint = "g"
    assert base != standing(seen, ["m"])


# ------------------------------------------------------------------------------------------------------------------------ texts


def test_the_confrontation_shows_all_evidence_and_no_verdict() -> None:
    """Missing, gates with their start, deliverables, changed inputs, open plan items, the diff, a checklist."""
    contract = ev.Contract(gates=[GATE, ev.Gate(gate_id="h", run="lint")], deliverables=["out.md", "b.md"])
    seen = Evidence(
        look=look(
            deliverables={"out.md": "a" * 64}, named=["tests/a.py"], protected=["tests/a.py", "setup.cfg"], diff="+ line\n"
        ),
        gates={"g": GateState(baseline="pass", outcome="fail", exit_code=1, output="x" * 3000 + " boom")},
    )
    text = confrontation(seen, contract, ["write docs"], ["gate fails: make test"])
    for part in (
        "- gate fails: make test",
        "Gate `make test`: fail (exit 1, at the start: pass)",
        " boom",
        "- out.md: aaaaaaaaaaaa\n",
        "- b.md: absent",
        "- tests/a.py\n- setup.cfg",
        "- write docs",
        "+ line",
        "call task_complete again",
    ):
        assert part in text
    assert "lint" not in text
    assert len(text) < 4000


def test_a_confrontation_with_nothing_to_show_says_nothing_changed() -> None:
    """No empty sections."""
    text = confrontation(Evidence(), ev.Contract(), [], [])
    assert "Changed since the start:\nnothing" in text
    assert "Missing" not in text
    assert "Deliverables" not in text


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (GateState(outcome="pass", exit_code=0, output="secret"), "Gate `make test`: pass (exit 0)"),
        (GateState(outcome="pass", exit_code=0, retries=2), "Gate `make test`: pass (exit 0, after 2 retries)"),
        (GateState(outcome="fail", exit_code=1, output=" bad \n"), "Gate `make test`: fail (exit 1)\nbad"),
        (
            GateState(outcome="pass", exit_code=0, collected=3, baseline_collected=5),
            "Gate `make test`: pass (exit 0)\nFewer tests were collected than at the start: 3, then 5.",
        ),
        (GateState(outcome="pass", exit_code=0, collected=5, baseline_collected=5), "Gate `make test`: pass (exit 0)"),
    ],
)
def test_a_gate_in_words(state: GateState, text: str) -> None:
    """A green one in a line, a red one with the end of its output; fewer tests than at the start are said."""
    assert gate_report(GATE, state) == text


# ------------------------------------------------------------------------------------------------------- seen by the kernel


def test_a_look_that_finds_a_foreign_change_raises_the_world() -> None:
    """Somebody else edited: gates from before are stale, and it counts as progress."""
    sim = Sim(
        lambda s: says("", call("look", n=len(s.asked))),
        tools={"look": (spec("look", "read"), lambda a: (True, str(a)))},
        contract=GATED,
    )
    sim.until(effects.RunTools)
    world = sim.state.evidence.world
    sim.record(sim.look("resume"))
    assert sim.state.evidence.world == world
    sim.files["human"] = "1"
    sim.record(sim.look("resume"))
    assert sim.state.evidence.world == world + 1
    assert not fresh(sim.state.evidence, GATE)


def test_the_own_change_of_a_running_call_is_not_a_foreign_one() -> None:
    """World rose when the call began; the look after it only takes the fingerprint."""
    sim = Sim(lambda s: says(""), tools={})
    sim.until(effects.CallModel)
    sim.state.evidence.touch()
    sim.files["a"] = "1"
    sim.record(sim.look("stall"))
    assert sim.state.evidence.world == 1


def test_processes_that_start_and_exit_raise_the_world() -> None:
    """What runs beside the agent may change anything."""
    sim = Sim(lambda s: says(""))
    sim.record(
        ev.ProcessStarted(
            process_id="p", pid=1, start_time=1.0, command="srv", tool_call_id="c", notify_on_exit=True, stays=False
        )
    )
    assert (sim.state.evidence.world, list(sim.state.processes)) == (1, ["p"])
    sim.record(ev.ProcessExited(process_id="p", exit_code=0, output=""), ev.ProcessExited(process_id="q", output=""))
    assert (sim.state.evidence.world, sim.state.processes) == (2, {})  # of q nothing was known


def test_a_gate_that_could_not_be_started_leaves_the_fingerprint_as_it_was() -> None:
    """It has seen no workspace."""
    sim = Sim(lambda s: says(""), contract=GATED)
    sim.until(effects.CallModel)
    before = sim.state.evidence.fingerprint
    sim.record(ev.GateStarted(gate_id="g", purpose="claim", command="c", world=0, fingerprint=before))
    broken = run("broken", output="no such program")
    sim.record(ev.GateFinished(**{f: getattr(broken, f) for f in broken.__struct_fields__} | {"fingerprint": ""}))
    assert sim.state.evidence.fingerprint == before
    assert sim.state.evidence.gates["g"].outcome == "broken"
