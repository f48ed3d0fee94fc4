"""Asking models: the agent's turns, the judge, summaries. Each paid call leaves exactly one usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from endstop.core import events as ev
from endstop.core.compaction import COMPACTION_SYSTEM, completed
from endstop.core.context import CHAT_SYSTEM, SYSTEM
from endstop.core.effects import AskJudge, CallModel, Compact
from endstop.core.goal import State
from endstop.core.handoff import CLOSING_SYSTEM
from endstop.core.messages import Answer, Head, Message, Usage, UserText
from endstop.errors import ModelError
from endstop.models import retry
from endstop.ports import Chat, Judge, Model, Watch
from endstop.runtime.race import Race, time_is_up
from endstop.runtime.session import Session


class Ask:
    """The models of one session: the pinned one, its named fallbacks, the judge.

    ``watch`` gets the agent's words as they arrive; its presence makes calls stream.
    """

    def __init__(
        self,
        model: Model,
        others: Mapping[str, Model],
        judge: Judge | None,
        *,
        watch: Watch | None,
        attempts: int,
        jitter: Callable[[], float],
    ) -> None:
        self._pinned, self._others, self._judge = model, others, judge
        self.watch = watch
        self._attempts, self._jitter = attempts, jitter
        self._chats: dict[str, Chat] = {}

    def _model(self, state: State) -> Model:
        return self._others.get(state.model, self._pinned)

    def _conversation(self, state: State) -> Chat:
        """The conversation with the model that is asked now; another one starts it anew."""
        chat = self._chats.get(state.model)
        if chat is None:
            system = CHAT_SYSTEM if state.kind == "chat" else SYSTEM
            chat = self._model(state).open(Head(system, tuple(state.kit.tools.values())))
            self._chats = {state.model: chat}
        return chat

    async def turn(self, session: Session, act: CallModel) -> None:
        """One turn of the agent: its answer, or how it failed or was stopped."""
        said: list[Answer | ModelError] = []

        async def work() -> None:
            try:
                said.append(await self._answer(session, act))
            except ModelError as error:
                said.append(error)

        stopped = await Race(session).run(work())
        turn = session.state.turn
        if turn is None or turn.id != act.turn_id or turn.ended:
            return
        answer = said[0] if said else None
        if isinstance(answer, Answer):
            session.record(*self._answered(session, act, answer))
        elif isinstance(answer, ModelError):
            session.record(*self._paid(session.state, act.purpose, act.turn_id, answer, self._model(session.state)))
            session.record(_failed(act, answer, session.clock()))
        else:
            outcome = "lost" if stopped == "timeout" else "interrupted"
            usage = self._usage(act.purpose, act.turn_id, None, session.state.spend.reserved, 1, self._model(session.state))
            session.record(usage, ev.TurnEnd(turn_id=act.turn_id, outcome=outcome))  # type: ignore[arg-type]

    async def _answer(self, session: Session, act: CallModel) -> Answer:
        state = session.state
        messages: list[Message] = state.window.messages
        if act.prompt is not None:
            chat, messages = self._model(state).open(Head(CLOSING_SYSTEM)), [UserText(act.prompt)]
        else:
            chat = self._conversation(state)

        def on_retry(attempt: int, error: ModelError, wait: float) -> None:
            session.record(
                ev.ModelRetried(turn_id=act.turn_id, attempt=attempt, error_type=error.kind, wait_seconds=round(wait, 3))
            )

        return await retry.ask(
            chat,
            messages,
            generation=state.window.generation,
            max_output=act.max_output,
            clock=session.clock,
            tools=act.prompt is None,
            watch=self.watch,
            deadline=time_is_up(state, session.clock()),
            attempts=self._attempts,
            on_retry=on_retry,
            jitter=self._jitter,
        )

    def _answered(self, session: Session, act: CallModel, answer: Answer) -> list[ev.Event]:
        reserved = session.state.spend.reserved
        text = len(answer.text.encode(errors="replace")) + sum(len(str(r.arguments)) for r in answer.requests)
        known = answer.usage or Usage(int(reserved.get("input-tokens", 0)), text // 3 + 1, estimated=True)
        events: list[ev.Event] = [
            ev.AssistantMessage(
                message_id=f"a{act.turn_id}",
                content=answer.text,
                tool_requests=list(answer.requests) if act.prompt is None else [],
                reasoning_opaque=answer.opaque,
                finish_reason=answer.finish,
            ),
            self._usage(act.purpose, act.turn_id, known, reserved, 1, self._model(session.state)),
        ]
        if act.prompt is not None:
            events.append(ev.TurnEnd(turn_id=act.turn_id, outcome="ok"))
        return events

    def _paid(
        self, state: State, initiator: str, turn_id: int | None, error: ModelError, asked: Model
    ) -> tuple[ev.AssistantUsage, ...]:
        """What a call cost whose answer is lost: what the provider said, else all that was reserved for it."""
        if not error.billed:
            return ()
        usage = Usage(*error.used) if error.used else None
        return (self._usage(initiator, turn_id, usage, state.spend.reserved, 1, asked),)

    def _usage(
        self,
        initiator: str,
        turn_id: int | None,
        usage: Usage | None,
        reserved: dict[str, float],
        attempt: int,
        asked: Model,
    ) -> ev.AssistantUsage:
        """Spend of one paid call; without a report its whole reservation, marked as estimated."""
        known = usage or Usage(int(reserved.get("input-tokens", 0)), int(reserved.get("output-tokens", 0)), estimated=True)
        cost = asked.price.cost(known) if asked.price else 0.0 if asked.local or asked.scripted else None
        return ev.AssistantUsage(
            initiator=initiator,  # type: ignore[arg-type]
            turn_id=turn_id,
            model=asked.name,
            input_tokens=known.input,
            cache_read_tokens=known.cache_read,
            cache_write_tokens=known.cache_write,
            output_tokens=known.output,
            reasoning_tokens=known.reasoning,
            cost=cost,
            estimated=known.estimated,
            attempt=attempt,
        )

    async def judge(self, session: Session, act: AskJudge) -> None:
        """Ask the judge with what the journal holds."""
        goal, judge = session.state.goal, self._judge
        assert goal is not None
        assert judge is not None
        await session.commit(durable=False)
        entries = await session.store.entries(session.session_id, after=act.since - 1)
        reserved = session.state.spend.reserved
        usage: Usage | None = None
        try:
            judged, usage = await judge.judge(
                goal.queued.objective, goal.contract, entries, max_output=act.max_output, budget=act.budget
            )
        except ModelError as error:
            session.record(*self._paid(session.state, "judge", None, error, judge.model))
            result = "declined" if error.kind == "content_filter" else "unreachable"
            session.record(ev.GoalJudged(result=result, why=str(error), raw=""))  # type: ignore[arg-type]
            return
        session.record(self._usage("judge", None, usage, reserved, 1, judge.model), judged)

    async def summary(self, session: Session, act: Compact) -> None:
        """Ask for the summary; where none comes, what is old is left out without one (``compaction_lost``)."""
        state = session.state
        chat = self._model(state).open(Head(COMPACTION_SYSTEM))
        try:
            answer = await chat.ask([UserText(act.prompt)], generation=0, max_output=act.max_output, tools=False)
        except ModelError as error:
            session.record(*self._paid(state, "compaction", None, error, self._model(state)))
            session.record(ev.SessionError(error_type=error.kind, message=str(error), hint="the compaction goes on without it"))
            return
        usage = self._usage("compaction", None, answer.usage, state.spend.reserved, 1, self._model(state))
        if answer.text.strip():
            session.record(usage, completed(state, act.up_to, summary=answer.text.strip()))
        else:
            session.record(usage)


def _failed(act: CallModel, error: ModelError, now: float) -> ev.TurnEnd:
    retry_at = now + error.retry_after if error.retry_after else None
    return ev.TurnEnd(
        turn_id=act.turn_id, outcome="failed", error=ev.Failure(code=error.kind, message=str(error)), retry_at=retry_at
    )
