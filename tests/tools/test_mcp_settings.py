"""Servers in settings: the user's own, those of a shared file, and what a project may not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endstop.errors import UsageError
from endstop.servers import McpServer
from endstop.settings import load


def read(
    folder: Path, own: str = "", project: str = "", shared: dict[str, Any] | None = None, **environ: str
) -> dict[str, McpServer]:
    """The servers that hold in ``folder/work``, by name."""
    for path, text in ((folder / "cfg/endstop/endstop.toml", own), (folder / "work/endstop.toml", project)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if shared is not None:
        (folder / "work/.mcp.json").write_text(json.dumps(shared))
    found = load(cwd=folder / "work", environ={"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "cfg"), **environ})
    return {server.name: server for server in found.mcp}


def complaint(folder: Path, **sources: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, **sources)
    return str(caught.value)


def test_a_server_of_ones_own(tmp_path: Path) -> None:
    """Command, address, and what is filled in from the environment; its secrets are known, and never in its repr."""
    own = """
[mcp.hub]
command = "hub"
args = ["--fast", "${MODE:-slow}"]
env = { HUB_TOKEN = "${HUB_TOKEN}", LEVEL = "3" }
cwd = "there"
timeout = 5
effects = { "get_*" = "read_outside", push = "irreversible" }
deny = ["admin_*"]

[mcp.far]
url = "https://example.invalid/mcp"
headers = { Authorization = "Bearer ${HUB_TOKEN}" }
"""
    found = read(tmp_path, own=own, HUB_TOKEN="verysecret1")
    hub, far = found["hub"], found["far"]
    assert (hub.own, hub.command, hub.args, hub.timeout) == (True, "hub", ("--fast", "slow"), 5)
    assert (hub.env, hub.cwd) == ({"HUB_TOKEN": "verysecret1", "LEVEL": "3"}, tmp_path / "cfg/endstop/there")
    assert (hub.effect("get_all"), hub.effect("push"), hub.effect("other")) == ("read_outside", "irreversible", None)
    assert (hub.offers("admin_all"), hub.offers("push")) == (False, True)
    assert hub.secrets == ["verysecret1"]
    assert "verysecret1" in far.secrets
    assert "verysecret1" not in repr(hub) + repr(far)


def test_a_shared_file_is_read_on_request_only(tmp_path: Path) -> None:
    """Without mcp_config nothing is read; with it the known keys count, foreign ones are passed over, tables come on top."""
    servers = {
        "git hub": {"command": "npx", "args": ["-y", "x"], "autoApprove": ["a"], "env": {"A": "b"}},
        "far": {"type": "http", "url": "http://127.0.0.1:1/mcp"},
        "off": {"command": "x", "disabled": True},
    }
    assert read(tmp_path, shared={"mcpServers": servers}) == {}
    found = read(tmp_path, own="[mcp.far]\ntimeout = 7\n", shared={"mcpServers": servers}, ENDSTOP_MCP_CONFIG=".mcp.json")
    assert set(found) == {"git_hub", "far"}
    assert (found["git_hub"].command, found["git_hub"].env, found["git_hub"].own) == ("npx", {"A": "b"}, True)
    assert (found["far"].url, found["far"].timeout) == ("http://127.0.0.1:1/mcp", 7)


def test_a_project_names_commands_for_the_sandbox(tmp_path: Path) -> None:
    """A project's servers, of its table or of the file it names, are not the user's own."""
    shared = {"mcpServers": {"two": {"command": "b"}}}
    found = read(tmp_path, project='mcp_config = ".mcp.json"\n[mcp.one]\ncommand = "a"\n', shared=shared)
    assert {name: (server.command, server.own) for name, server in found.items()} == {"one": ("a", False), "two": ("b", False)}


@pytest.mark.parametrize(
    ("project", "said"),
    [
        ('[mcp.a]\nurl = "http://127.0.0.1:1/mcp"\n', "mcp.a: a project may not choose a server that is reached over"),
        ('[mcp.a]\ncommand = "x"\nenv = { A = "${HOME}" }\n', "mcp.a: a project may not read your environment"),
        ('[mcp.a]\ncommand = "x"\ncwd = "/"\n', "mcp.a.cwd: a project's server runs in the workspace"),
        ('[mcp.mine.effects]\npush = "read_outside"\n', "mcp.mine: is yours; a project or goal file may not change it"),
    ],
)
def test_a_project_may_not_reach_further(tmp_path: Path, project: str, said: str) -> None:
    """No address, no environment, no folder elsewhere, and not a word about a server of the user's."""
    assert said in complaint(tmp_path, own='[mcp.mine]\ncommand = "m"\n', project=project)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("[mcp.a]\ntimeout = 3\n", "mcp.a: has neither a command nor a url"),
        ('[mcp.a]\ncommand = "x"\nurl = "http://h/"\n', "mcp.a: has both a command and a url"),
        ('[mcp.a]\nurl = "http://h/"\nargs = ["x"]\n', "mcp.a: args means nothing beside a url"),
        ('[mcp.a]\nurl = "ftp://h/"\n', "is no http address"),
        ('[mcp.a]\nurl = "http://me:pw@h/"\n', "holds a user or password"),
        ('[mcp."a b"]\ncommand = "x"\n', "'a b' cannot name a server"),
        ('[mcp.a]\ncommand = "${NOT_THERE}"\n', "mcp.a: the variable NOT_THERE is not set"),
        (
            '[mcp.a]\ncommand = "x"\neffects = { b = "reading" }\n',
            "mcp.NAME.effects.NAME: unknown value 'reading' (one of read_outside, idempotent, write, repeatable, irreversible)",
        ),
        ('[mcp.a]\ncomand = "x"\n', "no setting has this name (did you mean command?)"),
        ('mcp_config = "missing.json"\n', "missing.json: cannot be read: No such file"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, own: str, said: str) -> None:
    """A slip names the place, the problem and what to write."""
    assert said in complaint(tmp_path, own=own)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "holds no mcpServers"),
        ("{", "is not JSON"),
        ('{"mcpServers": {"a": 3}}', "mcpServers.a: is no object"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://h/"}}}', "the transport 'sse' is not spoken"),
        ('{"mcpServers": {"a": {"command": ["x"]}}}', "mcpServers.a: Expected"),
        ('{"mcpServers": {"a": {}}}', "mcp.a: has neither"),
    ],
)
def test_a_shared_file_that_cannot_be_used_is_said(tmp_path: Path, content: str, said: str) -> None:
    """The file, the server and the problem are named."""
    (tmp_path / "shared.json").write_text(content)
    assert said in complaint(tmp_path, own=f'mcp_config = "{tmp_path}/shared.json"\n')
