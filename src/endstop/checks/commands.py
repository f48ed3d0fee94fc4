"""Reading a gate's shell command: its words, its parts, and whether its exit status can say no.

Not a shell: what cannot be read (expansions, loops, functions) is taken as it stands, and nothing is claimed of it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

_OPERATOR = re.compile(r"&&|\|\||;;|\|&|&>>|&>|>>|>&|>\||<<<|<<|<&|<>|[;&|<>()\n]")
_LISTS = (";", "&", "\n", "&&", "||", "|", "|&", "(", ")", ";;")
_SIGNS = ";&|<>()\n"
# Signs inside quotes are no operators: they stand aside while the text is split.
_HIDE = {ord(sign): 0xE000 + number for number, sign in enumerate(_SIGNS)}
_SHOW = {0xE000 + number: sign for number, sign in enumerate(_SIGNS)}
_QUOTED_OR_COMMENT = re.compile(r"""("(?:\\.|[^"\\])*"|'[^']*'|\\.)|(?:^|(?<=[\s;&|()]))#[^\n]*""", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SHELLS = ("bash", "sh", "dash", "zsh")
_COMPOUND = ("if", "for", "while", "until", "case", "function", "select", "[[")
_HARMLESS = ("true", ":", "echo", "printf")
_WRAPPERS = ("env", "time", "exec", "command", "nohup", "!")


class Unreadable(ValueError):
    """The text is no shell command: quotes that do not close."""


class Word(NamedTuple):
    """A word or an operator. ``target``: the word names a file that is written by a redirection."""

    text: str
    operator: bool = False
    target: bool = False


def tokens(command: str) -> list[Word]:
    """Words and operators, quotes taken away, comments left out.

    Raises:
        Unreadable: a quote does not close.
    """
    text = _QUOTED_OR_COMMENT.sub(lambda found: found[1].translate(_HIDE) if found[1] else "", command.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SIGNS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    found: list[Word] = []
    try:
        for token in lexer:
            if token and token[0] in _SIGNS:
                found += [Word(each, operator=True) for each in _OPERATOR.findall(token)]
            else:
                found.append(Word(token.translate(_SHOW)))
    except ValueError as error:
        raise Unreadable(str(error).lower()) from None
    return list(_without_redirections(found))


def _without_redirections(found: list[Word]) -> Iterator[Word]:
    """Redirection operators fall away; the file one reads stays a word, the file one writes is marked."""
    towards = ""
    for word in found:
        if word.operator and word.text not in _LISTS:
            towards = word.text
        elif towards and not word.operator:
            if towards == "<":
                yield word
            elif towards.startswith((">", "&>")):
                yield word._replace(target=True)
            towards = ""
        else:
            towards = ""
            yield word


def simple_commands(command: str) -> list[list[str]]:
    """The words of every simple command, in order; files written by redirections are left out. ``bash -c`` is opened.

    Raises:
        Unreadable: a quote does not close.
    """
    commands: list[list[str]] = [[]]
    for word in tokens(command):
        if word.operator:
            commands.append([])
        elif not word.target:
            commands[-1].append(word.text)
    return [words for each in commands if each for words in _opened(each)]


def _opened(words: list[str]) -> list[list[str]]:
    inner = _script(words)
    return [words] if inner is None else simple_commands(inner)


def _script(words: list[str]) -> str | None:
    """The text that ``bash -c TEXT`` runs."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for position, word in enumerate(words[1:-1], 1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return words[position + 1]
    return None


def program(words: list[str]) -> list[str]:
    """The words from the program's name on, without assignments and wrappers such as ``env`` and ``time``."""
    rest = list(words)
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _WRAPPERS):
        rest.pop(0)
    return rest


class Call(NamedTuple):
    """A program with its words, the folder it runs in below the workspace, and variables that were set before it."""

    words: list[str]
    folder: str
    variables: dict[str, str]


def calls(run: str) -> Iterator[Call]:
    """The programs a command calls, in order; ``cd``, ``export`` and activated environments take part. Nothing of what
    cannot be read."""
    try:
        commands = simple_commands(run)
    except Unreadable:
        return
    folder, variables = "", dict[str, str]()
    for words in commands:
        rest = program(words)
        own = variables | _assigned(words)
        if rest[:1] == ["export"] or not rest:
            variables = own
        elif rest[0] == "cd" and len(rest) > 1:
            folder = os.path.join(folder, rest[-1])
        else:
            if rest[0] in (".", "source") and rest[-1].endswith("/activate"):
                here = os.path.join(folder, os.path.dirname(rest[-1]))
                variables = variables | {"PATH": f"{here}:{variables.get('PATH', '$PATH')}"}
            yield Call(rest, folder, own)


def _assigned(words: list[str]) -> dict[str, str]:
    """Variables that ``A=1 …``, ``env A=1 …`` or ``export A=1`` set."""
    found = {}
    for word in words:
        if _ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            found[name] = value
        elif word != "export" and word not in _WRAPPERS:
            break
    return found


def cannot_fail(command: str) -> bool:
    """Whether the exit status is 0 whatever happens, because of how the command *ends*. A lone command is never meant.

    Raises:
        Unreadable: a quote does not close.
    """
    words = tokens(command)
    plain = [word for word in words if not word.operator]
    if any(word.text in _COMPOUND for word in plain):
        return False
    return _masks(words, strict=False)


def _masks(words: list[Word], strict: bool) -> bool:
    """Whether the last of a list of commands swallows the failure of those before it. ``strict``: under ``set -e``."""
    parts = _split(words, (";", "&", "\n"))
    strict = strict or any(_strict(part) for part, _ in parts)
    while parts and not parts[-1][0]:
        before = parts.pop()
        if before[1] == "&" and parts:  # keep the operator that really ended the last command
            parts[-1] = (parts[-1][0], "&")
    if not parts:
        return False
    last, ended_by = parts[-1]
    if ended_by == "&":
        return True
    alternatives = _split(last, ("&&", "||"))
    final = alternatives[-1][0]
    if len(alternatives) > 1 and alternatives[-2][1] == "||":
        return _harmless(final)
    if len(alternatives) == 1 and len(parts) > 1 and not strict and not _only_prepares(parts[:-1]) and _harmless(final):
        return True
    return _inner(final, strict)


def _inner(final: list[Word], strict: bool) -> bool:
    """The same of a group or of the text given to ``bash -c``, when that is the last command."""
    if len(final) > 1 and final[0].text in ("(", "{") and final[-1].text in (")", "}"):
        return _masks(final[1:-1], strict)
    script = _script(program([word.text for word in final if not word.operator]))
    return script is not None and cannot_fail(script)


def _split(words: list[Word], at: tuple[str, ...]) -> list[tuple[list[Word], str]]:
    """Parts between the operators of the outermost level, each with the operator after it ("" at the end)."""
    parts: list[tuple[list[Word], str]] = []
    part: list[Word] = []
    depth = 0
    for word in words:
        if (word.operator and word.text in "()") or word.text in ("{", "}"):
            depth += 1 if word.text in "({" else -1
        if depth == 0 and word.operator and word.text in at:
            parts.append((part, word.text))
            part = []
        else:
            part.append(word)
    return [*parts, (part, "")]


def _harmless(words: list[Word]) -> bool:
    """Whether a pipeline always ends with 0."""
    return all(_harmless_command([word for word in part if not word.target]) for part, _ in _split(words, ("|", "|&")))


def _harmless_command(words: list[Word]) -> bool:
    if len(words) > 1 and words[0].text in ("(", "{"):
        final = _split([word for word in words[1:-1]], (";", "\n", "&&", "||"))
        filled = [part for part, _ in final if part]
        return bool(filled) and _harmless(filled[-1])
    texts = [word.text for word in words]
    return bool(texts) and (texts[0] in _HARMLESS or texts == ["exit", "0"] or texts == ["wait"])


def _strict(part: list[Word]) -> bool:
    texts = [word.text for word in part]
    flags = [text for text in texts[1:] if re.fullmatch(r"-[a-z]*e[a-z]*", text)]
    return texts[:1] == ["set"] and bool(flags or "errexit" in texts)


def _only_prepares(parts: list[tuple[list[Word], str]]) -> bool:
    """Whether nothing before the last command could be what the gate is about (``export A=1; true``)."""
    return all(not part or part[0].text in ("export", "set", *_HARMLESS) for part, _ in parts)
