"""``endstop demo``: the main job on a small real repository, with a script in place of a paid model.

Everything but the model's words is real: the git repository, the commands, the gate, the record. The script loops and is
noticed, claims too early and is confronted, repairs the wrong thing and is sent back, and then does it right.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from endstop.errors import UsageError

FILES = {
    "invoice.py": '''\
def total(prices, discount=0):
    """Sum of all prices, less the discount in percent, rounded to cents."""
    amount = sum(prices[1:])
    return round(amount * (1 - discount), 2)
''',
    "test_invoice.py": """\
import unittest

from invoice import total


class TotalTest(unittest.TestCase):
    def test_all_prices_count(self):
        self.assertEqual(total([10, 20, 30]), 60)

    def test_discount_is_in_percent(self):
        self.assertEqual(total([200], discount=10), 180)


if __name__ == "__main__":
    unittest.main()
""",
}
GATE = "python3 -m unittest -q test_invoice.py"
OBJECTIVE = "total() in invoice.py gives wrong sums. Make its tests pass without changing them."


def run(folder: Path | None = None) -> int:
    """Make the repository, pursue the goal on it with the command a user would type, check the record. Exit code of the run.

    Raises:
        UsageError: git or python3 is missing.
    """
    for program in ("git", "python3"):
        if shutil.which(program) is None:
            raise UsageError(f"{program} is not installed", where="demo", hint=f"install {program}")
    name = typed(sys.argv[0])
    folder = folder or Path(tempfile.mkdtemp(prefix="endstop-demo-"))
    workspace, home = make_repository(folder / "invoices"), folder / "state"
    script = folder / "script.toml"
    script.write_text(resources.files("endstop.cli").joinpath("demo.toml").read_text())
    environment = {**os.environ, "ENDSTOP_HOME": str(home)}
    command = ["run", OBJECTIVE, "-C", str(workspace), "-g", GATE, "-m", f"scripted:{script}"]
    print("A repository with two failing tests, a gate, and a SCRIPTED model in place of a paid one:\n", flush=True)
    print(f"  {name} run {OBJECTIVE!r} \\\n      -g {GATE!r} -m scripted:script.toml\n", flush=True)
    code = _endstop(command, environment)
    print("\nThe record of all of it, checked against its own hashes:\n", flush=True)
    verified = _endstop(["verify", "-C", str(workspace)], environment)
    print(
        f"\nLook around:      ENDSTOP_HOME={home} {name} show -C {workspace} --turns\n"
        f"Clear it away:    rm -rf {shlex.quote(str(folder))}        (the demo leaves it to be looked at)\n"
        f"Your own goal:    {name} run \"…\" -g 'pytest -q' -m openai:gpt-5         (OPENAI_API_KEY set)\n"
        f"A local model:    {name} run \"…\" -g 'pytest -q' -m ollama:qwen3-coder    (ollama serve)\n"
        f'Any other server: {name} run "…" -m openai:NAME                        (OPENAI_BASE_URL set)'
    )
    return code or verified


def typed(started: str) -> str:
    """What to type to get the command that was ``started`` so: its name where a shell finds it, else the way to it."""
    if os.path.basename(started) != "endstop":
        return f"{shlex.quote(sys.executable)} -m endstop"
    found = shutil.which("endstop")
    here = found is not None and os.path.exists(started) and os.path.samefile(found, started)
    return "endstop" if here else shlex.quote(started)


def make_repository(workspace: Path) -> Path:
    """A small git repository whose tests fail."""
    workspace.mkdir(parents=True)
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    who = ["-c", "user.name=Endstop demo", "-c", "user.email=demo@localhost"]
    for arguments in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "An invoice that does not add up"]):
        subprocess.run(["git", *arguments], cwd=workspace, check=True, capture_output=True)
    return workspace


def _endstop(arguments: list[str], environment: dict[str, str]) -> int:
    return subprocess.run([sys.executable, "-P", "-m", "endstop", *arguments], env=environment, check=False).returncode
