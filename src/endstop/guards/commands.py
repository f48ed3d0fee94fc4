"""Command lines as permission rules see them: every command that may run, however deep, and whether that is all.

Bash's grammar is read by tree-sitter. What bash only knows while it runs is not guessed but marked in the words, and a line
whose tree does not account for each of its characters counts as unreadable: a wrong reading must never look like a right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from endstop.guards import runners
from endstop.guards.reading import Unreadable, Values, backquoted, check, heredoc, resolve, translates
from endstop.guards.words import MANY, MARKS, RESERVED, known

_PARSER = Parser(Language(tree_sitter_bash.language()))
_PLAIN = {
    *("program", "list", "pipeline", "negated_command", "command", "command_name", "redirected_statement", "file_redirect"),
    *("file_descriptor", "word", "number", "raw_string", "string", "string_content", "ansi_c_string", "concatenation"),
    *("comment", "variable_assignment", "variable_assignments", "variable_name", "extglob_pattern"),
}
"""Kinds of nodes that hold nothing but commands written out."""
_COMMANDS = {"command", "declaration_command", "unset_command", "test_command", "variable_assignment", "variable_assignments"}
_LOOKS = {"<": "read", "<>": "both"}
_LONGEST = 262_144  # characters
_DEEPEST = 6  # code in code
_MOST = 8_000  # nodes; a quarter of that one level deeper, so that no text takes long


class Redirect(msgspec.Struct, frozen=True):
    """A file that a line opens by itself, to ``read``, to ``write``, or for both."""

    target: str
    use: str


class Segment(msgspec.Struct, frozen=True):
    """One command. ``words`` begin with assignments; ``commands`` and ``lines`` are what it starts in its turn, ``thin`` if it
    does nothing else; ``foreign`` is code in another language that it runs."""

    words: tuple[str, ...]
    commands: tuple[Segment, ...] = ()
    lines: tuple[Line, ...] = ()
    opaque: bool = False
    thin: bool = False
    foreign: str = ""

    @property
    def bare(self) -> list[str]:
        """The words from the program on."""
        return runners.without_assignments(self.words)

    def all(self) -> Iterator[Segment]:
        """This command and every one that it starts."""
        yield self
        for command in self.commands:
            yield from command.all()
        for line in self.lines:
            yield from line.all()


class Line(msgspec.Struct, frozen=True):
    """A command line, read.

    ``plain``: nothing but commands written out, joined by ``&& || ; | &``. ``readable``: ``segments`` are all that runs, though
    not all of their words may be known.
    """

    text: str
    segments: tuple[Segment, ...]
    redirects: tuple[Redirect, ...]
    plain: bool
    readable: bool

    def all(self) -> Iterator[Segment]:
        """Every command, however deep."""
        for segment in self.segments:
            yield from segment.all()

    def files(self) -> Iterator[Redirect]:
        """Every redirection, however deep."""
        yield from self.redirects
        for segment in self.all():
            for line in segment.lines:
                yield from line.redirects

    @property
    def clear(self) -> bool:
        """Whether the program of every command is known, and that these are all."""
        return self.readable and all(_clear(segment) for segment in self.all())


def _clear(segment: Segment) -> bool:
    bare = segment.bare
    return not segment.opaque and all(line.readable for line in segment.lines) and (not bare or known(bare[0]))


@lru_cache(maxsize=64)
def read(text: str, depth: int = 0) -> Line:
    """Read a command line; ``depth`` says how deep in other code it stands."""
    if len(text) > _LONGEST or depth > _DEEPEST or "\0" in text or RESERVED.search(text):
        return Line(text, (), (), False, False)
    return _Reader(text, depth).line()


class _Reader:
    """One pass over the tree of one text."""

    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._depth = depth
        self._raw = text.encode("utf-8", "surrogateescape")
        self._segments: list[Segment] = []
        self._redirects: list[Redirect] = []
        self._plain = self._readable = True
        self._carried = 0
        self._piped = False

    def line(self) -> Line:
        """The whole line."""
        root = _PARSER.parse(self._raw).root_node
        if root.descendant_count > _MOST >> 2 * self._depth:
            return Line(self._text, (), (), False, False)
        nodes = list(_below(root))
        try:
            check(root, self._raw)
        except Unreadable:
            self._readable = False
        self._values = Values(nodes, self._raw) if self._readable else Values([], self._raw)
        for node in nodes:
            self._plain = self._plain and (not node.is_named or node.type in _PLAIN)
            try:
                self._node(node)
            except Unreadable:
                self._readable = False
        return Line(self._text, tuple(self._segments), tuple(self._redirects), self._plain and self._readable, self._readable)

    def _node(self, node: Node) -> None:
        kind, parent = node.type, node.parent
        if kind in _COMMANDS and not (parent and parent.type in _COMMANDS):
            for words in self._variants(node):
                self._add(words, self._feed(node))
        elif kind == "redirected_statement" and not node.child_by_field_name("body"):
            self._add([], [])
        elif kind == "file_redirect":
            self._redirect(node)
        elif kind in ("heredoc_body", "expansion"):
            for code in backquoted(node, self._raw):
                self._code(code)
        elif kind == "command_substitution" and node.children and node.children[0].type == "`":
            self._code(re.sub(r'\\([$`\\"])', r"\1", self._of(node)[1:-1]))

    def _of(self, node: Node) -> str:
        return self._raw[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    # ------------------------------------------------------------------------------------------------------------ commands

    def _variants(self, node: Node) -> Iterator[list[str]]:
        """The words of a command, once for each value that a variable in it may have."""
        if node.type == "test_command":  # no program: what it looks at is of no interest
            yield [node.children[0].type, MANY]
            return
        for values in self._values.variants(node):
            parts = [resolve(part, self._raw, values) for part in self._parts(node)]
            self._plain = self._plain and all(len(part) == 1 for part in parts)
            parts.append(["-"] * self._dash(node))
            yield [word for part in parts for word in part]

    def _parts(self, node: Node) -> Iterator[Node]:
        """The nodes that become words of a command: also those written behind a redirection."""
        if node.type == "variable_assignment":
            yield node
            return
        for at, child in enumerate(node.children):
            if child.type in ("file_redirect", "herestring_redirect") or translates(child):
                continue
            if node.type == "command" or child.is_named or at == 0:
                yield child
        outer = node.parent
        while outer and outer.type == "redirected_statement" and outer.child_by_field_name("body") == node:
            for redirect in outer.children_by_field_name("redirect"):
                yield from redirect.children_by_field_name("destination")[1:]
                yield from redirect.children_by_field_name("argument")
                for inner in redirect.children_by_field_name("redirect"):
                    yield from inner.children_by_field_name("destination")[1:]
            break

    def _dash(self, node: Node) -> bool:
        """Whether a ``-`` stands between a command and its redirection."""
        outer, after = node.parent, node.next_sibling
        if outer is None or after is None or outer.type != "redirected_statement":
            return False
        return b"-" in self._raw[node.end_byte : after.start_byte]

    def _feed(self, node: Node) -> list[str] | None:
        """Text that a command reads from the line itself; None if its input comes from elsewhere."""
        outer = node.parent
        inside = outer is not None and outer.type == "redirected_statement"
        redirects = [*node.children, *(outer.children if inside and outer else ())]
        found: list[str] = []
        for redirect in redirects:
            if redirect.type == "heredoc_redirect":
                found.append(heredoc(redirect, self._raw))
            elif redirect.type == "herestring_redirect":
                found += [word for part in redirect.named_children for word in resolve(part, self._raw, {})]
        return found or None

    def _add(self, words: Sequence[str], feed: list[str] | None) -> None:
        segment = self._segment(words, feed, self._depth)
        self._segments.append(segment)
        for word in words:  # a value may be run later, by an array's index or a prompt
            if runners.ASSIGNMENT.match(word) and re.search(r"\$\(|`", word):
                self._code(word.partition("=")[2])

    def _segment(self, words: Sequence[str], feed: list[str] | None, depth: int) -> Segment:
        bare = runners.without_assignments(words)
        if not bare:
            return Segment(tuple(words))
        self._carried += 1
        if depth > _DEEPEST or self._carried > _MOST:
            return Segment(tuple(words), opaque=True)
        inner = runners.carried(bare)
        code, opaque, foreign = list(inner.code), inner.opaque, inner.foreign
        if inner.stdin:
            code += feed if feed is not None else self._spoken()
            opaque = opaque or feed is None or not all(map(known, feed))
        if foreign and feed:
            foreign += "\n" + "\n".join(feed)
        return Segment(
            tuple(words),
            tuple(self._segment(command, feed, depth + 1) for command in inner.commands if command),
            tuple(read(_sayable(text), depth + 1) for text in code if text.strip()),
            opaque or len(bare) > runners.LONGEST,
            inner.thin,
            foreign,
        )

    def _spoken(self) -> list[str]:
        """Texts of the line that may reach the input of a shell in it; looked at for the first shell."""
        if self._piped:
            return []
        self._piped = True
        return [" ".join(segment.bare[1:]) for segment in self._segments if segment.bare]

    def _code(self, text: str) -> None:
        self._segments.append(Segment((), lines=(read(_sayable(text), self._depth + 1),)))

    # -------------------------------------------------------------------------------------------------------- redirections

    def _redirect(self, node: Node) -> None:
        targets = node.children_by_field_name("destination")
        operator = next(child.type for child in node.children if not child.is_named)
        if not targets:  # <&- closes
            return
        if len(targets) > 1 and not (node.parent and node.parent.type in ("redirected_statement", "heredoc_redirect")):
            raise Unreadable
        for values in self._values.variants(targets[0]):
            words = resolve(targets[0], self._raw, values)
            if len(words) != 1:
                raise Unreadable
            if words[0] != "/dev/null" and not (operator in ("<&", ">&") and re.fullmatch(r"\d*-?", words[0])):
                self._redirects.append(Redirect(words[0], _LOOKS.get(operator, "write")))


def _below(root: Node) -> Iterator[Node]:
    """Every node, in order; not those in backquotes, whose text bash reads anew."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if not (node.type == "command_substitution" and node.children and node.children[0].type == "`"):
            stack += reversed(node.children)


def _sayable(text: str) -> str:
    """Text with its unknown parts as a variable, so that it can be read as code."""
    return "".join("${UNKNOWN}" if character in MARKS else character for character in text)
