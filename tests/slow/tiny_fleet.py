"""A fleet that serves tiny models of tests/tiny on one machine, from `model add` on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rigup.lab.hub.server_process import StandInHub
from tests.lab.fleet import Fleet


class TinyFleet(Fleet):
    """A fleet whose hub serves root/served; the machines of the lab have the memory of this one."""

    gpus: str | list[str] = []
    """Of the machine; more than none are the lab's."""

    def describe_services(self, services: dict[str, dict[str, Any]], hub: str, more: str = "") -> None:
        """Writes the fleet: one host with all of these services. more: further lines."""
        self.describe()
        services = {name: {"expected_answer": None, **one} for name, one in services.items()}  # weights are random
        memory = int(self.host.tell("sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo")) / 2**20
        (self.root / "group_data/boxes.py").write_text(
            f'rig = {{"gpus": {self.gpus!r}, "host_memory_gib": {memory:.1f}}}\nservices = {services!r}\n'
            f"hub = {hub!r}\nbuilder = {self.builder!r}\n{more}"
        )

    def add_and_lock(self, repos: Iterable[str], services: dict[str, dict[str, Any]], more: str = "") -> None:
        """`model add` for each repository, and `lock`, which ask the same hub where this machine reaches it."""
        with self.hub_here() as url, pytest.MonkeyPatch.context() as patched:
            patched.setenv("HF_ENDPOINT", url)
            for repo in repos:
                self.rigup("model", "add", repo)
            self.describe_services(services, url, more)
            self.rigup("lock", seconds=600)
        self.describe_services(services, self.hub.url, more)

    @contextmanager
    def hub_here(self) -> Iterator[str]:
        """The address of the hub where this machine reaches it."""
        here = StandInHub.start(self.root / "served", self.root / "hub")
        try:
            yield here.url
        finally:
            here.stop()

    def plans(self) -> dict[str, dict[str, Any]]:
        """`plan --json`, by service."""
        hosts: list[dict[str, Any]] = self.rigup("plan", "--json").json["hosts"]
        return {plan["service"]["name"]: plan for plan in hosts}

    def log_of(self, service: str) -> str:
        """What the engine has said since its start."""
        return self.host.tell(f"journalctl -o cat -u rigup-{service}")
