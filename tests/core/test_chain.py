"""The hash chain: a file of lines verifies itself."""

from __future__ import annotations

from hashlib import sha256

from endstop.core import chain, codec
from endstop.core import events as ev
from tests.core.sim import Sim, says


def test_the_first_line_is_bound_to_its_session() -> None:
    """``prev`` of line 1 is the hash of the session's id, so one journal cannot pass for another."""
    assert chain.genesis("s") == sha256(b"endstop:s").hexdigest()
    assert chain.genesis("s") != chain.genesis("t")


def test_each_line_names_the_hash_of_the_bytes_before_it() -> None:
    """Changing any byte of a line breaks the link of the next one."""
    sim = Sim(lambda s: says("42"))
    sim.run()
    prev = chain.genesis("s")
    for line in sim.lines:
        assert codec.open_line(line).prev == prev
        prev = chain.link(line)
    changed = sim.lines[0].replace(b'"producer":"test"', b'"producer":"tesu"')
    assert changed != sim.lines[0]
    assert chain.link(changed) != codec.open_line(sim.lines[1]).prev


def test_a_link_is_over_bytes_not_meaning() -> None:
    """The same event written with other spacing is another line."""
    line = codec.frame(
        codec.encode_data(ev.Abort(reason="r", by="b")), "abort", id="i", seq=1, prev="0", timestamp="t", parent=None
    )
    assert chain.link(line) == sha256(line).hexdigest()
    assert chain.link(line) != chain.link(line.replace(b":", b": ", 1))
