"""A filter of system calls for the sandbox: no file gets the set-user-ID or set-group-ID bit.

Such a file would be left in the workspace and lend the user's rights, root's even, to anybody on the machine who can reach
it; no mount option inside of the sandbox prevents that, and the owner of a file needs no privilege for it.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

_BITS = 0o6000
_CREATES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE: without them the mode of an open is whatever stands there."""
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000
_X32 = 0x40000000


class _Calls(NamedTuple):
    """Numbers of one architecture. ``modes``: number to position of the mode; ``opens``: number to that of the flags, before
    the mode; ``hidden``: calls whose arguments cannot be seen, for which every program has another way."""

    audit: int
    modes: dict[int, int]
    opens: dict[int, int]
    hidden: tuple[int, ...]


_HIDDEN = (437, 425)  # openat2, io_uring_setup
_X86_64 = _Calls(0xC000003E, {90: 1, 91: 1, 268: 2, 452: 2, 133: 1, 259: 2, 85: 1}, {2: 1, 257: 2}, _HIDDEN)
_I386 = _Calls(0x40000003, {15: 1, 94: 1, 306: 2, 452: 2, 14: 1, 297: 2, 8: 1}, {5: 1, 295: 2}, _HIDDEN)
_AARCH64 = _Calls(0xC00000B7, {52: 1, 53: 2, 452: 2, 33: 2}, {56: 2}, _HIDDEN)
"""chmod, fchmod, fchmodat, fchmodat2, mknod, mknodat, creat; open, openat."""
_MACHINES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64,)}


def filter_for(machine: str = platform.machine()) -> bytes:
    """The program as the kernel takes it; empty for a machine whose system calls are not known here."""
    if machine not in _MACHINES:
        return b""
    program = [_step(_LD, _ARCHITECTURE)]
    for calls in _MACHINES[machine]:
        section = _section(calls)
        program += [_step(_JEQ, calls.audit, 0, len(section)), *section]
    return b"".join([*program, _step(_RET, _REFUSE | errno.ENOSYS)])


def _section(calls: _Calls) -> list[bytes]:
    """What holds for one architecture; every way through it ends in a verdict."""
    steps = [_step(_LD, _NUMBER)]
    if calls.audit == _X86_64.audit:  # the same calls by other numbers
        steps += [_step(_JGE, _X32, 0, 1), _step(_RET, _REFUSE | errno.ENOSYS)]
    for number in calls.hidden:
        steps += [_step(_JEQ, number, 0, 1), _step(_RET, _REFUSE | errno.ENOSYS)]
    for number, mode in calls.modes.items():
        steps += _when(number, _judged(mode))
    for number, flags in calls.opens.items():
        opening = [_step(_LD, _ARGUMENTS + 8 * flags), _step(_JSET, _CREATES, 1, 0), _step(_RET, _ALLOW)]
        steps += _when(number, opening + _judged(flags + 1))
    return [*steps, _step(_RET, _ALLOW)]


def _when(number: int, then: list[bytes]) -> list[bytes]:
    return [_step(_JEQ, number, 0, len(then)), *then]


def _judged(mode: int) -> list[bytes]:
    return [
        _step(_LD, _ARGUMENTS + 8 * mode),
        _step(_JSET, _BITS, 0, 1),
        _step(_RET, _REFUSE | errno.EPERM),
        _step(_RET, _ALLOW),
    ]


def _step(code: int, value: int, met: int = 0, unmet: int = 0) -> bytes:
    """One instruction; ``met`` and ``unmet`` are how many to skip."""
    return struct.pack("=HBBI", code, met, unmet, value)
