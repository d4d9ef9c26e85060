"""One service over two booted machines with the stand-in engine: all or none, whatever happens on one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.errors import MissingTool
from rigup.lab import prerequisites
from rigup.lab.hub import Hub
from rigup.lab.lab import Lab
from tests.lab.fleet import REHEARSAL, Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_site

pytestmark = [pytest.mark.slow, pytest.mark.lab]


class Pair(Fleet):
    """Two machines that serve together: the first is the head."""

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def other(self) -> Host:
        return self.hosts[1]

    def describe(self, hosts: int = 2, per_service: int = 2, **service: Any) -> None:
        super().describe(hosts, **{"start_timeout": 20, **service})
        path = self.root / "group_data/boxes.py"
        path.write_text(path.read_text().replace('"gpus": []', f'"gpus": [], "hosts_per_service": {per_service}'))

    def by_host(self, *words: str, expect: int = 0) -> dict[str, dict[str, Any]]:
        """`rigup apply`, by host."""
        return {host["host"]: host for host in self.apply(*words, expect=expect).json["hosts"]}

    def contexts(self) -> tuple[str, ...]:
        """What the head's release and the other's are parts of: the context of the one, the whole of both."""
        whole = 'python3 -c \'import json; print(json.load(open("/etc/rigup/services/chat/current/release.json"))["set"]["id"])\''
        return tuple(host.tell(whole) for host in self.hosts)


@pytest.fixture(scope="module")
def pair_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Hub, Path, Path]]:
    try:
        prerequisites.check()
    except MissingTool as missing:
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            raise
        pytest.skip(missing.message)
    with made_site(tmp_path_factory, f"pair{os.getpid()}", hosts=2) as made:
        yield made


@pytest.fixture
def pair(pair_site: tuple[Lab, Hub, Path, Path]) -> Iterator[Pair]:
    """The pair, bare or as an earlier test left it."""
    pair = Pair(*pair_site)
    pair.describe()
    yield pair
    for run in pair.runs:
        if run.process.poll() is None:
            run.kill()
    for host in pair.hosts:
        host.machine.heal()
        host.machine.power_on()
        host.tell(f"rm -rf {REHEARSAL}")


def test_two_machines_serve_as_one(pair: Pair) -> None:
    first = pair.by_host()
    assert [host["state"] for host in first.values()] == ["changed", "changed"]
    assert pair.head.answers() and not pair.other.answers()
    second = pair.by_host()
    assert [(host["state"], host["changes"]) for host in second.values()] == [("unchanged", []), ("unchanged", [])]
