"""Calls that the kernel itself answers: only what the model is told of them."""

from __future__ import annotations

from typing import Any

from endstop.core.messages import ToolSpec
from endstop.tools.schema import checker


def _spec(name: str, description: str, properties: dict[str, Any], required: list[str], **more: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}
    check = checker(parameters)
    return ToolSpec(name=name, description=description, parameters=parameters, effect="attached", check=check, own=True)


def _text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": words, **more}


WAIT = _spec(
    "wait",
    "Wait without using turns or tokens. Give a time, a file or process to wait for, or both: then the time bounds the wait.",
    {
        "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400, "description": "How long, at most one day."},
        "until": _text("Point in time as RFC 3339 with a zone, like 2026-11-30T17:02:11Z.", format="date-time"),
        "file": _text("Path in the workspace; the wait ends when it exists."),
        "process": _text("Id of a process in the background; the wait ends when it ends."),
    },
    [],
    minProperties=1,
)

ASK_USER = _spec(
    "ask_user",
    "Ask the human a question and wait for the answer. Only for what you cannot find out or decide yourself. It ends this "
    "batch of calls; the work goes on when the answer comes.",
    {
        "question": _text("The question, with what the human must know to answer it."),
        "options": {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "Answers to choose from."},
        "allow_freeform": {"type": "boolean", "description": "Whether an answer in own words is welcome.", "default": True},
    },
    ["question"],
)

TASK_COMPLETE = _spec(
    "task_complete",
    "Claim that the objective is met. This is a request: the claim is checked against the workspace, and what is missing "
    "comes back. Call it alone, after everything is done and looked at.",
    {"summary": _text("What was done and how it was checked, in a few sentences.")},
    ["summary"],
)

REPORT_BLOCKED = _spec(
    "report_blocked",
    "Say that the objective cannot be reached without something only a human can give, or not at all. An honest way out: "
    "prefer it to pretending.",
    {
        "reason": _text("What stands in the way, and what was tried."),
        "needs": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "description": "What a human would have to give or decide, one thing per item.",
        },
    },
    ["reason", "needs"],
)

KERNEL_SPECS = (WAIT, ASK_USER, TASK_COMPLETE, REPORT_BLOCKED)
"""All of them."""
