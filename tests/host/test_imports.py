"""What Endstop loads never comes from where an agent works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from endstop.errors import UsageError
from endstop.host import imports

PLANTED = "open({mark!r}, 'w').write('ran')\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def script(work: Path, text: str) -> str:
    """What a script in the workspace prints, with the guard at hand and the folders ``work`` and ``lib`` as paths."""
    (work.parent / "lib").mkdir(exist_ok=True)
    head = f"import sys\nfrom pathlib import Path\nfrom endstop.host import imports\nwork = Path({str(work)!r})\n"
    (work / "script.py").write_text(f"{head}sys.path.append({str(work.parent / 'lib')!r})\n{text}")
    command = [sys.executable, "-B", str(work / "script.py")]
    ended = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    return ended.stdout or ended.stderr


def test_late_imports_come_from_elsewhere(work: Path) -> None:
    """A module that an agent put first on sys.path is passed over for the real one, on the goal's end too."""
    for name in ("wave", "sndhdr", "both"):
        (work / f"{name}.py").write_text("where = 'workspace'\n")
    (work.parent / "lib").mkdir()
    (work.parent / "lib/both.py").write_text("where = 'library'\n")
    said = script(
        work,
        "imports.close(work)\nimport wave\nprint(hasattr(wave, 'where'))\nimports.reopen(work)\nimport both, sndhdr\n"
        "print(both.where, hasattr(sndhdr, 'where'))\n",
    )
    assert said == "False\nlibrary False\n"


@pytest.mark.parametrize("kind", ["module", "package", "submodule", "path", "linked"])
def test_what_is_only_in_the_workspace_waits_for_the_end(work: Path, kind: str) -> None:
    """While a goal is held it is refused with the remedy, however it is reached; afterwards it can be loaded."""
    (work / "own").mkdir()
    (work / "own/__init__.py").write_text("")
    (work / "own/part.py").write_text("")
    (work / "alone.py").write_text("")
    (work.parent / "link").symlink_to(work)
    before, name = {
        "module": ("", "alone"),
        "package": ("", "own"),
        "submodule": ("import own", "own.part"),
        "path": ("sys.path[0] = ''", "alone"),
        "linked": (f"sys.path[0] = {str(work.parent / 'link')!r}", "alone"),
    }[kind]
    said = script(
        work,
        f"{before}\nimports.close(work)\ntry:\n    import {name}\nexcept ModuleNotFoundError as error:\n    print(error)\n"
        f"imports.reopen(work)\nimport {name}\nprint('loaded')\n",
    )
    refused, loaded = said.splitlines()
    assert refused.startswith(f"{name} lies where an agent works (")
    assert "import it before the goal begins" in refused
    assert loaded == "loaded"


def test_what_is_there_already_and_what_is_nowhere_is_as_ever(work: Path) -> None:
    """A module that was loaded before stays usable, and one that does not exist is missing as always."""
    (work / "early.py").write_text("x = 1\n")
    said = script(
        work, "import early\nimports.close(work)\nimport early\nprint(early.x)\ntry:\n    import nosuch\n"
        "except ModuleNotFoundError as error:\n    print(error)\n",
    )  # fmt: skip
    assert said == "1\nNo module named 'nosuch'\n"


def test_an_isolated_python_hears_nobody(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the current folder, PYTHONPATH, sitecustomize nor a .pth file gets code into it."""
    mark = work / "ran"
    for name in ("sitecustomize.py", "usercustomize.py", "msgspec.py", "re.py", "endstop.py"):
        (work / name).write_text(PLANTED.format(mark=str(mark)))
    (work / "x.pth").write_text(f"import os; {PLANTED.format(mark=str(mark))}")
    request = '{"root": "/", "start": "etc/passwd", "pattern": "root", "glob": null, "hidden": []}'
    command = imports.isolated("endstop.tools.grep", request)
    environment = {**os.environ, "PYTHONPATH": str(work), "PYTHONUSERBASE": str(work), "PYTHONHOME": str(work)}
    ended = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout.startswith("etc/passwd:1: root:")
    assert not mark.exists()


def test_endstop_itself_is_no_workspace(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that holds the code or the Python that runs is refused; one that holds their environment keeps it."""
    for code in Path(imports.__file__).parents[:3]:
        with pytest.raises(UsageError, match=r"Endstop itself runs from .*install it elsewhere"):
            imports.refuse_own(code)
    imports.refuse_own(work)
    home = work / ".venv"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setattr(imports, "_environments", lambda: [home])
    monkeypatch.setattr(imports, "_installed", lambda: [home / "lib"])
    monkeypatch.setattr(sys, "prefix", str(home))
    monkeypatch.setattr(sys, "executable", str(home / "bin/python"))
    imports.refuse_own(work)
    assert imports.kept(work) == [home]
    with pytest.raises(UsageError, match="Endstop itself"):
        imports.refuse_own(home)
    (work / "linked").symlink_to(tmp_path)
    for link in ("work/.venv/bin/python", "bin/python"):  # it could be led elsewhere
        monkeypatch.setattr(sys, "executable", str(work / "linked" / link))
        with pytest.raises(UsageError, match="Endstop itself"):
            imports.refuse_own(work)
