"""File tools: they do what they say, and never outside of the workspace."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from endstop.host import imports
from endstop.ports import Invocation, Outcome
from endstop.tools.confine import MOST, Place
from endstop.tools.edit import EditFile, EditingTool, WriteFile
from endstop.tools.files import ListFiles, ReadFile
from endstop.tools.functions import BOUND, FunctionTool
from endstop.tools.search import Search


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with a neighbour that nobody may touch."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("outside\n")
    workspace = tmp_path / "work"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src/a.py").write_text("def a():\n    return 1\n")
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text("[core]\n")
    return workspace


def call(work: Path, **arguments: Any) -> Invocation:
    return Invocation(tool_call_id="c1", arguments=arguments, key="k1", workspace=work)


def run(tool: FunctionTool[Any, Any], work: Path, **arguments: Any) -> Outcome:
    return asyncio.run(tool.run(call(work, **arguments)))


def fails(tool: FunctionTool[Any, Any], work: Path, **arguments: Any) -> str:
    outcome = run(tool, work, **arguments)
    assert not outcome.success
    assert outcome.error
    assert outcome.error.code == "failed"
    assert outcome.error.message == outcome.content
    return outcome.content


# ------------------------------------------------------------------------------------------------------------- confinement

OUTSIDE = [
    "../outside/secret.txt",
    "src/../../outside/secret.txt",
    "/etc/passwd",
    "~/x",
    "~",
    "link/secret.txt",
    "file-link",
    "a\0b",
]
TOOLS: list[tuple[FunctionTool[Any, Any], dict[str, Any]]] = [
    (ReadFile(), {}),
    (ListFiles(), {}),
    (WriteFile(), {"content": "x"}),
    (EditFile(), {"old": "outside", "new": "x"}),
    (Search(), {"pattern": "."}),
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(("tool", "arguments"), TOOLS, ids=lambda part: part.spec.name if isinstance(part, FunctionTool) else "")
def test_nothing_leads_out_of_the_workspace(
    tool: FunctionTool[Any, Any], arguments: dict[str, Any], path: str, work: Path
) -> None:
    """No path, link or trick reaches what lies outside; the refusal says what to do."""
    (work / "link").symlink_to(work.parent / "outside")
    (work / "file-link").symlink_to("../outside/secret.txt")
    said = fails(tool, work, path=path, **arguments)
    assert "inside" in said
    assert [entry.name for entry in (work.parent / "outside").iterdir()] == ["secret.txt"]
    assert (work.parent / "outside/secret.txt").read_text() == "outside\n"


def test_a_new_file_below_a_link_is_not_written_outside(work: Path) -> None:
    """Parents that are links are followed before a new file is made; a link to nothing outside is refused too."""
    (work / "link").symlink_to("../outside")
    (work / "dangling").symlink_to("../outside/new.txt")
    fails(WriteFile(), work, path="link/new/x.txt", content="x")
    fails(WriteFile(), work, path="dangling", content="x")
    assert [entry.name for entry in (work.parent / "outside").iterdir()] == ["secret.txt"]


@pytest.mark.parametrize("action", [lambda place: place.open(), lambda place: place.write(b"x"), lambda place: place.digest()])
def test_a_link_swapped_in_after_the_look_leads_nowhere(action: Callable[[Place], object], work: Path) -> None:
    """Between finding a place and opening it, a folder or file on the way may become a link: then the call fails."""
    (work / "src/deep").mkdir()
    (work / "src/deep/secret.txt").write_text("inside\n")
    place = Place(work, "src/deep/secret.txt")
    (work / "src/deep").rename(work / "moved")
    (work / "src/deep").symlink_to(work.parent / "outside")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links|is a file, not a folder"):
        action(place)
    assert (work.parent / "outside/secret.txt").read_text() == "outside\n"


def test_links_inside_the_workspace_work(work: Path) -> None:
    """A link to a place inside is followed, and stays a link when written through."""
    (work / "b.py").symlink_to("src/a.py")
    assert "return 1" in run(ReadFile(), work, path="b.py").content
    assert run(EditFile(), work, path="b.py", old="1", new="2").success
    assert (work / "b.py").is_symlink()
    assert "return 2" in (work / "src/a.py").read_text()
    assert run(ReadFile(), work, path=str(work / "src/a.py")).success


@pytest.mark.parametrize(
    "path", [".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", ".git", "gitlink/config"]
)
def test_git_internals_are_not_written(path: str, work: Path) -> None:
    """Nothing below .git is written, by whatever name it is reached; it can be read."""
    (work / "gitlink").symlink_to(".git")
    said = fails(WriteFile(), work, path=path, content="x")
    assert "git" in said
    assert (work / ".git/config").read_text() == "[core]\n"
    assert run(ReadFile(), work, path=".git/config").success


@pytest.mark.parametrize(("tool", "arguments"), TOOLS, ids=lambda part: part.spec.name if isinstance(part, FunctionTool) else "")
def test_what_is_no_file_is_refused_and_never_blocks(tool: FunctionTool[Any, Any], arguments: dict[str, Any], work: Path) -> None:
    """A FIFO and a socket are named as what they are, at once."""
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(work)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        assert "is a FIFO, not a file" in fails(tool, work, path="fifo", **arguments)
        fails(tool, work, path="socket", **arguments)


@pytest.mark.parametrize("make", [ReadFile, ListFiles, WriteFile, EditFile, Search])
def test_hidden_paths_do_not_exist_for_the_agent(make: Any, work: Path) -> None:
    """What is hidden is not read, listed, searched or written, by itself or from above."""
    (work / "state").mkdir()
    (work / "state/key").write_text("needle\n")
    tool = make([work / "state"])
    arguments = {"read_file": {}, "list_files": {}, "search": {"pattern": "needle"}, "write_file": {"content": "x"}}
    rest = arguments.get(tool.spec.name, {"old": "needle", "new": "x"})
    assert "kept from the agent" in fails(tool, work, path="state/key", **rest)
    if tool.spec.name in ("list_files", "search"):
        assert "key" not in run(tool, work, path=".", **rest).content
    assert (work / "state/key").read_text() == "needle\n"


# ----------------------------------------------------------------------------------------------------------------- reading


def test_reading_pages_through_a_file(work: Path) -> None:
    """Lines are numbered, a page is bounded, and each page says how to get the next, until all was seen."""
    (work / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 3001)))
    seen: list[str] = []
    offset = 1
    while True:
        page = run(ReadFile(), work, path="long.txt", offset=offset).content
        assert len(page) <= BOUND
        rows = page.splitlines()
        seen += [row.split("\t")[1] for row in rows if "\t" in row]
        if not rows[-1].startswith("(long.txt goes on"):
            break
        offset = int(rows[-1].rstrip(")").split("offset=")[1])
    assert seen == [f"line {number}" for number in range(1, 3001)]
    assert run(ReadFile(), work, path="long.txt", offset=7, limit=1).content.startswith("     7\tline 7\n(long.txt goes on")


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", "(f is empty)"),
        (b"a", "     1\ta"),
        (b"a\r\nb\r\n", "     1\ta\n     2\tb"),
        (b"\x89PNG\0\0", "(f is binary: 6 bytes, starts with 89 50 4e 47 00 00)"),
        (b"caf\xe9\n", "     1\tcaf\ufffd"),
        (b"x" * 9_000_000, f"     1\t{'x' * 2000}… (line of 9000000 bytes, cut)"),
    ],
)
def test_any_content_can_be_read(content: bytes, shown: str, work: Path) -> None:
    """Empty, binary, badly encoded and endless lines are told, not dumped."""
    (work / "f").write_bytes(content)
    assert run(ReadFile(), work, path="f").content == shown


def test_reading_errors_say_what_to_do(work: Path) -> None:
    """A wrong name is answered with near ones, a folder with the right tool, an offset with the length."""
    assert "there is a.py" in fails(ReadFile(), work, path="src/A.py")
    assert "no folder nowhere either" in fails(ReadFile(), work, path="nowhere/x")
    assert "list_files shows" in fails(ReadFile(), work, path="src")
    assert "list_files shows" in fails(ReadFile(), work, path=".")
    assert "has 2 lines" in fails(ReadFile(), work, path="src/a.py", offset=9)
    assert "Expected `int` >= 1" in fails(ReadFile(), work, path="src/a.py", offset=0)


def test_listing_counts_what_lies_deeper(work: Path) -> None:
    """Files down to the depth are named, deeper folders counted; caches, ignored files and .git are left out."""
    for name in ("src/deep/x.py", "src/deep/y/z.py", "node_modules/m/i.js", "build/out.o", "src/__pycache__/a.pyc"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    (work / ".gitignore").write_text("build/\n")
    assert run(ListFiles(), work).content == ".gitignore\nsrc/a.py\nsrc/deep/ (2 files)"
    assert run(ListFiles(), work, path="src", depth=5).content == "a.py\ndeep/x.py\ndeep/y/z.py"
    assert "read_file shows it" in fails(ListFiles(), work, path="src/a.py")
    (work / "empty").mkdir()
    assert run(ListFiles(), work, path="empty").content == "(empty holds no files that count)"


def test_a_long_listing_is_cut_and_says_so(work: Path) -> None:
    """A folder with very many files gives a bounded list."""
    for number in range(600):
        (work / f"src/{number:03}").touch()
    rows = run(ListFiles(), work, path="src").content.splitlines()
    assert len(rows) == 401
    assert "201 more rows left out" in rows[-1]


# ----------------------------------------------------------------------------------------------------------------- writing


def test_writing_makes_folders_and_keeps_modes(work: Path) -> None:
    """New files get their folders, replaced ones keep their mode, and nothing else is left behind."""
    assert run(WriteFile(), work, path="new/deep/x.txt", content="ä\n").content == "created new/deep/x.txt (3 bytes)"
    script = work / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    assert run(WriteFile(), work, path="run.sh", content="new").content == "replaced run.sh (3 bytes)"
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o750)
    assert not list(work.rglob(".endstop-*"))


def test_writing_errors_say_what_to_do(work: Path) -> None:
    """A folder, a file in place of a folder, and a read-only file are refused and stay as they are."""
    (work / "fixed").write_text("x")
    (work / "fixed").chmod(0o444)
    assert "is a folder" in fails(WriteFile(), work, path="src", content="x")
    assert "is a file, not a folder" in fails(WriteFile(), work, path="src/a.py/x", content="x")
    assert "is read-only (mode 0444)" in fails(WriteFile(), work, path="fixed", content="y")
    assert (work / "fixed").read_text() == "x"


def test_a_reader_never_sees_half_a_file(work: Path) -> None:
    """While a file is replaced over and over, a reader sees one whole version or the other."""
    place = Place(work, "f")
    versions = [bytes([65 + number]) * 200_000 for number in range(2)]
    place.write(versions[0])
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(place.read())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(40):
        place.write(versions[number % 2])
    done.set()
    reader.join()
    assert seen <= set(versions)


def edited(work: Path, content: bytes, old: str, new: str, **more: Any) -> bytes:
    (work / "f").write_bytes(content)
    outcome = run(EditFile(), work, path="f", old=old, new=new, **more)
    assert outcome.success, outcome.content
    return (work / "f").read_bytes()


@pytest.mark.parametrize(
    ("content", "old", "new", "result"),
    [
        (b"a\nb\nc\n", "b", "B", b"a\nB\nc\n"),
        (b"a\nb\nc", "b\nc", "d", b"a\nd"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x", b"x\r\n"),
        (b"a\nb\r\nc\n", "b", "x\ny", b"a\nx\ny\r\nc\n"),
        (b"\xef\xbb\xbfa\xff\n", "a", "\u00e4", b"\xef\xbb\xbf\xc3\xa4\xff\n"),
        (b"a\\1b", "a", "\\1\\g<0>", b"\\1\\g<0>\\1b"),
        (b"ab", "b", "", b"a"),
    ],
)
def test_editing_changes_only_what_it_says(content: bytes, old: str, new: str, result: bytes, work: Path) -> None:
    """Line ends, encoding and everything around the edit stay as they are."""
    assert edited(work, content, old, new) == result


def test_editing_everywhere(work: Path) -> None:
    """With all, every occurrence is replaced, and the result says where."""
    assert edited(work, b"x\nx\nyx\n", "x", "z", all=True) == b"z\nz\nyz\n"
    (work / "f").write_text("x\nx\n")
    assert run(EditFile(), work, path="f", old="x", new="z", all=True).content == "edited f: 2 places (line 1, 2)"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return 2", "x", ["does not occur in src/a.py", "     2\treturn 1"]),
        ("  def a():", "x", ["white space too", "     1\tdef a():"]),
        ("zzz qqq", "x", ["nothing in it is near"]),
        ("gone", "return 1", ["new is already there"]),
        ("e", "x", ["occurs 2 times", "lines 1, 2", "or set all"]),
        ("", "x", ["old is empty"]),
        ("a", "a", ["the same"]),
    ],
)
def test_an_edit_that_does_not_fit_says_where_to_look(old: str, new: str, words: list[str], work: Path) -> None:
    """Nothing is changed, and the answer names the lines that may have been meant."""
    said = fails(EditFile(), work, path="src/a.py", old=old, new=new)
    assert all(word in said for word in words)
    assert (work / "src/a.py").read_text() == "def a():\n    return 1\n"


def test_a_file_too_large_to_edit_is_refused(work: Path) -> None:
    """An edit never takes an unbounded file into memory."""
    with (work / "huge").open("wb") as file:
        file.truncate(MOST + 1)
    assert "larger than 16 MB" in fails(EditFile(), work, path="huge", old="a", new="b")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (WriteFile(), {"content": "new\n"}),
        (EditFile(), {"old": "return 1", "new": "return 2"}),
        (EditFile(), {"old": "a", "new": "bb", "all": True}),
    ],
)
def test_after_a_crash_hashes_tell_what_became_of_an_edit(tool: EditingTool, arguments: dict[str, Any], work: Path) -> None:
    """Before, after and neither are told apart, with what was recorded before the edit began."""
    invocation = call(work, path="src/a.py", **arguments)

    def settle(recorded: dict[str, str]) -> str:
        return asyncio.run(tool.settle(invocation, recorded))

    before = asyncio.run(tool.before(invocation))
    after = asyncio.run(tool.after(invocation))
    assert before == {"src/a.py": sha256((work / "src/a.py").read_bytes()).hexdigest()}
    assert settle(before) == "before"
    assert asyncio.run(tool.run(invocation)).success
    assert asyncio.run(tool.before(invocation)) == after
    assert settle(before) == "after"
    (work / "src/a.py").write_text("something else\n")
    assert settle(before) == "unknown"
    (work / "src/a.py").unlink()
    assert settle(before) == "unknown"


def test_hashes_of_files_that_are_not_there_or_not_allowed(work: Path) -> None:
    """A new file is "absent" before; an edit that cannot work has no hashes and settles as not begun."""
    write, edit = call(work, path="new.txt", content="x"), call(work, path="../x", old="a", new="b")
    assert asyncio.run(WriteFile().before(write)) == {"new.txt": "absent"}
    assert asyncio.run(EditFile().before(edit)) == {}
    assert asyncio.run(EditFile().after(edit)) is None
    assert asyncio.run(EditFile().settle(edit, {})) == "before"


# --------------------------------------------------------------------------------------------------------------- searching


def test_searching_finds_lines(work: Path) -> None:
    """Matches come as path, line and text in order; caches, ignored, binary files and .git are left out."""
    for name, content in {
        "b.txt": b"one\ntwo needle\n",
        "src/a.ts": b"needle()\n",
        "bin": b"\0needle",
        "out/x.txt": b"needle",
        ".gitignore": b"out/\n",
        "__pycache__/x.txt": b"needle",
        ".git/x": b"needle",
        "wide.txt": b"." * 5000 + b"needle" + b"." * 5000,
    }.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_bytes(content)
    rows = run(Search(), work, pattern=r"ne{2}dle\b").content.splitlines()
    assert rows[:2] == ["b.txt:2: two needle", "src/a.ts:1: needle()"]
    assert rows[2].startswith("wide.txt:1: …...")
    assert len(rows[2]) < 330
    assert len(rows) == 3
    assert run(Search(), work, pattern="needle", path="src").content == "src/a.ts:1: needle()"
    assert run(Search(), work, pattern="needle", path="b.txt").content == "b.txt:2: two needle"
    assert run(Search(), work, pattern="(?i)NEEDLE", glob="*.ts").content == "src/a.ts:1: needle()"
    assert run(Search(), work, pattern="needle", glob="src/**").content == "src/a.ts:1: needle()"
    assert run(Search(), work, pattern="nothing like it").content == "(no match)"


def test_a_search_is_bounded(work: Path) -> None:
    """Very many matches are cut, and the end says how to go on."""
    (work / "many.txt").write_text("x\n" * 5000)
    rows = run(Search(), work, pattern="x").content.splitlines()
    assert rows[-1].startswith("(stopped after 200 matches")


def test_a_pattern_that_never_ends_is_stopped(work: Path) -> None:
    """A catastrophic pattern ends in a time-out that keeps what was found, while the loop goes on."""
    (work / "a.txt").write_text("aX\n")
    (work / "b.txt").write_text("a" * 60 + "!\n")
    outcome = run(Search(patience=1.5), work, pattern=r"^(a+)+(X|$)")
    assert outcome.error
    assert outcome.error.code == "timeout"
    assert outcome.content.startswith("a.txt:1: aX\n(search did not end within 1.5 s")


@pytest.mark.parametrize("arguments", [{"pattern": "("}, {"pattern": "x", "glob": "!x"}, {"pattern": "a{99999999999}"}])
def test_a_bad_pattern_is_told(arguments: dict[str, str], work: Path) -> None:
    """A pattern or glob that cannot be used is named as such."""
    said = fails(Search(), work, **arguments)
    assert "cannot be used" in said
    assert "Traceback" not in said


def test_what_endstop_runs_from_is_not_written(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in the workspace that runs Endstop can be read and searched, and no file tool changes it."""
    home = work / ".venv"
    (home / "lib").mkdir(parents=True)
    (home / "lib/a.py").write_text("ours = 1\n")
    monkeypatch.setattr(imports, "_environments", lambda: [home])
    (work / "link").symlink_to(home)
    for path in (".venv/lib/a.py", "link/lib/a.py"):
        assert "belongs to the environment that Endstop runs from" in fails(WriteFile(), work, path=path, content="x")
        assert "belongs to the environment that Endstop runs from" in fails(EditFile(), work, path=path, old="ours", new="x")
    assert "belongs to" in fails(WriteFile(), work, path=".venv/lib/sitecustomize.py", content="x")
    assert run(ReadFile(), work, path=".venv/lib/a.py").success
    assert os.listdir(home / "lib") == ["a.py"]


def test_a_workspace_cannot_slip_code_into_the_search(work: Path) -> None:
    """A module in the workspace that is called like one of ours is not imported."""
    for name in ("re.py", "msgspec.py", "pathspec.py", "sitecustomize.py", "endstop.py"):
        (work / name).write_text("open('owned', 'w')\n")
    assert run(Search(), work, pattern="return 1").content == "src/a.py:2:     return 1"
    assert not (work / "owned").exists()
