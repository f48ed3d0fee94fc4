"""Conversations in pydantic-ai's words, and its answers and failures in ours. Imported only where the bridge is used."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import msgspec
from pydantic import ValidationError
from pydantic_ai import direct, exceptions
from pydantic_ai import messages as pa
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolRequest, ToolText, Usage, UserText
from endstop.errors import ModelError, ModelFault
from endstop.models import faults, lenient
from endstop.models.kept import Kept, load
from endstop.models.transcript import Transcript
from endstop.ports import Watch

FINISH = {"tool_call": "tool_calls", None: "stop"}
"""Their words for ours; the others are the same."""
PARTIAL = frozenset({"length", "cut", "content_filter", "error"})
"""Finishes after which the last call may be half a call."""
KINDS: tuple[tuple[type[Exception], ModelFault], ...] = (
    (exceptions.ModelRateLimitError, "rate_limit"),
    (exceptions.ModelQuotaExceededError, "auth"),
    (exceptions.ModelUnavailableError, "overloaded"),
    (exceptions.ModelServerError, "server"),
    (exceptions.ModelConnectionError, "network"),
    (exceptions.ModelRequestTimeout, "network"),
    (exceptions.ModelContextWindowExceededError, "context_overflow"),
    (exceptions.ModelAuthenticationError, "auth"),
    (exceptions.ContentFilterError, "content_filter"),
    (exceptions.UnexpectedModelBehavior, "server"),
    (TimeoutError, "network"),
    (OSError, "network"),
)
"""Read in this order; an HTTP failure of no such class is told by its status and words."""


class History(Transcript):
    """The growing conversation."""

    def __init__(self, name: str, head: Head) -> None:
        super().__init__()
        self._name = name
        self._messages: list[pa.ModelMessage] = []
        self._names: dict[str, str] = {}  # of the tools, by id of the call
        self._instructions = [pa.InstructionPart(content=head.system)] if head.system else []
        self._tools = [
            ToolDefinition(name=tool.name, parameters_json_schema=tool.parameters, description=tool.description)
            for tool in head.tools
        ]

    def clear(self) -> None:
        """Forget the conversation."""
        super().clear()
        self._messages.clear()

    def add(self, message: Message) -> None:
        """Append one message."""
        match message:
            case UserText(text=text):
                self._request(pa.UserPromptPart(text))
            case ToolText(tool_call_id=call, text=text):
                self._request(pa.ToolReturnPart(self._names.get(call, "unknown"), text, call))
            case AssistantText():
                self._names |= {request.tool_call_id: lenient.legal_name(request.name) for request in message.requests}
                self._messages.append(self._remembered(message) or _response(message))

    async def ask(self, model: Model, settings: dict[str, Any], *, tools: bool, watch: Watch | None) -> Answer:
        """Ask for the next answer.

        Raises:
            ModelError: refused, or broken before any of the answer was there.
        """
        parameters = ModelRequestParameters(
            function_tools=self._tools if tools else [], instruction_parts=self._instructions, allow_text_output=True
        )
        given = cast(ModelSettings, settings)
        try:
            if watch is None:
                response = await direct.model_request(
                    model, self._messages, model_settings=given, model_request_parameters=parameters, instrument=False
                )
                return self._answer(response)
            async with direct.model_request_stream(
                model, self._messages, model_settings=given, model_request_parameters=parameters, instrument=False
            ) as stream:
                cut = not await _follow(stream, watch)
                return self._answer(stream.get(), cut=cut)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001  foreign code with the exceptions of many providers' libraries
            raise translate(error) from None

    def _request(self, part: pa.UserPromptPart | pa.ToolReturnPart) -> None:
        last = self._messages[-1] if self._messages else None
        if isinstance(last, pa.ModelRequest):
            last.parts = [*last.parts, part]
        else:
            self._messages.append(pa.ModelRequest([part]))

    def _remembered(self, message: AssistantText) -> pa.ModelResponse | None:
        """The answer as it came, if this very model gave it."""
        try:
            found = pa.ModelMessagesTypeAdapter.validate_json(lenient.encode(load(message.opaque, self._name)))
        except ValidationError:
            return None
        return found[0] if found and isinstance(found[0], pa.ModelResponse) else None

    def _answer(self, response: pa.ModelResponse, *, cut: bool = False) -> Answer:
        finish = "cut" if cut else FINISH.get(response.finish_reason, response.finish_reason or "stop")
        asked = [part for part in response.parts if isinstance(part, pa.ToolCallPart)]
        ids = iter(self.unique([part.tool_call_id for part in asked]))
        parts = [replace(part, tool_call_id=next(ids)) if isinstance(part, pa.ToolCallPart) else part for part in response.parts]
        response = replace(response, parts=parts)
        if asked and finish == "stop":
            finish = "tool_calls"
        return Answer(
            text="".join(part.content for part in parts if isinstance(part, pa.TextPart)),
            requests=tuple(_requested(part, finish) for part in parts if isinstance(part, pa.ToolCallPart)),
            finish=finish,
            usage=None if finish == "cut" else _usage(response),
            opaque=None if finish in PARTIAL or all(map(_plain, parts)) else self._keep(response),
            model=response.model_name or "",
        )

    def _keep(self, response: pa.ModelResponse) -> str:
        dumped = pa.ModelMessagesTypeAdapter.dump_json([response])
        return lenient.encode(Kept(self._name, msgspec.json.decode(dumped))).decode()


async def _follow(stream: StreamedResponse, watch: Watch) -> bool:
    """Show the text of a stream as it comes; False if it broke off, or was stopped, after a beginning."""
    try:
        async for event in stream:
            text = ""
            if isinstance(event, pa.PartStartEvent) and isinstance(event.part, pa.TextPart):
                text = event.part.content
            elif isinstance(event, pa.PartDeltaEvent) and isinstance(event.delta, pa.TextPartDelta):
                text = event.delta.content_delta
            if text:
                watch(text)
    except ModelError as error:
        if error.kind != "truncated":
            raise
        return False
    except exceptions.ModelConnectionError:
        if not any(isinstance(part, pa.TextPart | pa.ToolCallPart) for part in stream.get().parts):
            raise
        return False
    return True


def _response(message: AssistantText) -> pa.ModelResponse:
    """What another model said."""
    parts: list[pa.ModelResponsePart] = [pa.TextPart(message.text)] if message.text else []
    for request in message.requests:
        parts.append(pa.ToolCallPart(lenient.legal_name(request.name), lenient.legal_arguments(request), request.tool_call_id))
    return pa.ModelResponse(parts)


def _requested(part: pa.ToolCallPart, finish: str) -> ToolRequest:
    given = part.args
    whole = finish not in PARTIAL
    arguments = lenient.given_arguments(given) if isinstance(given, dict) else lenient.parse_arguments(given or "", whole=whole)
    return ToolRequest(part.tool_call_id, part.tool_name, arguments)


def _plain(part: Any) -> bool:
    """Whether text or call is all there is in a part."""
    return isinstance(part, pa.TextPart | pa.ToolCallPart) and not (part.id or part.provider_details)


def _usage(response: pa.ModelResponse) -> Usage | None:
    given = response.usage
    if given.unmeasured_requests or not given.input_tokens:
        return None
    return Usage(
        input=given.input_tokens,
        output=given.output_tokens,
        cache_read=given.cache_read_tokens,
        cache_write=given.cache_write_tokens,
        reasoning=given.output_reasoning_tokens or None,
    )


def translate(error: Exception) -> ModelError:
    """A failure of the library in our words. What nobody knows is taken as the request's fault: it would fail again."""
    kind = next((kind for cls, kind in KINDS if isinstance(error, cls)), None)
    wait = getattr(error, "retry_after", None)
    if isinstance(error, exceptions.ModelHTTPError):
        said = faults.read(_body(error.body))
        told = faults.fault(error.status_code, said, wait or faults.retry_after(error.headers or {}, said, time.time()))
        return ModelError(kind or told.kind, told.message, status=told.status, retry_after=told.retry_after, hint=told.hint)
    text = " ".join(str(error).split()) or type(error).__name__
    kind = kind or ("server" if type(error) is exceptions.ModelAPIError else "invalid_request")
    return ModelError(kind, text, retry_after=wait, hint=faults.HINTS.get(kind, ""))


def _body(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode(errors="replace")
    try:
        return lenient.encode(body)
    except (TypeError, RecursionError):
        return str(body).encode(errors="replace")
