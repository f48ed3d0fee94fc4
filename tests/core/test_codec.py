"""Events to lines and back: bytes that are stored, hashed and served unchanged."""

from __future__ import annotations

import time
from typing import get_args

import msgspec
import pytest

from endstop.core import codec
from endstop.core import events as ev
from tests.core.filled import fill, filled


def line(event: ev.Event, seq: int = 3, parent: str | None = "above") -> bytes:
    """The event as a line."""
    return codec.frame(
        codec.encode_data(event),
        codec.type_of(event),
        id="i",
        seq=seq,
        prev="0" * 64,
        timestamp="2026-11-30T17:02:11.482Z",
        parent=parent,
    )


@pytest.mark.parametrize("name", sorted(ev.EVENTS))
def test_every_event_survives_the_line(name: str) -> None:
    """Written and read again, an event with all its fields is the same, on one line."""
    event = filled(ev.EVENTS[name])
    raw = line(event)
    assert b"\n" not in raw
    entry = codec.decode(raw)
    assert (entry.event, entry.seq, entry.id) == (event, 3, "i")
    assert codec.encode_data(entry.event) == codec.encode_data(event)
    assert codec.from_builtins(name, codec.to_builtins(event)) == event


@pytest.mark.parametrize("name", sorted(ev.EVENTS))
def test_absent_means_unknown(name: str) -> None:
    """Optional fields that are not known are left out of the line, never written as null or zero."""
    kind = ev.EVENTS[name]
    needed = {f.name: fill(f.type) for f in msgspec.inspect.type_info(kind).fields if f.required}
    event = kind(**needed)
    data = msgspec.json.decode(codec.encode_data(event))
    assert len(data) == len(needed)
    assert codec.decode(line(event)).event == event


def test_the_line_is_the_documented_one() -> None:
    """Field order and spelling of the envelope are fixed: those bytes are hashed."""
    assert line(ev.Abort(reason="r", by="b")) == (
        b'{"id":"i","seq":3,"prev":"' + b"0" * 64 + b'","timestamp":"2026-11-30T17:02:11.482Z","parentId":"above",'
        b'"type":"abort","data":{"reason":"r","by":"b"}}'
    )
    assert b'"parentId":null' in line(ev.Abort(reason="r", by="b"), parent=None)


def test_a_field_named_from_keeps_that_name_on_the_wire() -> None:
    """Words that Python reserves are plain on the wire."""
    data = msgspec.json.decode(codec.encode_data(ev.GoalResumed(from_="waiting", cause="x")))
    assert data == {"from": "waiting", "cause": "x"}


def test_a_type_from_the_future_is_kept_as_it_is() -> None:
    """An unknown type is no error: its data goes through unread and comes out the same."""
    raw = line(ev.Unknown(type="goal.teleported", data={"to": ["moon", 1]}))
    entry = codec.decode(raw)
    assert entry.event == ev.Unknown(type="goal.teleported", data={"to": ["moon", 1]})
    assert line(entry.event) == raw
    assert codec.from_builtins("goal.teleported", {"to": 1}) == ev.Unknown(type="goal.teleported", data={"to": 1})
    assert codec.to_builtins(entry.event) == {"to": ["moon", 1]}


def test_fields_from_the_future_are_ignored() -> None:
    """A newer writer may add fields to a known event."""
    raw = line(ev.Abort(reason="r", by="b")).replace(b'"reason"', b'"since":1,"reason"')
    assert codec.decode(raw).event == ev.Abort(reason="r", by="b")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"id":"i"}',
        line(ev.Abort(reason="r", by="b"))[:-1],
        line(ev.Abort(reason="r", by="b")) + b"}",
        line(ev.Abort(reason="r", by="b")).replace(b'"seq":3', b'"seq":"3"'),
        line(ev.Abort(reason="r", by="b")).replace(b'"r"', b"5"),
        line(ev.Abort(reason="r", by="b")).replace(b'"r"', b'"\xff"'),
        line(ev.Abort(reason="r", by="b")).replace(b"2026-11-30", b"2026-13-30"),
        line(ev.Abort(reason="r", by="b")).replace(b"2026-11-30T17:02:11.482Z", b"yesterday"),
        line(ev.TurnEnd(turn_id=1, outcome="ok")).replace(b'"ok"', b'"fine"'),
        line(ev.Unknown(type="x", data={})).replace(b'"data":{}', b'"data":{]'),
    ],
)
def test_what_is_no_event_is_a_bad_line(raw: bytes) -> None:
    """Torn, foreign and mistyped lines are one kind of error, whatever is wrong with them."""
    with pytest.raises(codec.BadLine) as caught:
        codec.decode(raw)
    assert str(caught.value)


def test_a_bad_line_says_where_and_what() -> None:
    """The message names sequence number, type and field."""
    with pytest.raises(codec.BadLine, match=r"seq 3, abort: .*reason"):
        codec.decode(line(ev.Abort(reason="r", by="b")).replace(b'"r"', b"5"))


@pytest.mark.parametrize("when", [0.0, 1.0, 1_000_000.001, 1_796_058_131.482, 4_102_444_799.999])
def test_times_keep_their_milliseconds(when: float) -> None:
    """A stamp is UTC with milliseconds and reads back as the same time."""
    text = codec.stamp(when)
    assert text.endswith("Z")
    assert len(text) == len("2026-11-30T17:02:11.482Z")
    assert codec.seconds(text) == pytest.approx(when, abs=1e-6)


def test_times_never_go_back_when_written() -> None:
    """Later is never written as earlier, also at the edge of a second."""
    times = [1_000_000 + n / 997 for n in range(3000)]
    stamps = [codec.stamp(t) for t in times]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
def test_a_time_without_a_zone_is_utc_on_every_machine(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a journal means does not depend on where it is read."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert codec.seconds("1970-01-02T00:00:00") == 86400.0
        assert codec.seconds("1970-01-02T00:00:00+01:00") == 82800.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_every_phase_has_a_wire_name() -> None:
    """Phases on the wire are the words of the glossary."""
    assert set(get_args(ev.Phase)) == {
        "none",
        "queued",
        "working",
        "checking",
        "waiting",
        "paused",
        "closing",
        "done",
        "capped",
        "stuck",
        "blocked",
        "failed",
        "cancelled",
    }
