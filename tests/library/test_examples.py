"""The examples do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "hello.py": ["<Result done (verified) by deliverable hello.txt [", "It is there."],
    "own_tools.py": ["NOT verified", "1 order reached the shop"],
    "limits.py": ["limit turns reached; ['deliverable absent: part3.txt'", "<Result capped", "part3.txt [", "turns: 5\n"],
    "questions.py": [" blue\n", "plain letters only", "sent: blue!"],
    "test_own_tool.py": ["4 passed"],
}


def test_all_of_them_are_tested() -> None:
    """No example is left out."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """Each runs on its own, without warnings, and prints what it is about."""
    pytest_ = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    command = [sys.executable, "-W", "error", *(pytest_ if name.startswith("test_") else []), str(EXAMPLES / name)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for words in SAYS[name]:
        assert words in done.stdout
