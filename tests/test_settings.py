"""Settings: where values come from, which win, and what is said of those that cannot be used."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from endstop import settings
from endstop.core import limits
from endstop.core.stall import NEVER, Rules
from endstop.errors import UsageError
from endstop.settings import Settings, load

DOCS = Path(__file__).parents[1] / "docs"
SECRET = "sk-very-secret-0123456789"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The root of a repository."""
    (tmp_path / "repo/.git").mkdir(parents=True)
    return tmp_path / "repo"


def read(project: Path, text: str = "", *, flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    """Settings with ``text`` as the project's file."""
    (project / "endstop.toml").write_text(text)
    return load(cwd=project, environ={"HOME": str(project.parent), **environ}, flags=flags)


def own(project: Path, text: str) -> Path:
    """Write the user's own file."""
    path = project.parent / ".config/endstop/endstop.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def complaint(project: Path, text: str = "", **environ: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(project, text, **environ)
    return caught.value


# ------------------------------------------------------------------------------------------------------------- what wins


def test_each_source_beats_those_below_it_and_is_remembered(project: Path) -> None:
    """Flags beat the environment, that beats the goal file, the project's file and the user's own, key by key."""
    mine = own(project, 'model = "a:own"\njudge = "none"\nretry = 1\nconfront = "never"\nbaseline = false\n')
    goal = project / "goal.toml"
    goal.write_text('objective = "x"\nretry = 3\nconfront = "always"\nmodel = "a:goal"\n')
    (project / "endstop.toml").write_text('judge = "auto"\nretry = 2\nmodel = "a:project"\n')
    environ = {"HOME": str(project.parent), "ENDSTOP_CONFRONT": "once", "ENDSTOP_MODEL": "a:env"}
    found = load(cwd=project, environ=environ, flags={"model": "a:flag"}, goal=goal)
    assert (found.model, found.came("model")) == ("a:flag", "command line")
    assert (found.contract.confront, found.came("confront")) == ("once", "ENDSTOP_CONFRONT")
    assert (found.retries, found.came("retry")) == (3, str(goal))
    assert (found.judge, found.came("judge")) == ("auto", str(project / "endstop.toml"))
    assert (found.contract.baseline, found.came("baseline")) == (False, str(mine))
    assert (found.contract.protect, found.came("protect")) == ("refuse", "default")
    assert found.files == (mine, project / "endstop.toml", goal)


def test_nothing_set_is_the_defaults(tmp_path: Path) -> None:
    """Without any source there are the kernel's own defaults, and no model."""
    found = load(cwd=tmp_path, environ={"HOME": str(tmp_path)})
    assert found.limits == limits.DEFAULTS
    assert (found.model, found.judge, found.explicit, found.stall) == (None, "auto", frozenset(), Rules())
    assert found.home == tmp_path / ".local/state/endstop"
    assert found.origin == {}


def test_allow_and_deny_add_up(project: Path) -> None:
    """A later source adds rules: it cannot take a deny away."""
    own(project, '[permissions]\ndeny = ["a"]\n')
    found = read(project, '[permissions]\ndeny = ["b"]\nallow = ["c"]\n', flags={"permissions": {"deny": ["a", "d"]}})
    assert found.policy.deny == ["a", "b", "d"]
    assert found.policy.allow == ["c"]
    assert found.came("permissions.deny").endswith("command line")
    assert found.came("permissions.deny").startswith(str(project.parent))


def test_gates_of_a_later_source_take_the_place_of_earlier_ones(project: Path) -> None:
    """-g on the command line replaces the project's gates."""
    found = read(project, '[[gate]]\nrun = "a"\n', flags={"gate": [{"run": "b"}, {"run": "c"}]})
    assert [(gate.gate_id, gate.run) for gate in found.contract.gates] == [("gate-1", "b"), ("gate-2", "c")]


def test_hooks_add_up_and_only_the_user_s_own_are_his(project: Path) -> None:
    """A project or goal takes no hook away and cannot claim rights; the same hook in one place twice is one."""
    own(project, '[[hook]]\non = "pre_tool"\nrun = "guard"\nmatcher = "shell"\n')
    goal = project / "goal.toml"
    goal.write_text('objective = "x"\n[[hook]]\non = "session_end"\nrun = "bell"\n')
    twice = '[[hook]]\non = "stop"\nrun = "check"\ntimeout = 5\n' * 2
    (project / "endstop.toml").write_text(twice)
    found = load(cwd=project, environ={"HOME": str(project.parent)}, goal=goal)
    assert [(h.on, h.run, h.matcher, h.timeout, h.own) for h in found.contract.hooks] == [
        ("pre_tool", "guard", "shell", 60.0, True), ("stop", "check", "", 5.0, False), ("session_end", "bell", "", 60.0, False),
    ]  # fmt: skip
    assert found.came("hook").endswith("goal.toml")
    assert complaint(project, '[[hook]]\non = "stop"\nrun = "check"\nown = true\n').message == "no setting has this name"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('on = "stopp"\nrun = "x"', r"hook 1\.on: unknown value 'stopp' \(one of stop, pre_tool"),
        ('on = "pre_tool"\nrun = "x"\nmatcher = "("', r"hook 1\.matcher: is no regular expression: missing \)"),
        ('on = "stop"\nrun = "x"\nmatcher = "shell"', r"hook 1\.matcher: there is no tool to match"),
        ('on = "stop"', r"hook 1: lacks run"),
    ],
)
def test_a_hook_that_cannot_be_used_is_named(project: Path, text: str, said: str) -> None:
    """File, table, key and remedy."""
    assert re.search(r"endstop\.toml: " + said, str(complaint(project, f"[[hook]]\n{text}\n")))


def test_limits_merge_by_axis(project: Path) -> None:
    """An axis set in one place stays when another is set elsewhere; none takes one away; only own caps are explicit."""
    found = read(project, '[limits]\nturns = 7\nwall = "45m"\nrounds = "none"\n', ENDSTOP_LIMITS="cost=2usd, turns=9")
    assert (found.limits["turns"], found.limits["wall"], found.limits["cost"]) == (9, 2700, 2)
    assert "rounds" not in found.limits
    assert found.explicit == {"turns", "wall", "cost"}


def test_stall_rules_are_changed_step_by_step(project: Path) -> None:
    """One step of one rule can be set and the others stay; never switches a step off."""
    found = read(project, '[stall]\nrefusals = 3\nrepeat.notice = 4\nsame_failure.halt = "never"\n')
    assert (found.stall.repeat.notice, found.stall.repeat.refuse) == (4, Rules().repeat.refuse)
    assert (found.stall.same_failure.halt, found.stall.refusals, found.stall.on) == (NEVER, 3, True)
    assert read(project, ENDSTOP_STALL="false").stall.on is False


def test_protect_takes_words_and_paths(project: Path) -> None:
    """A word says what happens, everything else is a path; what a gate relies on is protected too."""
    found = read(project, 'protect = ["flag", "tests/**"]\n[[gate]]\nrun = "make"\npaths = ["Makefile"]\n')
    assert (found.contract.protect, found.contract.inputs) == ("flag", ["tests/**", "Makefile"])
    assert read(project, 'protect = "ci.yml"\n').contract.protect == "refuse"


def test_a_goal_file_holds_an_objective_and_its_contract(project: Path) -> None:
    """goal.toml is read by the same rules, and names what is pursued."""
    goal = project / "goal.toml"
    goal.write_text('objective = "make it pass"\nrubric = "short"\njudge = "none"\n[[gate]]\nrun = "pytest"\ntimeout = 5\n')
    found = load(cwd=project, environ={"HOME": str(project)}, goal=goal)
    assert (found.objective, found.contract.rubric, found.contract.judge) == ("make it pass", "short", "none")
    assert found.contract.gates[0].timeout == 5.0


def test_a_script_is_found_from_the_file_that_names_it(project: Path) -> None:
    """The path of a scripted model is absolute: the goal can be resumed from any folder."""
    assert read(project, 'model = "scripted:../a.toml"\n').model == f"scripted:{project.parent / 'a.toml'}"


# ---------------------------------------------------------------------------------------------------------------- places


def test_the_project_is_searched_up_to_the_git_root_and_no_further(project: Path) -> None:
    """A file above the workspace counts inside a repository, one above the repository never."""
    below = project / "a/b"
    below.mkdir(parents=True)
    (project / "endstop.toml").write_text("retry = 9\n")
    (project.parent / "endstop.toml").write_text("retry = 8\n")
    environ = {"HOME": str(project)}
    assert load(cwd=below, environ=environ).retries == 9
    (project / "a/endstop.toml").write_text("retry = 7\n")
    assert load(cwd=below, environ=environ).retries == 7
    (project / ".git").rmdir()
    assert load(cwd=below, environ=environ).retries == settings.RETRIES


def test_the_workspace_decides_which_project_counts(project: Path, tmp_path: Path) -> None:
    """-C and ENDSTOP_WORKSPACE name the folder in which the search begins; a relative one begins at the current folder."""
    (project / "endstop.toml").write_text("retry = 9\n")
    assert load(cwd=tmp_path, environ={"ENDSTOP_WORKSPACE": "repo"}).retries == 9
    found = load(cwd=tmp_path, environ={"HOME": str(tmp_path)}, flags={"workspace": "repo"})
    assert (found.retries, found.workspace) == (9, project)


def test_home_follows_the_standard(tmp_path: Path) -> None:
    """ENDSTOP_HOME, else below XDG_STATE_HOME, which counts only if it is absolute, as its standard says."""
    home = {"HOME": str(tmp_path)}
    assert load(cwd=tmp_path, environ=home | {"XDG_STATE_HOME": "/x/state"}).home == Path("/x/state/endstop")
    assert load(cwd=tmp_path, environ=home | {"XDG_STATE_HOME": "state"}).home == tmp_path / ".local/state/endstop"
    assert load(cwd=tmp_path, environ=home | {"ENDSTOP_HOME": "mine"}).home == tmp_path / "mine"


def test_dotenv_is_never_read(project: Path) -> None:
    """A .env file changes nothing."""
    (project / ".env").write_text(f"ENDSTOP_MODEL=a:b\nOPENAI_API_KEY={SECRET}\n")
    found = read(project)
    assert (found.model, found.keys()) == (None, {})


# --------------------------------------------------------------------------------------------------------------- secrets


def test_secrets_are_in_no_repr(project: Path) -> None:
    """Keys are handed over by name, and neither settings nor environment show one."""
    own(project, '[providers.openai]\napi_key_env = "MY_LOGIN"\n')
    found = read(project, MY_LOGIN=SECRET, GITHUB_TOKEN=SECRET, PATH="/bin")
    assert found.keys() == {"MY_LOGIN": SECRET, "GITHUB_TOKEN": SECRET}
    assert SECRET not in repr(found)
    assert SECRET not in repr(found.environment)


def test_an_address_with_a_password_is_refused(project: Path) -> None:
    """A key belongs into a variable: an address that holds one is an error that does not repeat it."""
    for text, environ in (
        (f'[providers.openai]\nbase_url = "http://me:{SECRET}@127.0.0.1/v1"\n', {}),
        ("", {"OPENAI_BASE_URL": f"https://me:{SECRET}@host/v1"}),
    ):
        with pytest.raises(UsageError) as caught:
            read(project, text, **environ).provider("openai")
        assert SECRET not in str(caught.value)
        assert "api_key_env" in caught.value.hint


def test_a_variable_beats_the_file_for_an_address(project: Path) -> None:
    """NAME_BASE_URL wins over base_url; the rest of the provider stays."""
    text = '[providers.openai]\nbase_url = "http://localhost:1/v1"\nwindow = 5\nprice = { input = 1, output = 2 }\n'
    found = read(project, text, OPENAI_BASE_URL="http://127.0.0.1:2/v1").provider("openai")
    assert (found.base_url, found.window, found.price) == ("http://127.0.0.1:2/v1", 5, {"input": 1.0, "output": 2.0})
    assert read(project, text).provider("openai").base_url == "http://localhost:1/v1"
    assert read(project, text).provider("groq") == settings.Provider()
    with pytest.raises(UsageError, match="no http address"):
        read(project, OPENAI_BASE_URL="ftp://host").provider("openai")


@pytest.mark.parametrize(
    "text",
    [
        'home = "state"',
        '[providers.openai]\nbase_url = "https://evil.example/v1"',
        '[providers.openai]\nbase_url = "http://10.0.0.1/v1"',
        '[providers.openai]\napi_key_env = "AWS_SECRET"',
        'workspace = ".."',
        'workspace = "link"',
    ],
)
def test_a_repository_cannot_redirect_keys_state_or_work(project: Path, text: str) -> None:
    """What a project's file must not say is refused there, and taken from the user's own file."""
    (project / "link").symlink_to(project.parent)
    error = complaint(project, text)
    assert "a project may not" in error.message
    assert str(project / "endstop.toml") in error.where
    mine = own(project, text.replace('"link"', '".."'))
    assert read(project).files[0] == mine


# ---------------------------------------------------------------------------------------------------------------- errors

WRONG = {
    'modle = "x"': ("modle", "did you mean model?"),
    "model = 3": ("model", "quotes"),
    'model = ""': ("model", "quotes"),
    "[limits]\ncots = 1": ("limits", "did you mean cost?"),
    '[limits]\ncost = "1eur"': ("limit cost", "cost=2usd"),
    "[limits]\ncost = [1]": ("limits.NAME", '"none"'),
    "[limits]\nturns = 0": ("limit turns", "turns=none"),
    "limits = 3": ("limits", "amount"),
    '[[gate]]\nrunn = "x"': ("gate 1.runn", "did you mean run?"),
    '[[gate]]\nrun = "a"\n[[gate]]\nrun = "b"\ntimout = 3': ("gate 2.timout", "did you mean timeout?"),
    "[[gate]]\ntimeout = 3": ("gate 1", "settings.md"),
    '[[gate]]\nrun = "a"\ntimeout = -1': ("gate 1.timeout", "number"),
    'gate = "pytest"': ("gate", "list"),
    'deliverables = "x"': ("deliverables", "list"),
    'deliverables = [""]': ("deliverables 1", "quotes"),
    '[permissions]\nmode = "yol"': ("permissions.mode", "plan, ask, auto, yolo"),
    '[permissions]\nnetwork = "yes"': ("permissions.network", "true or false"),
    "[permissions]\nallow = [1]": ("permissions.allow 1", "quotes"),
    '[permissions]\nalow = ["x"]': ("permissions.alow", "did you mean allow?"),
    'confront = "twice"': ("confront", "once, always, never"),
    "[stall]\nrepeat.notce = 3": ("stall.repeat.notce", "did you mean notice?"),
    "[stall]\nrepeat.notice = 0": ("stall.repeat.notice", "never"),
    '[stall]\nrepeat.notice = "x"': ("stall.repeat.notice", "never"),
    "[stall]\nrepaet = 3": ("stall.repaet", "did you mean repeat?"),
    "retry = true": ("retry", "whole number"),
    "retry = -1": ("retry", "whole number"),
    "[providers.openai]\nprice = { input = 1 }": ("providers.NAME.price", "settings.md"),
    "[providers.openai]\nprice = { input = -1, output = 1 }": ("providers.NAME.price.input", "number"),
    '[providers.openai]\nbase_ulr = "x"': ("providers.NAME.base_ulr", "did you mean base_url?"),
    '[providers.openai]\nbase_url = "localhost"': ("providers.openai.base_url", "https://host/v1"),
    'protect = ["flag", "refuse"]': ("protect", "one of them"),
    'protect = "restore"': ("protect", "refuse"),
    "protect = 3": ("protect", "quotes"),
    "model =": ("endstop.toml", "toml.io"),
    "a = " + "[" * 2000: ("endstop.toml", "toml.io"),
    'workspace = "nowhere"': ("nowhere", "-C"),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:40])
def test_a_wrong_file_names_file_key_and_remedy(project: Path, text: str) -> None:
    """Every complaint says where the value stands and what to write instead."""
    where, hint = WRONG[text]
    error = complaint(project, text)
    assert error.where.endswith(where)
    assert hint in error.hint
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("ENDSTOP_MODLE", "x", "did you mean ENDSTOP_MODE?"),
        ("ENDSTOP_NETWORK", "maybe", "true or false"),
        ("ENDSTOP_RETRY", "often", "whole number"),
        ("ENDSTOP_MODE", "yol", "yolo"),
        ("ENDSTOP_LIMITS", "cost", "cost=VALUE"),
        ("ENDSTOP_LIMITS", "cots=1", "did you mean cost?"),
        ("ENDSTOP_WORKSPACE", "nowhere", "-C"),
    ],
)
def test_a_wrong_variable_is_named(project: Path, name: str, value: str, hint: str) -> None:
    """A variable that does not exist, or holds what it cannot, is an error with its name."""
    error = complaint(project, **{name: value})
    assert name in error.where or "nowhere" in error.where
    assert hint in error.hint


def test_variables_are_text_and_empty_ones_say_nothing(project: Path) -> None:
    """Numbers and truth values are read from text; an empty variable, or one of a running call, sets nothing."""
    found = read(
        project, ENDSTOP_RETRY="2", ENDSTOP_NETWORK="1", ENDSTOP_ACCEPT_CLAIMED="True", ENDSTOP_MODE=" ", ENDSTOP_CALL="x"
    )
    assert (found.retries, found.policy.network, found.policy.accept_claimed, found.policy.mode) == (2, True, True, "auto")


def test_what_is_no_file_is_refused_at_once(project: Path) -> None:
    """A folder, a pipe, too large a file or bytes that are no text stand in for settings: said, never waited for."""
    path = project / "endstop.toml"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="no such file"):
        settings.read_file(path)
    path.unlink()
    path.write_bytes(b'model = "\xff"\n')
    with pytest.raises(UsageError, match="not UTF-8"):
        settings.read_file(path)
    path.write_text("#" * (settings.LARGEST + 1))
    with pytest.raises(UsageError, match="no such file"):
        settings.read_file(path)
    with pytest.raises(UsageError, match="no such file"):
        load(cwd=project.parent, environ={}, goal=project / "missing.toml")


# ------------------------------------------------------------------------------------------------------------------ docs


def test_every_setting_is_documented() -> None:
    """docs/settings.md names every key, variable and choice, and no variable that is not there."""
    page = (DOCS / "settings.md").read_text()
    words = set(re.findall(r"`\"?([\w.]+)\"?`", page))
    for table in settings.TABLES.values():
        assert set(table.__struct_fields__) - {"limits", "permissions", "stall", "providers", "mcp"} <= words
    assert all(f"[{name}" in page for name in ("limits]", "permissions]", "stall]", "providers.", "mcp."))
    assert {word for word in words if word.startswith("ENDSTOP_")} == set(settings.VARIABLES)
    for choices in settings.CHOICES.values():
        assert set(choices) <= words
