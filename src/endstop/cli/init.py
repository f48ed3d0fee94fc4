"""init: an endstop.toml in which every setting stands as a comment. Nothing is switched on that nobody asked for."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from endstop.cli import exits, here, out
from endstop.errors import UsageError
from endstop.settings import FILE

TEMPLATE = """\
# Endstop's settings for this project. A line that begins with "#" and no space is a setting: take the "#" away to use it.
# Flags and ENDSTOP_* variables beat this file. docs/settings.md explains all of it.

#model = "openai:gpt-5"          # PROVIDER:MODEL; the key comes from the environment (OPENAI_API_KEY, …)
#fallbacks = ["ollama:qwen3:8b"]  # models that follow where one does not answer
#effort = "medium"               # low, medium, high: how much to think
#judge = "auto"                  # auto, none, or another model: who reads the evidence
#workspace = "."                 # a folder below this file
#deliverables = ["report.md"]    # must exist, be new and not empty at the end
#protect = "refuse"              # flag, refuse; or a list with paths: ["refuse", "tests/**"]
#confront = "once"               # once, always, never: claims are answered with fresh evidence
#review = "none"                 # human: a person accepts the work before it is done
#on_halt = "end"                 # ask: "more, a hint, or end?" before it ends as stuck, capped or blocked
#baseline = true                 # run every gate once before the first turn
#rubric = "short and correct"    # what the judge looks for
#accept_claimed = false          # true: done (claimed) exits 0 too
#retry = 4                       # how often a failed call is made again

# What shows that a goal is reached: commands that exit 0. One table for each.
{gates}
#timeout = 600                   # seconds
#retries = 0
#external = false                # true: looks at something outside the workspace
#paths = []

#[[hook]]                        # a command that runs on an occasion and may object
#on = "stop"                     # session_start, user_prompt, pre_tool, post_tool, stop, session_end
#run = "./before-stop"

#[limits]                        # "none" switches one off
#cost = "5usd"
#tokens = "5m"
#turns = 200
#active = "4h"
#wall = "7d"

#[permissions]
#mode = "auto"                   # plan, ask, auto, yolo
#allow = ["shell(npm *)"]
#deny = ["shell(git push *)"]
#ask = ["shell(npm publish *)"]
#network = false
#humans = "auto"                 # auto, park, deny

#[stall]
#on = true
#refusals = 2
#repeat.notice = 3
#repeat.refuse = 5

#[mcp.time]                      # an MCP server whose tools join; see docs/mcp.md. mcp_config names a file with more
#command = "uvx"
#args = ["mcp-server-time"]
#timeout = 60                    # seconds of a call

#[providers.ollama]              # base_url and api_key_env of other servers belong into your own file
#window = 32768
#max_output = 8192
#concurrency = 2                 # calls at the same time
#effort = "high"                 # how much to think, in the provider's own word
#price = {{ input = 0.0, output = 0.0 }}   # USD per million tokens
"""


def init(workspace: Path | None, *, force: bool) -> int:
    """Write the file into the current folder's project."""
    folder = workspace or here.folder()
    path = folder / FILE
    if not folder.is_dir():
        raise UsageError("is not a folder", where=str(folder), hint="create it, or name another with -C")
    if os.path.lexists(path) and not force:
        raise UsageError("is there already", where=str(path), hint="endstop init --force writes it anew")
    found = detect(folder)
    if path.is_symlink():
        raise UsageError("is a link", where=str(path), hint="remove it, then run endstop init again")
    try:
        path.write_text(TEMPLATE.format(gates=_gates(found)), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(path), hint="check the folder's rights") from None
    said = [f"wrote {path}"]
    said += [f"found {command}: it stands there as a comment; take the # away to use it" for command in found]
    out.say([*said, "next: choose a model in it, then: endstop doctor"])
    return exits.OK


def _gates(found: list[str]) -> str:
    return "\n".join(f"#[[gate]]\n#run = {_quoted(command)}" for command in found or ["make test"])


def _quoted(command: str) -> str:
    return '"' + command.replace("\\", "\\\\").replace('"', '\\"') + '"'


def detect(folder: Path) -> list[str]:
    """Commands that look like this project's tests, the surest first."""
    found = []
    if _uses_pytest(folder):
        found.append("python -m pytest -q")
    if re.search(r'"test"\s*:\s*"(?!echo \\"Error: no test)', _text(folder / "package.json")):
        found.append("npm test")
    if (folder / "Cargo.toml").is_file():
        found.append("cargo test")
    if (folder / "go.mod").is_file():
        found.append("go test ./...")
    if re.search(r"^test\s*:", _text(folder / "Makefile"), re.MULTILINE):
        found.append("make test")
    return found


def _uses_pytest(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")):
        return True
    try:
        project = tomllib.loads(_text(folder / "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        project = {}
    if "pytest" in project.get("tool", {}):
        return True
    return any(folder.glob("test_*.py")) or any(folder.glob("tests/test_*.py"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""
