"""The floor: what anybody pays who asks a model over aiohttp. One growing bytearray, no kernel, no store, no limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from bench.meter import Meter, Plan

HEAD = b'{"model":"bench","messages":[{"role":"system","content":"You look things up."},{"role":"user","content":"Look."}'
TAIL = b'],"max_tokens":16000}'
STREAM = b'],"max_tokens":16000,"stream":true,"stream_options":{"include_usage":true}}'


async def drive(plan: Plan, meter: Meter) -> None:
    """All runs of a plan, side by side."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:
        await asyncio.gather(*(_run(plan, meter.run(), session) for _ in range(plan.runs)))


async def _run(plan: Plan, answer: Callable[[int], str], session: aiohttp.ClientSession) -> None:
    history = bytearray()
    url = plan.url + "/chat/completions"
    for _ in range(plan.turns):
        body = b"".join((HEAD, history, STREAM if plan.stream else TAIL))
        async with session.post(url, data=body) as response:
            message = await _streamed(response) if plan.stream else msgspec.json.decode(await response.read())
        call = message["choices"][0]["message"]["tool_calls"][0]
        text = await _tool(answer, **msgspec.json.decode(call["function"]["arguments"]))
        history += b"," + msgspec.json.encode(message["choices"][0]["message"])
        history += b"," + msgspec.json.encode({"role": "tool", "tool_call_id": call["id"], "content": text})


async def _tool(answer: Callable[[int], str], number: int) -> str:
    return answer(number)


async def _streamed(response: aiohttp.ClientResponse) -> dict[str, Any]:
    rest, texts, calls = b"", [], []
    async for chunk in response.content.iter_any():
        *events, rest = (rest + chunk).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                continue
            for choice in msgspec.json.decode(event[5:])["choices"]:
                texts.append(choice["delta"].get("content", ""))
                calls += choice["delta"].get("tool_calls", ())
    return {"choices": [{"message": {"role": "assistant", "content": "".join(texts), "tool_calls": calls}}]}
