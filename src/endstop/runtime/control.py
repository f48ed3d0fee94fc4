"""Controls: what anyone authorised may append to a session's journal without holding it.

A control that its phase can do nothing with is kept all the same, marked ``late``.
"""

from __future__ import annotations

import msgspec

from endstop.core import chain, codec
from endstop.core import events as ev
from endstop.core.apply import replay
from endstop.core.events import TYPE_OF, Event
from endstop.core.goal import State, allowed
from endstop.ports import Clock
from endstop.runtime.session import Redact, cleaned, uuid7
from endstop.store.blobs import pack
from endstop.store.open import Store


async def control(store: Store, session_id: str, event: Event, *, clock: Clock, redact: Redact) -> bool:
    """Append a control at the head, whoever holds the session.

    Returns:
        False if it came too late: it is in the journal, and changes nothing.

    Raises:
        UsageError: there is no such session.
        StoreCorrupt: its journal cannot be read.
    """
    event = cleaned(event, redact)
    while True:
        entries, at = await store.snapshot(session_id, 0)
        state = replay(entries)
        late = is_late(state, event)
        marked = msgspec.structs.replace(event, late=True) if late and "late" in event.__struct_fields__ else event
        data, blobs = pack(marked, state.salt or "00")
        line = codec.frame(
            data,
            TYPE_OF[type(event)],
            id=uuid7(),
            seq=at.seq + 1,
            prev=at.hash if at.seq else chain.genesis(session_id),
            timestamp=codec.stamp(max(at.time, clock())),
            parent=at.id,
        )
        phase = at.phase if late else (allowed(state, event) or at.phase)
        appended = await store.append(
            session_id, [line], first=at.seq + 1, generation=None, durable=True, phase=phase, blobs=blobs
        )
        if not appended.moved:
            return not late


def is_late(state: State, event: Event) -> bool:
    """Whether this control can do nothing any more in this state."""
    match event:
        case ev.QuestionAnswered(question_id=wanted):
            question = state.questions.get(wanted)
            return question is None or question.answer is not None or question.expired
        case ev.PermissionCompleted(request_id=wanted):
            grant = state.grants.get(wanted)
            return grant is None or bool(grant.kind)
        case ev.GoalClosing() | ev.GoalPaused() | ev.GoalResumed() | ev.GoalQueued():
            return allowed(state, event) is None
    return False
