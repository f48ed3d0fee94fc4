"""A model behind a server: one pool of connections, requests sent, answers fed to a reader. What the bytes mean is the wire's."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from ipaddress import ip_address
from typing import Any, ClassVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from endstop.core.messages import Answer, Head, Message, Price
from endstop.errors import ModelError, UsageError
from endstop.models import faults
from endstop.models.answer import AnswerReader
from endstop.models.transcript import Transcript, Unique
from endstop.ports import Watch

LARGEST = 64 * 1024 * 1024
"""Bytes of one answer above which the server is not believed any more."""
LONGEST = 64 * 1024
"""Bytes read of a refusal."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. The first byte of an answer that is not streamed comes with its last: ``whole`` bounds that."""

    connect: float = 10.0
    first: float = 120.0
    between: float = 60.0
    whole: float = 600.0


class HttpModel:
    """One model of one server, with one pool of connections for all conversations. A subclass speaks its dialect.

    Args:
        name: as the user wrote it, "openai:gpt-5".
        model: as the server knows it.
        base_url: up to and without the path of the endpoint.
        api_key: None sends none.
        effort: how much the model should think, in the provider's own word; None leaves it to the provider.
        concurrency: calls at the same time, None for no bound.
        key_name: the variable the key came from, for the remedy when it is refused.

    Raises:
        UsageError: the base URL or the key cannot be used.
    """

    scripted = False
    endpoint: ClassVar[str]
    dialect: Hashable  # how this server differs from others; learnt from its refusals

    def __init__(
        self,
        name: str,
        model: str,
        *,
        base_url: str,
        api_key: str | None,
        window: int | None = None,
        max_output: int | None = None,
        price: Price | None = None,
        effort: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        concurrency: int | None = None,
        timeouts: Timeouts | None = None,
        key_name: str | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.window = window
        self.max_output = max_output
        self.price = price
        self.base, self.host = _base(base_url, self.endpoint, name)
        self.local = loopback(self.host)
        self.effort = effort
        extra = extra_headers or {}
        self._headers = {"Content-Type": "application/json", **extra}
        if api_key and not any(field.lower() == "authorization" for field in extra):
            self._headers |= self.credentials(api_key)
        _check_headers(self._headers, name)
        self._secrets = [value for value in (api_key, *extra.values()) if value and len(value) >= 8]
        self._timeouts = timeouts or Timeouts()
        self._key_name = key_name
        self._gate: AbstractAsyncContextManager[Any] = asyncio.Semaphore(concurrency) if concurrency else nullcontext()
        self._session: aiohttp.ClientSession | None = None

    # -- what a dialect says

    def credentials(self, key: str) -> dict[str, str]:
        """The headers that carry the key."""
        return {"Authorization": f"Bearer {key}"}

    def transcript(self, head: Head) -> Transcript:
        """Where a new conversation is encoded."""
        raise NotImplementedError

    def tail(self, max_output: int, *, stream: bool) -> bytes:
        """What stands behind the messages."""
        raise NotImplementedError

    def reader(self) -> AnswerReader[Any, Any]:
        """What reads the next answer."""
        raise NotImplementedError

    def adapt(self, dialect: Any, error: ModelError) -> Hashable | None:
        """The dialect to try after a refusal in this one; None where the refusal does not name a known difference."""
        raise NotImplementedError

    # -- what is the same for all

    def open(self, head: Head) -> HttpChat:
        """A new conversation with this head."""
        return HttpChat(self, head)

    async def close(self) -> None:
        """Let connections go."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def exchange(self, body: bytes, watch: Watch | None, unique: Unique) -> Answer:
        """Send one request and read its answer; ``unique`` repairs the ids of its calls.

        Raises:
            ModelError: refused, or broken before any of the answer was there.
        """
        reader = self.reader()
        try:
            await self._fill(reader, body, watch)
            return reader.close(unique)
        except ModelError as error:
            raise faults.sign(error, self.name, self._secrets, self._key_name) from None

    async def _fill(self, reader: AnswerReader[Any, Any], body: bytes, watch: Watch | None) -> None:
        """Feed the reader for as long as there is something to feed; what broke off after a beginning is the reader's."""
        try:
            async with self._gate:
                await self._exchange(reader, body, watch)
        except ModelError as error:
            if error.kind != "truncated":  # else the watcher has seen enough
                raise
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if not reader.began:
                raise self._network(error) from None

    async def _exchange(self, reader: AnswerReader[Any, Any], body: bytes, watch: Watch | None) -> None:
        limits = self._timeouts
        loop = asyncio.get_running_loop()
        size = 0
        # one timer for the whole exchange, moved on with each chunk
        async with asyncio.timeout(limits.first if watch else limits.whole) as timer:
            async with self._pool().post(self.base + self.endpoint, data=body, allow_redirects=False) as response:
                timer.reschedule(loop.time() + limits.between)
                if not 200 <= response.status < 300:
                    raise await _refusal(response)
                async for chunk in response.content.iter_any():
                    timer.reschedule(loop.time() + limits.between)
                    size += len(chunk)
                    if size > LARGEST:
                        raise ModelError("server", f"the answer is longer than {LARGEST} bytes", billed=True)
                    text = reader.feed(chunk)
                    if text and watch:
                        watch(text)

    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, connect=self._timeouts.connect),
            )
        return self._session

    def _network(self, error: Exception) -> ModelError:
        billed = False
        if isinstance(error, TimeoutError):
            billed = not isinstance(error, aiohttp.ServerTimeoutError)
            what = "no answer in time" if billed else "could not connect in time"
        elif isinstance(error, aiohttp.ClientConnectorError):
            what = _unreachable(error)
        else:  # refused half way, cut, or bytes that are no HTTP
            billed = isinstance(error, aiohttp.ClientPayloadError)  # the answer had begun
            what = f"the connection broke ({type(error).__name__})"
        return ModelError("network", what, billed=billed, hint=f"is {self.base} the right address, and does it answer?")


class HttpChat:
    """One conversation. Holds its history as encoded bytes."""

    def __init__(self, model: HttpModel, head: Head) -> None:
        self._model = model
        self._transcript = model.transcript(head)

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        generation: int,
        max_output: int,
        tools: bool = True,
        watch: Watch | None = None,
    ) -> Answer:
        """See ``ports.Chat``. A ``watch`` that raises ``ModelError("truncated", …)`` stops the stream: the answer is what came,
        with finish "cut"."""
        model, tried = self._model, set[Hashable]()
        while True:
            dialect = model.dialect  # another conversation may learn meanwhile
            tried.add(dialect)
            end = model.tail(max_output, stream=watch is not None)
            body = self._transcript.body(messages, generation, end, tools=tools)
            try:
                return await model.exchange(body, watch, self._transcript.unique)
            except ModelError as error:
                other = model.adapt(dialect, error)
                if other is None or other in tried:
                    raise
                model.dialect = other


async def _refusal(response: aiohttp.ClientResponse) -> ModelError:
    """What a refusal means; the status tells enough where its body breaks off."""
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > LONGEST:
                break
    except aiohttp.ClientError:
        pass
    said = faults.read(bytes(body))
    return faults.fault(response.status, said, faults.retry_after(response.headers, said, time.time()))


def _unreachable(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection, in one clean sentence."""
    at, cause = f"{error.host}:{error.port}", error.os_error
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} is not known here"
    if isinstance(error, aiohttp.ClientSSLError):
        return (
            f"no safe connection to {at}: {getattr(cause, 'verify_message', '') or getattr(cause, 'reason', '') or 'TLS failed'}"
        )
    if isinstance(cause, ConnectionRefusedError):
        return f"nothing listens at {at}"
    return f"cannot connect to {at}" + (f": {os.strerror(cause.errno).lower()}" if cause.errno and cause.errno > 0 else "")


def _base(url: str, endpoint: str, name: str) -> tuple[str, str]:
    """A base URL in its one form, and its host."""
    text = url.strip().rstrip("/").removesuffix(endpoint)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        shown = "" if "@" in url else f' "{url}"'
        raise UsageError(f"the base URL{shown} is no http(s) address", hint="for example http://127.0.0.1:8000/v1", where=name)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("the base URL may hold no user, password or query", hint="give the key as the API key", where=name)
    return text, host


def loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _check_headers(headers: Mapping[str, str], name: str) -> None:
    for field, value in headers.items():
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            raise UsageError(f"the value of {field} holds what no header may hold", hint="look for a line end", where=name)
