"""The words around the code: current, complete, and true where a machine can tell."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer.main
from typer.exceptions import TyperException

from endstop import settings
from endstop.cli import exits
from endstop.cli.main import app
from endstop.core import events as ev
from endstop.core.goal import ENDED
from endstop.core.messages import Effect
from endstop.core.stall import Rule, Rules

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/endstop"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^([ ]*)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMANDS = typer.main.get_group(app).commands


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def fenced(language: str) -> list[tuple[str, str]]:
    """(page and line, text) of all fenced blocks in a language."""
    found = []
    for path in PAGES:
        text = path.read_text("utf-8")
        for block in FENCE.finditer(text):
            if block[2] == language:
                body = "\n".join(line.removeprefix(block[1]) for line in block[3].splitlines())
                found.append((f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 1}", body))
    return found


def cells(name: str, column: int = 0) -> set[str]:
    """Words in code marks, or else plain words, in one column of all tables of a page."""
    rows = [line.strip("| ").split(" | ") for line in page(name).splitlines() if line.startswith("|")]
    return {word.strip("`") for row in rows if len(row) > column for word in re.findall(r"`[^`]+`|[\w/_]+", row[column])}


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "docs/generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_generated_is_current() -> None:
    """The tables and the diagram in the pages say what the code says."""
    done = generate(ROOT, "--check")
    assert done.returncode == 0, done.stderr


def test_a_page_that_is_not_current_is_seen_and_mended(tmp_path: Path) -> None:
    """A table changed by hand fails the check by its page's name, writing it again mends it, and nothing else is touched."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    limits = tmp_path / "docs/limits.md"
    limits.write_text(limits.read_text().replace("| 5.00 usd |", "| 6.00 usd |"))
    stale = generate(tmp_path, "--check")
    assert (stale.returncode, stale.stderr.split(" ")[0]) == (1, "docs/limits.md")
    assert generate(tmp_path).returncode == 0
    assert limits.read_text() == page("docs/limits.md")


def test_generate_knows_no_other_arguments() -> None:
    """Anything but --check is a usage error in one line."""
    done = generate(ROOT, "--chekc")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


# ---------------------------------------------------------------------------------------------------------------- complete


def test_every_stall_rule_is_explained() -> None:
    """Each rule of the code has its row of words, and no row speaks of a rule that is not there."""
    rules = {name for name in Rules.__struct_fields__ if isinstance(getattr(Rules(), name), Rule)}
    explained = re.findall(r"^\| `(\w+)` \| [a-z]", page("docs/stall-rules.md"), re.MULTILINE)
    assert sorted(explained) == sorted(rules)


def test_every_end_has_its_exit_code() -> None:
    """README and kernel name every end, with the exit code that the command line really gives."""
    codes = {name: getattr(exits, name.upper()) for name in (*get_args(ev.Target), "claimed")} | {"verified": exits.OK}
    assert {*codes, "done"} - {"verified", "claimed"} == set(ENDED)
    for name in ("README.md", "docs/kernel.md"):
        for end, code in codes.items():
            assert re.search(rf"^\| [^|]*\b{end}\b[^|]*\|[^|]*\| {code}\b", page(name), re.MULTILINE), (name, end)
        assert re.search(rf"^\| waiting, paused \|[^|]*\| {exits.LATER} \|", page(name), re.MULTILINE)


def test_every_word_that_can_be_chosen_is_documented() -> None:
    """Effect classes, modes, what is waited for and error codes stand in the tables that explain them."""
    assert set(get_args(Effect)) <= cells("docs/kernel.md")
    assert set(get_args(settings.Mode)) <= cells("docs/permissions.md")
    waits = cells("docs/events.md") | set(re.findall(r"`(\w+)`", page("docs/events.md").partition("## Waiting")[2]))
    assert set(get_args(ev.ParkedOn)) <= waits
    assert error_codes() <= cells("docs/events.md")


def error_codes() -> set[str]:
    """Codes that results of calls carry: named literally, and those in the kernel's own sets."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                found.add(node.value.value)
    return {code for code in found if isinstance(code, str) and code}


def test_every_folder_and_no_other_is_in_the_architecture() -> None:
    """ARCHITECTURE names the folders and modules that exist, and those only."""
    rows = re.findall(r"^\| `([\w./]+)` \| (.*) \|$", page("ARCHITECTURE.md"), re.MULTILINE)
    folders = {f"{path.name}/" for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    assert {name for name, _ in rows} == folders | modules
    for name, words in rows:
        inside = {path.stem for path in (SOURCE / name).glob("*.py")}
        named = set(re.findall(r"`(\w+)`", words))
        assert not name.endswith("/") or named <= inside, (name, named - inside)


def test_every_page_can_be_reached_from_the_readme() -> None:
    """Following links from README leads to every page."""
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        path = todo.pop()
        if path not in seen and path.suffix == ".md":
            seen.add(path)
            todo += [target for target, _ in links(path) if target.exists()]
    assert set(PAGES) <= seen


# -------------------------------------------------------------------------------------------------------------------- true


def links(path: Path) -> Iterator[tuple[Path, str]]:
    """(file, anchor) of the links of a page that lead to files here."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            yield (path.parent / name).resolve() if name else path, anchor


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    heads = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Every link to a file leads to one, and its anchor to a heading."""
    for target, anchor in links(path):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target), (target.name, anchor)


@pytest.mark.parametrize(("where", "text"), fenced("python"), ids=lambda value: value if "\n" not in value else "")
def test_python_runs(where: str, text: str) -> None:
    """Every Python block runs as it stands."""
    exec(compile(text, where, "exec"), {"__name__": "example"})


@pytest.mark.parametrize(("where", "text"), fenced("toml"), ids=lambda value: value if "\n" not in value else "")
def test_settings_can_be_read(where: str, text: str, tmp_path: Path) -> None:
    """Every TOML block is a settings or goal file that says something and is read without complaint."""
    own = tmp_path / ".config/endstop/endstop.toml"
    path = own if text.startswith("# ~/.config/endstop/endstop.toml\n") else tmp_path / "goal.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    environ = {name: "x" for name in re.findall(r"\$\{(\w+)", text)} | {"HOME": str(tmp_path)}
    read = settings.load(cwd=tmp_path, environ=environ, goal=None if path == own else path)
    assert {key.partition(".")[0] for key in read.origin} == set(tomllib.loads(text))


def commands() -> list[tuple[str, str]]:
    """(page, command line) of every ``endstop …`` in the pages: lines of blocks whole, words in text as they are."""
    found = []
    for path in PAGES:
        text = path.read_text("utf-8")
        lines = re.findall(r"^(?: {4}|\$ )?(?:\.venv/bin/)?(endstop .*?)(?:\s+#.*)?$", text, re.MULTILINE)
        lines += re.findall(r"`(endstop [^`\n]+)`", text)
        found += [(path.name, line) for line in dict.fromkeys(lines)]
    return found


def parses(line: str) -> str:
    """What is wrong with a command line, empty if nothing is. One that only names a command needs no arguments."""
    name, *rest = shlex.split(line)[1:]
    if name not in COMMANDS:
        return f"no command {name}"
    try:
        if rest:
            COMMANDS[name].make_context(name, rest)
    except TyperException as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("where", "line"), commands())
def test_command_lines_parse(where: str, line: str) -> None:
    """Every command line in the pages is one that the real command line takes."""
    assert parses(line) == ""


def test_a_wrong_command_line_is_seen() -> None:
    """A command or an option that does not exist is told."""
    assert parses("endstop rnu x")
    assert parses("endstop run x --gaet y")
    assert parses("endstop run x -g y") == ""


def test_hints_name_commands_that_exist() -> None:
    """What messages in the code tell people to type can be typed."""
    told = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for name in re.findall(r"\bendstop ([a-z]+)\b", node.value):
                    told.setdefault(name, path.relative_to(SOURCE))
    assert {name: str(path) for name, path in told.items() if name not in COMMANDS} == {}


PLACES = ("tmp", "var", "run", "dev", "home", "root", "etc", "opt", "srv", "proc")
HOSTS = ("127.0.0.1", "localhost", "toml.io")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_speak_of_the_project_only(path: Path) -> None:
    """No page names a folder of some machine or a host that is not needed to understand it."""
    text = path.read_text("utf-8")
    assert set(re.findall(r"(?<![\w.~/>)*`-])/([a-z]\w*)", text)) <= set(PLACES)
    assert set(re.findall(r"https?://([\w.-]+)", text)) <= set(HOSTS)


def test_the_numbers_of_the_runaway_bench_are_those_of_its_test() -> None:
    """Each scenario's calls and end stand in docs/runaway.md."""
    from tests.core.test_runaway import SCENARIOS  # noqa: PLC0415  the bench is a test module

    rows = [line.split(" | ") for line in page("docs/runaway.md").splitlines() if " · " in line]
    told = [(row[0].strip("| ")[0], int(row[1]), re.match(r"\w+", row[2])[0]) for row in rows]
    assert told == [(name[0], calls, end) for name, (*_, calls, end) in SCENARIOS.items()]
