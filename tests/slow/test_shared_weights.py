"""Four machines that need the same checkpoint: it crosses to them once, whatever happens to one of them on the way."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rigup.lab.network.addresses import hub_address, namespace
from rigup.lab.process import run as run_here
from rigup.operations.weights.sharing import CONFIGURATION, FOLDER, UNIT
from rigup.units import seconds_text
from tests.lab.fleet import FILE_BYTES, FILES, REPO, WEIGHTS, Fleet, Host, Run, content_of, wait_for
from tests.lab.fleet_fixtures import made_site

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the run", "weights")]

TOTAL = FILE_BYTES * len(FILES)
HOSTS = 4
PORT = 8791
QUIET_SECONDS = 40.0
IMPATIENT = f"import rigup.operations.weights.checkpoint as checkpoint\ncheckpoint.QUIET_SECONDS = {QUIET_SECONDS}"


class SharingFleet(Fleet):
    """A fleet whose machines share even small checkpoints."""

    def share(self, sharing: object = None, **more: Any) -> None:
        """Describes all machines; `more` are further keys of group_data."""
        self.describe(HOSTS)
        data = self.root / "group_data/boxes.py"
        said = {"weights_sharing": {"from_mb": 0} if sharing is None else sharing, **more}
        data.write_text(data.read_text() + "".join(f"{key} = {value!r}\n" for key, value in said.items()))

    def take_away(self, *hosts: Host) -> None:
        """The weights are gone from these machines."""
        for host in hosts:
            host.tell(f"rm -rf {WEIGHTS}/*")

    def whole(self) -> bool:
        """Whether every machine has every file with the right bytes."""
        return all(self.has(host) for host in self.hosts)

    def has(self, host: Host) -> bool:
        """Whether this one has."""
        program = "/opt/rigup/programs/fetch_weights.py"
        return host.says(f"python3 {program} --check --deep /var/lib/rigup/jobs/rigup-weights-*.json")

    def from_hub(self, since: int) -> int:
        """The bytes of files that the hub has sent since so many requests."""
        return sum(entry["bytes"] for entry in self.sent_by_hub(since))

    def sent_by_hub(self, since: int) -> list[dict[str, Any]]:
        """The answers of the hub with bytes of files since so many requests."""
        return [entry for entry in self.hub.log()[since:] if entry["method"] == "GET" and entry["status"] < 300]


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingFleet]:
    """Four machines, fitted out by the first apply, in which all of them got the weights together."""
    with made_site(tmp_path_factory.mktemp("site"), f"sharing{os.getpid()}", hosts=HOSTS, disk="3g") as made:
        fleet = SharingFleet(*made)
        fleet.share()
        fleet.first = fleet.apply()  # type: ignore[attr-defined]
        yield fleet
        fleet.end_runs()


@pytest.fixture
def fleet(site: SharingFleet) -> SharingFleet:
    """The fleet as it is by default, its machines on and its hub well."""
    for host in site.hosts:
        host.machine.power_on()
        host.tell("rm -f /var/filler")
    site.hub.faults()
    site.share()
    return site


def test_a_first_apply_shares_and_nothing_serves_afterwards(site: SharingFleet) -> None:
    first: Run = site.first  # type: ignore[attr-defined]

    assert site.whole()
    (said,) = first.json["weights"]
    assert (said["bytes"], len(said["taken"]), said["faults"]) == (TOTAL, HOSTS, [])
    assert said["hub_bytes"] + said["lan_bytes"] == HOSTS * TOTAL
    for host in site.hosts:
        assert not host.says(f"systemctl is-active --quiet {UNIT}")
        assert not host.says(f"test -e {FOLDER}")
        assert host.tell("systemctl is-enabled nginx || true") == "disabled"
        assert not host.says("systemctl is-active --quiet nginx")
        assert str(PORT) not in host.tell("ss -Htln")


def test_each_file_comes_from_the_hub_once_to_hosts_that_begin_together(fleet: SharingFleet) -> None:
    fleet.take_away(*fleet.hosts)
    before = len(fleet.hub.log())

    fleet.apply()

    assert fleet.whole()
    assert fleet.from_hub(before) <= 1.1 * TOTAL


def test_a_server_that_is_kept_serves_verified_files_to_the_fleet_and_nothing_else(fleet: SharingFleet) -> None:
    giver, asker = fleet.hosts[0], fleet.hosts[1]
    fleet.share({"from_mb": 0, "keep": True})
    fleet.take_away(asker)
    fleet.apply()

    link = giver.tell(f"ls {FOLDER}/files").split()[0]
    base = f"http://{giver.machine.inner_address}:{PORT}"
    ask = "curl -s -o /dev/null -w '%{http_code} %{size_download}'"
    assert asker.tell(f"{ask} -r 100- {base}/files/{link}") == f"206 {FILE_BYTES - 100}"
    for path in ("/", "/serve.json", "/nginx.conf", "/files/", "/files/../serve.json", "/state/", "/etc/passwd"):
        assert asker.tell(f"{ask} --path-as-is {base}{path}").split()[0] in ("404", "400"), path
    for method in ("POST", "PUT", "DELETE"):
        assert asker.tell(f"{ask} -X {method} {base}/files/{link}").split()[0] in ("403", "405"), method
    assert stranger_gets(giver, f"/files/{link}") in ("403", "000")
    assert giver.tell(f"ps -o user= -p $(systemctl show {UNIT} -P MainPID)") == "rigup"
    exposure = giver.tell(f"systemd-analyze security {UNIT} --no-pager | tail -n 1")
    assert float(exposure.split("level for ")[1].split(": ")[1].split()[0]) < 3.0, exposure

    fleet.share()
    fleet.take_away(asker)
    fleet.apply()
    assert not giver.says(f"systemctl is-active --quiet {UNIT}")


def test_a_machine_that_reaches_no_hub_is_fed_by_its_peers(fleet: SharingFleet) -> None:
    newcomer = fleet.hosts[3]
    fleet.take_away(newcomer)
    fleet.hub.faults(fail_first=10_000, fail_status=503)
    before = len(fleet.hub.log())

    run = fleet.apply()

    assert fleet.has(newcomer)
    assert fleet.from_hub(before) == 0
    (said,) = run.json["weights"]
    assert said["lan_bytes"] == TOTAL and said["fetched"] == [newcomer.name]


def test_a_peer_whose_file_has_rotted_is_banned_and_told(fleet: SharingFleet) -> None:
    rotten, newcomer, *others = fleet.hosts
    path = rotten.tell(f"ls {WEIGHTS}/{REPO}/*/{FILES[1]}")
    rotten.tell(
        f"cp --preserve=timestamps {path} /tmp/right; touch -r {path} /tmp/when; "
        f"printf rot | dd of={path} bs=1 seek=1000 conv=notrunc status=none; touch -r /tmp/when {path}"
    )
    fleet.take_away(newcomer, *others)
    fleet.hub.faults(bytes_per_second=1_000_000)  # three hosts ask one, which a busy machine may slow: not behind this
    before = len(fleet.hub.log())

    run = fleet.apply()

    assert all(fleet.has(host) for host in (newcomer, *others))
    sent = {entry["path"].split("/")[2] for entry in fleet.sent_by_hub(before) if entry["bytes"]}
    # and for others, where it is banned before any of the three has them
    assert hashlib.sha256(content_of(FILES[1])).hexdigest() in sent, "the hub is asked for what no peer has"
    (said,) = run.json["weights"]
    told = f"{rotten.name} is banned: it sent {FILES[1]} with sha256 "
    assert any(told in fault for fault in said["faults"]), said
    rotten.tell(f"cat /tmp/right > {path}; touch -r /tmp/when {path}")
    assert fleet.has(rotten)


def test_a_peer_that_loses_power_on_the_way_is_gone_on_without(fleet: SharingFleet) -> None:
    giver, *others = fleet.hosts
    fleet.share(weights_mb_per_s={"lan": 2})
    fleet.take_away(*others)
    fleet.hub.faults(fail_first=10_000, fail_status=503)
    run = fleet.start("apply", "--yes", "--json")
    wait_for(lambda: any(host.part_bytes() for host in others), "a part that comes from it")
    giver.machine.power_off()
    fleet.hub.faults()

    run.wait()  # the one that lost power had answered before that, or had not
    assert all(fleet.has(host) for host in others)
    states = {host["host"]: host["state"] for host in run.json["hosts"]}
    assert {states[host.name] for host in others} == {"changed"}


def test_what_was_vendored_is_sent_once_and_passed_on(fleet: SharingFleet, tmp_path: Any) -> None:
    fleet.take_away(*fleet.hosts)
    fleet.hub.faults(fail_first=10_000, fail_status=503)
    revision = next(
        line.split('"')[1] for line in (fleet.root / "rigup.lock").read_text().splitlines() if "revision" in line
    )
    folder = tmp_path / "vendored/weights" / REPO / revision
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_bytes(content_of(name))

    run = fleet.apply("--from", str(tmp_path / "vendored"))

    assert fleet.whole()
    (said,) = run.json["weights"]
    assert said["hub_bytes"] == 0
    assert said["lan_bytes"] == (HOSTS - 1) * TOTAL


def stranger_gets(giver: Host, path: str) -> str:
    """The HTTP status that somebody of the lab's network who is not in the fleet gets; 000 without any answer."""
    number = giver.machine.record.number
    inside = ("ip", "netns", "exec", namespace(number))
    words = ("curl", "-s", "-m", "5", "-o", "/dev/null", "--interface", hub_address(number), "-w", "%{http_code}")
    return run_here([*inside, *words, f"http://{giver.machine.inner_address}:{PORT}{path}"], check=False).stdout.strip()


def test_a_host_that_lies_about_its_addresses_opens_nobody_elses_server(fleet: SharingFleet) -> None:
    giver, liar = fleet.hosts[0], fleet.hosts[1]
    fleet.share({"from_mb": 0, "keep": True})
    others = " ".join(host.machine.inner_address for host in fleet.hosts)
    liar.tell(
        "mv /usr/bin/hostname /usr/bin/hostname.right; "
        f"printf '#!/bin/sh\\necho 0.0.0.0/0 ::/0 {others}\\n' > /usr/bin/hostname; chmod 755 /usr/bin/hostname"
    )
    try:
        fleet.take_away(liar)
        fleet.apply()

        assert fleet.has(liar)
        link = giver.tell(f"ls {FOLDER}/files").split()[0]
        told = json.loads(giver.tell(f"cat {CONFIGURATION}"))
        assert sorted(told["allow"]) == sorted(host.machine.inner_address for host in fleet.hosts)
        assert stranger_gets(giver, f"/files/{link}") in ("403", "000")
    finally:
        liar.tell("mv /usr/bin/hostname.right /usr/bin/hostname")
        fleet.share()
        fleet.take_away(liar)
        fleet.apply()


def test_links_that_the_worker_plants_lead_root_nowhere(fleet: SharingFleet) -> None:
    host = fleet.hosts[0]
    repository = f"{WEIGHTS}/{REPO}"
    host.tell("mkdir -p /etc/victim && chown root:root /etc/victim && echo right > /etc/victim/file")
    host.tell(
        f"install -d -o rigup -g rigup {FOLDER}; cd {FOLDER}; rm -rf files state serve.json; "
        "setpriv --reuid=rigup --regid=rigup --clear-groups sh -c "
        "'ln -s /etc/victim files; ln -s /etc/victim state; ln -s /etc/victim/file serve.json'"
    )
    assert not host.says(f"setpriv --reuid=rigup --regid=rigup --clear-groups rm -rf {repository}")
    assert host.tell(f"stat -c %U $(dirname {repository})") == "root"
    fleet.take_away(host)

    fleet.start("apply", "--yes").wait()

    assert host.tell("stat -c %U:%G /etc/victim /etc/victim/file").split() == ["root:root"] * 2
    assert host.tell("ls /etc/victim; cat /etc/victim/file").split() == ["file", "right"]
    host.tell(f"rm -rf {FOLDER}")
    fleet.apply()
    assert fleet.has(host)


def test_a_download_that_is_stopped_is_given_up_and_named(fleet: SharingFleet) -> None:
    """It is waited for as long as it shows progress, and no longer."""
    host = fleet.hosts[0]
    fleet.share(False)
    fleet.take_away(host)
    fleet.hub.faults(bytes_per_second=200_000)
    run = fleet.start("apply", "--yes", before=IMPATIENT)
    wait_for(host.part_bytes, "a part")
    host.tell("systemctl kill --signal=STOP 'rigup-weights-*'")
    began = time.monotonic()

    assert run.wait(QUIET_SECONDS + 180) == 1

    assert time.monotonic() - began > QUIET_SECONDS / 2
    assert re.search(rf"\brigup-weights-.* {seconds_text(QUIET_SECONDS)} ", run.text)
    assert not host.says("pgrep -f fetch_weights.py")
    fleet.hub.faults()
    fleet.apply()
    assert fleet.has(host)
