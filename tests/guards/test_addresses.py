"""Rules about web addresses."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.core.messages import ToolSpec
from endstop.errors import UsageError
from endstop.guards.permission import Permissions, parse_rule

FETCH = ToolSpec(name="fetch", description="", parameters={}, effect="read_outside", key_argument="url", own=True)
MCP = ToolSpec(name="web__get", description="", parameters={})


def verdict(url: Any, allow: str = "", deny: str = "", ask: str = "", spec: ToolSpec = MCP) -> str:
    lists = [[rule] if rule else [] for rule in (allow, deny, ask)]
    arguments = {"url": url} if isinstance(url, str) else url
    return Permissions("ask", *lists, sandboxed=False, network=True).decide(spec, arguments).kind


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example.org/x",
        "https://a.b.example.org/x/y?q=1",
        "HTTPS://A.Example.ORG",
        "https://a.example.org:443/",
        "https://a.example.org./x",
    ],
)
def test_addresses_that_are_allowed(url: str) -> None:
    """An address runs by a rule if scheme, host, port and path are what the rule says, however they are written."""
    assert verdict(url, allow="web__get(https://*.example.org/**)") == "allow"


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example.org/x",
        "https://example.org/x",
        "https://evil.org/.example.org/x",
        "https://evil.org/?a.example.org/",
        "https://evil.org#.example.org/",
        "https://a.example.org@evil.org/",
        "https://user@a.example.org/",
        "https://a.example.org.evil.org/",
        "https://evilexample.org/",
        "https://evil.org\\.example.org/",
        "https://a.example.org:8443/",
        "https://a.exa\tmple.org/",
        "https://evil.org%2f.example.org/",
        "//a.example.org/",
        "a.example.org",
        "https:///x",
        "https://[bad/",
        "",
    ],
)
def test_addresses_that_only_look_allowed(url: str) -> None:
    """What leads elsewhere, or can be read in two ways, is not let through by a rule."""
    assert verdict(url, allow="web__get(https://*.example.org/**)") == "ask"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/x",
        "http://a.example.org/x",
        "https://a.example.org:8443/x",
        "https://EXAMPLE.org./x",
        "https://user:word@a.example.org/",
        "https://a.example.org\\@b.org/",
    ],
)
def test_addresses_that_are_denied(url: str) -> None:
    """A denied host is denied under every scheme, port and spelling."""
    assert verdict(url, deny="*(https://*.example.org/**)") == "deny"
    assert verdict(url, deny="*(https://*.example.org/**)", spec=FETCH) == "deny"


def test_numbers_are_addresses_too() -> None:
    """An IPv4 address counts in every way it can be written."""
    for host in ("127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1"):
        assert verdict(f"http://{host}/", deny="*(http://127.0.0.1/**)", spec=FETCH) == "deny"
    assert verdict("http://127.0.0.2/", deny="*(http://127.0.0.1/**)", spec=FETCH) == "allow"


def test_paths_of_addresses() -> None:
    """A path ends where the rule says, and no detour leads out of it."""
    rule = "web__get(https://a.org/docs/**)"
    assert verdict("https://a.org/docs/x", allow=rule) == "allow"
    assert verdict("https://a.org/docs/../admin", allow=rule) == "ask"
    assert verdict("https://a.org/docs/%2e%2e/admin", allow=rule) == "ask"
    assert verdict("https://a.org/x", allow=rule) == "ask"


def test_every_address_of_a_call_counts() -> None:
    """Where a call names several addresses, one that is denied is enough, and all must be allowed."""
    both = {"from": ["https://a.org/x", {"to": "https://b.org/y"}]}
    assert verdict(both, deny="web__get(https://b.org/**)") == "deny"
    assert verdict(both, allow="web__get(https://a.org/**)") == "ask"
    assert verdict({"from": "https://a.org/x"}, allow="web__get(https://a.org/**)") == "allow"
    assert verdict({"from": "nothing"}, allow="web__get(https://a.org/**)") == "ask"


def test_ask_rules_hold_for_addresses() -> None:
    """An ask rule asks even where reading is free."""
    assert verdict("https://a.org/x", ask="fetch(https://a.org/**)", spec=FETCH) == "ask"
    assert verdict("https://b.org/x", ask="fetch(https://a.org/**)", spec=FETCH) == "allow"


@pytest.mark.parametrize("text", ["fetch(https://)", "fetch(://x)", "fetch(https://a b/**)", "fetch(https://u@h/)"])
def test_a_rule_without_a_usable_address_is_refused(text: str) -> None:
    """What looks like an address and is none is named, with the form it should have."""
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert repr(text) in str(caught.value)
    assert "fetch(https://*.example.org/**)" in caught.value.hint
