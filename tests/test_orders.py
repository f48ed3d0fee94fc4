"""Workspaces that are refused before anything begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from endstop.errors import UsageError
from endstop.host import imports
from endstop.orders import usable_workspace


def test_a_folder_of_its_own_is_a_workspace(tmp_path: Path, home: Path) -> None:
    """Below the home, beside the state, through a link: where it really is."""
    for folder in (tmp_path / "work", home / "project", home / "endstop-not"):
        folder.mkdir()
        assert usable_workspace(folder, home / "endstop") == folder.resolve()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    assert usable_workspace(tmp_path / "link", home / "endstop") == (tmp_path / "work").resolve()


@pytest.mark.parametrize("which", ["/", "~", "..", "link"])
def test_a_home_and_what_holds_it_are_none(tmp_path: Path, home: Path, which: str) -> None:
    """The machine, the home, the folder around it and a link to it are refused with the remedy."""
    (tmp_path / "link").symlink_to(home)
    folder = {"/": Path("/"), "~": Path("~"), "..": home.parent, "link": tmp_path / "link"}[which]
    with pytest.raises(UsageError, match=r"your home .*choose a folder of its own"):
        usable_workspace(folder, Path("/elsewhere"))


@pytest.mark.parametrize("state", ["", "state", "deep/er/state", "link"])
def test_a_folder_that_holds_the_state_is_none(tmp_path: Path, state: str) -> None:
    """The record stays out of an agent's reach, whether it is there already or not, and through a link too."""
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(work)
    place = tmp_path / "link/state" if state == "link" else work / state
    with pytest.raises(UsageError, match=r"Endstop's own state lies in it: .*ENDSTOP_HOME"):
        usable_workspace(work, place)


def test_a_folder_that_holds_endstop_is_none(home: Path) -> None:
    """The code that is running is nobody's work."""
    with pytest.raises(UsageError, match="Endstop itself runs from"):
        usable_workspace(Path(imports.__file__).parents[2], home / "endstop")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_none(tmp_path: Path, home: Path) -> None:
    """It is refused before anything begins."""
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot be written"):
        usable_workspace(tmp_path, home / "endstop")
