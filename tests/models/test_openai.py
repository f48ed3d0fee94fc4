"""A model over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from email.utils import formatdate
from time import time

import pytest

from endstop.core.messages import Answer, AssistantText, Head, Message, ToolRequest, ToolSpec, ToolText, Usage, UserText
from endstop.errors import ModelError, UsageError
from endstop.models.http import Timeouts
from endstop.models.openai import OpenAIModel
from tests.models.fake import DONE, HEAD, HELLO, Reply, Server, ask, event, model, serving, text, whole

KEY = "sk-very-secret-0123456789"
OK = whole({"content": "ok"}, usage={"prompt_tokens": 12, "completion_tokens": 3})


def failing(*replies: Reply, **options: object) -> ModelError:
    """The failure that these replies lead to."""
    with pytest.raises(ModelError) as caught:
        ask(*replies, **options)  # type: ignore[arg-type]
    return caught.value


def test_a_question_is_answered() -> None:
    """Without a watcher the call does not stream, and the key goes where it belongs."""

    async def run() -> tuple[Answer, Server]:
        async with serving(OK) as server, model(server.url + "/chat/completions/", api_key=KEY) as asked:
            return await asked.open(HEAD).ask(HELLO, generation=0, max_output=77), server

    answer, server = asyncio.run(run())
    assert answer == Answer(text="ok", usage=Usage(12, 3), model="fake-1")
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.requests[0] == {
        "model": "fake-1",
        "messages": [{"role": "system", "content": "You are a test."}, {"role": "user", "content": "hello"}],
        "max_tokens": 77,
    }


def test_a_watched_answer_streams_in_many_small_packets() -> None:
    """Text reaches the watcher as it comes and adds up to the answer; calls and usage are whole."""
    stream = b"".join(
        [
            *(event({"content": word}) for word in ["One ", "two ", "drei – ", "😀"]),
            event({"tool_calls": [{"index": 0, "id": "call_000001", "function": {"name": "shell", "arguments": '{"a":'}}]}),
            event({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
            event({}, "tool_calls"),
            event(usage={"prompt_tokens": 12, "completion_tokens": 3}),
            DONE,
        ]
    )
    packets = tuple(stream[at : at + 7] for at in range(0, len(stream), 7))
    seen: list[str] = []
    answer = ask(Reply(packets), watch=seen.append)
    assert answer.text == "One two drei – 😀" == "".join(seen)
    assert len(seen) == 4
    assert answer.requests == (ToolRequest("call_000001", "shell", {"a": 1}),)
    assert answer.usage == Usage(12, 3)


def test_consecutive_requests_share_all_bytes_but_the_tail() -> None:
    """On the wire, over turns with calls, the history is only ever followed; without tools another head is sent."""
    tool = ToolSpec("shell", "Run.", {"type": "object"})
    messages: list[Message] = [UserText("go")]

    async def run() -> list[bytes]:
        async with serving(OK, OK, OK, OK) as server, model(server.url) as asked:
            chat = asked.open(Head("s", (tool,)))
            for turn in range(3):
                await chat.ask(messages, generation=0, max_output=50)
                messages.extend(
                    [AssistantText("", (ToolRequest(f"call_00000{turn}", "shell", {}),)), ToolText(f"call_00000{turn}", "x")]
                )
            await chat.ask(messages, generation=0, max_output=50, tools=False)
            return server.bodies

    first, second, third, bare = asyncio.run(run())
    end = b'],"max_tokens":50}'
    assert first.endswith(end)
    assert second.startswith(first.removesuffix(end))
    assert third.startswith(second.removesuffix(end))
    assert b'"tools"' in third
    assert b'"tools"' not in bare


def test_a_server_that_knows_no_stream_usage_is_asked_without_from_then_on() -> None:
    """The refusal costs one request once, for all conversations of the model."""
    refusal = text('{"error": {"message": "Unrecognized request argument supplied: stream_options"}}', 400)
    stream = Reply((event({"content": "x"}), event({}, "stop"), DONE))

    async def run() -> Server:
        async with serving(refusal, stream, stream) as server, model(server.url) as asked:
            for _ in range(2):
                answer = await asked.open(HEAD).ask(HELLO, generation=0, max_output=9, watch=lambda piece: None)
                assert (answer.text, answer.usage) == ("x", None)
            return server

    asked = ["stream_options" in request for request in asyncio.run(run()).requests]
    assert asked == [True, False, False]


def test_a_server_with_the_other_word_for_the_limit_gets_that_word() -> None:
    """``max_tokens`` refused means ``max_completion_tokens`` from then on."""
    refusal = text('{"error": {"message": "Unsupported parameter", "param": "max_tokens", "code": "unsupported_parameter"}}', 400)

    async def run() -> Server:
        async with serving(refusal, OK, OK) as server, model(server.url) as asked:
            for _ in range(2):
                await asked.open(HEAD).ask(HELLO, generation=0, max_output=9)
            return server

    fields = [[key for key in request if key.startswith("max")] for request in asyncio.run(run()).requests]
    assert fields == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


def test_a_server_that_knows_neither_word_is_not_asked_for_ever() -> None:
    """Each dialect is tried once, then the refusal stands."""
    refusal = text('{"error": {"message": "max_tokens and max_completion_tokens are not supported"}}', 400)
    assert failing(refusal, refusal).kind == "invalid_request"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, '{"error": {"message": "bad tool schema", "type": "invalid_request_error"}}', "invalid_request"),
        (400, '{"error": {"message": "x", "code": "context_length_exceeded"}}', "context_overflow"),
        (400, '{"error": {"message": "This model\'s maximum context length is 8192 tokens"}}', "context_overflow"),
        (400, '{"error": {"message": "max_tokens is too large: 9"}}', "invalid_request"),
        (400, '{"error": {"message": "filtered", "code": "content_filter"}}', "content_filter"),
        (400, '{"error": {"message": "your text says: rate limit, overloaded"}}', "invalid_request"),
        (400, '{"error": {"message": "API key not valid", "code": "invalid_api_key"}}', "auth"),
        (401, '{"error": {"message": "no"}}', "auth"),
        (402, "", "auth"),
        (403, '{"error": "no"}', "auth"),
        (404, '{"error": {"message": "The model `x` does not exist"}}', "invalid_request"),
        (307, "", "invalid_request"),
        (405, "<html><h1>Not allowed</h1></html>", "invalid_request"),
        (408, "", "network"),
        (409, "", "server"),
        (413, "", "context_overflow"),
        (422, '{"detail": [{"loc": ["body"], "msg": "prompt is too long"}]}', "context_overflow"),
        (425, "", "server"),
        (429, '{"error": {"message": "too many tokens per minute, reduce the length"}}', "rate_limit"),
        (429, '{"error": {"message": "You exceeded your current quota, check billing details"}}', "rate_limit"),
        (429, '{"error": {"message": "quota", "type": "insufficient_quota"}}', "auth"),
        (500, "oops", "server"),
        (500, '[{"error": {"message": "the model is overloaded"}}]', "overloaded"),
        (502, "<html>Bad Gateway</html>", "server"),
        (503, "", "overloaded"),
        (504, "", "server"),
        (529, '{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}', "overloaded"),
        (200, '{"error": {"message": "slow", "code": 429}}', "rate_limit"),
        (200, '{"error": {"message": "x", "type": "server_error"}}', "server"),
        (200, "<html>A page</html>", "invalid_request"),
    ],
)
def test_a_refusal_has_a_kind_and_its_status(status: int, body: str, kind: str) -> None:
    """The kind says what can be done: wait, compact, repair a setting."""
    error = failing(text(body, status))
    assert error.kind == kind
    assert error.where == "openai:fake-1"
    assert "\n" not in str(error)
    assert "<" not in str(error)
    if status != 200:
        assert error.status == status


@pytest.mark.parametrize(
    ("status", "word"), [(401, "API key"), (402, "billing"), (404, "base URL"), (413, "window"), (301, "base URL")]
)
def test_a_refusal_that_a_person_can_repair_says_how(status: int, word: str) -> None:
    """The hint names the setting."""
    assert word in failing(text("", status)).hint


def test_what_the_server_asks_to_wait_is_kept() -> None:
    """Retry-After as seconds or as a date; nonsense is nothing."""

    def wait(value: str) -> float | None:
        return failing(text("", 429, Retry_After=value)).retry_after

    assert wait("7") == 7.0
    assert wait("1.5") == 1.5
    assert wait("-3") == 0.0
    assert wait(formatdate(time() + 90, usegmt=True)) == pytest.approx(90, abs=30)
    assert [wait("soon"), wait("nan"), wait("inf"), failing(text("", 429)).retry_after] == [None] * 4


def test_a_refusal_in_many_packets_is_read_whole() -> None:
    """However it is cut, and by its status alone where it breaks off."""
    body = b'{"error": {"message": "no", "code": "context_length_exceeded"}}'
    packets = tuple(body[at : at + 5] for at in range(0, len(body), 5))
    assert failing(Reply(packets, status=400)).kind == "context_overflow"
    assert failing(Reply(packets[:3], status=503, cut=True)).kind == "overloaded"


def test_no_secret_is_in_a_failure() -> None:
    """A server that repeats the key or a header does not get them into a log, and long complaints are cut."""
    body = text(f"key {KEY} token hdr-0123456789 is wrong " + "x" * 2000, 401)
    error = failing(body, api_key=KEY, extra_headers={"X-Token": "hdr-0123456789"})
    assert "[secret]" in str(error)
    assert KEY not in str(error) + repr(error)
    assert "hdr-0123456789" not in str(error) + repr(error)
    assert len(str(error)) < 700


def test_a_dropped_connection_is_the_network() -> None:
    """Before any text it is a failure that may pass; after some, a cut answer."""
    assert failing(Reply((), cut=True), watch=lambda piece: None).kind == "network"
    assert failing(Reply((b'{"choices": [',), cut=True)).kind == "network"
    answer = ask(Reply((event({"content": "so "}), event({"content": "far"}), b'data: {"ch'), cut=True), watch=lambda piece: None)
    assert (answer.text, answer.finish, answer.usage) == ("so far", "cut", None)


@pytest.fixture
def deaf() -> Iterator[str]:
    """A port that accepts nobody: its backlog is full."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(sock.getsockname())
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        for other in others:
            other.close()


def test_nobody_there_is_the_network(deaf: str) -> None:
    """Refused, never accepted, unknown host, no TLS: one kind, with the address in the hint."""

    async def run(url: str) -> ModelError:
        async with model(url, timeouts=Timeouts(connect=0.2)) as asked:
            with pytest.raises(ModelError) as caught:
                await asked.open(HEAD).ask(HELLO, generation=0, max_output=9)
            return caught.value

    async def tls() -> ModelError:
        async with serving() as server:
            return await run(server.url.replace("http:", "https:"))

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    for error, said in [
        (asyncio.run(run(refused)), "nothing listens at 127.0.0.1:"),
        (asyncio.run(run(deaf)), "could not connect in time"),
        (asyncio.run(run("http://nowhere.invalid/v1")), "the name nowhere.invalid is not known here"),
        (asyncio.run(tls()), "no safe connection to 127.0.0.1:"),
    ]:
        assert error.kind == "network"
        assert error.message.startswith(said)
        assert "[" not in error.message
        assert "/v1 the right address" in error.hint


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_the_network(sent: bytes) -> None:
    """A server that hangs up, lies about its length or speaks another protocol gives a failure in one line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async def run() -> ModelError:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server, model(url) as asked:
            with pytest.raises(ModelError) as caught:
                await asked.open(HEAD).ask(HELLO, generation=0, max_output=9)
            return caught.value

    error = asyncio.run(run())
    assert error.kind == "network"
    assert error.message.startswith("the connection broke")


def test_an_answer_that_does_not_come_is_the_network() -> None:
    """The first byte, the time between chunks and the whole answer are bounded."""
    quick = Timeouts(first=0.1, between=0.1, whole=0.1)
    assert failing(Reply((), hang=True), timeouts=quick).message == "no answer in time"
    assert failing(Reply((), hang=True), timeouts=quick, watch=lambda piece: None).kind == "network"
    answer = ask(Reply((event({"content": "some"}),), hang=True), timeouts=quick, watch=lambda piece: None)
    assert (answer.text, answer.finish) == ("some", "cut")


def test_a_cancelled_call_lets_go_of_its_connection() -> None:
    """Cancelling reaches the server, and the next call goes through."""

    async def run() -> str:
        stream = Reply((event({"content": "x"}),), headers={"chatty": "1"}, hang=True)
        async with serving(stream, OK) as server, model(server.url) as asked:
            chat = asked.open(HEAD)
            came = asyncio.Event()
            task = asyncio.create_task(chat.ask(HELLO, generation=0, max_output=9, watch=lambda piece: came.set()))
            await came.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.gone.wait(), 5)
            return (await chat.ask(HELLO, generation=0, max_output=9)).text

    assert asyncio.run(run()) == "ok"


def test_a_watcher_can_stop_an_answer() -> None:
    """A watcher that has seen enough gets what came as a cut answer."""

    def enough(piece: str) -> None:
        if piece == "again":
            raise ModelError("truncated", "the same over and over")

    answer = ask(Reply((event({"content": "once "}), event({"content": "again"}), event({"content": "again"}))), watch=enough)
    assert answer.finish == "cut"
    assert answer.text.startswith("once again")


def test_a_server_that_does_not_stream_is_read_all_the_same() -> None:
    """A whole answer to a request for a stream is taken as it is."""
    assert ask(OK, watch=lambda piece: None).text == "ok"


def test_calls_at_the_same_time_are_bounded() -> None:
    """With concurrency 1 the second call is sent only after the first has its answer."""

    async def run() -> list[int]:
        sent: list[int] = []
        async with serving(*[OK] * 3) as server, model(server.url, concurrency=1) as asked:

            async def one() -> None:
                await asked.open(HEAD).ask(HELLO, generation=0, max_output=9)
                sent.append(len(server.bodies))

            await asyncio.gather(one(), one(), one())
        return sent

    assert asyncio.run(run()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://localhost/v1", True),
        ("http://127.8.8.8/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://192.168.1.2/v1", False),
        ("http://localhost.example.com/v1", False),
    ],
)
def test_only_a_loopback_server_is_local(url: str, local: bool) -> None:
    """Local servers cost nothing, so the word must be right."""
    assert OpenAIModel("openai:m", "m", base_url=url, api_key=None).local is local


@pytest.mark.parametrize(
    "url", ["", "api.openai.com", "ftp://x/v1", "http://", "http://user:hush@x/v1", "http://x/v1?key=hush", "http://x:port"]
)
def test_a_base_url_that_cannot_be_used_is_a_usage_error(url: str) -> None:
    """It names the model and the remedy, and shows no secret."""
    with pytest.raises(UsageError) as caught:
        OpenAIModel("openai:m", "m", base_url=url, api_key=None)
    assert caught.value.hint
    assert caught.value.where == "openai:m"
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-with-line-end\n", "sk-é", "sk\x00x", "a\r\nX-Evil: 1"])
def test_a_key_that_no_header_may_hold_is_a_usage_error(key: str) -> None:
    """It is refused before it is sent, and not shown."""
    with pytest.raises(UsageError) as caught:
        OpenAIModel("openai:m", "m", base_url="http://127.0.0.1/v1", api_key=key)
    assert key.strip() not in str(caught.value)


def test_own_headers_replace_the_key() -> None:
    """A gateway's own authorization is sent alone."""

    async def run() -> Server:
        async with (
            serving(OK) as server,
            model(server.url, api_key=KEY, extra_headers={"authorization": "Basic abcdefgh"}) as asked,
        ):
            await asked.open(HEAD).ask(HELLO, generation=0, max_output=9)
            return server

    headers = asyncio.run(run()).headers[0]
    assert [value for name, value in headers.items() if name.lower() == "authorization"] == ["Basic abcdefgh"]
