"""What a command can do in the sandbox, tried from inside."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from endstop.errors import UsageError
from endstop.host import imports, sandbox, spawn

inside = pytest.mark.needs("bwrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def run(command: str, workspace: Path, **options: object) -> spawn.Ended:
    argv = sandbox.detect(workspace).wrap(["bash", "-c", command], workspace=workspace, **options)  # type: ignore[arg-type]
    return asyncio.run(spawn.run(argv, cwd=workspace, env=sandbox.clean_environment(os.environ), timeout=30))


@inside
def test_the_workspace_is_where_it_was_and_writable(workspace: Path) -> None:
    """The command begins in the workspace, under its own path, and what it writes there is really there."""
    ended = run("pwd; echo new > made; mkdir -p a/b", workspace)
    assert (ended.exit_code, ended.output) == (0, f"{workspace.resolve()}\n")
    assert (workspace / "made").read_text() == "new\n"


@inside
@pytest.mark.parametrize(
    "place", ["/etc/x", "/usr/x", "/x", "/sys/kernel/x", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness"]
)
def test_nothing_outside_can_be_written(workspace: Path, place: str) -> None:
    """Every other place is read-only, settings of the machine included, and no remount changes that."""
    ended = run(f"mount -o remount,rw / 2>/dev/null; mount -o remount,rw /proc/sys 2>/dev/null; : >> {place}", workspace)
    assert ended.exit_code == 1
    assert "Read-only file system" in ended.output or "Permission denied" in ended.output


@inside
def test_temporary_files_are_private(workspace: Path, tmp_path: Path) -> None:
    """/tmp can be written, is empty but for what was asked for, and is gone afterwards."""
    seen = run('echo x > /tmp/mine && python3 -c "import tempfile; print(tempfile.gettempdir())"; ls -A /tmp', workspace)
    assert seen.output.splitlines()[0] == "/tmp"
    assert not Path("/tmp/mine").exists()
    (tmp_path / "planted").write_text("")
    assert "planted" not in run("find /tmp /var/tmp /run", workspace).output


@inside
def test_the_home_is_empty_and_its_own(workspace: Path, home: Path) -> None:
    """Secrets of the home cannot be read; the home can be written, and nothing of that remains."""
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("planted")
    (home / ".netrc").write_text("planted")
    ended = run("cat ~/.ssh/id_ed25519 ~/.netrc ~/.gitconfig; ls -A ~; echo x > ~/written && echo wrote", workspace)
    assert "planted" not in ended.output
    assert "email" not in ended.output
    assert ended.output.endswith("wrote\n")
    assert not (home / "written").exists()


@inside
def test_a_home_that_is_the_workspace_still_hides_its_secrets(home: Path) -> None:
    """Working in the home itself shows its files, but neither keys nor credentials."""
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("planted")
    (home / ".netrc").write_text("planted")
    (home / "notes").write_text("notes\n")
    ended = run("cat notes; cat .ssh/id_ed25519 .netrc; echo more >> notes", home)
    assert ended.output.startswith("notes\n")
    assert "planted" not in ended.output
    assert (home / "notes").read_text() == "notes\nmore\n"
    assert (home / ".netrc").read_text() == "planted"


@inside
def test_secrets_that_a_link_leads_to_are_hidden(workspace: Path, home: Path) -> None:
    """A private file that really lies elsewhere cannot be read there either."""
    shown = run("cat /etc/hosts /etc/passwd", workspace).output
    (home / ".netrc").symlink_to("/etc/hosts")
    assert "denied" in run("cat /etc/hosts", workspace).output
    assert run("cat /etc/passwd", workspace).output in shown


@inside
def test_a_linked_home_is_reached_by_both_names(
    workspace: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home named through a link is empty, and there, under that name too."""
    link = tmp_path / "linked"
    link.symlink_to(home)
    monkeypatch.setenv("HOME", str(link))
    (home / ".netrc").write_text("planted")
    ended = run("cat ~/.netrc; touch ~/x && ls ~", workspace)
    assert "planted" not in ended.output
    assert ended.output.endswith("x\n")


@inside
def test_toolchains_on_the_path_work(workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that PATH finds in the home runs with what lies beside it, read-only; its credentials are hidden."""
    for name, text in {
        ".cargo/bin/tool": "#!/bin/sh\ncat ~/.rustup/data ~/.cargo/credentials.toml; echo x > ~/.cargo/x",
        ".rustup/data": "toolchain",
        ".cargo/credentials.toml": "planted",
        ".local/bin/own": "#!/bin/sh\necho own",
        ".local/share/keyrings/login": "planted",
        ".config/bin/odd": "#!/bin/sh\ncat ~/.config/secret",
        ".config/secret": "planted",
        "code/private": "planted",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    entries = (".cargo/bin", ".local/bin", ".config/bin", "", ".ssh")
    monkeypatch.setenv("PATH", ":".join([*(str(home / entry) for entry in entries), os.environ["PATH"]]))
    ended = run("tool; own; odd; cat ~/code/private ~/.local/share/keyrings/login", workspace)
    assert ended.output.startswith("toolchain")
    assert "Read-only file system" in ended.output
    assert "own\n" in ended.output
    assert "planted" not in ended.output
    assert not (home / ".cargo/x").exists()


@inside
def test_the_python_that_runs_us_is_there(workspace: Path) -> None:
    """The interpreter, its packages and its standard library can be used, wherever they are installed."""
    assert run(f"{sys.executable} -c 'import pytest, msgspec; print(1)'", workspace).output == "1\n"


@inside
def test_state_is_hidden_even_inside_the_workspace(workspace: Path, tmp_path: Path) -> None:
    """Hidden folders and files cannot be read or changed, in the workspace, beside it and around it."""
    within, key = workspace / ".state", workspace / "key"
    within.mkdir()
    (within / "journal").write_text("planted")
    key.write_text("planted")
    ended = run("cat .state/journal key; echo x > .state/journal; rm -rf .state; mv .state s", workspace, hidden=[within, key])
    assert "planted" not in ended.output
    assert (within / "journal").read_text() == key.read_text() == "planted"
    around = run("ls -A ..; echo x > made", workspace, hidden=[tmp_path, tmp_path / "not there"])
    assert around.output == "work\n"
    assert (workspace / "made").exists()


@inside
def test_further_folders_can_be_writable(workspace: Path, tmp_path: Path) -> None:
    """A folder named as writable is, and only that one."""
    for name in ("cache", "other"):
        (tmp_path / name).mkdir()
    assert run(f"echo x > {tmp_path}/cache/x", workspace, writable=[tmp_path / "cache"]).exit_code == 0
    run(f"mkdir -p {tmp_path}/other; echo x > {tmp_path}/other/x", workspace, writable=[tmp_path / "cache"])
    assert (tmp_path / "cache/x").exists()
    assert not (tmp_path / "other/x").exists()


@inside
def test_no_network_unless_asked_for(workspace: Path) -> None:
    """A server on this machine is out of reach without the network and in reach with it; loopback works inside."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        accepting = threading.Thread(target=lambda: server.accept()[0].close())
        accepting.start()
        assert run(f"exec 3<>/dev/tcp/127.0.0.1/{port}", workspace).exit_code != 0
        assert run(f"exec 3<>/dev/tcp/127.0.0.1/{port}", workspace, network=True).exit_code == 0
        accepting.join()
    own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('up')"
    assert run(f'python3 -c "{own}"', workspace).output == "up\n"


@inside
def test_sockets_of_the_machine_are_out_of_reach(workspace: Path) -> None:
    """Neither /run nor an abstract socket leads out to a daemon."""
    name = f"endstop-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}')"
        assert run(f'ls -A /run; python3 -c "{code}"', workspace).output.endswith(
            "ConnectionRefusedError: [Errno 111] Connection refused\n"
        )


@inside
def test_processes_outside_cannot_be_seen(workspace: Path) -> None:
    """The process table holds the sandbox's own processes only."""
    ended = run(f"kill -0 {os.getpid()}; ls -d /proc/[0-9]* | wc -l", workspace)
    assert "No such process" in ended.output
    assert int(ended.output.split()[-1]) < 8


@inside
def test_exit_codes_pass_and_signals_become_codes(workspace: Path) -> None:
    """An exit code is the command's own; a signal is 128 and its number."""
    assert run("exit 42", workspace).exit_code == 42
    assert run("kill -KILL $$", workspace).exit_code == 128 + signal.SIGKILL


@inside
def test_daemons_end_with_the_command(workspace: Path) -> None:
    """A process that cleared its environment, left the session and closed its output cannot outlive the sandbox."""
    run("env -i setsid /bin/bash -c 'while :; do /usr/bin/touch beat; /bin/sleep 0.01; done' >/dev/null 2>&1 & "
        "while [ ! -e beat ]; do :; done", workspace)  # fmt: skip
    (workspace / "beat").unlink()
    assert run("sleep 0.2; ls", workspace).output == ""


@inside
def test_kill_9_of_the_parent_ends_the_sandbox(workspace: Path) -> None:
    """When Endstop dies without a chance to clean up, the kernel ends what it ran."""
    reader, writer = os.pipe()
    argv = sandbox.detect().wrap(["bash", "-c", "echo up; sleep 600 & sleep 600"], workspace=workspace)
    code = f"import subprocess, sys; subprocess.run({argv!r}, stdout={writer})"
    parent = subprocess.Popen([sys.executable, "-c", code], pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 3) == b"up\n"
    parent.kill()
    parent.wait()
    assert os.read(reader, 1) == b""  # every holder of the pipe is gone
    os.close(reader)


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


@inside
@pytest.mark.needs("git")
def test_a_worktree_can_commit(tmp_path: Path) -> None:
    """In a git worktree, whose repository lies elsewhere, a commit works, and the main checkout stays read-only."""
    main, tree = tmp_path / "main", tmp_path / "worktrees/tree"
    main.mkdir()
    git("init", cwd=main)
    git("commit", "--allow-empty", "-m", "start", cwd=main)
    git("worktree", "add", str(tree), cwd=main)
    who = "git -c user.name=A -c user.email=a@example.invalid"
    ended = run(f"echo x > x && git add x && {who} commit -qm done; echo x > {main}/x", tree)
    assert git("log", "-1", "--format=%s", "tree", cwd=main) == "done\n", ended.output
    assert not (main / "x").exists()


@inside
@pytest.mark.needs("git")
def test_a_submodule_can_commit(tmp_path: Path) -> None:
    """In a submodule, whose git directory lies in the repository around it, a commit works."""
    for name in ("part", "whole"):
        (tmp_path / name).mkdir()
        git("init", cwd=tmp_path / name)
        git("commit", "--allow-empty", "-m", "start", cwd=tmp_path / name)
    git("-c", "protocol.file.allow=always", "submodule", "add", str(tmp_path / "part"), "sub", cwd=tmp_path / "whole")
    sub = tmp_path / "whole/sub"
    ended = run("git -c user.name=A -c user.email=a@example.invalid commit --allow-empty -qm done", sub)
    assert git("log", "-1", "--format=%s", cwd=sub) == "done\n", ended.output


@inside
@pytest.mark.parametrize(
    "trick",
    [
        "gitdir: {victim}",
        "gitdir: {victim}/.git",
        "gitdir: .",
        "gitdir: fake",
        "gitdir: \0",
        "gitdir: loop/a",
        "gitdir: " + "x" * 100_000,
        "",
    ],
)
def test_a_forged_git_file_opens_nothing(tmp_path: Path, trick: str) -> None:
    """A ``.git`` file that the agent wrote cannot make another folder writable."""
    victim, workspace = tmp_path / "victim", tmp_path / "worktrees/work"
    (victim / ".git/objects").mkdir(parents=True)
    (victim / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (workspace / "fake").mkdir(parents=True)
    (workspace / "loop").symlink_to("loop")
    (workspace / ".git").write_text(trick.format(victim=victim))
    for place in (workspace, workspace / "fake"):
        (place / "gitdir").write_text(str(workspace / ".git"))
        (place / "commondir").write_text(str(victim))
        (place / "config").write_text(f"[core]\n\tworktree = {workspace}\n")
    assert sandbox._git_directory(workspace.resolve()) == []
    run(f"echo x > {victim}/.git/x; echo x > {tmp_path}/x", workspace)
    assert not (victim / ".git/x").exists()
    assert not (tmp_path / "x").exists()


@inside
@pytest.mark.needs("root")
def test_root_can_work_in_a_folder_of_somebody_else(workspace: Path) -> None:
    """Run as root, a workspace of another user can be written and unpacked into, and ownership can be changed."""
    os.chown(workspace, 1234, 1234)
    workspace.chmod(0o700)
    assert run("echo x > x && chown 1234:1234 x", workspace).exit_code == 0
    assert (workspace / "x").stat().st_uid == 1234


@inside
def test_user_namespaces_inside_do_not_lead_out(workspace: Path, home: Path) -> None:
    """Mounting, unmounting and remounting in a namespace of its own shows nothing hidden and opens nothing."""
    (home / ".netrc").write_text("planted")
    tricks = (
        "mkdir m; mount --bind /tmp m; mount --rbind / m; umount -l /tmp ~; mount -o remount,rw /; "
        f"cat ~/.netrc m{home}/.netrc; echo x > /etc/x"
    )
    ended = run(f"unshare -Urm bash -c '{tricks}'", workspace)
    assert "planted" not in ended.output
    assert not Path("/etc/x").exists()


SETS_IDS = {
    "chmod": "os.chmod('x', 0o4755)",
    "group": "os.chmod('x', 0o2755)",
    "fchmod": "os.fchmod(os.open('x', os.O_RDWR), 0o4777)",
    "fchmodat": "os.chmod('x', 0o4755, dir_fd=os.open('.', os.O_RDONLY))",
    "open": "os.open('y', os.O_CREAT | os.O_RDWR, 0o4777)",
    "openat": "os.open('y', os.O_CREAT | os.O_RDWR, 0o4777, dir_fd=os.open('.', os.O_RDONLY))",
    "mknod": "os.mknod('y', 0o104755)",
    "nobody's": "os.chown('x', 1234, 1234); os.chmod('x', 0o4755)",
    "in a namespace": "os.system('unshare -Ur chmod 4755 x') and exit(1)",
}


@inside
@pytest.mark.parametrize("how", SETS_IDS)
def test_no_file_lends_the_rights_of_who_runs_us(workspace: Path, how: str) -> None:
    """Neither a new file nor one that is there gets a set-user-ID or set-group-ID bit; other modes can be set as ever."""
    ended = run(f'umask 0; touch x; chmod 1777 x && chmod 755 x && python3 -c "import os; {SETS_IDS[how]}"', workspace)
    assert ended.exit_code == 1
    assert "not permitted" in ended.output
    assert [path.name for path in workspace.iterdir() if path.stat().st_mode & 0o6000] == []
    assert (workspace / "x").stat().st_mode & 0o777 == 0o755


@inside
@pytest.mark.needs("root")
def test_root_keeps_no_more_than_it_needs(workspace: Path) -> None:
    """Of root's privileges only those for other people's files and for becoming somebody else remain."""
    held = {int(line.split()[1], 16) for line in run("grep Cap[PE] /proc/self/status", workspace).output.splitlines()}
    assert held == {sum(1 << capability for capability in (0, 1, 3, 6, 7))}  # chown, dac_override, fowner, setgid, setuid


@inside
def test_what_endstop_runs_from_stays_as_it_is(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in the workspace is read-only, and cannot be moved away with the folder around it."""
    home = workspace / "backend/.venv"
    (home / "bin").mkdir(parents=True)
    (home / "bin/python").write_text("ours")
    monkeypatch.setattr(imports, "_environments", lambda: [home])
    tries = "echo x > backend/.venv/bin/python; rm -rf backend/.venv; mv backend/.venv b; mv backend b"
    ended = run(f"{tries}; echo x > backend/x", workspace)
    assert ended.exit_code == 0
    assert (home / "bin/python").read_text() == "ours"
    assert (workspace / "backend/x").read_text() == "x\n"


def test_the_shell_is_never_the_workspaces_own(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bash that the agent put on PATH runs neither a command nor a gate, with a sandbox or without."""
    (workspace / "bin").mkdir()
    (workspace / "bin/bash").write_text("#!/bin/sh\nexit 0\n")
    (workspace / "bin/bash").chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace}/bin:{os.environ['PATH']}")
    assert run("echo ours; exit 3", workspace).exit_code == 3
    bare = sandbox.Sandbox("none", "why").wrap(["bash", "-c", "exit 3"], workspace=workspace)
    assert subprocess.run(bare, check=False).returncode == 3
    (workspace / "bin/bwrap").write_text("#!/bin/sh\nexit 0\n")
    (workspace / "bin/bwrap").chmod(0o755)
    assert str(workspace / "bin/bwrap") not in sandbox.detect(workspace).start


def test_the_loader_is_led_into_the_workspace_for_the_command_only(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LD_LIBRARY_PATH reaches the command and none of what starts it, with a sandbox or without."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(workspace / "lib"))
    assert "LD_LIBRARY_PATH" not in sandbox.clean_environment(os.environ)
    assert run("echo $LD_LIBRARY_PATH", workspace).output == f"{workspace}/lib\n"
    bare = sandbox.Sandbox("none", "why").wrap(["bash", "-c", "echo $LD_LIBRARY_PATH"], workspace=workspace)
    clean = sandbox.clean_environment(os.environ)
    assert subprocess.run(bare, env=clean, check=True, capture_output=True, text=True).stdout == f"{workspace}/lib\n"


def test_without_a_sandbox_the_command_is_as_it_was(workspace: Path) -> None:
    """Where there is none, nothing is wrapped."""
    assert sandbox.Sandbox("none", "why").wrap(["a", "b"], workspace=workspace) == ["a", "b"]


def test_a_workspace_that_cannot_be_one_is_refused(workspace: Path) -> None:
    """A missing folder, a file, the whole machine and Endstop's own state are refused by name."""
    box = sandbox.Sandbox("bwrap")
    (workspace / "file").write_text("")
    for path in (workspace / "gone", workspace / "file", Path("/"), Path("a\0b")):
        with pytest.raises(UsageError, match="workspace"):
            box.wrap(["true"], workspace=path)
    with pytest.raises(UsageError, match="cannot be a workspace"):
        box.wrap(["true"], workspace=workspace, hidden=[workspace])


@pytest.mark.parametrize(
    ("script", "says"), [("echo 'bwrap: no namespaces' >&2; exit 1", "no namespaces"), (None, "not installed")]
)
def test_why_there_is_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, says: str) -> None:
    """A sandbox that is missing or does not work is none, with the reason."""
    if script:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bwrap").chmod(0o755)
    (tmp_path / "bash").symlink_to("/bin/bash")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = sandbox.detect()
    assert found.kind == "none"
    assert says in found.why


KEPT = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "LC_ALL": "C", "TERM": "x", "VIRTUAL_ENV": "/v", "PWD": "/", "USER": "u"} | {
    "TOKENIZERS_PARALLELISM": "false", "GIT_AUTHOR_NAME": "a", "PYTHONHASHSEED": "0", "KEYBOARD": "de", "AUTHOR": "x"
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_harmless_variables_stay(name: str) -> None:
    """What a tool needs passes, also where a name only resembles a secret's."""
    assert sandbox.clean_environment({name: KEPT[name]}) == {name: KEPT[name]}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "OPENAI_API_KEY",
            "OPENAI_APIKEY",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "PGPASSWORD",
            "MYSQL_PWD",
        ),
        *(
            "DB_PASS",
            "GOOGLE_CREDENTIALS",
            "SSH_AUTH_SOCK",
            "npm_config__authToken",
            "NPM_CONFIG__AUTH",
            "OAUTH2_CLIENT",
        ),
        *(
            "ENDSTOP_HOME",
            "ENDSTOP_CALL",
            "endstop_x",
            "MY-API-KEY",
            "GH_PAT",
            "Session_Cookie",
            "DJANGO_SECRETS",
            "SSH_PASSPHRASE",
        ),
    ],
)
def test_secret_names_go(name: str) -> None:
    """Variables named like a secret, and Endstop's own, do not pass."""
    assert sandbox.clean_environment({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_secret_values_go() -> None:
    """A registered value does not pass in any variable, nor does an address with a password in it."""
    env = {
        "A": "has hunter2hunter2 in it",
        "DATABASE_URL": "postgres://u:p@h/db",
        "SITE": "https://example.invalid:80/a@b",
        "B": "x",
    }
    assert sandbox.clean_environment(env, ["hunter2hunter2", ""]) == {"SITE": "https://example.invalid:80/a@b", "B": "x"}


@inside
def test_one_file_of_a_hidden_folder_can_be_shown(workspace: Path, tmp_path: Path) -> None:
    """It can be read and not written; what lies beside it stays unseen."""
    state = tmp_path / "state"
    (state / "a").mkdir(parents=True)
    (state / "a/shown").write_text("yes\n")
    (state / "a/unseen").write_text("no")
    shown = state / "a/shown"
    ended = run(f"cat {shown}; ls {state}/a; echo x >> {shown}", workspace, hidden=[state], readable=[shown])
    assert ended.output.startswith("yes\nshown\n")
    assert "Read-only file system" in ended.output
    assert shown.read_text() == "yes\n"
