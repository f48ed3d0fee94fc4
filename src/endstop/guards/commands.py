"""Command lines as permission rules see them: what would run, and whether that can be told at all.

Not a shell: a line is cut into simple commands the way bash cuts it, and whatever bash only knows while it runs (expansions,
subshells, here-documents, text that is run as code) is not guessed but said to be unclear.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

import msgspec

_SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "fish"}
_RUNS_TEXT = {"eval", "xargs", "source", ".", "parallel"}
_RUNS_REST = {"-exec", "-execdir", "-ok", "-okdir"}
_WRAPPERS = {
    *("sudo", "doas", "env", "command", "builtin", "exec", "nohup", "time", "timeout", "nice", "ionice", "stdbuf", "setsid"),
    *("busybox", "chroot", "watch", "strace", "unbuffer", "caffeinate", "xargs", "parallel", "eval", "coproc", "function"),
    *("if", "then", "else", "elif", "do", "while", "until", "!", "{"),
}
"""Words that stand before the command that really runs."""
_VALUED = {"git": {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"}}
"""Options before a subcommand that take the next word."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_COMPUTED = re.compile(r"[$`*?]|\[[^\[]|\{[^\s{}]*(?:,|\.\.)")
"""In a command's name: it is only known while the line runs. ``[`` and ``[[`` are commands."""
_HARMLESS = re.compile(r"(?:>>?|<)(?:&\s*[0-9-]+|[ \t]*/dev/null)(?=[\s;|&<>()]|$)")
"""Redirections that write nothing and read nothing."""
_BRACES = re.compile(r"\{[^\s{}]*(?:,|\.\.)")
_ORDINARY = re.compile(r"[\w./=:,@%+~-]*")
_CONTENT = {"'": re.compile(r"[^']*"), '"': re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)}
_EXPANDS = re.compile(r"(?<!\\)(?:\\\\)*[$`]")
_LONGEST = 200  # words
_DEEPEST = 3


class Line(msgspec.Struct, frozen=True):
    """A command line, cut up.

    ``commands``: the words of each simple command, quotes taken off, those inside of substitutions too. ``clear``: these are
    all that runs, with just these words. ``named``: at least the name of every command is known.
    """

    commands: list[list[str]]
    clear: bool
    named: bool


def split(text: str) -> Line:
    """Cut a command line at ``&& || ; | &`` and line ends."""
    scanner = _Scanner(text)
    commands = scanner.scan()
    named = not any(_COMPUTED.search(words[0]) for words in map(_without_assignments, commands) if words)
    return Line(commands, scanner.clear and named and not any(_runs_code(words) for words in commands), named)


def runs(commands: Sequence[Sequence[str]], depth: int = 0) -> Iterator[list[str]]:
    """Every command that may run under other words: behind assignments, ``sudo``, ``env``, ``xargs``, ``-exec``, inside
    ``bash -c``; with and without its folder, with and without options before its subcommand. Rather too many than too few."""
    for words in commands:
        holds_code = False
        for start in _starts(words):
            bare = _without_assignments(words[start : start + _LONGEST])
            if bare:
                holds_code = holds_code or _runs_code(bare)
                program = posixpath.basename(bare[0])
                yield from (bare, [program, *bare[1:]], [program, *_without_options(program, bare[1:])])
        if holds_code and depth < _DEEPEST:
            yield from runs([command for word in words[1:] for command in split(word).commands], depth + 1)


def _starts(words: Sequence[str]) -> Iterator[int]:
    """Where in a command another one may begin."""
    yield 0
    bare = _without_assignments(words)
    if bare and posixpath.basename(bare[0]) in _WRAPPERS:
        yield from range(1, min(len(words), _LONGEST))
    else:
        yield from (number + 1 for number, word in enumerate(words[:_LONGEST]) if word in _RUNS_REST)


def _runs_code(words: Sequence[str]) -> bool:
    """Whether a command takes words or input and runs them."""
    program = posixpath.basename(words[0])
    shell = program in _SHELLS and any(re.match(r"[-+]\w*c", word) for word in words[1:])
    return shell or program in _RUNS_TEXT or any(word in _RUNS_REST for word in words)


def _without_assignments(words: Sequence[str]) -> list[str]:
    first = next((number for number, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return list(words[first:])


def _without_options(program: str, words: Sequence[str]) -> list[str]:
    valued = _VALUED.get(program, set())
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return list(words[at:])


class _Scanner:
    """One pass over the text. ``clear`` falls at the first thing whose meaning is only known while the line runs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._word: str | None = None
        self._words: list[str] = []
        self._commands: list[list[str]] = []
        self._ticks = 0
        self.clear = "\0" not in text

    def scan(self) -> list[list[str]]:
        """The words of each command."""
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            self._take(character)
        self._end_command()
        return self._commands

    def _take(self, character: str) -> None:
        match character:
            case "'" | '"':
                self._quoted(character)
            case "\\":
                self._escaped()
            case " " | "\t":
                self._end_word()
            case "#" if self._word is None:
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            case "&" if self._text.startswith(">", self._at):
                self._end_word()
            case ";" | "|" | "&" | "\n":
                self._end_command()
            case "<" | ">":
                self._redirection()
            case _:
                self._plain(character)

    def _plain(self, character: str) -> None:
        """Any other character; some begin what only bash can work out."""
        if character in "$`()" or _BRACES.match(self._text, self._at - 1):
            self.clear = False
        if character in "`()":
            self._ticks += character == "`"
            if self._ticks % 2 and character == "`" and self._word is None:
                self._add(character)  # it may be the name of a command
            self._end_command()  # what stands inside is a command of its own
        else:
            run = _ORDINARY.match(self._text, self._at)
            assert run  # it matches the empty text too
            self._at = run.end()
            self._add(character + run[0])

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
            self._word = None

    def _end_command(self) -> None:
        self._end_word()
        if self._words:
            self._commands.append(self._words)
            self._words = []

    def _escaped(self) -> None:
        following = self._text[self._at : self._at + 1]
        self._at += 1
        if following != "\n":  # a line that goes on
            self._add(following)

    def _quoted(self, quote: str) -> None:
        found = _CONTENT[quote].match(self._text, self._at)
        assert found  # it matches the empty text too
        content, self._at = found[0], found.end() + 1
        if self._at > len(self._text):  # no closing quote
            self.clear = False
        if quote == '"':
            if _EXPANDS.search(content):
                self.clear = False
                for inner in (*content.split("$(")[1:], *content.split("`")[1::2]):
                    self._commands += split(inner).commands
            content = re.sub(r'\\([$`"\\])|\\\n', r"\1", content)
        self._add(content)

    def _redirection(self) -> None:
        if self._word is not None and self._word.isdecimal():
            self._word = None
        self._end_word()
        found = _HARMLESS.match(self._text, self._at - 1)
        if found:
            self._at = found.end()
        else:
            self.clear = False
