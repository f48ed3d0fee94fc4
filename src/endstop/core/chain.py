"""The hash chain: ``prev`` of each line is the SHA-256 of the line before, so a file of lines verifies itself.

hash(n) = SHA-256 of the bytes of line n; ``prev`` of line 1 = SHA-256("endstop:" + session id).
"""

from __future__ import annotations

from hashlib import sha256


def genesis(session_id: str) -> str:
    """``prev`` of the first line: binds the session's id, so that one journal cannot pass for another."""
    return sha256(b"endstop:" + session_id.encode()).hexdigest()


def link(line: bytes) -> str:
    """Hash of a stored line, the ``prev`` of the next one."""
    return sha256(line).hexdigest()
