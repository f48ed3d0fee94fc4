"""Redaction: what is a secret goes, what is not stays."""

from __future__ import annotations

import json
import os
import random
import re
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.guards.redaction import EDGE, SHORTEST, Redactor, hides_only_words, marked

_RANDOM = random.Random(7)


def some(letters: str, length: int) -> str:
    """A value with at least a digit and a letter. Made while the test runs, so that this file holds no key."""
    return "a1" + "".join(_RANDOM.choices(letters, k=length - 2))


MIXED = ascii_letters + digits
PEM = "\n".join(some(MIXED + "+/", 64) for _ in range(12))
KEYS = {
    "openai-key": ["sk-" + some(MIXED, 48), "sk-proj-" + some(MIXED + "_", 80), "sk-" + some("0123456789abcdef", 32)],
    "anthropic-key": ["sk-ant-api03-" + some(MIXED + "-_", 90)],
    "github-token": [*(f"gh{letter}_{some(MIXED, 36)}" for letter in "pousr"), "github_pat_" + some(MIXED + "_", 82)],
    "aws-key": ["AKIA" + some(ascii_uppercase + digits, 16).upper(), "ASIA" + some(ascii_uppercase + digits, 16).upper()],
    "slack-token": ["xoxb-" + some(digits, 12) + "-" + some(MIXED, 24), "xoxp-" + some(digits, 50)],
    "google-key": ["AIza" + some(MIXED + "-_", 35)],
    "jwt": [f"eyJ{some(MIXED, 20)}.eyJ{some(MIXED, 40)}.{some(MIXED + '-_', 43)}"],
    "private-key": [
        f"-----BEGIN {kind}PRIVATE KEY-----\n{PEM}\n-----END {kind}PRIVATE KEY-----" for kind in ("", "RSA ", "OPENSSH ")
    ],
}
PLANTED = [(kind, secret) for kind, secrets in KEYS.items() for secret in secrets]
AROUND = [
    "{}",
    "x {} y",
    "key={}",
    '"{}"',
    "a\n{}\nb",
    '{{"k": "{}"}}',
    "\\n{}\\n",
    "curl -H 'X: {}' http://h/",
    "({})",
    "é {} ü",
]


def line(text: str) -> bytes:
    return msgspec.json.encode({"type": "x", "data": {"content": text}})


@pytest.mark.parametrize(("kind", "secret"), PLANTED, ids=[f"{kind}-{number}" for number, (kind, _) in enumerate(PLANTED)])
@pytest.mark.parametrize("around", AROUND)
def test_shapes_are_replaced(kind: str, secret: str, around: str) -> None:
    """A key of a known shape goes wherever it stands, what is around it stays, and the line was suspected."""
    text = around.format(secret)
    redactor = Redactor()
    assert redactor.line_may_hold(line(text))
    cleaned = redactor.clean(text)
    assert secret not in cleaned
    assert cleaned == around.format(f"[redacted:{kind}]")


@pytest.mark.parametrize("secret", KEYS["private-key"])
def test_a_private_key_read_with_line_numbers_or_cut_off_is_replaced(secret: str) -> None:
    """No line of a private key stays, numbered, escaped or without its end."""
    numbered = "\n".join(f"{number:6d}\t{row}" for number, row in enumerate(secret.splitlines(), 1))
    redactor = Redactor()
    for text in (numbered, json.dumps(secret), secret[:400]):
        assert redactor.line_may_hold(line(text + " tail" if text is not secret[:400] else text))
        cleaned = redactor.clean(text)
        assert "[redacted:private-key]" in cleaned
        assert not any(row[:30] in cleaned for row in PEM.splitlines())


VALUE = some(MIXED, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"DB_PASSWORD={VALUE}", "DB_PASSWORD=[redacted:DB_PASSWORD]"),
        ("export DB_PASSWORD=correcthorsebattery; x", "export DB_PASSWORD=[redacted:DB_PASSWORD]; x"),
        (f"password: {VALUE}\n", "password: [redacted:password]\n"),
        (f'api_key = "{VALUE}"', 'api_key = "[redacted:api_key]"'),
        (f"apiKey:\t'{VALUE}',", "apiKey:\t'[redacted:apiKey]',"),
        (f'{{"client_secret":"{VALUE}","n":1}}', '{"client_secret":"[redacted:client_secret]","n":1}'),
        (f'{{\\"token\\": \\"{VALUE}\\"}}', '{\\"token\\": \\"[redacted:token]\\"}'),
        (f"https://h/x?access_token={VALUE}&y=1", "https://h/x?access_token=[redacted:access_token]"),
        (f'os.environ["GH_TOKEN"] = "{VALUE}"', 'os.environ["GH_TOKEN"] = "[redacted:GH_TOKEN]"'),
        (f"aws_secret_access_key = {some(MIXED + '/+', 40)}", "aws_secret_access_key = [redacted:aws_secret_access_key]"),
        (f"secret=b'{VALUE}'", "secret=b'[redacted:secret]'"),
        ("Authorization: Basic dXNlcjpoNW50ZXIy", "Authorization: Basic [redacted:Authorization]"),
        (f"'Authorization: token {VALUE}'", "'Authorization: token [redacted:Authorization]'"),
        (f"authorization: bearer {VALUE}", "authorization: bearer [redacted:authorization]"),
        (f"Bearer {VALUE}", "Bearer [redacted:bearer]"),
        ("postgres://me:hunter2@db/x", "postgres://me:[redacted:url-password]@db/x"),
        ("redis://:p%40ss@db", "redis://:[redacted:url-password]@db"),
    ],
)
def test_values_of_secret_names_are_replaced(text: str, expected: str) -> None:
    """What is assigned to a secret name goes; the name, and what is around, stays."""
    redactor = Redactor()
    assert redactor.line_may_hold(line(text))
    assert redactor.clean(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "token = get_token()",
        "token = tokens[0]",
        "self.token = token_source2.next",
        "def login(user: str, password: str | None = None) -> None:",
        "password=password, secret=self._secret",
        'token = os.environ["GH_TOKEN"]',
        'headers = {"Authorization": f"Bearer {token}"}',
        '{"max_tokens": 5, "input_tokens": 123456789, "token_count": "12345678a"}',
        "tokens: 12345678",
        "token: 123456789012",
        'type: "token", value: "secret"',
        '"password": "Password", "secret": "Enter-your-secret"',
        "API_KEY=$OTHER_KEY TOKEN=${TOKEN:-none12345} PASSWORD=%s",
        "password = <your password here 123>",
        "secret: /run/secrets/db1",
        "token_url = token: https://h/a1b2c3d4",
        "nextPageToken=CAUQAA1234567",
        "sk-learn-estimator-doc-link sk-toggleable__content-arrow task-1234567890abcdef1234",
        "https://example.org:8080/a@b git@github.com:a/b.git http://user@h/",
        "http://%s:%s@host http://u:{password}@h http://u:***@h",
        "d41d8cd98f00b204e9800998ecf8427e 123e4567-e89b-12d3-a456-426614174000",
        "AKIA is a prefix, eyJ too; xoxo-hugs-and-kisses; ghp_short; AIza",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        'BEGIN = "-----BEGIN PRIVATE KEY-----"  # followed by code\nEND = "-----END PRIVATE KEY-----"',
        "Bearer authentication-is-required",
        "PWD=/home/a1b2c3d4 MONKEY=a1b2c3d4e5",
    ],
)
def test_normal_text_stays(text: str) -> None:
    """Hashes, ids, code that handles secrets, placeholders and documentation are left alone."""
    assert Redactor().clean(text) == text


FORMS: dict[str, Callable[[str], str]] = {
    "itself": lambda value: value,
    "json": json.dumps,
    "url": lambda value: quote(value, safe=""),
    "url, lower case": lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value)),
    "base64": lambda value: b64encode(value.encode()).decode(),
    "basic login": lambda value: b64encode(f"user:{value}".encode()).decode(),
    "basic login, other offset": lambda value: b64encode(f"me:{value}:x".encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ["correct horse/battery", 'q"uo\\te\nd-välue', "hunter22", "+/=+/=+/="])
def test_registered_values_are_replaced_in_every_form(form: str, value: str) -> None:
    """A known value goes as it is, and as JSON, URL and base64 carry it; the line that holds it was suspected."""
    redactor = Redactor([value])
    text = f"before {FORMS[form](value)} after"
    assert redactor.line_may_hold(line(text))
    assert redactor.line_may_hold(text.encode())
    cleaned = redactor.clean(text)
    assert "[redacted:secret]" in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")
    assert value not in cleaned
    assert len(cleaned) < len("before [redacted:secret] after") + 16


def test_registered_names_and_short_values() -> None:
    """A value is called by its name; one that is too short to be told from normal text is left."""
    redactor = Redactor(["x" * (SHORTEST - 1), ""], names=["pin code"])
    redactor.register("correct-horse", "DB_PASS")
    assert redactor.clean("correct-horse " + "x" * 7) == "[redacted:DB_PASS] " + "x" * 7
    assert redactor.line_may_hold(line(f"pin_code={VALUE}"))
    assert redactor.clean(f"pin_code={VALUE}") == "pin_code=[redacted:pin_code]"
    assert not Redactor().line_may_hold(line(f"pin_code={VALUE}"))


def test_the_longer_of_two_values_goes_first() -> None:
    """A value inside of another does not leave the rest of it behind."""
    assert Redactor(["abcdefgh", "abcdefgh-ijkl"]).clean("abcdefgh-ijkl") == "[redacted:secret]"


def test_data_is_cleaned_at_every_depth() -> None:
    """Texts in builtins are cleaned, texts under secret keys go whole, everything else keeps its value and type."""
    data = {
        "arguments": {
            "password": "a b",
            "Api-Key": "x",
            "max_tokens": 5,
            "token": {"type": "string"},
            "secret": "",
            "nextPageToken": "abc",
        },
        "list": [f"DB_PASSWORD={VALUE}", 1, None, True, (1.5, "x")],
        "authorization": "Bearer x",
    }
    redactor = Redactor()
    assert redactor.line_may_hold(msgspec.json.encode(data))
    cleaned = redactor.clean_data(data)
    assert cleaned == {
        "arguments": {
            "password": "[redacted:password]",
            "Api-Key": "[redacted:Api-Key]",
            "max_tokens": 5,
            "token": {"type": "string"},
            "secret": "",
            "nextPageToken": "abc",
        },
        "list": ["DB_PASSWORD=[redacted:DB_PASSWORD]", 1, None, True, (1.5, "x")],
        "authorization": "[redacted:authorization]",
    }
    assert redactor.clean_data(cleaned) == cleaned


# --------------------------------------------------------------------------------------------------------------------- cuts

PHRASE = "correct horse battery99"
CUT_THROUGH = {
    "registered": (PHRASE, PHRASE),
    "shape": (f"x {KEYS['openai-key'][0]} y", KEYS["openai-key"][0]),
    "assigned": (f'password = "{VALUE}"', VALUE),
    "json": (f'"password":"{VALUE}","b":1', VALUE),
    "environment": (f"\nDB_PASSWORD={VALUE}\n", VALUE),
    "private key": (f"\n{KEYS['private-key'][0]}\n", PEM),
}
SIDE = 8_192


def shortened(text: str) -> str:
    """Beginning and end, as results are shortened."""
    return f"{text[:SIDE]}\n[… {len(text) - 2 * SIDE} bytes left out …]\n{text[-SIDE:]}"


@pytest.mark.parametrize("fill", ["-", "line of text\n", "{'k': 1}, "])
@pytest.mark.parametrize("kind", CUT_THROUGH)
def test_nothing_of_a_secret_stays_at_a_cut(kind: str, fill: str) -> None:
    """Wherever a cut goes through it, before or behind; what was cleaned stays as it is."""
    redactor = Redactor([PHRASE])
    planted, secret = CUT_THROUGH[kind]
    around = (fill * 20_000)[:20_000]
    parts = [row[at : at + 8] for row in secret.splitlines() for at in range(0, len(row) - 8, 3)]
    for shift in range(0, len(planted) + 10, 1 if len(planted) < 100 else 29):
        for text in (around[: SIDE - shift] + planted + around, around + planted + around[: SIDE - shift]):
            cut = shortened(text)
            assert redactor.line_may_hold(line(cut))
            cleaned = redactor.clean_data(cut, shortened=True)
            assert not [part for part in parts if part in cleaned], shift
            assert redactor.clean_data(cleaned, shortened=True) == cleaned
            assert len(cleaned) > len(cut) - 2 * EDGE - len(planted) - 100


def test_only_what_stands_at_a_cut_is_dropped() -> None:
    """Whole lines stay; so does everything where nobody said that the text was shortened; a list of diffs goes on whole."""
    redactor = Redactor()
    cut = shortened("0123456789 line\n" * 2_000 + "half")
    rows = redactor.clean_data(cut, shortened=True).splitlines()
    assert {row for row in rows if row and "…" not in row} == {"0123456789 line", "half"}
    assert len(rows) > 2 * SIDE // 16 - 3
    assert redactor.clean_data(cut) == cut
    diffs = "+ the half of a li\n… 12 characters left out\ndiff --git a/b b/b\n"
    assert redactor.clean_data(diffs, shortened=True) == "…\n… 12 characters left out\ndiff --git a/b b/b\n"
    for half in (f"…{VALUE[:9]}\n[… 5 bytes left out …]\n", f"\n[… 5 bytes left out …]\n{VALUE[9:]}…\nmore", f"…{VALUE[9:]}"):
        assert VALUE[:9] not in (cleaned := redactor.clean_data(half, shortened=True))
        assert VALUE[9:] not in cleaned
        assert redactor.clean_data(cleaned, shortened=True) == cleaned
    long = f'{{"a": 1, "password": "{VALUE[:9]}… (line of 9000 bytes, cut)'
    assert redactor.clean_data(long, shortened=True) == '{"a": 1, "password": "… (line of 9000 bytes, cut)'


def test_a_mark_is_found_at_any_depth() -> None:
    """In keys and values of plain data."""
    redactor = Redactor([PHRASE])
    assert marked(redactor.clean_data({"a": [{"b": PHRASE}]}))
    assert marked(redactor.clean_data({PHRASE: 1}))
    assert not marked({"a": ["redacted"]})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("curl -H 'X: SECRET' h", True),
        ("curl -H 'X: a b' h", False),
        ("curl -H 'X: a;b' h", False),
        ("curl -H 'X: $(b)' h", False),
        ("curl -H 'X: a\nb' h", False),
        ("curl -H 'X: ' h", True),
        ("curl -H 'Y: a' h", False),
        ("curl -H 'X: a' h -o f", False),
        ("curl", False),
    ],
)
def test_what_may_hide_in_a_command_line(given: str, expected: bool) -> None:
    """Words may, in the place of the mark; anything that could be a command, or stands elsewhere, may not."""
    assert hides_only_words("curl -H 'X: [redacted:secret]' h", given) is expected
    assert hides_only_words("[redacted:a][redacted:b]", "ab")
    assert hides_only_words("plain", "plain")
    assert not hides_only_words("plain", "plain; more")


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [secret for _, secret in PLANTED] + ["token", "Password", ": ", "=", '"', "\\", "\n", VALUE, "://u:p@", "Bearer ", "İ"]
    ),
)


@given(st.lists(PIECES, max_size=8), st.sampled_from(["", " "]))
def test_what_cleaning_would_change_is_suspected_and_cleaning_settles(pieces: list[str], between: str) -> None:
    """No line whose text would be changed passes the cheap look, and separate words that were cleaned stay as they are."""
    text = between.join(pieces)
    redactor = Redactor(["correct-horse"])
    cleaned = redactor.clean(text)
    if cleaned != text:
        assert redactor.line_may_hold(line(text))
        assert redactor.line_may_hold(text.encode())
    if between:
        assert redactor.clean(cleaned) == cleaned


def library() -> list[str]:
    """Source of the standard library in pieces as large as a tool result."""
    pieces = []
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        text = path.read_text(errors="replace")
        pieces += [text[at : at + 16_384] for at in range(0, len(text), 16_384)]
    return pieces


def test_real_source_code_is_left_alone() -> None:
    """The standard library holds no secret but the examples of logins in its documentation; few lines are even suspected."""
    redactor = Redactor()
    suspected, changed = 0, []
    for piece in library():
        cleaned = redactor.clean(piece)
        may_hold = redactor.line_may_hold(line(piece))
        suspected += may_hold
        if cleaned != piece:
            assert may_hold
            changed += re.findall(r"\S*\[redacted:[^]]*\]\S*", cleaned)
    assert suspected < len(library()) * 0.1
    # urllib.request shows a call with a password (passwd='kadidd!ehopper'), an example value that looks like one.
    assert all("passwd=" in change or "url-password" in change for change in changed)
    assert len(changed) <= 3


def test_looking_at_source_code_costs_no_more_than_a_few_plain_searches() -> None:
    """The cheap look at 16 KB in which nothing is found takes no more than thirty searches for one word in it."""
    redactor = Redactor()
    data = next(line(piece) for piece in library() if len(piece) == 16_384 and not redactor.line_may_hold(line(piece)))

    def least(rounds: int = 40) -> float:
        best = 1e9
        for _ in range(rounds):
            began = time.thread_time_ns()
            assert not redactor.line_may_hold(data)
            best = min(best, time.thread_time_ns() - began)
        return best

    def word(rounds: int = 40) -> float:
        best = 1e9
        for _ in range(rounds):
            began = time.thread_time_ns()
            for _ in range(30):
                assert b"endstops" not in data
            best = min(best, time.thread_time_ns() - began)
        return best

    assert least() < word()


def test_hostile_text_costs_time_in_proportion() -> None:
    """Four times the text of a kind that makes patterns slow takes not much more than four times as long."""
    redactor = Redactor()
    for piece in ("token=", "sk-a", "eyJ.", "-----BEGIN PRIVATE KEY-----a1", "://a:", 'token="', "A" * 20, ascii_lowercase):
        small, large = (piece * (size // len(piece)) for size in (20_000, 80_000))
        times = []
        for text in (small, large):
            began = time.thread_time_ns()
            redactor.clean(text)
            times.append(time.thread_time_ns() - began)
        assert times[1] < 8 * times[0] + 20_000_000, piece
