"""API keys: read from hosts, and replaced there or in the user's file; a service that fails keeps its earlier key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.cli.sessions.unplanned import results_of
from rigup.errors import HostFailed, HostLost, InputError
from rigup.facts.probe import Listener, Probe
from rigup.project.inventory import HostEntry, Project
from rigup.run.result import exit_code
from rigup.run.services import keys
from rigup.run.services.keys import KeyRun, key_file_of, write_new_key

RELEASES: dict[str, Any] = {"chat": {"command": []}, "open": {"command": []}}
APPLIED = Probe(current={"chat": "1", "open": "1"}, releases=RELEASES)
SPANNING = replace(APPLIED, releases={"chat": {"command": [], "set": {"id": "d", "nodes": [{"host": "box"}]}}})


@pytest.fixture
def connected(
    local_run: Callable[..., KeyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Probe], KeyRun]:
    """Makes runs over one host that has been met and is like this; only its service chat has a key."""
    (tmp_path / "chat").write_text("earlier\n")
    monkeypatch.setattr(keys.layout, "api_key_file", lambda service: str(tmp_path / service))
    monkeypatch.setattr(KeyRun, "_claim", lambda *_: "ours")

    def make(probe: Probe) -> KeyRun:
        run = local_run({"box": lambda folder: None}, KeyRun)
        with run:
            run.connect(take_lease=False)
        run.context.handshakes["box"] = run.context.handshakes["box"]._replace(probe=probe)
        return run

    return make


def test_keys_as_the_host_has_them(connected: Callable[[Probe], KeyRun]) -> None:
    run = connected(APPLIED)
    run.read(())
    assert run.keys == {("box", "chat"): "earlier", ("box", "open"): None}
    run.read(("gone",))
    (error,) = run.results["box"].errors
    assert error.message == "box: gone was never applied"


def test_a_host_whose_keys_were_read_is_as_it_was(connected: Callable[[Probe], KeyRun]) -> None:
    run = connected(APPLIED)
    run.read(())
    assert exit_code(results_of(run)) == 0


def test_a_host_that_is_not_to_have_the_service_is_left_out(
    connected: Callable[[Probe], KeyRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = connected(Probe())
    gateway = HostEntry("box", "gateways", {"gateway": {}})
    serving = HostEntry("rig", "rigs", {"services": {"chat": {"model": "m"}}})
    monkeypatch.setattr(run.context, "project", run.context.project._replace(hosts=(gateway, serving)))
    run.read(("chat",))
    run.rotate("chat")
    assert run.keys == {} and run.results["box"].errors == []
    assert exit_code(results_of(run)) == 0


def test_a_release_that_cannot_be_read_was_applied(connected: Callable[[Probe], KeyRun]) -> None:
    run = connected(replace(APPLIED, releases={}, damaged={"chat": "release.json: not JSON"}))
    run.read(("chat",))
    (error,) = run.results["box"].errors
    assert (error.message, error.hint) == (
        "box: release.json: not JSON",
        "run rigup apply to create a new release of chat",
    )


def rotated(run: KeyRun, service: str = "chat") -> list[str]:
    """The messages of a rotation."""
    run.read((service,))
    run.rotate(service)
    return [error.message for error in run.results["box"].errors]


@pytest.mark.parametrize("answers", [True, False])
def test_a_service_that_does_not_answer_gets_its_earlier_key_back(
    answers: bool, connected: Callable[[Probe], KeyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def ask(*_: Any) -> Any:
        if not answers:
            raise HostFailed("box: chat does not answer")
        return SimpleNamespace(text="Paris")

    monkeypatch.setattr(keys, "start", lambda *_, again: started.append((tmp_path / "chat").read_text().strip()))
    monkeypatch.setattr(keys, "ask_release", ask)
    run = connected(APPLIED)
    said = rotated(run)
    assert (tmp_path / "chat").stat().st_mode & 0o777 == 0o600
    assert len(started[0]) >= 40
    if answers:
        assert (said, len(started), (tmp_path / "chat").read_text().strip()) == ([], 1, started[0])
        assert run.results["box"].state == "changed"
    else:
        assert said == ["box: chat does not answer; the earlier key was restored"]
        assert started[1:] == ["earlier"] == [(tmp_path / "chat").read_text().strip()]


def test_a_host_that_is_gone_before_the_answer_is_said_to_have_the_new_key(
    connected: Callable[[Probe], KeyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> Any:
        raise HostLost("box: chat: gone")

    monkeypatch.setattr(keys, "start", lambda *_, again: None)
    monkeypatch.setattr(keys, "ask_release", gone)
    assert rotated(connected(APPLIED)) == ["box: chat: gone; chat has its new key"]
    assert (tmp_path / "chat").read_text() != "earlier\n"


def test_a_service_that_would_not_start_again_keeps_its_key(
    connected: Callable[[Probe], KeyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "start", lambda *_: pytest.fail("started"))
    (said,) = rotated(connected(replace(APPLIED, listeners=(Listener(8000, "0.0.0.0", "nginx.service", "nginx"),),
                                        releases={"chat": {"command": ["vllm", "--port", "8000"]}})))  # fmt: skip
    assert said.endswith(" by nginx.service")
    assert (tmp_path / "chat").read_text() == "earlier\n"


def test_a_stopped_service_is_not_started_for_it(
    connected: Callable[[Probe], KeyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "start", lambda *_: pytest.fail("started"))
    assert rotated(connected(replace(APPLIED, stopped=("chat",)))) == []
    assert (tmp_path / "chat").read_text() != "earlier\n"


def test_what_has_no_key_of_its_own_is_refused(connected: Callable[[Probe], KeyRun], tmp_path: Path) -> None:
    assert rotated(connected(APPLIED), "open") == ["box: open needs no API key"]
    assert rotated(connected(SPANNING)) == [
        "box: chat spans several hosts, so rigup replaces its key only in a file of yours"
    ]
    assert (tmp_path / "chat").read_text() == "earlier\n"


def test_the_users_own_file_is_replaced_where_it_really_is(tmp_path: Path) -> None:
    real = tmp_path / "vault" / "key"
    real.parent.mkdir()
    real.write_text("earlier\n")
    real.chmod(0o600)
    (tmp_path / "chat.key").symlink_to(real)
    write_new_key(tmp_path, "chat.key")
    assert (tmp_path / "chat.key").is_symlink()
    assert len(real.read_text().strip()) >= 40
    assert real.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in real.parent.iterdir()] == ["key"]
    real.chmod(0o644)
    with pytest.raises(InputError, match="readable"):
        write_new_key(tmp_path, "chat.key")


def test_one_file_at_a_time() -> None:
    def project(*files: str | None) -> Project:
        data: list[dict[str, Any]] = [{"services": {"chat": {"api_key_file": file} if file else {}}} for file in files]
        hosts = tuple(HostEntry(f"h{number}", "boxes", each) for number, each in enumerate(data))
        return Project(Path(), Path(), hosts)

    assert key_file_of(project("a.key", "a.key"), "chat") == "a.key"
    assert key_file_of(project(None), "chat") is None
    with pytest.raises(InputError, match=r"the hosts have different keys of chat: a\.key"):
        key_file_of(project("a.key", None), "chat")
