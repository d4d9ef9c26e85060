"""Two gateways share an address: the one that has it loses power, or its HAProxy ends, or it is to share no more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from rigup.gateway.paths import SHARED_FILE, SHARED_UNIT, SHARED_UNIT_FILE, UNIT
from tests.lab.fleet import ANSWER, Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_site

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "gateways", "src/rigup/programs/release_metrics.py")]

MODEL, PORT = "smollm2-135m-instruct", 8080
KEYS = {"backends": "backend-key-0123456789", "team-a": "client-key-of-team-a"}
RUNS = "InvocationID,MainPID,NRestarts"
# Three missed announcements and as many health checks of the backend by the other gateway, on a busy machine.
MOVE_SECONDS = 15
IPV6 = "fd00:7::"


class TwoGateways(Fleet):
    """A host with an engine, which asks as well, and two gateways before it."""

    @property
    def gateways(self) -> list[Host]:
        """The machines that share the address."""
        return self.hosts[1:]

    ipv6 = False
    """Whether what they share is an IPv6 address, and they speak to each other by IPv6."""

    @property
    def address(self) -> str:
        """What they share."""
        network = self.host.machine.inner_address.rpartition(".")[0]
        return f"{IPV6}250" if self.ipv6 else f"{network}.250"

    def give_ipv6_addresses(self) -> None:
        """Gives each machine an address of a network that the lab does not have; until it is booted again."""
        for number, host in enumerate(self.hosts, 1):
            host.tell(f"ip address add {IPV6}{number}/64 dev {device(host)} nodad")

    def describe_gateways(self, shared: bool = True) -> None:
        """Writes the inventory. shared: whether the gateways have an address in common."""
        key = "secrets/backends.key"
        self.describe(1, listen="0.0.0.0", api_key_file=key, served_name=MODEL)
        machines = [host.machine for host in self.hosts]
        # the engine is reached by IPv4 all the same
        own = [
            f"{IPV6}{number}" if self.ipv6 and number > 1 else one.inner_address
            for number, one in enumerate(machines, 1)
        ]
        entries = [
            (one.name, {**one.inventory[1], "lan_address": address}) for one, address in zip(machines, own, strict=True)
        ]
        text = f"boxes = {entries[:1]!r}\nedge = {entries[1:]!r}\n"
        (self.root / "inventories/rehearsal.py").write_text(text)
        gateway = {
            "listen": "::" if self.ipv6 else "0.0.0.0",
            "clients": {"team-a": {"key_file": "secrets/team-a.key"}},
        }
        (interface,) = {device(host) for host in self.gateways}
        held = (
            {"shared_address": {"address": f"{self.address}/{64 if self.ipv6 else 24}", "interface": interface}}
            if shared
            else {}
        )
        (self.root / "group_data/edge.py").write_text(f"gateway = { ({**gateway, **held})!r}\n")
        (self.root / "secrets").mkdir(exist_ok=True)
        for name, key in KEYS.items():
            file = self.root / f"secrets/{name}.key"
            file.write_text(f"{key}\n")
            file.chmod(0o600)

    def holders(self) -> list[str]:
        """The gateways that have the address now."""
        has = f"ip -brief address show to {self.address}"
        return [host.name for host in self.gateways if host.machine.ssh(has).stdout.strip()]

    def holder(self) -> Host:
        """The gateway that has the address."""
        (name,) = self.holders()
        return next(host for host in self.gateways if host.name == name)

    def chats(self) -> bool:
        """Whether a question to the shared address is answered, by the gateway that has it."""
        body = json.dumps(json.dumps({"messages": [], "model": MODEL}))
        words = f"curl -s -m 5 -H 'Authorization: Bearer {KEYS['team-a']}' -d {body}"
        address = f"[{self.address}]" if self.ipv6 else self.address
        return ANSWER in self.host.machine.ssh(f"{words} http://{address}:{PORT}/v1/chat/completions").stdout

    def moves_from(self, host: Host) -> Host:
        """Waits until another gateway has the address and answers; how long that took is printed."""
        began = time.monotonic()
        wait_for(lambda: self.chats(), "an answer from the other gateway", MOVE_SECONDS)
        print(f"moved in {time.monotonic() - began:.1f} s")
        (other,) = (one for one in self.gateways if one.name != host.name)
        assert other.machine.ssh(f"ip -brief address show to {self.address}").stdout.strip()
        return other


def device(host: Host) -> str:
    """The interface that has a machine's address."""
    return host.tell(f"ip -brief address show to {host.machine.inner_address}").split()[0].partition("@")[0]


@pytest.fixture(scope="module")
def applied(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoGateways]:
    with made_site(tmp_path_factory.mktemp("site"), "twogw", hosts=3) as site:
        fleet = TwoGateways(*site)
        fleet.describe_gateways()
        run = fleet.apply(seconds=400)
        assert [host["state"] for host in run.json["hosts"]] == ["changed"] * 3
        yield fleet
        fleet.end_runs()


@pytest.fixture
def fleet(applied: TwoGateways) -> TwoGateways:
    """Both gateways up, the address at one of them."""
    applied.describe_gateways()
    wait_for(lambda: len(applied.holders()) == 1 and applied.chats(), "an answer at the shared address")
    return applied


def test_one_has_the_address_and_a_second_apply_changes_nothing(fleet: TwoGateways) -> None:
    before = [host.show(RUNS, SHARED_UNIT) for host in fleet.gateways]
    assert [host["state"] for host in fleet.apply().json["hosts"]] == ["unchanged"] * 3
    assert [host.show(RUNS, SHARED_UNIT) for host in fleet.gateways] == before
    verdict = fleet.gateways[0].tell(f"systemd-analyze security --no-pager {SHARED_UNIT} | tail -n 1")
    assert float(verdict.split(":")[1].split()[0]) <= 4.0, verdict
    assert "unicast_peer" in fleet.gateways[0].tell(f"cat {SHARED_FILE}")
    said = fleet.rigup("status", "--json", "--limit", "edge").json["gateways"]
    assert [one["gateway"] for one in said if one["holds_shared_address"]] == fleet.holders()
    check = "ps -o user= -C curl; journalctl -o cat -u " + SHARED_UNIT
    assert "root" not in fleet.gateways[0].tell(check).split()[:1]


def test_a_gateway_that_loses_power_loses_the_address(fleet: TwoGateways) -> None:
    first = fleet.holder()
    first.machine.power_off()
    second = fleet.moves_from(first)
    first.machine.power_on()
    wait_for(lambda: first.says(f"systemctl is-active --quiet {UNIT} {SHARED_UNIT}"), "it is up again", 120)
    time.sleep(6)  # several announcements, by which it could have taken the address back
    assert fleet.holder() is second
    assert fleet.chats()


def test_a_gateway_whose_haproxy_has_ended_loses_the_address(fleet: TwoGateways) -> None:
    first = fleet.holder()
    first.tell(f"systemctl stop {UNIT}")
    fleet.moves_from(first)
    run = fleet.apply()
    assert [host["host"] for host in run.json["hosts"] if host["state"] == "changed"] == [first.name]
    assert fleet.chats()


def test_a_gateway_without_it_gives_the_address_up(fleet: TwoGateways) -> None:
    fleet.describe_gateways(shared=False)
    fleet.apply()
    assert fleet.holders() == []
    for host in fleet.gateways:
        assert not host.says(f"ls {SHARED_FILE} {SHARED_UNIT_FILE} || systemctl is-active --quiet {SHARED_UNIT}")
        assert host.says(f"systemctl is-active --quiet {UNIT}")
    assert [host["state"] for host in fleet.apply().json["hosts"]] == ["unchanged"] * 3
    fleet.describe_gateways()
    fleet.apply(seconds=300)


def test_an_ipv6_address_moves_in_the_same_way(fleet: TwoGateways) -> None:
    fleet.give_ipv6_addresses()
    fleet.ipv6 = True
    fleet.describe_gateways()
    fleet.apply(seconds=300)
    wait_for(lambda: len(fleet.holders()) == 1 and fleet.chats(), "an answer at the shared IPv6 address")
    assert f"unicast_src_ip {IPV6}" in fleet.gateways[0].tell(f"cat {SHARED_FILE}")
    first = fleet.holder()
    first.tell(f"systemctl stop {UNIT}")
    second = fleet.moves_from(first)
    assert [host["state"] for host in fleet.apply().json["hosts"]].count("changed") == 1
    assert fleet.holder() is second
