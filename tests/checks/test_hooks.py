"""Hooks as real commands: scripts written for the hook contract of other agents, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from endstop.checks.hooks import KEPT, Hooks
from endstop.core.effects import HookRun
from endstop.core.events import Hook, HookEnd, HookOn
from endstop.core.hooks import make
from endstop.host import spawn
from endstop.host.programs import program
from endstop.host.sandbox import Sandbox, clean_environment, detect

PRE = {"tool_name": "shell", "tool_input": {"command": "rm -rf build"}, "tool_use_id": "c1"}
DATA: dict[HookOn, dict[str, Any]] = {
    "pre_tool": PRE,
    "post_tool": PRE | {"tool_response": {"success": True, "content": "gone"}},
    "stop": {"stop_hook_active": False, "last_assistant_message": "all done"},
    "user_prompt": {"prompt": "go"},
    "session_start": {"source": "startup"},
    "session_end": {"reason": "done"},
}


class Place:
    """A workspace, a journal beside it, and a runner of hooks."""

    def __init__(self, folder: Path, sandbox: Sandbox | None = None) -> None:
        self.root, self.state = folder / "ws", folder / "state"
        self.root.mkdir()
        self.state.mkdir()
        self.journal = self.state / "events.jsonl"
        self.journal.write_text('{"type":"session.start"}\n')
        environment = {**os.environ, "DEPLOY_TOKEN": "own-environment"}
        self.session = f"session of {folder}"  # marks processes, so it is this test's alone
        self.hooks = Hooks(
            self.session, sandbox or Sandbox("none"), [self.state], clean_environment(environment), environment,
            network=False, mode="auto", transcript=self.transcript,
        )  # fmt: skip

    async def transcript(self) -> Path:
        """Where the journal is."""
        return self.journal

    def run(self, on: HookOn, command: str, data: dict[str, Any] | None = None, **more: Any) -> HookEnd:
        """Run one hook."""
        run = HookRun(hook=make(on, command, **more), invocation_id="h1", data=data or DATA[on])
        return asyncio.run(self.hooks.run(run, self.root))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A workspace without a sandbox."""
    return Place(tmp_path)


def alive(file: Path) -> bool:
    """Whether the process whose id stands in a file lives."""
    try:
        return Path(f"/proc/{file.read_text().strip()}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


def prints(value: Any) -> str:
    """A command that prints JSON."""
    return f"printf '%s' '{json.dumps(value)}'"


# ---------------------------------------------------------------------------------------------------------- what it is told


def test_a_hook_reads_one_object_with_the_names_of_the_contract(place: Place) -> None:
    """Session, journal, folder, mode and event for all; the call before a call."""
    assert place.run("pre_tool", "cat > told.json").success
    told = json.loads((place.root / "told.json").read_text())
    assert told == {
        "session_id": place.session, "transcript_path": str(place.journal), "cwd": str(place.root),
        "permission_mode": "acceptEdits", "hook_event_name": "PreToolUse", **PRE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("on", "name"),
    [("stop", "Stop"), ("post_tool", "PostToolUse"), ("user_prompt", "UserPromptSubmit"), ("session_start", "SessionStart"),
     ("session_end", "SessionEnd")],
)  # fmt: skip
def test_every_occasion_has_its_name_and_its_data(place: Place, on: HookOn, name: str) -> None:
    """What the kernel knows of the occasion is there as it is."""
    place.run(on, "cat > told.json")
    told = json.loads((place.root / "told.json").read_text())
    assert told["hook_event_name"] == name
    assert told | DATA[on] == told


def test_a_failed_call_has_the_name_and_error_of_a_failure(place: Place) -> None:
    """After a call that failed it is PostToolUseFailure, with the words as error."""
    place.run("post_tool", "cat > told.json", PRE | {"tool_response": {"success": False, "content": "no such file"}})
    told = json.loads((place.root / "told.json").read_text())
    assert (told["hook_event_name"], told["error"]) == ("PostToolUseFailure", "no such file")


def test_a_matcher_in_foreign_names_gets_foreign_names(place: Place) -> None:
    """tool_name as matched, a file as file_path with its whole path; without such a matcher they are ours."""
    edit = {"tool_name": "edit_file", "tool_input": {"path": "a/b.py", "old": "1", "new": "2"}, "tool_use_id": "c"}
    place.run("pre_tool", "cat > foreign.json", edit, matcher="Edit|Write")
    place.run("pre_tool", "cat > ours.json", edit)
    foreign, ours = (json.loads((place.root / f"{name}.json").read_text()) for name in ("foreign", "ours"))
    assert foreign["tool_name"] == "Edit"
    assert foreign["tool_input"] == {"file_path": str(place.root / "a/b.py"), "old_string": "1", "new_string": "2"}
    assert (ours["tool_name"], ours["tool_input"]) == (edit["tool_name"], edit["tool_input"])


def test_a_big_input_is_read_or_left(place: Place) -> None:
    """A megabyte comes whole, and a hook that reads none of it is no worse for it."""
    big = PRE | {"tool_input": {"command": "x" * 1_000_000}}
    assert place.run("pre_tool", "tr -dc x | wc -c", big).output == "1000000"
    assert place.run("pre_tool", "true", big).success


# ---------------------------------------------------------------------------------------------------------- what it can say


@pytest.mark.parametrize("on", ["pre_tool", "post_tool", "stop", "user_prompt"])
def test_exit_2_objects_with_the_words_on_stderr(place: Place, on: HookOn) -> None:
    """Whatever is on stdout, JSON too, is not read then."""
    end = place.run(on, 'echo \'{"decision": "approve"}\'; echo "not this" >&2; exit 2')
    assert (end.success, end.exit_code, end.decision, end.text) == (True, 2, "deny", "not this")


@pytest.mark.parametrize("on", ["session_start", "session_end"])
def test_nothing_can_be_stopped_at_a_start_or_an_end(place: Place, on: HookOn) -> None:
    """Exit 2 is shown there, no more."""
    end = place.run(on, "echo late >&2; exit 2")
    assert (end.success, end.decision, end.error) == (False, None, "exit code 2: late")


def specific(**fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "x", **fields}}


@pytest.mark.parametrize(
    ("on", "said", "decision", "text"),
    [
        ("stop", {"decision": "block", "reason": "tests first"}, "deny", "tests first"),
        ("stop", {"decision": "block"}, "deny", "it gave no reason"),
        ("stop", {"decision": "approve"}, None, None),
        ("stop", {"continue": False, "decision": "block", "reason": "x"}, None, None),
        ("stop", specific(additionalContext="look at the log"), "deny", "look at the log"),
        ("pre_tool", specific(permissionDecision="deny", permissionDecisionReason="never"), "deny", "never"),
        ("pre_tool", specific(permissionDecision="ask", permissionDecisionReason="sure?"), "ask", "sure?"),
        ("pre_tool", specific(permissionDecision="allow", permissionDecisionReason="safe"), "allow", None),
        ("pre_tool", specific(permissionDecision="defer"), None, None),
        ("pre_tool", specific(additionalContext="it is Friday"), None, "it is Friday"),
        ("pre_tool", {"decision": "block", "reason": "old style"}, "deny", "old style"),
        ("pre_tool", {"decision": "approve", "reason": "old style"}, "allow", None),
        ("pre_tool", specific(updatedInput=PRE["tool_input"], permissionDecision="allow"), "allow", None),
        ("pre_tool", {"continue": False, "stopReason": "enough"}, "stop", "enough"),
        ("post_tool", {"decision": "block", "reason": "lint: E501"}, "deny", "lint: E501"),
        ("post_tool", specific(additionalContext="formatted"), None, "formatted"),
        ("user_prompt", {"decision": "block", "reason": "has a key in it"}, "deny", "has a key in it"),
        ("user_prompt", specific(additionalContext="branch main"), None, "branch main"),
        ("session_start", specific(additionalContext="read NOTES.md"), None, "read NOTES.md"),
        ("session_end", {"decision": "block", "reason": "no", "unknown": [1]}, None, None),
        ("post_tool", {"suppressOutput": True, "systemMessage": "hi", "continue": True}, None, None),
        ("stop", {}, None, None),
    ],
)  # fmt: skip
def test_json_on_stdout_is_understood(place: Place, on: HookOn, said: Any, decision: str | None, text: str | None) -> None:
    """Every form of the contract, with exit code 0; unknown fields are left alone."""
    end = place.run(on, prints(said))
    assert (end.success, end.decision, end.text, end.error) == (True, decision, text, None)


def test_other_arguments_are_sent_back_in_the_tool_s_own_names(place: Place) -> None:
    """What ran is what was asked for: the model is told to ask with the hook's arguments."""
    end = place.run("pre_tool", prints(specific(updatedInput={"command": "rm -ri build"})))
    assert (end.decision, end.text) == ("deny", 'Call it with these arguments instead: {"command":"rm -ri build"}')
    edit = {"tool_name": "write_file", "tool_input": {"path": "a", "content": "x"}, "tool_use_id": "c"}
    end = place.run("pre_tool", prints(specific(updatedInput={"file_path": "b", "content": "x"})), edit, matcher="Write")
    assert end.text == 'Call it with these arguments instead: {"path":"b","content":"x"}'


@pytest.mark.parametrize(
    ("on", "text"), [("user_prompt", "plain words"), ("session_start", "plain words"), ("stop", None), ("pre_tool", None)]
)
def test_plain_words_are_context_where_the_contract_says_so(place: Place, on: HookOn, text: str | None) -> None:
    """Elsewhere they are kept for people."""
    end = place.run(on, "echo plain words")
    assert (end.success, end.decision, end.text, end.output) == (True, None, text, "plain words")


# ----------------------------------------------------------------------------------------------------------- how it crashes


@pytest.mark.parametrize("on", list(DATA))
@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("echo oh no >&2; exit 1", "exit code 1: oh no"),
        ("exit 3", "exit code 3: no word"),
        ("no-such-program", f"exit code 127: {program('bash')}: line 1: no-such-program: command not found"),
        ("kill -SEGV $$", "signal 11: no word"),
        ("echo '{\"decision\": \"blok\"}'", "its JSON cannot be understood: Invalid enum value 'blok'"),
        ("echo '{\"decision\": \"block\"'", "its JSON cannot be understood: Input data was truncated"),
        ('echo \'{"continue": "no"}\'', "its JSON cannot be understood: Expected `bool | null`, got `str`"),
        ("head -c 200000 /dev/zero | tr '\\0' x | sed 's/^/{\"reason\": \"/'", "its JSON cannot be understood: "),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_crash(place: Place, on: HookOn, command: str, error: str) -> None:
    """On every occasion: no decision, no words to the model, and what went wrong."""
    end = place.run(on, command)
    assert (end.success, end.decision, end.text) == (False, None, None)
    assert end.error is not None
    assert end.error.startswith(error)


def test_a_hook_that_does_not_end_is_killed_with_all_it_began(place: Place) -> None:
    """At its timeout nothing of it is left, and it crashed."""
    end = place.run("stop", "sleep 987 & echo $! > pid; wait", timeout=0.3)
    assert (end.success, end.exit_code, end.error) == (False, None, "it did not end within 0.3 s and was killed")
    assert not alive(place.root / "pid")


def test_an_interrupted_hook_is_killed_and_has_no_end(place: Place) -> None:
    """Cancelled from outside: nothing of it is left, nothing is claimed of it."""

    async def work() -> None:
        hook = make("stop", "sleep 986 & echo $! > pid; mv pid ready; wait")
        running = asyncio.create_task(place.hooks.run(HookRun(hook=hook, invocation_id="h", data=DATA["stop"]), place.root))
        async with asyncio.timeout(20):
            while not (place.root / "ready").exists():
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(work())
    assert not alive(place.root / "ready")


def test_a_workspace_that_is_gone_is_a_crash_too(place: Place) -> None:
    """The hook cannot be started: said, not raised."""
    shutil.rmtree(place.root)
    end = place.run("stop", "true")
    assert not end.success
    assert "folder" in (end.error or "")


def test_everything_that_is_kept_is_bounded(place: Place) -> None:
    """Words, output and errors: their beginning and end, at most 4,000 characters, whatever they are made of."""
    end = place.run("stop", "head -c 5000000 /dev/zero | tr '\\0' ü | tee /dev/stderr; exit 2")
    for text in (end.text, end.output, end.error):
        assert text is not None
        assert len(text) <= KEPT + 10
        assert "…" in text


# ----------------------------------------------------------------------------------------------------------- with what rights


@pytest.mark.needs("bwrap")
def test_a_project_s_hook_is_in_the_sandbox_and_reads_the_journal_only(tmp_path: Path) -> None:
    """It writes in the workspace alone, sees no secret and no state but its journal; the user's own hook has all his rights."""
    place = Place(tmp_path, detect())
    (place.state / "endstop.db").write_text("secret")
    look = f"ls {place.state}; cat {place.journal}; echo ${{DEPLOY_TOKEN-none}}; : > {tmp_path}/outside && echo wrote"
    theirs = place.run("session_end", look)
    assert (theirs.output or "").splitlines()[:3] == ["events.jsonl", '{"type":"session.start"}', "none"]
    assert not (tmp_path / "outside").exists()
    mine = place.run("session_end", look, own=True)
    assert (tmp_path / "outside").exists()
    assert (mine.output or "").splitlines()[-2:] == ["own-environment", "wrote"]
    assert "endstop.db" in (mine.output or "")


def test_a_users_own_hook_runs_nothing_of_the_agents(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs outside of the sandbox: programs and modules that PATH or PYTHONPATH would take from the workspace are not."""
    for name in ("bash", "env"):
        (place.root / name).write_text("#!/bin/sh\necho planted\n")
        (place.root / name).chmod(0o755)
    (place.root / "sitecustomize.py").write_text("print('planted')\n")
    monkeypatch.setenv("PATH", f"{place.root}:{os.environ['PATH']}")
    own = {**os.environ, "PYTHONPATH": str(place.root)}
    hooks = Hooks(place.session, Sandbox("none"), [], {}, own, network=False, mode="auto", transcript=place.transcript)
    hook = make("stop", f"env true; {sys.executable} -c ''; echo ours", own=True)
    end = asyncio.run(hooks.run(HookRun(hook=hook, invocation_id="h", data=DATA["stop"]), place.root))
    assert end.output == "ours"


def test_a_hook_finds_its_project(place: Place) -> None:
    """Existing settings name their scripts below the project's folder."""
    (place.root / "guard.sh").write_text("echo found >&2; exit 2")
    assert place.run("stop", 'bash "$CLAUDE_PROJECT_DIR"/guard.sh').text == "found"


def test_what_a_hook_leaves_behind_after_a_crash_is_found_by_its_mark(place: Place) -> None:
    """The mark is of session and invocation, as assemble kills it."""
    end = place.run("session_end", f"echo ${spawn.MARK}")
    other = Hook(hook_id="x", on="session_end", run=f"echo ${spawn.MARK}")
    again = asyncio.run(place.hooks.run(HookRun(hook=other, invocation_id="h2", data={}), place.root))
    assert end.output
    assert end.output != again.output


GUARD = r"""
import json, re, sys

told = json.load(sys.stdin)
if told.get("tool_name") != "Bash":
    sys.exit(0)
command = told.get("tool_input", {}).get("command", "")
if re.search(r"\brm\s+-rf\b", command):
    print("Blocked: rm -rf is not allowed here", file=sys.stderr)
    sys.exit(2)
"""
ONCE = r"""
input=$(cat)
if [ "$(printf '%s' "$input" | python3 -c 'import json,sys; print(json.load(sys.stdin)["stop_hook_active"])')" = True ]; then
  exit 0
fi
echo '{"decision": "block", "reason": "Say what you tested."}'
"""


def test_scripts_written_for_other_agents_run_as_they_are(place: Place) -> None:
    """A guard for commands in Python, and a stop hook in shell that objects once."""
    (place.root / "guard.py").write_text(GUARD)
    (place.root / "once.sh").write_text(ONCE)
    assert place.run("pre_tool", "python3 guard.py", matcher="Bash").decision == "deny"
    harmless = PRE | {"tool_input": {"command": "ls"}}
    assert place.run("pre_tool", "python3 guard.py", harmless, matcher="Bash").decision is None
    assert place.run("stop", "bash once.sh").text == "Say what you tested."
    assert place.run("stop", "bash once.sh", DATA["stop"] | {"stop_hook_active": True}).decision is None
