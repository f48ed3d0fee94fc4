"""What a provider's prompt cache sees of a real goal: each request is the one before, and something behind it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from endstop.core.events import Contract, Gate
from tests.runtime.server import go, message, pursue, serving

TURNS: list[dict[str, Any]] = [
    message("First a look.", ("list_files", {})),
    message("", ("read_file", {"path": "a.txt"}), ("read_file", {"path": "none.txt"})),
    message("", ("read_file", {"path": "a.txt"})),
    message("", ("read_file", {"path": "a.txt"})),  # a notice is added to this result
    message("", ("plan", {"items": "no list"})),  # malformed
    message("", ("no_such_tool", {})),
    message("I would rather talk."),  # a nudge
    message("", ("write_file", {"path": "b.txt", "content": "é\n" * 400})),
    message("", ("task_complete", {"summary": "perhaps"})),  # confronted
    message("", ("task_complete", {"summary": "perhaps"})),  # returned
]
CUT = b'],"max_'


def test_consecutive_requests_share_everything_but_the_tail(tmp_path: Path) -> None:
    """Notices, refusals, nudges, confrontations and warnings of limits change nothing that was sent before."""
    (tmp_path / "a.txt").write_text("some text\n")

    def play(request: dict[str, Any], number: int) -> dict[str, Any]:
        return TURNS[number - 1] if number <= len(TURNS) else message("", ("read_file", {"path": f"{number}.txt"}))

    async def scene() -> list[bytes]:
        async with serving(play) as server:
            contract = Contract(gates=[Gate(gate_id="g", run="test -s c.txt")], judge="none")
            state, _ = await pursue(server.url, tmp_path, contract, limits={"turns": 16})
            assert state.phase in ("capped", "stuck")
            return [raw for raw in server.raw if b'"tools":' in raw]

    sent = go(scene())
    assert len(sent) > len(TURNS)
    for earlier, later in pairwise(sent):
        kept = earlier[: earlier.rindex(CUT)]
        assert later.startswith(kept)
        assert len(later) > len(kept) + len(CUT)


def test_the_scene_above_is_what_it_says(tmp_path: Path) -> None:
    """Everything that might have rewritten the history was really in it."""
    (tmp_path / "a.txt").write_text("some text\n")

    async def scene() -> bytes:
        async with serving(lambda request, number: TURNS[min(number, len(TURNS)) - 1]) as server:
            await pursue(server.url, tmp_path, Contract(gates=[Gate(gate_id="g", run="test -s c.txt")], judge="none"))
            return [raw for raw in server.raw if b'"tools":' in raw][-1]

    last = go(scene()).decode()
    for words in ("Same call, same result", "There is no tool", "Nothing was run", "gate fails"):
        assert words in last
