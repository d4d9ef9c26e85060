"""Words in, text out: quoting, failures with the command's last words, whole files."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.connection.login_shell import writing
from rigup.errors import HostFailed
from rigup.host import SessionsInUse
from rigup.operations.primitives import remote
from tests.unit.local_host import LocalHost

AWKWARD = "a b'c\"d $HOME `x` \\ ;&|<>*?\n\ttab"


def test_every_word_arrives_as_it_is() -> None:
    assert remote.check_output(LocalHost(), "printf", "%s", AWKWARD) == AWKWARD


def test_script_arguments_arrive_as_they_are() -> None:
    assert remote.script(LocalHost(), 'printf "%s|%s" "$2" "$1"', AWKWARD, "two") == f"two|{AWKWARD}"


def test_programs_are_asked_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert remote.check_output(LocalHost(), "sh", "-c", 'echo "$LC_ALL"') == "C\n"


def test_a_command_waits_for_a_session_as_long_as_others_use_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    host, refused = LocalHost(), [SessionsInUse(), SessionsInUse()]
    at_once = host.run_shell_command

    def run(*words: Any, **arguments: Any) -> tuple[bool, Any]:
        if refused:
            raise refused.pop()
        return at_once(*words, **arguments)

    monkeypatch.setattr(host, "run_shell_command", run)
    assert remote.check_output(host, "echo", "there") == "there\n"
    assert refused == []


class Reconnecting(LocalHost):
    """A host whose connection can be made again. times: how often it was."""

    def __init__(self, alive: bool) -> None:
        super().__init__()
        self.times, self.connected = 0, True
        transport = SimpleNamespace(is_active=lambda: alive)
        client = SimpleNamespace(get_transport=lambda: transport)
        self.connector = SimpleNamespace(client=client, disconnect=lambda: None)

    def connect(self, **_: Any) -> None:
        self.times += 1


@pytest.mark.parametrize(("alive", "always", "times"), [(True, False, 1), (False, False, 2), (True, True, 2)])
def test_a_connection_that_another_step_has_just_made_again_is_kept(alive: bool, always: bool, times: int) -> None:
    host = Reconnecting(alive)
    assert remote.reconnect(host) and remote.reconnect(host, always=always)
    assert host.times == times


def test_a_failure_has_the_last_words() -> None:
    with pytest.raises(HostFailed) as caught:
        remote.script(LocalHost(), "echo first >&2; echo the reason >&2; exit 3")
    assert caught.value.message == "box: the reason"


def test_a_failure_without_words_says_what_it_was_about() -> None:
    with pytest.raises(HostFailed) as caught:
        remote.script(LocalHost(), '[ "$1" = 2 ]', "1", doing="sending a.gguf")
    assert caught.value.message == "box: sending a.gguf: no output"
    with pytest.raises(HostFailed) as caught:
        remote.script(LocalHost(), '[ "$1" = 2 ]', "/etc/one", "two")
    assert caught.value.message == "box: /etc/one two: no output"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostFailed) as caught:
        remote.write_file(LocalHost(), f"{tmp_path}/missing/file", "text")
    assert caught.value.message.startswith(f"box: writing {tmp_path}/missing/file: ")
    assert "set -eu" not in caught.value.message


def test_a_script_stops_at_its_first_failure() -> None:
    host = LocalHost()
    with pytest.raises(HostFailed):
        remote.script(host, "false; echo went on")


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3
    remote.write_file(LocalHost(), f"{tmp_path}/key", content)
    assert (tmp_path / "key").read_bytes() == content


def test_a_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    host = LocalHost()
    remote.write_file(host, str(path), "top secret", "600")
    assert path.read_text() == "top secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    assert not any("top secret" in command for command in host.commands)


AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="gives folders away, which root alone can")
SOMEBODY = 65534


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_text("root:secret")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("planted", ["file", "file.new"])
def test_no_link_is_followed_when_a_file_is_written(tmp_path: Path, victim: Path, planted: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / planted).symlink_to(victim)
    remote.write_file(LocalHost(), f"{folder}/file", "ours")
    assert victim.read_text() == "root:secret"
    assert victim.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text() == "ours"
    assert not (folder / "file").is_symlink()


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_nothing_is_written_into_a_folder_that_others_may_write_to(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(HostFailed) as caught:
        remote.write_file(LocalHost(), f"{folder}/file", "ours")
    assert "loose (d" in caught.value.message
    assert caught.value.message.endswith("can be changed by others than root")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"on the host: namei -l {folder}")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "act",
    [
        lambda host: remote.write_file(host, "/etc/x", "ours"),
        lambda host: remote.script(host, 'cp -a "$1" "$2"', "/etc/x", "/etc/y"),
    ],
)
def test_what_is_mounted_read_only_has_a_hint(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    said = SimpleNamespace(stdout="", stderr="sh: 1: cannot create /etc/x: Read-only file system\n")
    host = LocalHost()
    monkeypatch.setattr(host, "run_shell_command", lambda *_, **__: (False, said))
    with pytest.raises(HostFailed) as caught:
        act(host)
    assert str(caught.value.hint).startswith("on the host: findmnt")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write wherever a file system lets it
    monkeypatch.setattr(remote, "_FOLDERS", remote._FOLDERS.replace('[ -w "$near" ]', "false"))
    with pytest.raises(HostFailed) as caught:
        remote.make_folders(LocalHost(), f"{tmp_path}/a/b")
    assert caught.value.message == f"box: making {tmp_path}/a/b: {tmp_path} is not writable"
    assert str(caught.value.hint).startswith("on the host: findmnt")
    remote.make_folders(LocalHost(), str(tmp_path))


@AS_ROOT
@pytest.mark.parametrize("below", ["", "/between"])
def test_nothing_is_written_below_a_folder_of_somebody_else(tmp_path: Path, below: str) -> None:
    folder = tmp_path / "theirs"
    Path(f"{folder}{below}").mkdir(parents=True)
    os.chown(folder, SOMEBODY, SOMEBODY)
    with pytest.raises(HostFailed, match="others than root"):
        remote.write_file(LocalHost(), f"{folder}{below}/file", "ours")
    with pytest.raises(HostFailed, match="others than root"):
        remote.make_folders(LocalHost(), f"{folder}{below}/a/b")
    assert not Path(f"{folder}{below}/file").exists()
    assert not Path(f"{folder}{below}/a").exists()


@AS_ROOT
def test_a_link_of_somebody_else_is_not_passed_through(tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (tmp_path / "link").symlink_to("safe")
    remote.write_file(LocalHost(), f"{tmp_path}/link/file", "ours")
    os.chown(tmp_path / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(HostFailed, match="others than root"):
        remote.write_file(LocalHost(), f"{tmp_path}/link/file", "theirs")
    with pytest.raises(HostFailed, match="others than root"):
        remote.make_folders(LocalHost(), f"{tmp_path}/link")
    assert (tmp_path / "safe/file").read_text() == "ours"


@AS_ROOT
def test_folders_get_their_owner_and_those_above_are_roots(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        remote.make_folders(LocalHost(), f"{tmp_path}/a/b/c", owner="daemon", mode="700")
    finally:
        os.umask(before)
    found = {path: (tmp_path / path).stat() for path in ("a", "a/b", "a/b/c")}
    assert {path: f"{status.st_mode & 0o777:o}" for path, status in found.items()} == {
        "a": "755",
        "a/b": "755",
        "a/b/c": "700",
    }
    assert [(tmp_path / path).owner() for path in found] == ["root", "root", "daemon"]


def test_a_script_is_not_at_the_mercy_of_the_login_shells_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        remote.script(LocalHost(), 'mkdir "$1/folder"; echo text > "$1/file"', str(tmp_path))
    finally:
        os.umask(before)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@AS_ROOT
def test_what_lies_in_the_workers_folder_is_read_as_the_worker(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "WORKER_USER", "daemon")
    with TemporaryDirectory() as folder:  # others cannot get into pytest's own
        os.chown(folder, *(pwd.getpwnam("daemon")[2:4]))
        Path(folder, "result").write_text("{}")
        Path(folder, "link").symlink_to(victim)
        Path(folder, "endless").symlink_to("/dev/zero")
        assert remote.read_workers_file(LocalHost(), f"{folder}/result") == "{}"
        assert remote.read_workers_file(LocalHost(), f"{folder}/missing") is None
        assert remote.read_workers_file(LocalHost(), f"{folder}/link") is None
        with pytest.raises(HostFailed) as caught:
            remote.read_workers_file(LocalHost(), f"{folder}/endless", 1000)
        assert caught.value.message == f"box: {folder}/endless is longer than 1000 bytes"


def test_nothing_is_sent_into_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(HostFailed, match="others than root"):
        remote.send_file(LocalHost(), tmp_path / "wheel", f"{folder}/wheel")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("of_inventory", "of_pyinfra"), [(True, False), (None, True)])
def test_a_file_is_sent_as_root_like_commands(of_inventory: bool | None, of_pyinfra: bool) -> None:
    host, arguments = LocalHost(), []
    host.data._sudo, host.state.config.SUDO = of_inventory, of_pyinfra
    host.put_file = lambda content, path, **more: arguments.append(more) or True  # type: ignore[attr-defined]
    remote.put_file(host, "wheel", "/opt/wheel", problem="could not send wheel", hint="")
    assert arguments == [{"_sudo": True}]


def test_what_is_sent_is_a_new_file_whatever_the_umask(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "sent").symlink_to(victim)
    before = os.umask(0)
    try:
        subprocess.run(["sh", "-c", str(writing(f"{tmp_path}/sent").get_raw_value())], input=b"ours", check=True)
    finally:
        os.umask(before)
    assert victim.read_text() == "root:secret"
    assert (tmp_path / "sent").read_text() == "ours"
    assert (tmp_path / "sent").stat().st_mode & 0o777 == 0o644
