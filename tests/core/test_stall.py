"""Stall rules: repetition without progress, and nothing that is progress."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core import effects, stall
from endstop.core import events as ev
from endstop.core.drift import stands
from endstop.core.goal import Verdict
from endstop.core.identity import canonical, digests, identity, mask
from endstop.core.messages import ToolSpec
from endstop.core.stall import NEVER, Rule, Rules, Seen, Stall
from tests.core.sim import Sim, call, says, spec

RULES = Rules()
READ = spec("look", "read")
LONG = "an answer of more than twenty-four characters"
FILE = ev.Contract(deliverables=["never"], judge="none")
FREE_LIMITS = {"turns": 200.0}


class Calls:
    """Calls put through the rules alone: refused where they would be, else counted."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.stall, self.rules, self.seq = Stall(), rules, 0
        self.log: list[str] = []

    def make(
        self,
        tool: str | ToolSpec = "look",
        result: str = "r",
        ok: bool = True,
        way: str = "failed",
        waiting: bool = False,
        **arguments: Any,
    ) -> str:
        """One call in a batch of its own: "refused RULE" or "ran", with "notice RULE" behind it."""
        self.stall.batch = set()
        return self.beside(tool, result, ok, way, waiting, **arguments)

    def beside(
        self,
        tool: str | ToolSpec = "look",
        result: str = "r",
        ok: bool = True,
        way: str = "failed",
        waiting: bool = False,
        **arguments: Any,
    ) -> str:
        """One more call of the same batch."""
        used = tool if isinstance(tool, ToolSpec) else spec(tool, "read")
        self.seq += 1
        ident = identity(used.name, arguments)
        seen = Seen(
            seq=self.seq,
            call_id=f"c{self.seq}",
            tool=used.name,
            ident=ident,
            success=ok,
            norm=digests(result)[1],
            size=len(result),
            way="" if ok else way,
            effect=used.effect,
            poller=used.poller,
            waiting=waiting,
        )
        refused = stall.refusal(self.stall, self.rules, used, ident, seen.call_id)
        if refused is not None:
            stall.count_refused(self.stall, self.rules, seen, refused.rule)
            said = f"refused {refused.rule}"
        else:
            stall.count(self.stall, self.rules, seen)
            said = "ran"
        said += "".join(f" notice {n.rule}" for n in self.stall.due)
        self.stall.due = []
        self.log.append(said)
        return said

    @property
    def halted(self) -> str:
        """The rule that halted, or nothing."""
        return self.stall.halt.rule if self.stall.halt else ""


def until_halt(calls: Calls, one: Any, most: int = 60) -> int:
    """How many calls until a halt."""
    for n in range(most):
        one(n)
        if calls.halted:
            return n + 1
    return 0


# --------------------------------------------------------------------------------------------------------------- repeat, failing


def test_repeat_notices_at_3_refuses_at_5_and_halts_at_the_second_refusal() -> None:
    """Same call, same result."""
    calls = Calls()
    assert [calls.make() for _ in range(6)] == [
        "ran",
        "ran",
        "ran notice repeat",
        "ran notice repeat",
        "refused repeat",
        "refused repeat",
    ]
    assert calls.halted == "repeat"
    assert calls.stall.halt is not None
    assert "repeat: 6 times (look)" in calls.stall.halt.text


def test_failing_notices_at_2_refuses_at_5_and_halts_at_the_second_refusal() -> None:
    """Same call fails, whatever the text."""
    calls = Calls()
    assert [calls.make(ok=False, result=f"error {n} more") for n in range(6)] == [
        "ran",
        "ran notice failing",
        "ran notice failing",
        "ran notice failing",
        "refused failing",
        "refused failing",
    ]
    assert calls.halted == "failing"


@pytest.mark.parametrize("period", [1, 2, 3, 7, 20])
def test_cycles_of_any_period_fall_under_repeat(period: int) -> None:
    """Calls need not be adjacent; the notice names the period."""
    calls = Calls()
    assert until_halt(calls, lambda n: calls.make(n=n % period), 200) == 4 * period + 2
    assert calls.halted == "repeat"
    if period > 1:
        known = next(iter(calls.stall.same.values()))
        assert known.period == period


def test_the_notice_names_the_period() -> None:
    """Every second call is said as such."""
    calls = Calls()
    texts = []
    for n in range(6):
        calls.stall.batch = set()
        ident = identity("look", {"n": n % 2})
        seen = Seen(seq=n, call_id=f"c{n}", tool="look", ident=ident, success=True, norm="r", size=1, effect="read")
        stall.count(calls.stall, RULES, seen)
        texts += [n.text for n in calls.stall.due]
        calls.stall.due = []
    assert "every 2 calls" in texts[-1]


def test_refusals_of_a_blocked_pair_are_counted_together() -> None:
    """Two blocked calls cannot take turns."""
    calls = Calls()
    for n in range(8):
        calls.make(n=n % 2)
    assert calls.make(n=0) == "refused repeat"
    assert not calls.halted
    assert calls.make(n=1) == "refused repeat"
    assert calls.halted == "repeat"


def test_a_new_result_of_a_call_starts_it_again_and_an_old_one_does_not() -> None:
    """Reset (a): a result not seen from it before."""
    calls = Calls()
    for n in range(40):
        assert calls.make(result=f"result {n} of forty").startswith("ran")
    assert not calls.halted
    flapping = Calls()
    assert until_halt(flapping, lambda n: flapping.make(result="ab"[n % 2])) > 0


def test_success_after_failing_starts_failing_again() -> None:
    """Red, red, green, red, red: a notice each, no refusal."""
    calls = Calls()
    for _ in range(6):
        calls.make(ok=False, result="red", way="exit 1")
        calls.make(ok=False, result="red", way="exit 1")
        calls.make(ok=True, result="green")
    assert not any("refused" in said for said in calls.log[:9])


def test_exit_75_is_waiting_and_no_failure() -> None:
    """ "Waiting for someone, not broken": not failing, but the same answer over and over is still a repetition."""
    calls = Calls()
    log = [calls.make(spec("sh", "shell"), ok=False, waiting=True, result="later") for _ in range(5)]
    assert not any("failing" in said or "same failure" in said for said in log)
    assert log[-1] == "refused repeat"


def test_equal_calls_in_one_batch_count_once() -> None:
    """Thirty parallel copies are one thought."""
    calls = Calls()
    calls.make()
    for _ in range(29):
        assert calls.beside() == "ran"
    assert calls.make() == "ran"
    assert calls.make() == "ran notice repeat"


def test_refused_calls_keep_the_last_real_result() -> None:
    """A refusal is no new result: the count goes on."""
    calls = Calls()
    for _ in range(5):
        calls.make()
    known = calls.stall.same[identity("look", {})]
    assert known.repeat.count == 5
    assert len(known.seen) == 1


# ------------------------------------------------------------------------------------------------------ same failure, same answer


def test_same_failure_notices_at_3_refuses_at_8_and_halts_at_11() -> None:
    """Same tool, other arguments, same error class."""
    calls = Calls()
    pay = spec("pay", "write")
    log = [calls.make(pay, ok=False, n=n, result=f"e{n}", way="failed:ServerError") for n in range(11)]
    assert [said for said in log[:3]] == ["ran", "ran", "ran notice same failure"]
    assert all(said.startswith("ran") for said in log[:7])
    assert log[7:] == ["refused same failure"] * 4
    assert calls.halted == "same failure"
    fewer = Calls()
    assert until_halt(fewer, lambda n: fewer.make(pay, ok=False, n=n, way="failed:ServerError")) == 11


def test_another_error_class_or_a_success_starts_same_failure_again() -> None:
    """Reset (a) of a tool: it succeeded. Another class is another count."""
    calls = Calls()
    for n in range(30):
        assert calls.make("pay", ok=n % 5 == 4, n=n, result=f"text {n}", way="failed:Down").startswith("ran")
    mixed = Calls()
    for n in range(12):
        assert mixed.make("pay", ok=False, n=n, way=f"failed:E{n % 2}").startswith("ran")


def test_failing_shell_commands_get_the_notice_only() -> None:
    """A diagnostic sweep of different commands is never refused for its exit status."""
    calls = Calls()
    shell = spec("shell", "shell")
    log = [calls.make(shell, ok=False, command=f"grep -q x{n} f", way="exit 1") for n in range(30)]
    assert all(said.startswith("ran") for said in log)
    assert "notice same failure" in log[2]
    assert not calls.halted


def test_same_answer_notices_at_4_refuses_at_8_and_halts_at_12() -> None:
    """Reads with other arguments that bring the same text."""
    calls = Calls()
    log = [calls.make(n=n, result=LONG) for n in range(12)]
    assert log[3] == "ran notice same answer"
    assert all(said.startswith("ran") for said in log[:7])
    assert log[7:] == ["refused same answer"] * 5
    assert calls.halted == "same answer"


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        (spec("look", "read"), "[]"),
        (spec("look", "read"), "x" * 23),
        (spec("put", "edit"), LONG),
        (spec("sh", "shell"), LONG),
        (spec("pay"), LONG),
    ],
)
def test_short_answers_and_effects_say_nothing(tool: ToolSpec, result: str) -> None:
    """ "ok" from thirty different files is bulk work."""
    calls = Calls()
    assert all(calls.make(tool, n=n, result=result) == "ran" for n in range(40))
    assert not calls.halted


def test_a_call_that_already_counted_for_an_answer_is_not_refused_for_it() -> None:
    """Same answer is about other arguments; the same call falls under repeat."""
    calls = Calls()
    for n in range(7):
        calls.make(n=n, result=LONG)
    assert calls.make(n=0, result=LONG) == "ran"
    assert calls.make(n=99, result=LONG) == "refused same answer"


def test_variants_of_one_batch_count_once() -> None:
    """Twenty parallel searches with the same answer, or the same failure, are one."""
    for ok, rule in ((True, "same answer"), (False, "same failure")):
        calls = Calls()
        calls.make(n=0, ok=ok, result=LONG)
        for n in range(1, 20):
            assert calls.beside(n=n, ok=ok, result=LONG) == "ran"
        assert rule not in calls.make(n=20, ok=ok, result=LONG)


# -------------------------------------------------------------------------------------------------------- denied, wrong, poller


def wrong(calls: Calls, unknown: bool, again: bool = False) -> None:
    """A call that is none."""
    calls.seq += 1
    if not again:
        calls.stall.batch = set()
    seen = Seen(seq=calls.seq, call_id=f"c{calls.seq}", tool="x", ident="", success=False, norm="", size=0)
    stall.count_wrong(calls.stall, RULES, seen, unknown)


@pytest.mark.parametrize(("unknown", "bound"), [(True, 5), (False, 12)])
def test_wrong_calls_are_noticed_each_time_and_halt_in_a_row(unknown: bool, bound: int) -> None:
    """Unknown tool at 5, malformed at 12, a batch counts once, a call that runs starts again."""
    calls = Calls()
    for n in range(1, bound):
        wrong(calls, unknown)
        wrong(calls, unknown, again=True)
        assert len(calls.stall.due) == n
    stall.ran(calls.stall)
    for _ in range(bound - 1):
        wrong(calls, unknown)
    assert not calls.halted
    wrong(calls, unknown)
    assert calls.halted == ("unknown tool" if unknown else "malformed")


def test_nine_malformed_answers_in_a_row_are_lived_with() -> None:
    """A confused but later successful run had that many."""
    calls = Calls()
    for _ in range(9):
        wrong(calls, False)
    assert not calls.halted


def test_denials_are_noticed_once_an_action_and_halt_at_5() -> None:
    """Counted over the goal, once a batch."""
    calls = Calls()
    for n in range(5):
        calls.stall.batch = set()
        for same in range(2):
            calls.seq += 1
            seen = Seen(seq=calls.seq, call_id=f"c{calls.seq}", tool="rm", ident=f"rm:{n % 2}", success=False, norm="", size=0)
            stall.count_denied(calls.stall, RULES, seen)
            assert calls.stall.denials[f"rm:{n % 2}"] == n // 2 * 2 + same + 1
    assert [n.rule for n in calls.stall.due] == ["denied", "denied"]
    assert calls.halted == "denied"
    assert calls.stall.denied.count == 5


def test_a_poller_may_poll_and_is_parked_at_20() -> None:
    """Noticed at 10 unchanged polls, parked at 20, never refused; new output starts again."""
    calls = Calls()
    poll = spec("poll", "read", poller=True)
    log = [calls.make(poll, result="running") for _ in range(19)]
    assert [n + 1 for n, said in enumerate(log) if "notice poller" in said] == [10]
    assert not calls.stall.park
    calls.make(poll, result="running")
    assert calls.stall.park
    assert not calls.halted
    busy = Calls()
    assert all(busy.make(poll, result=f"line {n} of many") == "ran" for n in range(60))
    assert not busy.stall.park


def test_a_call_that_waits_for_someone_is_never_refused() -> None:
    """ask_user and wait have no repetition."""
    calls = Calls()
    calls.stall.same[identity("ask", {})] = stall.Same(repeat=stall.Tally(count=99))
    assert stall.refusal(calls.stall, RULES, spec("ask", "attached"), identity("ask", {}), "c") is None
    assert not stall.near(calls.stall, RULES, spec("ask", "attached"), identity("ask", {}))


# ------------------------------------------------------------------------------------------------------------ no progress, resets


def test_no_progress_notices_at_2_and_halts_at_4() -> None:
    """Same missing, gates and fingerprint at each return; another standing starts again."""
    state = Stall()
    for n in range(1, 4):
        stands(state, RULES, n, "same", "f", False, f"c{n}")
    assert [n.count for n in state.due] == [2, 3]
    assert state.halt is None
    stands(state, RULES, 4, "other", "f", False, "c4")
    assert state.no_progress.count == 1
    for n in range(5, 8):
        stands(state, RULES, n, "other", "f", False, None)
    assert state.halt is not None
    assert (state.halt.rule, state.halt.count) == ("no progress", 4)
    assert len(state.due) == 2  # without a call there is no result to add a notice to


def test_a_new_fingerprint_resets_everything_and_an_old_one_nothing() -> None:
    """Reset (b); the first fingerprint of a goal is no progress."""
    state = Calls()
    state.stall.saw("start")
    for _ in range(4):
        state.make()
    state.stall.saw("start")
    assert state.stall.same
    state.stall.saw("edited")
    assert not state.stall.same
    for _ in range(4):
        state.make()
    state.stall.saw("start")
    assert state.make() == "refused repeat"


def test_progress_keeps_what_belongs_to_the_goal() -> None:
    """Fingerprints seen, the recovery turn and the batch stay; halt, refusals and denials go."""
    calls = Calls()
    calls.stall.saw("a")
    until_halt(calls, lambda n: calls.make())
    calls.stall.recovered = calls.stall.halted = True
    calls.stall.denials["x"] = 3
    calls.stall.progress()
    assert calls.stall.fingerprints == {"a"}
    assert calls.stall.recovered
    assert (calls.stall.halt, calls.stall.halted, calls.stall.denials, calls.stall.refusals.count) == (None, False, {}, 0)


def test_tables_stay_bounded() -> None:
    """Thousands of different calls keep 512 counters, the oldest goes; seqs keep the newest places."""
    calls = Calls()
    for n in range(1500):
        calls.make("pay", n=n, ok=False, way=f"failed:E{n}", result=str(n))
    assert len(calls.stall.same) == stall.TABLE
    assert len(calls.stall.failures["pay"]) == stall.TABLE
    assert identity("pay", {"n": 1499}) in calls.stall.same
    tally = stall.Tally()
    for n in range(100):
        tally.add(n)
    assert (tally.count, tally.seqs) == (100, list(range(75, 100)))


def test_rules_that_are_off_do_nothing() -> None:
    """on = False: nothing is noticed, refused or halted."""
    off = Rules(on=False)
    calls = Calls(off)
    known = calls.stall.same[identity("look", {})] = stall.Same(repeat=stall.Tally(count=99))
    assert known.repeat.count == 99
    assert stall.refusal(calls.stall, off, READ, identity("look", {}), "c") is None
    assert not stall.near(calls.stall, off, READ, identity("look", {}))
    for n in range(30):
        seen = Seen(seq=n, call_id=f"c{n}", tool="x", ident="x", success=False, norm="", size=0)
        calls.stall.batch = set()
        stall.count_wrong(calls.stall, off, seen, True)
        stall.count_denied(calls.stall, off, seen)
        stands(calls.stall, off, n, "same", "f", False, "c")
    assert (calls.stall.due, calls.stall.halt) == ([], None)


def test_thresholds_are_settings() -> None:
    """NEVER switches one step off."""
    calls = Calls(Rules(repeat=Rule(2, NEVER)))
    log = [calls.make() for _ in range(30)]
    assert log[1] == "ran notice repeat"
    assert all(said.startswith("ran") for said in log)
    fast = Calls(Rules(repeat=Rule(1, 2), refusals=1))
    assert [fast.make() for _ in range(2)] == ["ran notice repeat", "refused repeat"]
    assert fast.halted == "repeat"


@pytest.mark.parametrize(
    ("before", "one", "near"),
    [
        (lambda c: None, {}, False),
        (lambda c: c.make(), {}, False),
        (lambda c: [c.make() for _ in range(2)], {}, True),
        (lambda c: c.make(ok=False), {}, True),
        (lambda c: [c.make(n=n, ok=False) for n in range(2)], {"n": 9}, True),
        (lambda c: [c.make(n=n, result=LONG) for n in range(3)], {"n": 9}, True),
        (lambda c: [c.make(n=n, result=LONG) for n in range(2)], {"n": 9}, False),
    ],
)
def test_a_look_is_worth_it_only_at_a_threshold(before: Any, one: dict[str, Any], near: bool) -> None:
    """Before a call that would reach one, progress is looked for."""
    calls = Calls()
    before(calls)
    assert stall.near(calls.stall, RULES, READ, identity("look", one)) is near


def test_a_refusal_without_anything_counted_is_only_counted() -> None:
    """After a reset in between, a variant rule has nothing left to add to."""
    calls = Calls()
    seen = Seen(seq=1, call_id="c", tool="look", ident="i", success=False, norm="", size=0)
    stall.count_refused(calls.stall, RULES, seen, "same answer")
    calls.stall.batch = set()
    stall.count_refused(calls.stall, RULES, seen, "same failure")
    calls.stall.batch = set()
    stall.count_refused(calls.stall, RULES, seen, "repeat")
    assert not calls.halted
    assert calls.stall.refusals.count == 1


# -------------------------------------------------------------------------------------------------------------------- identity


def test_identity_is_tool_and_arguments_at_any_depth() -> None:
    """Order of keys does not matter, order of lists does; no argument can be read from it; its length is fixed."""
    one = identity("web", {"z": [{"b": "☤", "a": 1}], "a": {"y": 2, "x": "secret-token"}})
    two = identity("web", {"a": {"x": "secret-token", "y": 2}, "z": [{"a": 1, "b": "☤"}]})
    assert one == two != identity("web", {"a": {"x": "secret-token", "y": 2}, "z": [{"a": 1}, {"b": "☤"}]})
    assert one != identity("search", {"z": [{"b": "☤", "a": 1}], "a": {"y": 2, "x": "secret-token"}})
    assert "secret" not in one
    assert len(identity("web", {"q": "x" * 100_000})) == len(one)
    assert identity("l", {"a": [1, 2]}) != identity("l", {"a": [2, 1]})


def test_insisting_leaves_it_the_same_call() -> None:
    """``again`` is no new argument."""
    assert identity("pay", {"to": "x", "again": "really"}) == identity("pay", {"to": "x"})
    assert canonical({"b": 1, "a": 2}) == b'{"a":2,"b":1}'


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("1 failed in 0.01s", "1 failed in 0.31s"),
        ("took 3.2 sec", "took 12.9 sec"),
        ("took 31 ms, 4 us", "took 9 ms, 17 us"),
        ("at 2026-11-30T17:02:11.482Z ok", "at 2026-12-01T01:00:00.001Z ok"),
        ("[17:02:11] start", "[18:13:59] start"),
        ("12/31/2026 done", "01/01/2027 done"),
        ("pid 4711 exited", "pid 17 exited"),
        ("process=99 up", "process=100 up"),
        ("<obj at 0x7f3a12bc>", "<obj at 0x55d0ffee>"),
        ("commit deadbeef12", "commit cafebabe99"),
        ("id 0123456789abcdef", "id fedcba9876543210"),
        ("9f86d081-884c-7d65-9a2f-eaa0c55ad015", "1e86d081-aaaa-7d65-9a2f-eaa0c55ad015"),
        ("wrote /tmp/tmpab12/out", "wrote /tmp/tmpzz99/out"),
        ("see /var/folders/x1/y.log, ok", "see /var/folders/x2/z.log, ok"),
    ],
)
def test_what_changes_from_run_to_run_is_masked(one: str, two: str) -> None:
    """Times, durations, pids, addresses, hex ids and temporary paths do not make a new result."""
    assert mask(one) == mask(two)
    assert digests(one)[1] == digests(two)[1]
    assert digests(one)[0] != digests(two)[0]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("3 failed, 7 passed", "2 failed, 8 passed"),
        ("line 10: error", "line 20: error"),
        ("Cell In[1], line 10", "Cell In[1], line 20"),
        ("JIRA-1234", "JIRA-1235"),
        ("conv-A", "conv-B"),
        ('{"duration_seconds": 10}', '{"duration_seconds": 11}'),
        ('{"ts": 1000}', '{"ts": 2000}'),
        ("src/a.py", "src/b.py"),
        ("version 1.2.3", "version 1.2.4"),
        ("facade", "decade"),
        ("42", "43"),
    ],
)
def test_what_says_something_is_kept(one: str, two: str) -> None:
    """Line numbers, counts, structured ids, versions, names and paths of the workspace make a new result."""
    assert mask(one) != mask(two)


def test_of_a_long_result_both_ends_are_looked_at() -> None:
    """The raw hash is over all of it; the masked one over 8 k characters of each end."""
    middle = "a" * 20_000
    assert mask(middle + "x") != mask(middle + "y")
    assert mask("x" + middle) != mask("y" + middle)
    assert digests("b" * 9000 + "x" + "b" * 9000)[0] != digests("b" * 9000 + "y" + "b" * 9000)[0]
    assert digests("plain")[0] == digests("plain")[1]
    assert digests("\ud800 lone")[0]


# ------------------------------------------------------------------------------------------------------------ in the kernel


LOOK = {"look": (READ, lambda a: (True, LONG))}


def test_a_halt_gives_one_recovery_turn_that_names_it_and_then_ends_stuck() -> None:
    """With all tools; the pattern stands in the result."""
    sim = Sim(lambda s: says("", call("look")), tools=LOOK, contract=FILE)
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.ended_by) == ("stuck", "stall")
    purposes = [a.purpose for a in sim.asked]
    assert purposes == ["work"] * 6 + ["recover", "close"]
    assert "Halted, because of repeat: 6 times (look)" in sim.prompt
    assert ended.handoff["detail"]["rule"] == "repeat"
    assert ended.handoff["detail"]["seqs"]
    assert len(sim.of(ev.StallHalted)) == 1


def test_progress_in_the_recovery_turn_lifts_the_halt_once() -> None:
    """Work goes on; a second halt ends the goal without another recovery turn."""

    def model(sim: Sim) -> Any:
        if sim.asked[-1].purpose == "recover":
            return says("", call("edit"))
        return says("", call("look"))

    def edit(arguments: dict[str, Any]) -> tuple[bool, str]:
        sim.files["f"] = "1"
        return True, "edited"

    sim = Sim(model, tools=LOOK | {"edit": (spec("edit", "edit"), edit)}, contract=FILE)
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "stuck"
    purposes = [a.purpose for a in sim.asked]
    assert purposes.count("recover") == 1
    assert purposes[-1] == "close"
    assert len(purposes) > 12
    assert len(sim.of(ev.StallHalted)) == 2


def test_a_claim_of_the_recovery_turn_is_checked_and_not_confronted() -> None:
    """Who does the right thing at last ends done."""

    def model(sim: Sim) -> Any:
        return says("", call("task_complete", summary="x")) if sim.asked[-1].purpose == "recover" else says("", call("look"))

    sim = Sim(model, tools=LOOK, contract=ev.Contract(gates=[ev.Gate(gate_id="g", run="t")], judge="none"))
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert not sim.of(ev.GoalConfronted)
    sim = Sim(model, tools=LOOK, contract=FILE)
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "stuck"
    assert len(sim.of(ev.GoalReturned)) == 1


def test_a_text_answer_of_the_recovery_turn_is_taken_as_the_claim_it_is() -> None:
    """With an empty contract in an untouched workspace a plain answer ends the goal."""
    sim = Sim(lambda s: says("It is 42.") if s.asked[-1].purpose == "recover" else says("", call("look")), tools=LOOK)
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.ended_by) == ("done", "answer")


@pytest.mark.parametrize("fault", ["network", "lost"])
def test_a_recovery_turn_that_got_no_answer_is_taken_again(fault: str) -> None:
    """A provider that is down, or a crash, does not cost the one chance."""
    state = {"done": False}

    def model(sim: Sim) -> Any:
        if sim.asked[-1].purpose == "recover" and not state["done"]:
            state["done"] = True
            return "network"
        return says("", call("task_complete", summary="x")) if sim.asked[-1].purpose == "recover" else says("", call("look"))

    sim = Sim(model, tools=LOOK, contract=ev.Contract(gates=[ev.Gate(gate_id="g", run="t")], judge="none"))
    if fault == "lost":
        state["done"] = True
        sim.until(effects.CallModel, perform=False, purpose="recover")
        sim.crash()
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "done"
    assert [e.purpose for e in sim.of(ev.TurnStart)].count("recover") == 2


def test_a_halt_where_no_turn_fits_ends_stuck_at_once() -> None:
    """Stuck is the reason, not the limit."""
    sim = Sim(lambda s: says("", call("look")), tools=LOOK, contract=FILE, limits={"turns": 7.0})
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, [a.purpose for a in sim.asked]) == ("stuck", ["work"] * 6 + ["close"])


def test_a_human_message_resets_every_counter() -> None:
    """He changed something, or knows more: counting starts again."""
    sim = Sim(lambda s: says("", call("look")), tools=LOOK, contract=FILE)
    for _ in range(3):
        for _ in range(4):
            sim.until(effects.RunTools)
        sim.hear("have another look, please")
    assert len(sim.executed) == 12
    assert not sim.of(ev.StallBlocked)


@pytest.mark.parametrize("kind", ["crash", "plan", "notice", "nudge"])
def test_nothing_else_resets(kind: str) -> None:
    """Not a crash, not an edited plan, not prose: the sixth equal call still halts."""

    def model(sim: Sim) -> Any:
        return says("words " * len(sim.asked), call("look"))

    sim = Sim(model, tools=LOOK, contract=FILE)
    for _ in range(4):
        sim.until(effects.RunTools)
        if kind == "crash":
            sim.crash()
            sim.until(effects.Look)
        elif kind == "plan":
            item = ev.PlanItem(id="1", text=f"step {len(sim.lines)}", status="open")
            sim.record(ev.SessionPlanChanged(operation="set", items=[item]))
        elif kind == "nudge":
            sim.record(ev.UserMessage(message_id=f"n{len(sim.lines)}", content="go on", source="system", delivery="queued"))
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "stuck"
    assert len(sim.executed) == 4


def test_edits_between_equal_calls_are_progress() -> None:
    """Red test, edit, red test: the look before a threshold sees the new fingerprint; thirty times are fine."""

    def model(sim: Sim) -> Any:
        return says("", call("edit", n=len(sim.asked)) if len(sim.asked) % 2 else call("test"))

    def edit(arguments: dict[str, Any]) -> tuple[bool, str]:
        sim.files["f"] = str(arguments["n"])
        return True, "edited"

    def test(arguments: dict[str, Any]) -> ev.ToolComplete:
        raw, norm = digests("1 failed")
        asked = next(c for c in sim.state.turn.calls.values() if c.state == "started")
        return ev.ToolComplete(
            tool_call_id=asked.request.tool_call_id,
            success=False,
            executed=True,
            result=ev.Result(content="1 failed"),
            exit_code=1,
            hash=raw,
            norm_hash=norm,
        )

    tools = {"edit": (spec("edit", "edit"), edit), "test": (spec("test", "shell"), test)}
    sim = Sim(model, tools=tools, contract=FILE, limits={"turns": 60.0})
    ended = sim.run()
    assert ended is not None
    assert ended.phase == "capped"
    assert not sim.of(ev.StallBlocked)
    assert len(sim.executed) == 59


def test_edits_that_change_nothing_are_no_progress() -> None:
    """The same bytes again leave the fingerprint where it was."""

    def model(sim: Sim) -> Any:
        return says("", call("edit", n=len(sim.asked)) if len(sim.asked) % 2 else call("look"))

    tools = LOOK | {"edit": (spec("edit", "edit"), lambda a: (True, "edited"))}
    sim = Sim(model, tools=tools, contract=FILE)
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("stuck", "repeat")


def test_a_notice_is_part_of_the_result_and_added_after_hashing() -> None:
    """It never makes a result a new one, and is no user input."""
    sim = Sim(lambda s: says("", call("look")), tools=LOOK, contract=FILE)
    sim.until(effects.CallModel)
    for _ in range(3):
        sim.until(effects.CallModel)
    texts = [m.text for m in sim.state.window.messages if m.text.startswith(LONG)]
    assert texts[0] == texts[1] == LONG
    assert "[endstop] Same call, same result, 3 times" in texts[2]
    completes = sim.of(ev.ToolComplete)
    assert len({c.norm_hash for c in completes}) == 1
    assert all(c.result.content == LONG for c in completes)


def test_an_unchanged_poll_parks_one_five_and_fifteen_minutes() -> None:
    """No turn is burned while it waits; new output starts the waits again."""
    sim = Sim(
        lambda s: says("", call("poll")),
        tools={"poll": (spec("poll", "read", poller=True), lambda a: (True, "running"))},
        contract=FILE,
        limits={"turns": 99.0},
    )
    waits = []
    for _ in range(4):
        began = None
        act = sim.until(effects.Wait)
        began = sim.now
        waits.append(round(act.until - began))
        sim.now = act.until
    assert waits == [60, 300, 900, 900]
    assert not sim.of(ev.StallBlocked)
    assert [p.on for p in sim.of(ev.GoalParked)] == ["time"] * 4


def test_denied_five_times_is_blocked() -> None:
    """A recovery turn, then blocked naming the rule, not stuck."""
    sim = Sim(
        lambda s: says("", call("rm", n=len(s.asked))),
        tools={"rm": (spec("rm", "shell"), lambda a: (True, ""))},
        contract=FILE,
        permit=lambda s, a: Verdict("deny", "shell(rm *)", "never"),
    )
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"]) == ("blocked", "denied")
    assert sim.executed == []
    assert "Denied by shell(rm *): never" in sim.prompt


def test_two_rounds_of_words_ask_a_human_or_block() -> None:
    """The question carries the model's words; with nobody to ask the goal is blocked; one round is a nudge."""
    sim = Sim(lambda s: says("I would say it is fine."), contract=FILE)
    ended = sim.run()
    assert ended is not None
    assert (ended.phase, ended.handoff["detail"]["rule"], len(sim.asked)) == ("blocked", "no action", 3)
    assert "I would say it is fine." in ended.handoff["reason"]
    sim = Sim(lambda s: says(""), contract=FILE, reachable=True)
    act = sim.until(effects.Wait)
    assert (act.on, sim.state.phase) == ("question", "waiting")
    (question,) = sim.of(ev.QuestionAsked)
    assert "(an empty message)" in question.question
    assert question.tool_call_id is None


def test_a_round_that_parked_is_no_silent_round() -> None:
    """A text-only round in which the model was waited for neither counts nor starts again."""
    faults = {2, 4}

    def model(sim: Sim) -> Any:
        if len(sim.asked) in faults:
            faults.discard(len(sim.asked))
            return "network"
        return says("words")

    sim = Sim(model, contract=FILE)
    sim.run()
    assert [e.outcome for e in sim.of(ev.TurnEnd)][:6] == ["ok", "failed", "ok", "failed", "ok", "ok"]
    assert sim.state.phase == "blocked"


@pytest.mark.parametrize(("calls_made", "code"), [(call("nope"), "unknown_tool"), (call("look", raw="{"), "malformed")])
def test_wrong_calls_get_a_result_that_helps(calls_made: Any, code: str) -> None:
    """Nearest names for an unknown tool; nothing is run."""
    sim = Sim(lambda s: says("", calls_made), tools=LOOK, contract=FILE)
    sim.until(effects.CallModel)
    sim.until(effects.CallModel)
    (result, *_) = sim.of(ev.ToolComplete)
    assert result.error.code == code
    assert not result.executed
    assert sim.executed == []


def test_the_session_stays_usable_after_stuck() -> None:
    """Resumed with a hint it works on, counters and recovery turn new, spend kept."""
    sim = Sim(lambda s: says("", call("look")), tools=LOOK, contract=FILE)
    sim.run()
    turns = sim.state.spend.turns
    assert sim.state.phase == "stuck"
    sim.resume(note="the file is in src")
    assert sim.state.phase == "working"
    sim.until(effects.CallModel)
    assert "the file is in src" in sim.prompt
    assert sim.state.spend.turns == turns + 1
    sim.run()
    assert sim.state.phase == "stuck"
    assert [a.purpose for a in sim.asked].count("recover") == 2


def test_different_rules_of_one_batch_are_one_refusal() -> None:
    """A repeating and a failing call refused side by side count once, and halt with the next."""
    calls = Calls()
    for n in range(4):
        calls.make(n=1)
        calls.make(n=2, ok=False, result=f"error {n} of four")
    assert calls.make(n=1) == "refused repeat"
    calls.stall.refusals = stall.Tally()
    calls.stall.batch = set()
    assert calls.beside(n=1) == "refused repeat"
    assert calls.beside(n=2, ok=False, result="error") == "refused failing"
    assert (calls.stall.refusals.count, calls.halted) == (1, "")


def test_notices_of_wrong_calls_have_a_threshold_too() -> None:
    """Nothing is said below it."""
    state, rules = Stall(), Rules(malformed=Rule(2, NEVER, 3))
    for n in range(3):
        state.batch = set()
        seen = Seen(seq=n, call_id=f"c{n}", tool="x", ident="", success=False, norm="", size=0)
        stall.count_wrong(state, rules, seen, False)
        assert len(state.due) == max(0, n)
    assert state.halt is not None


def test_more_variants_than_a_table_holds_are_still_counted() -> None:
    """Where the rule does not refuse, only their names stop being kept."""
    calls = Calls(Rules(same_failure=Rule(NEVER, NEVER, NEVER), failing=Rule(NEVER, NEVER)))
    for n in range(stall.TABLE + 20):
        calls.make("pay", n=n, ok=False, result="down")
    tally = calls.stall.failures["pay"]["failed"]
    assert (tally.count, len(tally.names)) == (stall.TABLE + 20, stall.TABLE)
