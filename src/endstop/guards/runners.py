"""Programs that run other programs: what a command starts in its turn, as words or as text that a shell will read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from endstop.guards.words import GLOB, MANY, PART, known

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"})
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_PYTHON = re.compile(r"i?python[\d.]*|pypy[\d.]*")
_SED_RUNS = re.compile(r"(?:^|[;{}\n\d$'])\s*e(?:\s|$)|s([/|#,:@!]).*\1.*\1[gpiIM\d]*e", re.DOTALL)
"""The command ``e`` of sed, and its flag."""
_MOST = 16  # texts of one command
LONGEST = 500  # words


class Carried(msgspec.Struct):
    """What a command starts in its turn.

    ``commands`` are words, rather too many than too few; ``code`` is text that a shell reads.
    ``opaque``: there is more that cannot be told. ``stdin``: it runs what it reads. ``thin``: it does nothing but start them.
    ``foreign`` is code in another language.
    """

    commands: list[list[str]] = msgspec.field(default_factory=list)
    code: list[str] = msgspec.field(default_factory=list)
    opaque: bool = False
    stdin: bool = False
    thin: bool = False
    foreign: str = ""


class _Form(msgspec.Struct, frozen=True):
    """How a program is written before the one it starts: options that take the next word, and words between."""

    valued: frozenset[str] = frozenset()
    between: int = 0
    thin: bool = False


def _form(valued: str = "", between: int = 0, thin: bool = False) -> _Form:
    return _Form(frozenset(valued.split()), between, thin)


_FORMS = {
    "sudo": _form("-u -g -h -p -C -T -R -D -U -r -t --user --group --host --prompt --chdir --chroot --role --type"),
    "doas": _form("-u -C"),
    "pkexec": _form("--user"),
    "runuser": _form("-u -g -G"),
    "env": _form("-u -C --unset --chdir"),
    "command": _form(thin=True),
    "builtin": _form(thin=True),
    "exec": _form("-a"),
    "coproc": _form(),
    "!": _form(),
    "nohup": _form(thin=True),
    "time": _form("-f -o --format --output", thin=True),
    "timeout": _form("-s -k --signal --kill-after", 1, thin=True),
    "nice": _form("-n --adjustment", thin=True),
    "ionice": _form("-c -n -p -P -u --class --classdata", thin=True),
    "chrt": _form("-T -P -D", 1),
    "taskset": _form("", 1),
    "stdbuf": _form("-i -o -e --input --output --error", thin=True),
    "setsid": _form(),
    "setarch": _form("", 1),
    "chroot": _form("--userspec --groups", 1),
    "unshare": _form("-S -G -R -w --map-user --map-group --root --wd"),
    "nsenter": _form("-t -S -G --target --setuid --setgid"),
    "systemd-run": _form("-p -u -M --unit --property --slice --uid --gid"),
    "flock": _form("-w -E --timeout", 1),
    "strace": _form("-o -e -p -s -u -E -a -P"),
    "ltrace": _form("-o -e -p -s -u -n -l"),
    "gdb": _form("-ex -x -p"),
    "valgrind": _form(),
    "perf": _form("-e -o -p -F", 1),
    "unbuffer": _form(),
    "rlwrap": _form("-f -H -C -p"),
    "fakeroot": _form("-l -s -i -b"),
    "firejail": _form(),
    "proot": _form("-r -b -w"),
    "bwrap": _form("--bind --ro-bind --chdir --setenv --proc --dev --tmpfs"),
    "busybox": _form(),
    "xvfb-run": _form("-n -s -e -f -w"),
    "toybox": _form(),
    "caffeinate": _form("-t -w"),
    "script": _form("-c -I -O -T"),
    "watch": _form("-n --interval"),
    "entr": _form(),
    "torsocks": _form(),
    "proxychains": _form("-f"),
    "dbus-run-session": _form("--config-file"),
    "xargs": _form("-I -n -P -L -s -d -E -a --replace --max-args --max-procs --max-lines --delimiter --arg-file --max-chars"),
    "parallel": _form("-j -I -a -n -N -L -S --jobs --colsep --arg-file --results --joblog"),
    "uv": _form("--with --python -p --directory --project", 1),
    "poetry": _form("-C --directory", 1),
    "pipenv": _form("", 1),
    "npx": _form("-p --package"),
}
_SUBCOMMANDS = {"uv": "run", "poetry": "run", "pipenv": "run"}
"""Programs that start others only with this word."""
_CODE_OPTIONS = {
    "su": ("-c", "--command"),
    "runuser": ("-c", "--command"),
    "script": ("-c", "--command"),
    "flock": ("-c", "--command"),
    "npx": ("-c", "--call"),
    "mapfile": ("-C",),
    "readarray": ("-C",),
    "complete": ("-C",),
    "bind": ("-x",),
    "env": ("-S", "--split-string"),
    "git": ("--exec", "--open-files-in-pager", "--upload-pack", "--receive-pack", "--tree-filter", "--index-filter"),
    "tar": ("--to-command", "--use-compress-program", "-I", "--info-script", "-F"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "rg": ("--pre",),
    "sort": ("--compress-program",),
    "man": ("-P", "--pager", "-H"),
    "vim": ("-c", "--cmd"),
    "vi": ("-c", "--cmd"),
    "nvim": ("-c", "--cmd"),
    "less": ("--cmd",),
}
"""Options whose value is run."""
_SETTINGS = {"tar": ("--checkpoint-action",), "git": ("-c", "--config-env"), "ssh": ("-o",), "scp": ("-o",), "sftp": ("-o",)}
"""Options whose value is ``name=…`` or ``name …``, where some names hold a command."""
_FIND = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def program(words: Sequence[str]) -> str:
    """The name of a command without its folder."""
    return posixpath.basename(words[0]).lower() if words else ""


def without_assignments(words: Sequence[str]) -> list[str]:
    """A command from its program on."""
    first = next((number for number, word in enumerate(words) if not ASSIGNMENT.match(word)), len(words))
    return list(words[first:])


def carried(words: Sequence[str]) -> Carried:
    """What a command, given from its program on, starts in its turn."""
    words = words[:LONGEST]
    name = program(words)
    special = _foreign if _PYTHON.fullmatch(name) else _SPECIAL.get(name)
    found = special(words) if special else _plainly(name, words)
    found.code += [value.lstrip(":!") for value in _values(words, _CODE_OPTIONS.get(name, ()))]
    found.code += [re.split(r"[= ]", value, maxsplit=1)[-1].lstrip("!") for value in _values(words, _SETTINGS.get(name, ()))]
    found.commands += list(_behind(words))
    found.opaque = found.opaque or not all(map(known, found.code)) or len(found.code) > _MOST
    del found.code[_MOST:]
    return found


def _plainly(name: str, words: Sequence[str]) -> Carried:
    form = _FORMS.get(name)
    if form is None or (name in _SUBCOMMANDS and _SUBCOMMANDS[name] not in words[1:4]):
        return Carried()
    return Carried(commands=[rest for rest in _after(form, words) if rest], thin=form.thin)


def _after(form: _Form, words: Sequence[str]) -> Iterator[list[str]]:
    """The command behind options; also as if an option that is not known took a word."""
    at, unsure = 1, False
    while at < len(words) and (words[at].startswith("-") or ASSIGNMENT.match(words[at])):
        word = words[at]
        at += 2 if word in form.valued else 1
        if word == "--":
            break
        unsure = unsure or (word.startswith("-") and word not in form.valued and "=" not in word)
    at += form.between
    rest = without_assignments(words[at:])
    yield rest
    if unsure and len(rest) > 1:
        yield without_assignments(rest[1:])


def _behind(words: Sequence[str]) -> Iterator[list[str]]:
    """Commands behind ``-exec``."""
    at = 0
    while at < len(words):
        if words[at] in _FIND:
            end = next((number for number in range(at + 1, len(words)) if words[number] in (";", "+")), len(words))
            yield [word.replace("{}", GLOB) for word in words[at + 1 : end]]
            at = end
        at += 1


def _values(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """The values of options: the next word, or what is attached."""
    for number, word in enumerate(words[1:], 1):
        for option in options:
            if word == option and number + 1 < len(words):
                yield words[number + 1]
            elif option.startswith("--") and word.startswith(f"{option}="):
                yield word[len(option) + 1 :]
            elif not option.startswith("--") and len(word) > 2 and word.startswith(option):
                yield word[2:]


# ------------------------------------------------------------------------------------------------------- those of their own


def _shell(words: Sequence[str]) -> Carried:
    """``bash -c CODE``, a shell that reads its input, or one that runs a file."""
    at, takes_code, takes_input = 1, False, False
    while at < len(words) and words[at][:1] in ("-", "+", MANY, PART):
        word = words[at]
        if not known(word):
            return Carried(opaque=True)
        at += 1
        if word in ("--", "-"):
            break
        if word in ("--rcfile", "--init-file") or (not word.startswith("--") and word[-1] in "oO"):
            at += 1
        elif not word.startswith("--"):
            takes_code = takes_code or "c" in word
            takes_input = takes_input or "s" in word
    if takes_code:
        code = list(words[at : at + 1])
        return Carried(code=code, opaque=not code, thin=program(words) in ("bash", "sh") and at == 2)
    if takes_input or at >= len(words) or words[at].startswith(("/dev/", "/proc/")):
        return Carried(stdin=True)
    return Carried(opaque=not known(words[at]))


def _joined(words: Sequence[str]) -> Carried:
    return Carried(code=[" ".join(words[1:])])


def _watch(words: Sequence[str]) -> Carried:
    return Carried(code=[" ".join(rest) for rest in _after(_FORMS["watch"], words)])


def _trap(words: Sequence[str]) -> Carried:
    return Carried(code=[word for word in words[1:] if not word.startswith("-")][:1])


def _alias(words: Sequence[str]) -> Carried:
    return Carried(code=[word.partition("=")[2] for word in words[1:] if "=" in word], opaque=not all(map(known, words)))


def _hash(words: Sequence[str]) -> Carried:
    return Carried(commands=[[word] for word in words[1:] if "/" in word])


def _source(words: Sequence[str]) -> Carried:
    """A file that is run; where it is no file, its text is only known while it runs."""
    where = words[1] if len(words) > 1 else ""
    return Carried(opaque=not known(where) or where.startswith(("/dev/", "/proc/")))


def _xargs(words: Sequence[str]) -> Carried:
    """Words that come from input follow, or stand where a placeholder is."""
    name = program(words)
    rests = [rest for rest in _after(_FORMS[name], words) if rest]
    marks = {*_values(words, ("-I", "--replace")), "{}"}
    commands = []
    for rest in rests:
        for mark in marks - {""}:
            rest = [word.replace(mark, GLOB) for word in rest]
        commands.append([*rest[: rest.index(":::")], GLOB] if ":::" in rest else [*rest, GLOB])
    if name == "parallel":
        return Carried(commands=commands, code=[" ".join(rest) for rest in rests], opaque=not rests or rests[0][0] == ":::")
    return Carried(commands=commands)


def _command(words: Sequence[str]) -> Carried:
    """``command -v`` only looks."""
    options = [word for word in words[1:3] if word.startswith("-")]
    if any("v" in word.lower() for word in options):
        return Carried()
    return _plainly("command", words)


def _git(words: Sequence[str]) -> Carried:
    """``git rebase -x CODE``, ``git grep -O CODE``, ``git submodule foreach CODE``, ``git bisect run COMMAND``."""
    found = Carried()
    for subcommand, option in (("rebase", "-x"), ("grep", "-O")):
        found.code += _values(words, (option,)) if subcommand in words else ()
    for start, (subcommand, verb) in enumerate(pairwise(words)):
        if (subcommand, verb) == ("submodule", "foreach"):
            found.code.append(" ".join(word for word in words[start + 2 :] if word not in ("--recursive", "-q", "--quiet")))
        elif (subcommand, verb) == ("bisect", "run"):
            found.commands.append(list(words[start + 2 :]))
    return found


def _foreign(words: Sequence[str]) -> Carried:
    """Code in another language is not read, only searched."""
    return Carried(foreign=" ".join(words[1:]))


def _awk(words: Sequence[str]) -> Carried:
    text = " ".join(words[1:])
    return Carried(foreign=text if re.search(r"system|\||getline|@load", text) else "")


def _sed(words: Sequence[str]) -> Carried:
    text = " ".join(words[1:])
    return Carried(foreign=text if _SED_RUNS.search(text) else "")


_SPECIAL: dict[str, Callable[[Sequence[str]], Carried]] = {
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("xargs", "parallel"), _xargs),
    "eval": _joined,
    "watch": _watch,
    "trap": _trap,
    "alias": _alias,
    "hash": _hash,
    "command": _command,
    "git": _git,
    "sed": _sed,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "tclsh", "expect", "osascript"), _foreign),
}
