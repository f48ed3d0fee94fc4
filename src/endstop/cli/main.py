"""The command line: what can be typed, and the one place where errors become a line and an exit code.

Only names and options stand here. What a command does is loaded when it is called, so that ``--help`` stays quick.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from endstop import __version__
from endstop.cli import crash, exits
from endstop.errors import EndstopError

app = typer.Typer(
    name="endstop",
    help="Run AI agents unattended, and know when to stop.",
    epilog="Exit codes: 0 verified, 1 failed, 2 usage, 3 claimed, 4 capped, 5 stuck, 6 blocked, 75 waits, 130 cancelled.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Id = Annotated[str | None, typer.Argument(metavar="[ID]", help="A goal's id or the beginning of it; the newest of this folder.")]
Folder = Annotated[Path | None, typer.Option("-C", "--workspace", metavar="FOLDER", help="Where to work; else this folder.")]
Limits = Annotated[
    list[str] | None, typer.Option("-l", "--limit", metavar="AXIS=CAP", help="cost=2usd, turns=60, wall=45m, …=none.")
]
Wait = Annotated[bool, typer.Option("-w", "--wait", help="Stay while it waits for a human or a pot.")]
Json = Annotated[bool, typer.Option("--json", help="Print the journal: one event a line, nothing else.")]
Reports = Annotated[list[Path] | None, typer.Option("--report", metavar="FILE", help="Write a report at the end, .md or .json.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print the end only.")]


def _call(module: str, function: str, *arguments: Any, **options: Any) -> None:
    """Do what a command says; its exit code ends the process."""
    try:
        code = getattr(import_module(f"endstop.cli.{module}"), function)(*arguments, **options)
    except KeyboardInterrupt:  # before or after a goal is driven, which takes signals itself
        code = exits.CANCELLED
    raise typer.Exit(code or exits.OK)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"endstop {__version__}")
        raise typer.Exit


@app.callback()
def endstop(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")] = False,
) -> None:
    """Run AI agents unattended, and know when to stop."""


@app.command()
def run(
    objective: Annotated[str, typer.Argument(metavar="OBJECTIVE|GOAL.toml", help="What should be reached, or a goal file.")],
    gate: Annotated[
        list[str] | None, typer.Option("-g", "--gate", metavar="COMMAND", help="Passes when it exits 0. Repeatable.")
    ] = None,
    deliverable: Annotated[
        list[str] | None, typer.Option("--deliverable", metavar="PATH", help="Must exist, be new and not empty. Repeatable.")
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            "--protect",
            metavar="flag|refuse|PATH",
            help="A word: what to do when a verifier input was changed. Anything else: one more such path. Repeatable.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("-m", "--model", metavar="PROVIDER:MODEL", help="The agent's model.")] = None,
    judge: Annotated[str | None, typer.Option("--judge", metavar="auto|none|MODEL", help="Who reads the evidence.")] = None,
    limit: Limits = None,
    workspace: Folder = None,
    confront: Annotated[
        str | None, typer.Option("--confront", metavar="once|always|never", help="Answer claims with fresh evidence.")
    ] = None,
    accept_claimed: Annotated[bool, typer.Option("--accept-claimed", help="Exit 0 for done (claimed) too.")] = False,
    mode: Annotated[str | None, typer.Option("--mode", metavar="plan|ask|auto|yolo", help="What runs without asking.")] = None,
    allow: Annotated[list[str] | None, typer.Option("--allow", metavar="RULE", help="Like 'shell(npm *)'. Repeatable.")] = None,
    deny: Annotated[list[str] | None, typer.Option("--deny", metavar="RULE", help="Beats every mode. Repeatable.")] = None,
    network: Annotated[bool, typer.Option("--network", help="Commands and gates may use the network.")] = False,
    wait: Wait = False,
    json: Json = False,
    report: Reports = None,
    quiet: Quiet = False,
) -> None:
    """Pursue a goal until it ends, and say how it ended."""
    limits = dict(_pair(text) for text in limit or ())
    permissions = {"mode": mode, "allow": allow, "deny": deny, "network": network or None}
    flags = {
        "model": model,
        "judge": judge,
        "workspace": str(workspace) if workspace else None,
        "gate": [{"run": command} for command in gate] if gate else None,
        "deliverables": deliverable,
        "protect": protect,
        "confront": confront,
        "accept_claimed": accept_claimed or None,
        "limits": limits or None,
        "permissions": _given(permissions) or None,
    }
    _call("run", "run", objective, _given(flags), wait=wait, json=json, reports=report or [], quiet=quiet)


@app.command()
def resume(
    id: Id = None,
    workspace: Folder = None,
    limit: Limits = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A hint for the agent.")] = None,
    accept_inputs: Annotated[bool, typer.Option("--accept-inputs", help="Take changed verifier inputs as they are now.")] = False,
    wait: Wait = False,
    json: Json = False,
    report: Reports = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a goal: paused, waiting, or ended in any way but done."""
    limits = dict(_pair(text) for text in limit or ())
    more = {"limits": limits, "note": note, "accept_inputs": accept_inputs}
    _call("run", "resume", id, workspace, **more, wait=wait, json=json, reports=report or [], quiet=quiet)


@app.command()
def ps(
    all: Annotated[bool, typer.Option("-a", "--all", help="Goals of every folder.")] = False,
    workspace: Folder = None,
) -> None:
    """List goals, the newest first: those of this folder."""
    _call("look", "ps", workspace, everywhere=all)


@app.command()
def show(
    id: Id = None,
    events: Annotated[bool, typer.Option("--events", help="One line per event.")] = False,
    turns: Annotated[bool, typer.Option("--turns", help="One line per turn.")] = False,
    stall: Annotated[bool, typer.Option("--stall", help="What the stall rules saw.")] = False,
    workspace: Folder = None,
) -> None:
    """Show a goal: where it stands, what proves it, its cost."""
    pages = [name for name, wanted in (("events", events), ("turns", turns), ("stall", stall)) if wanted]
    _call("look", "show", id, workspace, pages)


@app.command()
def answer(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A goal's id; may be left out.")] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The answer, an option's number; for a permission yes, or no and why.")
    ] = None,
    workspace: Folder = None,
) -> None:
    """Answer a goal's question, or its wish for a permission."""
    _call("humans", "answer", id, workspace, text)


@app.command()
def pause(id: Id = None, workspace: Folder = None) -> None:
    """Pause a goal: the running tool may end, only resume goes on."""
    _call("humans", "pause", id, workspace)


@app.command()
def cancel(id: Id = None, workspace: Folder = None) -> None:
    """Cancel a goal with everything it has begun."""
    _call("humans", "cancel", id, workspace)


@app.command()
def verify(
    target: Annotated[str | None, typer.Argument(metavar="[ID|FILE]", help="A goal, or an exported journal.")] = None,
    workspace: Folder = None,
) -> None:
    """Check that a journal is what was written."""
    _call("look", "verify", target, workspace)


@app.command()
def export(
    id: Id = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here, not to the terminal.")
    ] = None,
    workspace: Folder = None,
) -> None:
    """Write a goal's journal as JSON lines that verify themselves."""
    _call("look", "export", id, workspace, output)


@app.command()
def init(
    force: Annotated[bool, typer.Option("--force", help="Overwrite an endstop.toml that is there.")] = False,
    workspace: Folder = None,
) -> None:
    """Write an endstop.toml with every setting in it as a comment."""
    _call("init", "init", workspace, force=force)


@app.command()
def doctor(
    ask: Annotated[bool, typer.Option("--ask", help="Ask the model too; costs a few tokens.")] = False,
    workspace: Folder = None,
) -> None:
    """Say what works here and what does not."""
    _call("doctor", "doctor", workspace, ask=ask)


@app.command()
def demo() -> None:
    """See it work, without a key or a network."""
    _call("demo", "run")


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flags.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def main(arguments: list[str] | None = None) -> None:
    """Run a command line (``sys.argv`` unless given) and exit. No traceback reaches the user."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(arguments, prog_name="endstop")
    except EndstopError as error:
        crash.explain(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads: the flush at exit must not fail
        sys.exit(exits.FAILED)
    except Exception as error:  # noqa: BLE001  the last resort: a defect of ours, kept in a file
        crash.record(error, os.environ)
        sys.exit(exits.FAILED)


if __name__ == "__main__":
    main()
