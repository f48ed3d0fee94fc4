"""Questions and permissions by callback, and everything that happens as it happens."""

import asyncio
import tempfile

import endstop
from endstop.testing import ScriptedModel, call, claims, says


@endstop.tool(irreversible=True)
def announce(text: str) -> str:
    """Send a message to everybody."""
    return f"sent: {text}"


async def answer(question: endstop.Question) -> str | None:
    """Ask a person here; None leaves the question open, and the goal waits."""
    return "blue" if "blue" in question.options else None


def allow(request: endstop.PermissionRequest) -> bool | str:
    """True, False, or the reason why not."""
    return True if request.arguments["text"].isascii() else "plain letters only"


MODEL = ScriptedModel(
    [
        says("", call("ask_user", question="Which colour?", options=["red", "blue"])),
        says("", call("announce", text="bläu!")),
        says("", call("announce", text="blue!")),
        claims("Everybody knows: it is blue."),
    ]
)


async def main(workspace: str) -> endstop.Result:
    stream = endstop.stream(
        "Ask for a colour and announce it",
        workspace=workspace,
        model=MODEL,
        tools=[announce],
        judge="none",
        on_question=answer,
        on_permission=allow,
    )
    async with stream as entries:
        async for entry in entries:
            if isinstance(entry.event, endstop.events.ToolComplete):
                print(f"{entry.seq:3} {entry.event.result.content}")
    return stream.result


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(main(folder)))
