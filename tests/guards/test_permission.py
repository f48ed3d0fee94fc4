"""Permission rules and modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.core.messages import ToolSpec
from endstop.errors import UsageError
from endstop.guards.commands import read
from endstop.guards.permission import Mode, Permissions, parse_rule

SHELL = ToolSpec(name="shell", description="", parameters={}, effect="shell", key_argument="command", own=True)
WRITE = ToolSpec(name="write_file", description="", parameters={}, effect="edit", path_argument="path", own=True)
READ = ToolSpec(name="read_file", description="", parameters={}, effect="read", path_argument="path", own=True)
OWN = ToolSpec(name="deploy", description="", parameters={}, key_argument="target", own=True)
FINAL = ToolSpec(name="pay", description="", parameters={}, own=True, irreversible=True)
FOREIGN = ToolSpec(name="mcp__x__send", description="", parameters={})
WAIT = ToolSpec(name="wait", description="", parameters={}, effect="attached", own=True)


def permissions(
    mode: Mode = "ask", allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), sandboxed: bool = False, network: bool = False
) -> Permissions:
    return Permissions(mode, allow, deny, sandboxed=sandboxed, network=network)


def command(text: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), mode: Mode = "ask") -> str:
    return permissions(mode, allow, deny).decide(SHELL, {"command": text}).kind


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("plan", "allow deny deny deny deny deny allow"),
        ("ask", "allow ask ask ask ask ask allow"),
        ("auto", "allow allow ask allow ask ask allow"),
        ("yolo", "allow allow allow allow allow allow allow"),
    ],
)
def test_modes(mode: Mode, expected: str) -> None:
    """Each mode lets through what it says, where there is no sandbox and no rule."""
    calls: list[tuple[ToolSpec, dict[str, Any]]] = [
        (READ, {"path": "a"}),
        (WRITE, {"path": "a"}),
        (SHELL, {"command": "ls"}),
        (OWN, {"target": "x"}),
        (FINAL, {}),
        (FOREIGN, {}),
        (WAIT, {"seconds": 1}),
    ]
    assert " ".join(permissions(mode).decide(spec, arguments).kind for spec, arguments in calls) == expected


def test_sandbox_frees_commands_unless_they_reach_the_network() -> None:
    """In mode auto a command runs unasked in a sandbox without network, and only there."""
    free = permissions("auto", sandboxed=True).decide(SHELL, {"command": "make $X"})
    open_to_all = permissions("auto", sandboxed=True, network=True).decide(SHELL, {"command": "make"})
    assert free.kind == "allow"
    assert open_to_all.kind == "ask"
    assert "network" in open_to_all.why


@pytest.mark.parametrize("mode", ["plan", "ask", "auto", "yolo"])
def test_deny_beats_every_mode_and_allow(mode: Mode) -> None:
    """A deny rule holds in every mode, also against an allow rule, and is named."""
    verdict = permissions(mode, allow=("shell",), deny=("shell(rm *)",), sandboxed=True).decide(SHELL, {"command": "rm x"})
    assert (verdict.kind, verdict.rule) == ("deny", "shell(rm *)")


@pytest.mark.parametrize(
    "text",
    [
        "pytest",
        "pytest -x tests && git status",
        "pytest -x; git status | pytest",
        "pytest 2>&1 >/dev/null",
        "pytest &> /dev/null",
        "pytest '$(rm x)'",
        "pytest -k 'a or b'",
        'pytest -k "a && b"',
        "pytest \\\n -x",
        "pytest # && rm x",
        "pytest &",
    ],
)
def test_allowed_commands(text: str) -> None:
    """A line runs by rules if every command of it is allowed."""
    assert command(text, allow=("shell(pytest *)", "shell(git status)")) == "allow"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pytest && make",
        "pytest; make",
        "pytest | tee x",
        "pytest & make",
        "pytest\nmake",
        "pytest || make",
        "echo a#b; pytest",
        "pytest $(make)",
        "pytest `make`",
        'pytest "$(make)"',
        'pytest "`make`"',
        "pytest $ARGS",
        "pytest <(make)",
        "pytest > out.txt",
        "pytest >> /etc/passwd",
        "pytest < /etc/passwd",
        "pytest <<E\nE",
        "(pytest)",
        "{ pytest; }",
        "eval pytest",
        "pytest | xargs pytest",
        "pytest 'a",
        'pytest "a',
        "FOO=1 pytest",
        "PATH=/evil; pytest",
        "./pytest",
        "/usr/bin/pytest",
        "sudo pytest",
        '"pytest -x"',
        "pytest\\ -x",
        "pytest -exec make",
        "git status -x",
        "pytest {a,b}",
        "p?test",
        "pytest \0",
        "f() { make; }; pytest",
    ],
)
def test_not_allowed_commands(text: str) -> None:
    """What is not allowed command by command, or cannot be read, is asked."""
    assert command(text, allow=("shell(pytest *)", "shell(git status)")) == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "rm x",
        "rm",
        "ls; rm x",
        "ls\nrm x",
        "ls & rm x",
        "echo a\\\\\nrm x",
        "/bin/rm x",
        "'r'm x",
        "r\\m x",
        '"rm" x',
        "A=1 rm x",
        "env A=1 rm x",
        "command -p rm x",
        "sudo -u root rm x",
        "nohup env X=1 nice -n 5 /usr/bin/rm -rf x",
        "timeout 5 rm x",
        "time rm x",
        "! rm x",
        "2>/dev/null rm x",
        "ls | xargs -n 1 rm",
        "find . -exec rm {} ;",
        "bash -c 'rm x'",
        "sudo bash -lc 'cd a && rm x'",
        'eval "rm x"',
        "sh -c \"bash -c 'rm x'\"",
        "ls $(rm x)",
        "ls `rm x`",
        'ls "$(rm x)"',
        'ls "`rm x`"',
        "X=$(rm y)",
        "ls <(rm x)",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "for i in a; do rm $i; done",
        "function f { rm x; }; f",
        "r{m,} x",
        "/bin/r? x",
        "git push",
        "git -C . push",
        "git -c a=b --no-pager push origin",
    ],
)
def test_denied_commands(text: str) -> None:
    """A denied command is found wherever it stands in a line, under every mode."""
    assert command(text, deny=("shell(rm *)", "shell(git push *)"), mode="yolo") == "deny"


@pytest.mark.parametrize(
    "text", ["echo rm", "grep rm x", "git commit -m 'rm x'", 'git commit -m "rm $(date)"', "ls # rm", "git log"]
)
def test_commands_that_only_mention_a_denied_one(text: str) -> None:
    """A word is no command."""
    assert command(text, deny=("shell(rm *)", "shell(git push *)"), mode="yolo") == "allow"


@pytest.mark.parametrize("text", ["$X y", '"$X" y', "`echo rm` x"])
def test_a_computed_name_is_asked_where_commands_are_denied(text: str) -> None:
    """Where some commands are denied, one whose name is only known while it runs is asked, even if all else is allowed."""
    rules = permissions("auto", allow=("shell",), deny=("shell(rm *)",), sandboxed=True)
    assert rules.decide(SHELL, {"command": text}).kind == "ask"
    assert rules.decide(SHELL, {"command": 'echo "$X" && [[ -f x ]] && [ -f y ]'}).kind == "allow"


def test_path_rules() -> None:
    """A path pattern holds as a .gitignore would say it, and no detour leads around it."""
    rules = permissions("ask", allow=("write_file(src/**)",), deny=("*_file(.env)", "read_file(/secret/)"))
    verdict = {
        path: rules.decide(WRITE, {"path": path}).kind
        for path in (
            "src/a/b.py",
            "./src/x",
            "src/../x",
            "/src/x",
            "../src/x",
            "x",
            ".env",
            "a/../.env",
            "src/.env",
            "/home/.env",
        )
    }
    assert verdict == {
        "src/a/b.py": "allow",
        "./src/x": "allow",
        "src/../x": "ask",
        "/src/x": "ask",
        "../src/x": "ask",
        "x": "ask",
        ".env": "deny",
        "a/../.env": "deny",
        "src/.env": "deny",
        "/home/.env": "deny",
    }
    assert rules.decide(READ, {"path": "secret/x"}).kind == "deny"


def test_a_link_does_not_lead_around_a_path_rule() -> None:
    """Rules see the place a path really leads to."""
    places = {"link": ".env", "src/out": None}
    rules = Permissions(
        "auto", ["write_file(src/**)"], ["write_file(.env)"], sandboxed=False, network=False, place=lambda path: places[path]
    )
    assert rules.decide(WRITE, {"path": "link"}).kind == "deny"
    assert rules.decide(WRITE, {"path": "src/out"}).rule == "mode auto"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("npm ci", ("shell(npm ci)",)),
        ("cd . && npm ci 'x y' && cd .", ("shell(cd .)", "shell(npm ci 'x y')")),
        ('git commit -m "it\'s done"', ("shell(git commit -m 'it'\"'\"'s done')",)),
        ("rm *", ()),
        ("echo $(date)", ()),
        ("npm ci > log.txt", ()),
        ("'", ()),
    ],
)
def test_the_remedy_lets_just_that_line_through(text: str, rules: tuple[str, ...]) -> None:
    """What is asked for names the rules that would allow it, which then do; none where a rule would say more or cannot."""
    verdict = permissions("ask").decide(SHELL, {"command": text})
    assert (verdict.kind, verdict.remedy) == ("ask", rules)
    if rules:
        assert command(text, allow=rules) == "allow"
        assert command(f"{text}; npm publish", allow=rules) == "ask"


def test_what_a_rule_asks_for_has_no_remedy() -> None:
    """An ask rule beats every allow rule, so none is offered; a path and a tool without arguments have theirs."""
    asked = Permissions("auto", ask=["shell(npm *)"], sandboxed=True, network=False).decide(SHELL, {"command": "npm ci"})
    assert (asked.kind, asked.remedy) == ("ask", ())
    assert permissions("ask").decide(WRITE, {"path": "src/a.py"}).remedy == (f"{WRITE.name}(src/a.py)",)
    assert permissions("ask").decide(WRITE, {"path": "../out.py"}).remedy == ()


def test_other_arguments() -> None:
    """Other tools' rules match one argument as text; a tool without one cannot slip through a pattern."""
    rules = permissions("auto", allow=("pay",), deny=("deploy(prod-*)", "mcp__*(x)"))
    assert rules.decide(OWN, {"target": "prod-eu"}).kind == "deny"
    assert rules.decide(OWN, {"target": "test"}).kind == "allow"
    assert rules.decide(FINAL, {}).kind == "allow"
    assert rules.decide(FOREIGN, {}).kind == "deny"
    own_shell = ToolSpec(name="remote", description="", parameters={}, effect="shell", own=True)
    assert permissions("auto", deny=("remote(rm *)",)).decide(own_shell, {"line": "ls"}).kind == "deny"
    assert permissions("ask", allow=("mcp__x__send(y)",)).decide(FOREIGN, {}).kind == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "shell(",
        "shell()",
        "shell)",
        "a b",
        "shell('x)",
        "shell(a && b)",
        "write_file(!x)",
        "write_file(#x)",
        "write_file(a\\)",
    ],
)
def test_a_bad_rule_is_refused_with_a_remedy(text: str) -> None:
    """A rule that cannot be read is named, with the form it should have."""
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert repr(text) in str(caught.value)
    assert caught.value.hint


@given(st.text(alphabet="rm ax;|&$(){}<>'\"\\\n`#*=-", max_size=60))
def test_any_line_can_be_cut(text: str) -> None:
    """No text breaks the reading of commands, and no command is without a word."""
    assert isinstance(read(text).readable, bool)
    assert command(text, allow=("shell(a *)",), deny=("shell(rm *)",)) in ("allow", "deny", "ask")


@given(
    st.lists(st.sampled_from(["a", "a x", "a 'y z'", 'a "q"', "a \\; b"]), min_size=1, max_size=5),
    st.sampled_from([";", "&&", "||", "|", "&", "\n"]),
)
def test_one_command_that_is_not_allowed_stops_the_line(commands: list[str], separator: str) -> None:
    """Whatever is allowed around it, a command without a rule makes the line ask."""
    assert command(separator.join(commands), allow=("shell(a *)",)) == "allow"
    for place in range(len(commands) + 1):
        assert command(separator.join([*commands[:place], "b", *commands[place:]]), allow=("shell(a *)",)) == "ask"
