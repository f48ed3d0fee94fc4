"""What the nodes of bash's grammar say: words with quotes and escapes resolved, here-documents, variables set in the line.

``check`` is a second look at the tree. The grammar is more lenient than bash, and where both could differ in what a command is
(a line that goes on inside a word, two words without a gap, where a here-document ends) the text counts as unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

from tree_sitter import Node

from endstop.guards.words import CLOSE, COMMA, GAP, GLOB, LEFT, MANY, OPEN, PART, RIGHT, known, unescape, unfold

_WORD = re.compile(r"(?:[^\s|&;<>()$`\\\"'\x00-\x20\x7f]|\\[^\n]|\\\n)+")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_CONTINUED = re.compile(r"\\\n")
_RESERVED = {
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "do",
    "done",
    "case",
    "esac",
    "for",
    "while",
    "until",
    "select",
    "function",
    "in",
}
_RESERVED |= {"{", "}", "[[", "]]", "!"}
_REDIRECTS = {"file_redirect", "herestring_redirect", "heredoc_redirect"}
_INSIDE = {
    "string",
    "concatenation",
    "expansion",
    "simple_expansion",
    "arithmetic_expansion",
    "heredoc_body",
    "subscript",
    "array",
}
_INSIDE |= {"translated_string", "brace_expression", "binary_expression", "unary_expression", "parenthesized_expression", "regex"}
_INSIDE |= {"postfix_expression", "ternary_expression", "test_command", "compound_statement", "variable_assignment"}
"""Kinds whose parts may stand without a gap."""
_SINGLE = {"HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "UID", "EUID", "PPID", "RANDOM", "HOSTNAME", "?", "$", "#", "!"}
"""Variables that are one word."""
_TAINTS = {"eval", "source", ".", "read", "readarray", "mapfile", "printf", "getopts", "let", "trap"}
"""Commands after which a variable may hold something that the line does not say."""
_MOST = 16  # sets of values
_BACKQUOTED = re.compile(r"(?<!\\)`((?:[^`\\]|\\.)*)`", re.DOTALL)
_LIVE = re.compile(r"(?<!\\)(?:\\\\)*(?:\$[({\[]|`)")
"""What expands, in text of which the grammar says that it does not."""
_QUOTED_END = re.compile(r"^<<-?\s*['\"\\]")
_QUOTED = re.compile(r'\\([$`"\\])|\\\n')
_SPECIAL = {"{": OPEN, ",": COMMA, "}": CLOSE, "*": GLOB, "?": GLOB, "[": LEFT, "]": RIGHT}


class Unreadable(Exception):
    """What a node means to bash cannot be told."""


def _text(node: Node, raw: bytes) -> str:
    return raw[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------------------------------------------- a second look


def check(root: Node, raw: bytes) -> None:
    """Raise Unreadable unless the tree accounts for the whole text the way bash does."""
    if root.has_error or re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", raw):
        raise Unreadable
    stack = [(root, 0, len(raw))]
    heredocs: set[int] = set()
    while stack:
        node, start, end = stack.pop()
        if node.type == "heredoc_redirect":
            heredoc(node, raw)
            row = node.start_point.row
            if row in heredocs:  # several in one line
                raise Unreadable
            heredocs.add(row)
        _check_leaf(node, raw)
        if node.type not in ("string", "heredoc_body", "heredoc_redirect", "expansion", "translated_string"):
            _check_gaps(node, raw, start, end)
        stack += [(child, child.start_byte, child.end_byte) for child in node.children]


def _check_leaf(node: Node, raw: bytes) -> None:
    text = _text(node, raw)
    kind, parent = node.type, node.parent
    if node.is_missing:
        raise Unreadable
    if kind in ("string", "heredoc_body", "expansion") and _LIVE.search(_BACKQUOTED.sub("", _dead(node, raw))):
        raise Unreadable
    if kind == "word" and parent and parent.type != "expansion":
        begins = parent.type != "concatenation" or parent.start_byte == node.start_byte
        if not _WORD.fullmatch(text) or (begins and text[0] == "#"):
            raise Unreadable
        if parent.type == "command_name" and text in _RESERVED:
            raise Unreadable
    elif kind == "comment":
        before, after = raw[: node.start_byte][-1:], raw[node.end_byte :][:1]
        if "\n" in text or before not in (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")") or after not in (b"", b"\n"):
            raise Unreadable


def _dead(node: Node, raw: bytes) -> str:
    """The text of a node without the parts that the grammar found to expand."""
    found, at = b"", node.start_byte + 2 * (node.type == "expansion")
    for child in node.children:
        if child.type.endswith(("expansion", "substitution")):
            found, at = found + raw[at : child.start_byte], child.end_byte
    text = (found + raw[at : node.end_byte]).decode("utf-8", "surrogateescape")
    outer = node.parent
    return "" if node.type == "heredoc_body" and outer and _QUOTED_END.search(_text(outer, raw)) else text


def backquoted(node: Node, raw: bytes) -> list[str]:
    """Code in backquotes where the grammar sees only text."""
    return [re.sub(r"\\([$`\\])", r"\1", code) for code in _BACKQUOTED.findall(_dead(node, raw))]


def _check_gaps(node: Node, raw: bytes, start: int, end: int) -> None:
    """Between the parts of a node stand blanks only; where nothing does, they are no two words."""
    at, before = start, None
    for child in node.children:
        gap = raw[at : child.start_byte].decode("utf-8", "surrogateescape")
        if gap:
            rest = _CONTINUED.sub("", gap)
            dash = node.type == "redirected_statement" and rest.strip() == "-"  # of which the grammar makes no word
            if (rest.strip(" \t\n") and not dash) or not rest:
                raise Unreadable
        elif before is not None and node.type not in _INSIDE and _touches(before, child, raw):
            raise Unreadable
        at, before = child.end_byte, child
    if node.children and raw[at:end].strip(b" \t\n"):
        raise Unreadable


def _touches(before: Node, after: Node, raw: bytes) -> bool:
    """Whether two parts without a gap are really one word to bash."""
    if before.type == "file_descriptor" or before.type in ("$(", "`", "<(", ">(", "(", "{"):
        return False
    if after.type in _REDIRECTS:
        return raw[after.start_byte : after.start_byte + 1] not in (b"<", b">", b"&")
    if "$" in (before.type, after.type):
        return not (before.type == "$" and after.type == "string")  # $"…" is for translations
    return before.is_named and after.is_named and before.type not in ("heredoc_body", "comment") and after.type != "comment"


def heredoc(node: Node, raw: bytes) -> str:
    """The text of a here-document, its expansions as marks; Unreadable unless it ends where bash ends it."""
    parts = {child.type: child for child in node.children}
    start, end, body = parts.get("heredoc_start"), parts.get("heredoc_end"), parts.get("heredoc_body")
    if start is None or end is None:
        raise Unreadable
    said = _text(start, raw)
    quoted = any(mark in said for mark in "'\"\\")
    if not re.fullmatch(r"'[\w -]+'|\"[\w -]+\"|\\?[\w-]+", said):
        raise Unreadable
    first = raw.find(b"\n", start.end_byte) + 1
    dashed = "<<-" in parts
    place = first
    for line in raw[first:].decode("utf-8", "surrogateescape").split("\n"):
        bare = line.lstrip("\t") if dashed else line
        if bare == said.strip("'\"\\"):
            break
        place += len(line.encode("utf-8", "surrogateescape")) + 1
    found = raw[first:place].decode("utf-8", "surrogateescape")
    if first == 0 or end.start_byte - (len(line) - len(bare)) != place or (not quoted and "\\\n" in found):
        raise Unreadable
    if body is not None and body.start_byte < first:
        raise Unreadable
    return found if quoted else re.sub(r"(?<!\\)(?:\$\(.*?\)|`.*?`|\$\{?[\w@*#?!-]+\}?)", PART, found, flags=re.DOTALL)


# ------------------------------------------------------------------------------------------------------------------ variables


class Values:
    """What the line itself gives to variables. A name that may also get something else has no values here; one that may not be
    set yet has the empty one too.

    Args:
        nodes: all nodes of the text, in order.
        raw: the text.
    """

    def __init__(self, nodes: Iterable[Node], raw: bytes) -> None:
        self._raw = raw
        self._found: dict[str, list[str]] = {}
        self._since: dict[str, int] = {}
        tainted: set[str] = set()
        for node in nodes:
            if node.type == "unset_command" or (node.type == "command_name" and _text(node, raw) in _TAINTS):
                tainted.add("IFS")
            if node.type == "expansion" and any(child.type in ("=", ":=") for child in node.children):
                tainted.add(_text(node.named_children[0], raw) if node.named_children else "")
            for name, word in self._given(node):
                if word is None or name == "IFS":
                    tainted.add(name)
                else:
                    self._found.setdefault(name, []).append(word)
                    self._since.setdefault(name, node.end_byte if _certain(node) else len(raw))
        self._found = {} if "IFS" in tainted else {key: value for key, value in self._found.items() if key not in tainted}

    def _given(self, node: Node) -> list[tuple[str, str | None]]:
        """Names and values that a node gives."""
        variable = node.child_by_field_name("variable" if node.type == "for_statement" else "name")
        if variable is None or node.type not in ("variable_assignment", "for_statement"):
            return []
        name = _text(variable, self._raw)
        if variable.type != "variable_name" or any(child.type == "+=" for child in node.children) or _odd(node):
            return [(name.partition("[")[0], None)]
        try:
            words = [word for value in node.children_by_field_name("value") for word in resolve(value, self._raw, {})]
        except Unreadable:
            return [(name, None)]
        return [(name, word if known(word) else None) for word in words or [""]]

    def variants(self, node: Node) -> list[dict[str, str]]:
        """What the variables of a node may be, one set of values after the other; none where that is too much to tell."""
        names = dict.fromkeys(name for name in _NAME.findall(_text(node, self._raw)) if name in self._found)
        choices = [dict.fromkeys([*self._found[name], *[""] * (node.start_byte < self._since[name])]) for name in names]
        if prod(map(len, choices)) > _MOST:
            return [{}]
        return [dict(zip(names, values, strict=True)) for values in product(*choices)]


def _certain(node: Node) -> bool:
    """Whether an assignment is made whatever else happens."""
    while node.parent and node.parent.type in ("variable_assignments", "list", "declaration_command"):
        if node.parent.type == "list" and node.parent.children[0] != node:
            return False
        node = node.parent
    following = node.next_sibling
    return bool(node.parent and node.parent.type == "program") and not (following and following.type == "&")


def _odd(node: Node) -> bool:
    """Whether an assignment is for one command only, or of a kind that changes the value."""
    outer = node.parent
    if outer is None:
        return False
    return outer.type == "command" or (
        outer.type == "declaration_command" and any(child.type == "word" for child in outer.children)
    )


# ----------------------------------------------------------------------------------------------------------------------- words


def translates(node: Node) -> bool:
    """Whether a ``$`` only marks the text between double quotes behind it as one to be translated."""
    after = node.next_sibling
    return node.type == "$" and after is not None and after.type == "string" and after.start_byte == node.end_byte


def resolve(node: Node, raw: bytes, values: Mapping[str, str]) -> list[str]:
    """The words that a node becomes, mostly one, with these variables set."""
    words = unfold(_Resolver(raw, values).text(node))
    if words is None:
        raise Unreadable
    return words


class _Resolver:
    def __init__(self, raw: bytes, values: Mapping[str, str]) -> None:
        self._raw, self._values = raw, values

    def text(self, node: Node, quoted: bool = False) -> str:
        """What a node comes to; marks stand for what only bash knows."""
        said = _text(node, self._raw)
        match node.type:
            case "word" | "number" | "variable_name" | "extglob_pattern":
                return _unquoted(said)
            case "raw_string":
                return said[1:-1]
            case "ansi_c_string":
                return unescape(said[2:-1])
            case "string" | "translated_string":
                return self._string(node)
            case "concatenation" | "command_name":
                return "".join(self.text(child) for child in node.children if not translates(child))
            case "variable_assignment":
                return self._assignment(node, said)
            case "simple_expansion" | "expansion":
                return self._variable(node, said, quoted)
            case "command_substitution" | "process_substitution" | "arithmetic_expansion" | "brace_expression":
                return PART if quoted else MANY
            case _ if not node.is_named:
                return said
        raise Unreadable

    def _string(self, node: Node) -> str:
        """Between double quotes; the grammar leaves blanks beside expansions out."""
        if node.type == "translated_string":
            node = node.children[-1]
        found, at = "", node.start_byte + 1
        for child in [*node.children[1:-1], None]:
            start = child.start_byte if child else node.end_byte - 1
            found += _in_quotes(self._raw[at:start].decode("utf-8", "surrogateescape"))
            if child is None:
                break
            if child.is_named and child.type != "string_content":
                found += self.text(child, quoted=True)
            else:
                found += _in_quotes(_text(child, self._raw))
            at = child.end_byte
        return found

    def _assignment(self, node: Node, said: str) -> str:
        value = node.child_by_field_name("value")
        if value is None:
            return said
        name = self._raw[node.start_byte : value.start_byte].decode("utf-8", "surrogateescape")
        if value.type == "array":
            return name + PART
        return name + self.text(value).replace(MANY, PART).replace(GAP, " ")

    def _variable(self, node: Node, said: str, quoted: bool) -> str:
        """A variable's value, if the line itself gives it one."""
        name = _NAME.fullmatch(said)
        value = self._values.get(name[1]) if name else None
        if value is not None:
            return value if quoted else re.sub(r"[ \t\n]+|^$", GAP, re.sub(r"[*?]", GLOB, value))
        several = "@" in said or "*" in said
        single = said.strip("${}") in _SINGLE
        return PART if (quoted and not several) or single else MANY


def _unquoted(text: str) -> str:
    """A word without quotes: escapes resolved, what expands marked."""
    found, at = "", 0
    if re.match(r"~[\w+-]*(?:/|$)", text):
        found, at = GLOB, text.index("/") if "/" in text else len(text)
    while at < len(text):
        if text[at] == "\\":
            found += text[at + 1 : at + 2].replace("\n", "")
            at += 1
        else:
            found += _SPECIAL.get(text[at], text[at])
        at += 1
    return found


def _in_quotes(text: str) -> str:
    return _QUOTED.sub(r"\1", text)
