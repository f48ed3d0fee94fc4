"""Tests of a tool of your own as an agent uses it: run them with pytest. Nothing is asked over a network."""

import endstop
from endstop.testing import FakeClock, call, calls, claims, run_scripted, says


@endstop.tool(effect="write")
def rename(old: str, new: str, here: endstop.Invocation) -> str:
    """Rename a file of the workspace."""
    if not (here.workspace / old).exists():
        raise endstop.ToolError("not_found", f"there is no {old}")
    (here.workspace / old).rename(here.workspace / new)
    return f"{new} was {old}"


def test_it_renames() -> None:
    """A deliverable that was not there and now is shows it."""
    turns = [says("", call("rename", old="a.txt", new="b.txt")), claims("renamed")]
    result = run_scripted(turns, tools=[rename], files={"a.txt": "text"}, deliverables="b.txt")
    assert result.verified
    assert calls(result, "rename")[0].text == "b.txt was a.txt"


def test_it_says_what_is_missing() -> None:
    """The agent gets a failure it can act on."""
    result = run_scripted([says("", call("rename", old="x", new="y")), claims("renamed")], tools=[rename])
    assert (calls(result, "rename")[0].code, result.verified) == ("not_found", False)


def test_wrong_arguments_never_reach_it() -> None:
    """A call that does not fit the signature is refused before the function runs."""
    result = run_scripted([says("", call("rename", old="x")), claims("renamed")], tools=[rename])
    assert calls(result, "rename")[0].code == "malformed"


def test_a_long_wait_takes_no_time() -> None:
    """The clock is moved on while the goal waits."""
    clock = FakeClock()
    before = clock.now
    result = run_scripted([says("", call("wait", seconds=3600)), claims("waited")], clock=clock)
    assert (result.phase, clock.now - before >= 3600) == ("done", True)
