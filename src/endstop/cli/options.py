"""What can be typed behind a command: options that several commands share, and those of ``run``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer


def _ids(incomplete: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = import_module("endstop.cli.completion").ids(incomplete)
    return found


Id = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="A goal's id or the beginning of it; the newest of this folder.", autocompletion=_ids),
]
Folder = Annotated[Path | None, typer.Option("-C", "--workspace", metavar="FOLDER", help="Where to work; else this folder.")]
Limits = Annotated[
    list[str] | None, typer.Option("-l", "--limit", metavar="AXIS=CAP", help="cost=2usd, turns=60, wall=45m, …=none.")
]
Wait = Annotated[bool, typer.Option("-w", "--wait", help="Stay while it waits for a human or a pot.")]
Json = Annotated[bool, typer.Option("--json", help="Print the journal: one event a line, nothing else.")]
Reports = Annotated[
    list[Path] | None, typer.Option("--report", metavar="FILE", help="Write a report at the end: .md, .json, or .xml for CI.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print the end only.")]
Model = Annotated[str | None, typer.Option("-m", "--model", metavar="PROVIDER:MODEL", help="The agent's model.")]
Effort = Annotated[
    str | None, typer.Option("--effort", metavar="low|medium|high", help="How much to think, where the model knows it.")
]
Mode = Annotated[str | None, typer.Option("--mode", metavar="plan|ask|auto|yolo", help="What runs without asking.")]
Allow = Annotated[list[str] | None, typer.Option("--allow", metavar="RULE", help="Like 'shell(npm *)'. Repeatable.")]
Deny = Annotated[list[str] | None, typer.Option("--deny", metavar="RULE", help="Beats every mode. Repeatable.")]
Ask = Annotated[list[str] | None, typer.Option("--ask", metavar="RULE", help="Always asks, beats --allow. Repeatable.")]
Network = Annotated[bool, typer.Option("--network", help="Commands and gates may use the network.")]
AskModel = Annotated[bool, typer.Option("--ask", help="Ask the model too; costs a few tokens.")]

# ------------------------------------------------------------------------------------------------------------------- run

Objective = Annotated[str, typer.Argument(metavar="OBJECTIVE|GOAL.toml", help="What should be reached, or a goal file.")]
Gates = Annotated[list[str] | None, typer.Option("-g", "--gate", metavar="COMMAND", help="Passes when it exits 0. Repeatable.")]
Deliverables = Annotated[
    list[str] | None, typer.Option("--deliverable", metavar="PATH", help="Must exist, be new and not empty. Repeatable.")
]
Protect = Annotated[
    list[str] | None,
    typer.Option(
        "--protect",
        metavar="flag|refuse|PATH",
        help="A word: what to do when a verifier input was changed. Anything else: one more such path. Repeatable.",
    ),
]
Fallbacks = Annotated[
    list[str] | None, typer.Option("--fallback", metavar="MODEL", help="Follows where a model does not answer. Repeatable.")
]
Judge = Annotated[str | None, typer.Option("--judge", metavar="auto|none|MODEL", help="Who reads the evidence.")]
Rubric = Annotated[str | None, typer.Option("--rubric", metavar="TEXT", help="What the judge looks for.")]
Review = Annotated[str | None, typer.Option("--review", metavar="none|human", help="human: a person accepts it before done.")]
OnHalt = Annotated[
    str | None, typer.Option("--on-halt", metavar="end|ask", help="ask: more, a hint, or end, before it ends unfinished.")
]
Confront = Annotated[
    str | None, typer.Option("--confront", metavar="once|always|never", help="Answer claims with fresh evidence.")
]
AcceptClaimed = Annotated[bool, typer.Option("--accept-claimed", help="Exit 0 for done (claimed) too.")]
Detach = Annotated[bool, typer.Option("-d", "--detach", help="Leave it to a process of its own; prints the id.")]
Worktree = Annotated[bool, typer.Option("--worktree", help="Work in a git worktree and branch of its own, beside this one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and begin nothing.")]
