"""A denied command stays denied however it is dressed up, and bash itself is asked what a line runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.core.messages import ToolSpec
from endstop.guards.permission import Permissions

SHELL = ToolSpec(name="shell", description="", parameters={}, effect="shell", key_argument="command", own=True)
DENIED = Permissions("yolo", deny=["shell(rm *)"], sandboxed=False, network=False)
ALLOWED = Permissions("ask", allow=["shell(ls *)"], sandboxed=False, network=False)

QUOTES = ("{}", "'{}'", '"{}"', "$'{}'", '$"{}"', "\\{}", "''{}", "{}\\\n")
NESTS = (
    "{}", "ls; {}", "ls && {}", "ls | {}", "ls & {}", "ls\n{}", "({})", "{{ {}; }}", "echo $({})", 'echo "$({})"', "echo `{}`",
    "cat <({})", "if {}; then ls; fi", "if ls; then {}; fi", "while {}; do ls; done", "for i in a; do {}; done", "f() {{ {}; }}",
    "case a in a) {};; esac", "! {}", "X=$({})", "{} > f", "{} 2>&1", "[[ $({}) ]]", "ls ${{x:-$({})}}", "echo $(( $({}) ))",
    "coproc {}", "cat <<E\n$({})\nE", "trap - EXIT; {}",
)  # fmt: skip
PREFIXES = (
    "",
    "sudo ",
    "env A=1 ",
    "nohup ",
    "command ",
    "timeout 5 ",
    "A=1 ",
    "exec ",
    "2>&1 ",
    "time ",
    "xargs ",
    "find . -exec ",
)
TEXTS = ("bash -c {}", "eval {}", "sh -c {}", "env -S {}", "bash <<< {}", "echo {} | sh", "trap {} EXIT", "sudo bash -lc {}")


@st.composite
def dressed(draw: st.DrawFn) -> str:
    """``rm x`` in random quotes, behind random wrappers, in random nests."""
    name = "".join(draw(st.sampled_from(QUOTES)).format(letter) for letter in "rm")
    line = draw(st.sampled_from(PREFIXES)) + name + " x"
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            nest = draw(st.sampled_from(NESTS))
            line = line if "`" in nest and "`" in line else nest.format(line)  # backquotes do not nest as they are
        else:
            line = draw(st.sampled_from(TEXTS)).format(shlex.quote(line))
    return line


@settings(max_examples=300, deadline=None)
@given(dressed())
def test_no_dress_hides_a_denied_command(line: str) -> None:
    """Whatever quotes, wrappers and nests a denied command stands in, it is denied."""
    assert DENIED.decide(SHELL, {"command": line}).kind == "deny"


PIECES = st.sampled_from(
    [
        *(
            "rm",
            "ls",
            " ",
            " ",
            " ",
            "x",
            "'rm'",
            "r\\m",
            '$"rm"',
            "$'\\x72m'",
            "X=rm",
            "X=ls",
            "$X",
            '"$X"',
            "${Y:-rm}",
            "{rm,x}",
            "r*",
        ),
        *(
            ";",
            "&&",
            "||",
            "|",
            "&",
            "\n",
            "\\\n",
            "(",
            ")",
            "{ ",
            "; }",
            "$(",
            "`",
            '"',
            "'",
            "#",
            "<<E\n",
            "\nE\n",
            "<<<",
            ">f",
            "2>&1",
        ),
        *(
            "if ",
            "; then ",
            "; fi",
            "for X in rm ls; do ",
            "; done",
            "!",
            "time ",
            "command ",
            "eval ",
            "case x in x) ",
            ";; esac",
            "[[ ",
        ),
        *(" ]]", "((", "))", "f() { ", "=", "\\", "-", "E ", "\t", "$", "\u00a0", "<(", "export ", "trap "),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=10).map("".join))
def test_bash_runs_nothing_that_rules_did_not_see(line: str) -> None:
    """What bash really runs of a random line is denied where it is the denied command, and nothing else where it is allowed."""
    denied = DENIED.decide(SHELL, {"command": line}).kind
    allowed = ALLOWED.decide(SHELL, {"command": line}).kind
    if denied == "deny" and allowed != "allow":
        return
    ran = programs(line)
    assert denied == "deny" or "rm" not in ran
    assert allowed != "allow" or set(ran) <= {"ls"}


def programs(line: str) -> list[str]:
    """The names of the programs that bash looks for when it runs a line, in an empty folder where it finds none."""
    with tempfile.TemporaryDirectory() as folder:
        handler, log = Path(folder, "handler"), Path(folder, "log")
        handler.write_text(f"command_not_found_handle() {{ printf '%s\\0' \"$1\" >> {shlex.quote(str(log))}; }}\n")
        work = Path(folder, "work")
        work.mkdir()
        environment = {"PATH": "/nonexistent", "BASH_ENV": str(handler), "FUNCNEST": "5", "HOME": str(work), "LC_ALL": "C.UTF-8"}
        bash = subprocess.Popen(
            ["/bin/bash", "-c", line],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            bash.wait(timeout=5)
        except subprocess.TimeoutExpired:  # a loop without an end: what it ran until now counts
            os.killpg(bash.pid, 9)
            bash.wait()
        return log.read_text(errors="replace").split("\0")[:-1] if log.exists() else []
