"""Web addresses as rules see them: the host that is really asked, however it is written."""

from __future__ import annotations

import posixpath
import re
import socket
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_ODD = re.compile(r"[\x00-\x20\x7f\\]")
"""Characters that readers of addresses treat differently."""


class Pattern(msgspec.Struct, frozen=True):
    """An address with ``*`` in it. ``port`` None: the scheme's own, or any where it holds back."""

    scheme: str
    host: str
    port: int | None
    path: str


class Address(msgspec.Struct, frozen=True):
    """An address, taken apart. ``odd``: it may be read in more than one way."""

    scheme: str
    host: str
    port: int | None
    path: str
    odd: bool


def parse(text: str) -> Pattern | None:
    """Read a pattern; None if it is none."""
    scheme, mark, rest = text.strip().partition("://")
    host, slash, path = rest.partition("/")
    found = re.fullmatch(r"([\w.*-]+|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?", host)
    if not mark or not re.fullmatch(r"[A-Za-z*][A-Za-z0-9+.*-]*", scheme) or not found:
        return None
    name = found[1].strip("[]").lower().rstrip(".")
    return Pattern(scheme.lower(), name, int(found[2]) if found[2] else None, f"/{path}" if slash else "/**")


def read(text: str) -> Address | None:
    """Take an address apart; None if it names no host."""
    odd = bool(_ODD.search(text.strip()))
    try:
        parts = urlsplit(_ODD.sub("", text.replace("\\", "/")))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if not parts.scheme or not host:
        return None
    try:
        name = host.rstrip(".").encode("idna").decode().lower() if not host.isascii() else host.rstrip(".").lower()
    except UnicodeError:
        name, odd = host.lower(), True
    path = posixpath.normpath(unquote(parts.path) or "/")
    odd = odd or parts.username is not None or "%" in host or "%" in unquote(parts.path)
    return Address(parts.scheme.lower(), _number(name), port or _PORTS.get(parts.scheme.lower()), path, odd)


def _number(host: str) -> str:
    """An IPv4 address in its usual form: 2130706433 and 0x7f.1 are 127.0.0.1."""
    if not re.fullmatch(r"[0-9a-fx.]+", host) or not host[0].isdigit():
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host


def lets(pattern: Pattern, address: Address) -> bool:
    """Whether an address is certain to be what a pattern means."""
    port = pattern.port or _PORTS.get(address.scheme)
    return (
        not address.odd
        and fnmatchcase(address.scheme, pattern.scheme)
        and fnmatchcase(address.host, pattern.host)
        and address.port == port
        and _within(pattern.path, address.path)
    )


def holds(pattern: Pattern, address: Address) -> bool:
    """Whether an address may be what a pattern means: under any scheme, on any port unless one is named, the domain itself
    where its subdomains are meant."""
    host = fnmatchcase(address.host, pattern.host) or pattern.host == f"*.{address.host}"
    port = pattern.port is None or address.port is None or address.port == pattern.port
    return host and port and (address.odd or _within(pattern.path, address.path))


def _within(pattern: str, path: str) -> bool:
    """``**`` is any path, ``*`` stays between two slashes."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    kinds = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(kinds.get(part, re.escape(part)) for part in parts)
    return bool(re.fullmatch(expression, path, re.DOTALL)) or (pattern.endswith("/**") and path == pattern[:-3])


def found_in(value: Any) -> list[str]:
    """Every text in arguments that looks like an address."""
    if isinstance(value, str):
        return [value] if "://" in value else []
    if isinstance(value, dict):
        return [text for part in value.values() for text in found_in(part)]
    if isinstance(value, list):
        return [text for part in value for text in found_in(part)]
    return []
