"""`Lab.up` without a machine: stands for namespaces, processes, keys and boots, and notes what was asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rigup.lab import access, base, ids, lab, prerequisites, process
from rigup.lab.gpus import setup
from rigup.lab.machine import Machine
from rigup.lab.network import network
from rigup.lab.packages import nvidia_repository

KEY = "nvidia_key_fingerprint"


@dataclass
class Stubbed:
    """What is there: lab networks by number, programs that run by pid file; and what was done.

    boot: called with each machine that is waited for.
    """

    networks: dict[int, int] = field(default_factory=dict)
    running: set[Path] = field(default_factory=set)
    dismantled: list[tuple[int, int]] = field(default_factory=list)
    boot: Callable[[Machine], None] = lambda machine: None

    def restart(self) -> None:
        """This machine restarts: no program runs any more, no network is left."""
        self.running.clear()
        self.networks.clear()

    def allocate(self) -> int:
        number = 1 + max(self.networks, default=0)
        self.networks[number] = 1000 + number
        return number

    def start(self, folder: Path, name: str, *arguments: object, **options: object) -> int:
        (folder / f"{name}.pid").write_text("1 1\n")
        self.running.add(folder / f"{name}.pid")
        return 1

    def stop(self, pid_file: Path) -> None:
        self.running.discard(pid_file)
        pid_file.unlink()


def stub_labs(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Stubbed:
    """Puts the stand-ins in place; labs are kept under `cache`."""
    there = Stubbed()

    def make_key(path: Path) -> None:
        path.write_text("key")
        path.with_name(f"{path.name}.pub").write_text("ssh-ed25519 AAAA")

    def nothing(*_: object) -> None:
        pass

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(prerequisites, "check", nothing)
    monkeypatch.setattr(prerequisites, "make_room", nothing)
    monkeypatch.setattr(access, "make_key", make_key)
    monkeypatch.setattr(ids, "check", nothing)
    monkeypatch.setattr(base, "ensure", lambda suite, log, packages: f"{suite}-x")
    monkeypatch.setattr(network, "allocate", there.allocate)
    monkeypatch.setattr(network, "identity", lambda number: there.networks.get(number, 0))
    monkeypatch.setattr(network, "release", lambda number: there.networks.pop(number, None))
    monkeypatch.setattr(network, "answers", lambda *_: True)
    monkeypatch.setattr(nvidia_repository, "ensure", lambda: cache)
    monkeypatch.setattr(nvidia_repository, "settings", lambda suite: {KEY: "F" * 40})
    monkeypatch.setattr(process, "start", there.start)
    monkeypatch.setattr(process, "stop", there.stop)
    monkeypatch.setattr(process, "running", lambda pid_file: 1 if pid_file in there.running else None)
    monkeypatch.setattr(Machine, "start", lambda machine: there.start(machine.folder, "holder"))
    monkeypatch.setattr(Machine, "wait_for_ssh", lambda machine: there.boot(machine))
    monkeypatch.setattr(lab, "_wait_for_servers", nothing)
    monkeypatch.setattr(lab, "_ssh_port", lambda number: 22)
    monkeypatch.setattr(lab, "dismantle", lambda number, index: there.dismantled.append((number, index)))
    assert vars(setup)["network"] is network
    return there
