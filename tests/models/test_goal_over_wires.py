"""A whole goal whose model stops answering in one protocol and is followed by one in another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from endstop.assemble import Order, System
from endstop.core import events as ev
from endstop.core.goal import State
from endstop.settings import load
from tests.models import test_anthropic_answer as anthropic
from tests.models import test_responses as responses
from tests.models.fake import Reply, Server, serving, text

WRITE = {"path": "out.txt", "content": "done"}


def uses(number: int, name: str, **arguments: object) -> dict[str, object]:
    return {"type": "tool_use", "id": f"toolu_{number:09}", "name": name, "input": arguments}


def asks(number: int, name: str, **arguments: object) -> dict[str, object]:
    call = {"type": "function_call", "call_id": f"call_{number:09}", "name": name}
    return {**call, "arguments": msgspec.json.encode(arguments).decode()}


def pursue(tmp_path: Path, *replies: Reply) -> tuple[State, list[ev.Event], Server]:
    """The goal to its end, with a first model of Anthropic's and OpenAI's responses behind it."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "word.txt").write_text("hello")

    async def run() -> tuple[State, list[ev.Event], Server]:
        async with serving(*replies) as server:
            providers = {name: {"base_url": server.url} for name in ("anthropic", "openai-responses")}
            flags = {"home": str(tmp_path / "state"), "retry": 0, "providers": providers}
            settings = load(cwd=work, environ={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, flags=flags)
            async with System(settings) as system:
                order = Order(
                    objective="Write out.txt.",
                    workspace=work,
                    model="anthropic:m",
                    fallbacks=["openai-responses:m"],
                    contract=ev.Contract(deliverables=["out.txt"], judge="none", confront="never"),
                    limits=settings.limits,
                    policy=ev.Policy(mode="yolo"),
                )
                running = await system.queue(order)
                state = await running.drive(stay=False)
                await running.close()
                entries = await system.store.entries(running.session.session_id)
                return state, [entry.event for entry in entries], server

    return asyncio.run(run())


def test_the_conversation_goes_on_with_another_model(tmp_path: Path) -> None:
    """It gets all that was said and done, without the reasoning of the first; each call is paid, and the end is verified."""
    thinks = anthropic.whole(anthropic.THOUGHT, uses(1, "read_file", path="word.txt"), stop="tool_use")
    busy = msgspec.json.encode({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    writes = responses.response(responses.HMM, asks(2, "write_file", **WRITE))
    done = responses.response(asks(3, "task_complete", summary="out.txt is there"))
    encode = msgspec.json.encode
    state, events, server = pursue(tmp_path, text(thinks), text(busy, 529), text(encode(writes)), text(encode(done)))
    assert state.goal is not None
    assert state.goal.ended is not None
    assert (state.phase, state.goal.ended.verified) == ("done", True)
    changes = [(e.previous_model, e.new_model) for e in events if isinstance(e, ev.SessionModelChange)]
    assert changes == [("anthropic:m", "openai-responses:m")]
    paid = [(e.model, e.input_tokens) for e in events if isinstance(e, ev.AssistantUsage) and not e.estimated]
    assert paid == [("anthropic:m", 20), ("openai-responses:m", 90), ("openai-responses:m", 90)]
    second, third, fourth = server.requests[1:]
    assert anthropic.THOUGHT in second["messages"][1]["content"]
    assert "hello" in str(second["messages"][2])
    kinds = [item.get("type", item.get("role")) for item in third["input"]]
    assert kinds == ["user", "function_call", "function_call_output"]
    assert "c2lnbmF0dXJl" not in str(third)
    assert responses.HMM in fourth["input"]
