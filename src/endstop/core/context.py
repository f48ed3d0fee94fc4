"""What the model sees: a head that stays, and a window that only grows.

Messages already sent are never rewritten, so consecutive requests share all bytes but the tail and the provider's prompt
cache hits. What changes from turn to turn (limits nearly used, results' notices) is added to the newest message before it
is sent for the first time.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from endstop.core.events import Contract, GoalQueued
from endstop.core.limits import show
from endstop.core.messages import AssistantText, Head, Message, ToolText, UserText

OVERHEAD = 60
"""Bytes a message costs beside its text, in any dialect (role, ids, punctuation)."""


class Window(msgspec.Struct):
    """Messages of one goal. ``sealed`` of them were sent; ``size`` is their bytes with the head's."""

    messages: list[Message] = msgspec.field(default_factory=list)
    seqs: list[int] = msgspec.field(default_factory=list)  # event of each message
    generation: int = 0
    sealed: int = 0
    size: int = 0
    reported: int = 0  # bytes that the last reported usage stands for
    digest: str = ""  # rolls over all sent messages
    notes: list[str] = msgspec.field(default_factory=list)

    def add(self, message: Message, seq: int) -> None:
        """Append the message of an event."""
        self.messages.append(message)
        self.seqs.append(seq)
        self.size += measure(message)

    def note(self, tool_call_id: str | None, text: str) -> None:
        """Add words to a result that was not sent yet, or to the newest message when the request is sealed."""
        for at in range(len(self.messages) - 1, self.sealed - 1, -1):
            message = self.messages[at]
            if isinstance(message, ToolText) and message.tool_call_id == tool_call_id:
                self.messages[at] = ToolText(message.tool_call_id, f"{message.text}\n{text}")
                self.size += len(text.encode(errors="replace")) + 1
                return
        self.notes.append(text)

    def seal(self, seq: int) -> None:
        """The messages are about to be sent by event ``seq``: notes go in, the digest moves on."""
        if self.notes:
            text = "\n".join(self.notes)
            self.notes = []
            last = self.messages[-1] if len(self.messages) > self.sealed else None
            if isinstance(last, ToolText):
                self.messages[-1] = ToolText(last.tool_call_id, f"{last.text}\n\n{text}")
                self.size += len(text.encode(errors="replace")) + 2
            elif isinstance(last, UserText):
                self.messages[-1] = UserText(f"{last.text}\n\n{text}")
                self.size += len(text.encode(errors="replace")) + 2
            else:
                self.add(UserText(text), seq)
        rolling = sha256(self.digest.encode())
        for message in self.messages[self.sealed :]:
            if isinstance(message, ToolText):  # the long ones: no need to escape them
                rolling.update(f"{message.tool_call_id}\n{message.text}".encode(errors="replace"))
            else:
                rolling.update(msgspec.json.encode(message))
        self.digest = rolling.hexdigest()
        self.sealed = len(self.messages)

    def forget(self, forgot: list[tuple[int, int]], shortened: list[tuple[int, int]], summary: str) -> None:
        """Rebuild without what was forgotten, the summary in its place and with its last number, so that numbers rise. The
        first message stays; everything is sent anew."""
        kept = list(zip(self.messages, self.seqs, strict=True))
        rest = [(m, n) for m, n in kept[1:] if not _within(n, forgot)]
        said: list[tuple[Message, int]] = []
        if summary and forgot:
            said.append((UserText(f"# What was done so far\n{summary}"), forgot[-1][1]))
        rebuilt = kept[:1] + said + [(shorten(m) if _within(n, shortened) else m, n) for m, n in rest]
        self.messages, self.seqs = [m for m, _ in rebuilt], [n for _, n in rebuilt]
        self.generation += 1
        self.sealed, self.digest, self.reported = 0, "", 0
        self.size = sum(measure(message) for message in self.messages)


def _within(seq: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= seq <= high for low, high in ranges)


SHORT = 800
"""Characters that a shortened result keeps."""


def shorten(message: Message) -> Message:
    """A result with only its ends; any other message as it is."""
    if not isinstance(message, ToolText) or len(message.text) <= SHORT + 100:
        return message
    left_out = len(message.text) - SHORT
    text = f"{message.text[: SHORT // 2]}\n… {left_out} characters left out …\n{message.text[-SHORT // 2 :]}"
    return ToolText(message.tool_call_id, text)


def measure(message: Message) -> int:
    """Bytes a message adds to a request, near enough for a reservation."""
    match message:
        case AssistantText(text=text, requests=requests, opaque=opaque):
            size = len(text.encode(errors="replace")) + len(opaque or "")
            for request in requests:
                size += OVERHEAD + len(request.name) + len(msgspec.json.encode(request.arguments))
            return size + OVERHEAD
        case UserText(text=text) | ToolText(text=text):
            return len(text.encode(errors="replace")) + OVERHEAD
    raise TypeError(type(message).__name__)


def measure_head(head: Head) -> int:
    """Bytes of the constant start of every request, near enough for a reservation."""
    tools = sum(OVERHEAD + len(t.name) + len(t.description) + len(msgspec.json.encode(t.parameters)) for t in head.tools)
    return len(head.system.encode()) + OVERHEAD + tools


SYSTEM = """\
You are an agent working unattended on one goal in one workspace. Nobody watches each step; what you do is recorded.

- Work with the tools. Do what the goal asks, look at the results, and check your own work before you claim it.
- When everything the goal asks is really done, call task_complete with a short summary of what shows it. That is a request:
  gates, files and an independent judge decide, and you are told what is missing.
- If you cannot go on without something only a human can give, call report_blocked and say what you need. Use ask_user for a
  question that has an answer. Do not guess and do not pretend.
- If a call does not work, find out why before you repeat it. Repeated calls that change nothing are refused.
- Do not change the tests or other files the verification relies on, unless the goal is to change them.
- Words alone do not finish the goal: a message without a tool call ends your round."""


CHAT_SYSTEM = """\
You are an agent working with a human on files and commands in one workspace. What you do is recorded.

- Work with the tools, look at the results, and say plainly what you did and what you saw.
- A message without a tool call ends your part: the human reads it and writes again.
- Ask when something only the human can know is missing. Do not guess and do not pretend.
- If a call does not work, find out why before you repeat it. Repeated calls that change nothing are refused."""


def opening(goal: GoalQueued) -> str:
    """The first message: objective, contract, policy and limits. It stays at the top for the whole goal."""
    parts = [f"# Goal\n{goal.objective.strip()}", f"# Workspace\n{goal.workspace}"]
    if goal.instructions:
        parts.append(f"# Instructions of this repository\n{goal.instructions.strip()}")
    contract = describe(goal.contract)
    if contract:
        parts.append("# What done means\n" + contract)
    policy = goal.policy
    may = [f"mode {policy.mode}", "network allowed" if policy.network else "no network in the shell"]
    may += [f"allowed: {rule}" for rule in policy.allow] + [f"denied: {rule}" for rule in policy.deny]
    parts.append("# What you may do\n" + "; ".join(may))
    if goal.limits:
        amounts = [show(axis, cap) if axis in ("cost", "wall", "active") else f"{cap:.0f}" for axis, cap in goal.limits.items()]
        parts.append("# Limits\n" + ", ".join(f"{axis} {amount}" for axis, amount in zip(goal.limits, amounts, strict=True)))
    return "\n\n".join(parts)


def describe(contract: Contract) -> str:
    """The contract in lines for a model or a person; empty if there is nothing to say."""
    lines = [f"- this command exits with status 0: {gate.run}" for gate in contract.gates]
    lines += [f"- this file exists, is not empty and is new or changed: {path}" for path in contract.deliverables]
    lines += [f"- this stays as it is: {path}" for path in contract.inputs]
    if contract.rubric:
        lines.append(f"- {contract.rubric.strip()}")
    return "\n".join(lines)
