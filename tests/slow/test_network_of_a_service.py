"""What two booted machines that serve as one open to each other, on a network with a third that is none of theirs.

The engine is the stand-in of the lab tests; rigup, systemd and nftables are real.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from tests.lab.fleet import Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_site

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the run", "node groups")]

RPC, WATCH, CHOSEN = 18000, 28000, 45000
INSTALL = (
    "command -v nft >/dev/null && exit; apt-get update -qq && "
    "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nftables"
)
OTHERS = (
    "add table inet others; add chain inet others input { type filter hook input priority 0; }; "
    "add rule inet others input tcp dport 45999 drop"
)


class Three(Fleet):
    """The first is the head, the second serves with it, the third is a stranger."""

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def other(self) -> Host:
        return self.hosts[1]

    @property
    def stranger(self) -> Host:
        return self.hosts[2]

    def describe(self, hosts: int = 2, *, private: bool = False, **service: Any) -> None:
        rig = {"hosts_per_service": 2, "network": {"private": private}}
        super().describe(hosts, rig=rig, **{"start_timeout": 30, **service})

    def by_host(self, expect: int = 0) -> dict[str, dict[str, Any]]:
        """`rigup apply`, by host."""
        return {host["host"]: host for host in self.apply(expect=expect).json["hosts"]}


def reaches(one: Host, another: Host, port: int) -> bool:
    """Whether a connection comes about."""
    return one.says(f"timeout 2 bash -c ': 3<>/dev/tcp/{another.machine.inner_address}/{port}'")


def listen(host: Host, port: int, unit: str) -> None:
    """Has something listen that is none of the service's, on every address."""
    host.tell(
        f"systemctl stop {unit} 2>/dev/null; systemd-run -q --collect --unit={unit} python3 -m http.server {port}"
    )
    wait_for(lambda: host.says(f"ss -Hltn sport = :{port} | grep -q ."), f"port {port} of {host.name}")


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    with made_site(tmp_path_factory.mktemp("site"), f"peers{os.getpid()}", hosts=3) as made:
        yield made


@pytest.fixture
def three(site: tuple[Lab, StandInHub, Path, Path]) -> Iterator[Three]:
    three = Three(*site)
    three.describe()
    yield three
    three.end_runs()


def test_who_cannot_reach_whom_is_told_before_anything_is_changed(three: Three) -> None:
    three.describe(private=True)
    head, other = three.head.machine, three.other.machine
    for host, caller in ((three.head, other), (three.other, head)):
        host.tell(INSTALL)
        host.tell("nft 'add table inet admin; add chain inet admin input { type filter hook input priority 0; }'")
        host.tell(f"nft add rule inet admin input ip saddr {caller.inner_address} tcp dport {{ {RPC}, {WATCH} }} drop")
    refused = three.by_host(expect=2)
    assert set(refused) == {head.name, other.name}
    for caller, peer, port in ((head, other, f"{RPC} (rpc)"), (other, head, f"{WATCH} (watch)")):
        (error,) = refused[caller.name]["errors"]
        assert error["message"].startswith(f"{caller.name}: ")
        assert f" {peer.name} at {peer.inner_address}, port {port}: " in error["message"]
    for host in (three.head, three.other):
        assert not host.says("test -e /etc/rigup/services/chat || pgrep -f listen_briefly")
    # one way is enough
    three.head.tell("nft delete table inet admin")
    refused = three.by_host(expect=1)
    assert [host["state"] for host in refused.values()] == ["refused", "not begun"]
    three.other.tell("nft delete table inet admin")


def test_what_they_open_is_closed_to_everybody_else(three: Three) -> None:
    for host in (three.head, three.other):
        host.tell(INSTALL)
        host.tell(f"nft '{OTHERS}'")
    of_others = three.head.tell("nft list table inet others")
    first = three.by_host()
    assert [host["state"] for host in first.values()] == ["changed", "changed"]
    assert three.head.answers()
    assert reaches(three.head, three.other, RPC) and reaches(three.other, three.head, WATCH)
    assert not reaches(three.stranger, three.other, RPC) and not reaches(three.stranger, three.head, WATCH)
    second = three.by_host()
    assert [(host["state"], host["changes"]) for host in second.values()] == [("unchanged", []), ("unchanged", [])]

    # nothing of anybody else's is touched: neither a table nor a program that listens at any port
    assert three.head.tell("nft list table inet others") == of_others
    listen(three.head, CHOSEN, "somebody-elses")
    assert reaches(three.stranger, three.head, CHOSEN)

    # a port of the kernel's choice, opened by what belongs to the service: moved into its cgroup as its child would be
    listen(three.other, CHOSEN, "engines-own")
    assert reaches(three.stranger, three.other, CHOSEN)
    three.other.tell("systemctl stop engines-own")
    join = "echo $$ > /sys/fs/cgroup/system.slice/rigup-chat.service/cgroup.procs"
    three.other.tell(f"sh -c '{join}; exec setsid python3 -m http.server {CHOSEN} >/dev/null 2>&1 </dev/null &'")
    wait_for(lambda: reaches(three.head, three.other, CHOSEN), "the engine's own port")
    assert not reaches(three.stranger, three.other, CHOSEN)

    three.other.tell("systemctl restart rigup-chat")
    wait_for(lambda: reaches(three.head, three.other, RPC), "the RPC server again")
    assert not reaches(three.stranger, three.other, RPC)

    # somebody reloads rules that begin with "flush ruleset": apply puts it right, and starts nothing anew
    three.head.tell("nft flush ruleset")
    assert reaches(three.stranger, three.head, WATCH)
    (changed,) = [host for host in three.by_host().values() if host["host"] == three.head.name]
    assert [change["step"] for change in changed["changes"]] == ["firewall of chat"]
    assert not reaches(three.stranger, three.head, WATCH)

    three.other.machine.reboot()
    wait_for(lambda: reaches(three.head, three.other, RPC), "the RPC server after a reboot")
    assert not reaches(three.stranger, three.other, RPC)

    three.describe(private=True)
    three.by_host()
    for host in (three.head, three.other):
        assert not host.says("nft list table inet rigup_chat")
