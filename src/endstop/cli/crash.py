"""Errors as people read them: one line and a remedy. A defect of ours leaves its traceback in a file."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from endstop.errors import EndstopError


def explain(error: EndstopError) -> None:
    """Say what is wrong and what helps."""
    said = f"{error.where}: {error.message}" if error.where else error.message
    print(f"endstop: {_printable(said)}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {_printable(error.hint)}", file=sys.stderr)


def record(error: Exception, environ: Mapping[str, str]) -> None:
    """Say that this should not have happened, and where its traceback is."""
    said = _without_secrets(f"{type(error).__name__}: {error}", environ)
    print(f"endstop: this is a defect of Endstop: {_printable(said)}", file=sys.stderr)
    text = _without_secrets("".join(traceback.format_exception(error)), environ)
    folder = Path(environ.get("ENDSTOP_HOME") or _default_home(environ), "crash")
    path = folder / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as failed:
        print(f"  hint: its traceback could not be written to {folder}: {failed.strerror}", file=sys.stderr)
        return
    print(f"  hint: please report it with {path}; goals go on with: endstop resume", file=sys.stderr)


def _default_home(environ: Mapping[str, str]) -> str:
    state = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local/state")
    return os.path.join(state, "endstop")


def _without_secrets(text: str, environ: Mapping[str, str]) -> str:
    for name, value in environ.items():
        if name.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")) and len(value) >= 8:
            text = text.replace(value, f"[{name}]")
    return text


def _printable(text: str) -> str:
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else "·" for c in flat)
