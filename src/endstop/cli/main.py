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
from endstop.cli import options as given
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
    objective: given.Objective,
    gate: given.Gates = None,
    deliverable: given.Deliverables = None,
    protect: given.Protect = None,
    model: given.Model = None,
    fallback: given.Fallbacks = None,
    effort: given.Effort = None,
    judge: given.Judge = None,
    rubric: given.Rubric = None,
    review: given.Review = None,
    limit: given.Limits = None,
    on_halt: given.OnHalt = None,
    workspace: given.Folder = None,
    worktree: given.Worktree = False,
    confront: given.Confront = None,
    accept_claimed: given.AcceptClaimed = False,
    mode: given.Mode = None,
    allow: given.Allow = None,
    deny: given.Deny = None,
    ask: given.Ask = None,
    network: given.Network = False,
    wait: given.Wait = False,
    detach: given.Detach = False,
    dry_run: given.DryRun = False,
    json: given.Json = False,
    report: given.Reports = None,
    quiet: given.Quiet = False,
) -> None:
    """Pursue a goal until it ends, and say how it ended."""
    flags = _flags(model, effort, limit, workspace, mode, allow, deny, ask, network) | _set(
        gate=[{"run": command} for command in gate] if gate else None,
        deliverables=deliverable,
        protect=protect,
        fallbacks=fallback,
        judge=judge,
        rubric=rubric,
        review=review,
        on_halt=on_halt,
        confront=confront,
        accept_claimed=accept_claimed or None,
    )
    if dry_run:
        _call("foresee", "foresee", objective, flags)
    how = {"wait": wait, "json": json, "reports": report or [], "quiet": quiet}
    _call("run", "run", objective, flags, worktree=worktree, detach=detach, **how)


@app.command()
def resume(
    id: given.Id = None,
    workspace: given.Folder = None,
    limit: given.Limits = None,
    allow: given.Allow = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A hint for the agent.")] = None,
    accept_inputs: Annotated[bool, typer.Option("--accept-inputs", help="Take changed verifier inputs as they are now.")] = False,
    wait: given.Wait = False,
    json: given.Json = False,
    report: given.Reports = None,
    quiet: given.Quiet = False,
) -> None:
    """Go on with a goal that stopped in any way but done."""
    limits = dict(_pair(text) for text in limit or ())
    more = {"limits": limits, "allow": allow or [], "note": note, "accept_inputs": accept_inputs}
    _call("run", "resume", id, workspace, **more, wait=wait, json=json, reports=report or [], quiet=quiet)


@app.command()
def chat(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A session to go on with: its id or the beginning.")] = None,
    model: given.Model = None,
    effort: given.Effort = None,
    limit: given.Limits = None,
    workspace: given.Folder = None,
    mode: given.Mode = None,
    allow: given.Allow = None,
    deny: given.Deny = None,
    ask: given.Ask = None,
    network: given.Network = False,
) -> None:
    """Talk with an agent, at a terminal or through a pipe."""
    _call("chat", "chat", id, _flags(model, effort, limit, workspace, mode, allow, deny, ask, network))


@app.command()
def ps(
    all: Annotated[bool, typer.Option("-a", "--all", help="Goals of every folder.")] = False,
    workspace: given.Folder = None,
) -> None:
    """List goals, the newest first: those of this folder."""
    _call("look", "ps", workspace, everywhere=all)


@app.command()
def show(
    id: given.Id = None,
    events: Annotated[bool, typer.Option("--events", help="One line per event.")] = False,
    turns: Annotated[bool, typer.Option("--turns", help="One line per turn.")] = False,
    stall: Annotated[bool, typer.Option("--stall", help="What the stall rules saw.")] = False,
    config: Annotated[bool, typer.Option("--config", help="The settings that hold here, and where each came from.")] = False,
    workspace: given.Folder = None,
) -> None:
    """Show a goal: where it stands, what proves it, its cost."""
    given_pages = {"events": events, "turns": turns, "stall": stall, "config": config}
    pages = [name for name, wanted in given_pages.items() if wanted]
    _call("look", "show", id, workspace, pages)


@app.command()
def logs(
    id: given.Id = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on while somebody drives it.")] = False,
    workspace: given.Folder = None,
) -> None:
    """Print what a goal did, one line a thing."""
    _call("follow", "logs", id, workspace, follow=follow)


@app.command()
def attach(id: given.Id = None, workspace: given.Folder = None) -> None:
    """Watch a goal that another process drives."""
    _call("follow", "attach", id, workspace)


@app.command()
def diff(id: given.Id = None, workspace: given.Folder = None) -> None:
    """Print what a goal changed since its start."""
    _call("look", "diff", id, workspace)


@app.command()
def spend(
    since: Annotated[str | None, typer.Option("--since", metavar="AGE|DATE", help="7d, 12h, or 2026-11-01.")] = None,
    by: Annotated[str, typer.Option("--by", metavar="goal|model|day", help="What to add up by.")] = "model",
    workspace: Annotated[
        Path | None, typer.Option("-C", "--workspace", metavar="FOLDER", help="Of this folder only; else of all.")
    ] = None,
) -> None:
    """Add up what was spent."""
    _call("spend", "spend", workspace, since, by)


@app.command()
def models(ask: given.AskModel = False, workspace: given.Folder = None) -> None:
    """List the configured models, and whether they answer."""
    _call("models", "models", workspace, ask=ask)


@app.command()
def send(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A goal's id; may be left out.")] = None,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What to say.")] = None,
    workspace: given.Folder = None,
) -> None:
    """Say something to a goal while it works."""
    _call("humans", "send", id, workspace, text)


@app.command()
def answer(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A goal's id; may be left out.")] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The answer, an option's number; for a permission yes, or no and why.")
    ] = None,
    workspace: given.Folder = None,
) -> None:
    """Answer a goal's question, or its wish for a permission."""
    _call("humans", "answer", id, workspace, text)


@app.command()
def pause(id: given.Id = None, workspace: given.Folder = None) -> None:
    """Pause a goal: the running tool may end, only resume goes on."""
    _call("humans", "pause", id, workspace)


@app.command()
def cancel(id: given.Id = None, workspace: given.Folder = None) -> None:
    """Cancel a goal with everything it has begun."""
    _call("humans", "cancel", id, workspace)


@app.command()
def verify(
    target: Annotated[str | None, typer.Argument(metavar="[ID|FILE]", help="A goal, or an exported journal.")] = None,
    workspace: given.Folder = None,
) -> None:
    """Check that a journal is what was written."""
    _call("look", "verify", target, workspace)


@app.command()
def export(
    id: given.Id = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here, not to the terminal.")
    ] = None,
    workspace: given.Folder = None,
) -> None:
    """Write a goal's journal as JSON lines that verify themselves."""
    _call("look", "export", id, workspace, output)


@app.command()
def init(
    force: Annotated[bool, typer.Option("--force", help="Overwrite an endstop.toml that is there.")] = False,
    workspace: given.Folder = None,
) -> None:
    """Write an endstop.toml with every setting in it as a comment."""
    _call("init", "init", workspace, force=force)


@app.command()
def doctor(ask: given.AskModel = False, model: given.Model = None, workspace: given.Folder = None) -> None:
    """Say what works here and what does not."""
    _call("doctor", "doctor", workspace, model, ask=ask)


@app.command()
def demo() -> None:
    """See it work, without a key or a network."""
    _call("demo", "run")


@app.command()
def completion(shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Of which shell.")]) -> None:
    """Print the script by which a shell completes endstop."""
    _call("completion", "completion", shell)


def _flags(
    model: str | None,
    effort: str | None,
    limit: list[str] | None,
    workspace: Path | None,
    mode: str | None,
    allow: list[str] | None,
    deny: list[str] | None,
    ask: list[str] | None,
    network: bool,
) -> dict[str, Any]:
    """What the options of ``run`` and ``chat`` say, in the shape of a settings file."""
    return _set(
        model=model,
        effort=effort,
        workspace=str(workspace) if workspace else None,
        limits=dict(_pair(text) for text in limit or ()) or None,
        permissions=_set(mode=mode, allow=allow, deny=deny, ask=ask, network=network or None) or None,
    )


def _set(**flags: Any) -> dict[str, Any]:
    return {key: value for key, value in flags.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def main(arguments: list[str] | None = None) -> None:
    """Run a command line (``sys.argv`` unless given) and exit. No traceback reaches the user."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if "_ENDSTOP_COMPLETE" in os.environ:  # a shell asks
        import_module("endstop.cli.completion").prepare()
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
