"""File access that stays inside the workspace.

A path is followed to where it really is first, then opened part by part without following any link: a link that is swapped
in between makes the call fail and leads nowhere. Only regular files are opened; nothing here blocks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from endstop.host.imports import kept
from endstop.host.paths import inside, open_beneath, shown

ABSENT = "absent"
MOST = 16 * 1024 * 1024
"""Bytes of a file that are taken as a whole."""


class Place:
    """Where a path the model named really is: ``name`` relative to the real ``root``.

    Raises:
        PermissionError: outside of the workspace, or hidden.
        ValueError: no usable path.
    """

    def __init__(self, workspace: Path, path: str, hidden: Sequence[Path] = ()) -> None:
        if "\0" in path:
            raise ValueError("a path cannot hold a NUL byte; give a plain path inside the workspace")
        if path.startswith("~"):
            raise ValueError(f"{path}: ~ is not expanded; give a path inside the workspace")
        name = inside(workspace, path)
        if name is None:
            raise PermissionError(f"{shown(path)} lies outside of the workspace; give a path inside {workspace}")
        self.root = Path(os.path.realpath(workspace))
        self.name = name
        self.text = shown(name)
        real = self.root / name
        if any(real.is_relative_to(os.path.realpath(folder)) for folder in hidden):
            raise PermissionError(f"{self.text} is kept from the agent; work without it")

    def open(self) -> BinaryIO:
        """The file, for reading.

        Raises:
            FileNotFoundError: nothing there; names what is nearest.
            IsADirectoryError: a folder.
            OSError: neither file nor folder, or not readable.
        """
        try:
            handle = open_beneath(self.root, self.name)
        except FileNotFoundError:
            raise FileNotFoundError(f"no file {self.text}{self._nearest()}") from None
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            self._refuse(mode)
        return os.fdopen(handle, "rb")

    def read(self) -> bytes:
        """All of the file, at most ``MOST`` bytes.

        Raises:
            ValueError: it is larger.
            OSError: as ``open``.
        """
        with self.open() as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise ValueError(f"{self.text} is larger than {MOST >> 20} MB; use the shell on it")
        return data

    def digest(self) -> str:
        """SHA-256 of the content in hex, or "absent"."""
        try:
            with self.open() as file:
                hasher = sha256()
                while block := file.read(1 << 20):
                    hasher.update(block)
        except FileNotFoundError:
            return ABSENT
        return hasher.hexdigest()

    def write(self, data: bytes) -> bool:
        """Put ``data`` there in one step, keeping the mode of what it replaces; missing folders are made. True if new.

        Raises:
            PermissionError: below ``.git`` or in what Endstop runs from, or the file is read-only.
            OSError: a folder, no file at all, or not writable.
        """
        if any(part.lower() == ".git" for part in self.name.split("/")):
            raise PermissionError(f"{self.text} belongs to git; change it with git commands in the shell")
        if any((self.root / self.name).is_relative_to(folder) for folder in kept(self.root)):
            raise PermissionError(f"{self.text} belongs to the environment that Endstop runs from; leave it as it is")
        *folders, name = self.name.split("/")
        folder = self._folder(folders)
        try:
            mode = self._writable(name, folder)
            _put(folder, name, data, mode)
        finally:
            os.close(folder)
        return mode is None

    def _folder(self, folders: Sequence[str]) -> int:
        """Descriptor of the innermost folder, made where missing."""
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        for folder in folders:
            try:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=at)
                inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            except NotADirectoryError:
                raise NotADirectoryError(f"{self.text}: {shown(folder)} is a file, not a folder; choose another path") from None
            finally:
                os.close(at)
            at = inner
        return at

    def _writable(self, name: str, folder: int) -> int | None:
        """Mode bits of the file that will be replaced; None if there is none."""
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(mode):
            self._refuse(mode)
        if not mode & 0o222:
            raise PermissionError(f"{self.text} is read-only (mode {stat.S_IMODE(mode):04o}); leave it, or chmod it on purpose")
        return stat.S_IMODE(mode)

    def _refuse(self, mode: int) -> None:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{self.text} is a folder; list_files shows what is in it")
        kind = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode), "a device")
        raise OSError(f"{self.text} is {kind}, not a file; choose another path")

    def _nearest(self) -> str:
        folder = (self.root / self.name).parent
        try:
            names = os.listdir(folder)
        except OSError:
            return f"; there is no folder {shown(str(Path(self.name).parent))} either"
        close = get_close_matches(Path(self.name).name, names[:2000], n=3)
        return f"; there is {', '.join(shown(name) for name in close)}" if close else "; list_files shows what is there"


def _put(folder: int, name: str, data: bytes, mode: int | None) -> None:
    """Write beside and rename, so that a reader, or whoever comes after a crash, sees the old file or the new one."""
    beside = f".endstop-{token_hex(8)}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise
