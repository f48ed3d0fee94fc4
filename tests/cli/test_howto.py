"""The how-tos: what they show runs or parses, and their links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from endstop import settings
from endstop.cli import exits
from tests.cli.terminal import DONE, call, repository, script, turn
from tests.docs.test_pages import FENCE, anchors, links, parses

PAGES = sorted((Path(__file__).parents[2] / "docs/how-to").glob("*.md"))
CHANGE = turn("", ("edit_file", {"path": "calc.py", "old": "a - b", "new": "a + b"}), ("shell", {"command": "cp n CHANGELOG.md"}))


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of the fenced blocks in a language."""
    found = [(path.name, block) for path in PAGES for block in FENCE.finditer(path.read_text("utf-8"))]
    return [(name, block[3]) for name, block in found if block[2] == language]


def commands() -> list[tuple[str, str]]:
    """(page, command line) of every ``endstop …`` in blocks and in text."""
    found = []
    for path in PAGES:
        text = path.read_text("utf-8")
        lines = re.findall(r"(?:^|run: |\| |do )(endstop [^\n;|]*?)(?:\s+#.*)?(?:$| ?[;|])", text, re.MULTILINE)
        lines += re.findall(r"`(endstop [^`\n]+)`", text)
        found += [(path.name, line) for line in dict.fromkeys(lines)]
    return found


@pytest.mark.parametrize(("name", "line"), commands())
def test_commands_parse(name: str, line: str) -> None:
    """Every command line is one that the real command line takes."""
    assert parses(line) == ""


def test_commands_are_found() -> None:
    """In blocks, loops, jobs and text alike."""
    lines = [line for _, line in commands()]
    assert 'endstop run "$goal" --worktree --detach' in lines
    assert lines.count("endstop run goal.toml --report endstop.xml --report endstop.md -l cost=1usd -l wall=20m") == 1
    assert len({name for name, _ in commands()}) == len(PAGES) == 5


@pytest.mark.parametrize(("name", "text"), blocks("toml"))
def test_settings_can_be_read(name: str, text: str, tmp_path: Path) -> None:
    """Every TOML block is a settings or goal file without a complaint."""
    path = tmp_path / "goal.toml"
    path.write_text(text)
    read = settings.load(cwd=tmp_path, environ={"HOME": str(tmp_path)}, goal=path)
    assert {key.partition(".")[0] for key in read.origin} == set(tomllib.loads(text))


@pytest.mark.parametrize(("name", "text"), [block for block in blocks("python") if block[0] == "library.md"])
def test_python_runs(name: str, text: str) -> None:
    """Every Python block runs as it stands."""
    exec(compile(text, name, "exec"), {"__name__": "example"})


@pytest.mark.parametrize(("name", "text"), blocks("sh"))
def test_shell_blocks_are_shell(name: str, text: str) -> None:
    """Every shell block parses."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Every link leads to a page, and its anchor to a heading; the command line's page links to each."""
    for target, anchor in links(path):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target)
    assert path in {target for target, _ in links(path.parents[1] / "cli.md")}


def test_the_hooks_do_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard keeps an edit away from a generated file; the claim is returned until the changelog has changed."""
    repo = repository(tmp_path / "repo")
    monkeypatch.chdir(repo)
    (repo / "tools").mkdir()
    (repo / "tools/guard.py").write_text(next(text for name, text in blocks("python") if name == "hooks.md"))
    scripts = [text for name, text in blocks("sh") if name == "hooks.md" and text.startswith("#!")]
    (repo / "tools/changelog-is-written").write_text(scripts[0])
    (repo / "endstop.toml").write_text("\n".join(text for name, text in blocks("toml") if name == "hooks.md"))
    (repo / "n").write_text("It adds.\n")
    (repo / "schema.py").write_text("# generated from schema.json\nx = 1\n")
    (repo / "CHANGELOG.md").write_text("Nothing.\n")
    for arguments in (["add", "."], ["commit", "-qm", "hooks"]):
        subprocess.run(["git", *arguments], cwd=repo, check=True)
    told = {"cwd": ".", "tool_input": {"path": "schema.py"}}
    typed = subprocess.run(
        [sys.executable, "tools/guard.py"], input=json.dumps(told), text=True, capture_output=True, check=False
    )
    assert (typed.returncode, "is generated" in typed.stderr) == (2, True)
    touch = turn("", ("edit_file", {"path": "schema.py", "old": "x = 1", "new": "x = 2"}))
    model = script(tmp_path, touch, DONE, CHANGE, DONE)
    said = call(capsys, "run", "x", "-m", model, "--judge", "none", "-g", "grep -q 'a + b' calc.py", "--allow", "shell")
    assert (said.code, "x = 1" in (repo / "schema.py").read_text()) == (exits.OK, True)
    events = call(capsys, "logs").out
    assert "schema.py is generated: change its source" in events
    assert "returned     hook: a hook says: CHANGELOG.md says nothing" in events
