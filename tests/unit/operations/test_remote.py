"""Words in, text out: quoting, failures with the command's last words, whole files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.errors import HostFailed
from rigup.operations import remote
from tests.unit.local_host import LocalHost

AWKWARD = "a b'c\"d $HOME `x` \\ ;&|<>*?\n\ttab"


def test_every_word_arrives_as_it_is() -> None:
    assert remote.tell(LocalHost(), "printf", "%s", AWKWARD) == AWKWARD


def test_script_arguments_arrive_as_they_are() -> None:
    assert remote.script(LocalHost(), 'printf "%s|%s" "$2" "$1"', AWKWARD, "two") == f"two|{AWKWARD}"


def test_programs_are_asked_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert remote.tell(LocalHost(), "sh", "-c", 'echo "$LC_ALL"') == "C\n"


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


def test_a_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    host = LocalHost()
    remote.write_file(host, str(path), "top secret", "600")
    assert path.read_text() == "top secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    assert not any("top secret" in command for command in host.commands)
