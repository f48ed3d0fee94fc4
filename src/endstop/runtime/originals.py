"""What a call really runs with: its arguments as the model gave them.

The journal, the state and the model itself know them without secrets, and whatever is decided is decided by that. What runs is
the original, which only the process that heard the answer has.
"""

from __future__ import annotations

from typing import Any

from endstop.core import events as ev
from endstop.core.effects import Run
from endstop.core.goal import Kit
from endstop.guards.redaction import hides_only_words, marked
from endstop.ports import Outcome

Originals = dict[str, dict[str, Any]]
"""Arguments by the id of their call, as it is recorded."""


def originals_of(said: ev.AssistantMessage, recorded: ev.AssistantMessage) -> Originals:
    """The arguments of an answer's calls."""
    pairs = zip(said.tool_requests, recorded.tool_requests, strict=True)
    return {known.tool_call_id: given.arguments for given, known in pairs if isinstance(given.arguments, dict)}


def refuse(kit: Kit, originals: Originals, run: Run, given: dict[str, Any], recorded: dict[str, Any]) -> Outcome | None:
    """Why a call does not run, None if it does.

    Args:
        given: what it would run with.
        recorded: what was decided upon.
    """
    if not marked(recorded):
        return None
    if run.tool_call_id not in originals:
        return _forgotten(run)
    spec = kit.tools[run.name]
    verdict = kit.permit(spec, given)
    if verdict.kind == "allow":
        return None
    # A person, or a rule, has let through what is recorded. What is taken out of it must not be what they would have minded.
    line = (spec.key_argument or "command") if spec.effect == "shell" else ""
    same = verdict == kit.permit(spec, recorded)
    if same and hides_only_words(str(recorded.get(line, "")), str(given.get(line, ""))):
        return None
    text = f"Not run: what is taken out of the record of this call as a secret changes what it may do ({verdict.why}). Put "
    text += "the secret into a file, and name the file."
    return Outcome(success=False, executed=False, content=text, error=ev.Failure(code="denied", message=text))


def _forgotten(run: Run) -> Outcome:
    """A call of an answer that an earlier process heard."""
    if run.again and run.effect not in ("read", "read_outside"):
        text = "The runtime ended while this ran. Whether it took effect is unknown, and it was not run again, because a secret "
        text += "in its arguments was not recorded. Inspect what it may have done before you go on."
        return Outcome(success=False, content=text, error=ev.Failure(code="effect_unknown", message=text))
    text = "Not run: a secret in its arguments was not recorded, and the runtime was restarted since. Make the call again."
    return Outcome(success=False, executed=False, content=text, error=ev.Failure(code="interrupted", message=text))
