"""The lab keeps its promises: real machines, real faults, and nothing left behind."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rigup.cli import lab as lab_command
from rigup.errors import HostFailed, InputError, MissingTool
from rigup.lab import ids, process
from rigup.lab.cgroup import Cgroup
from rigup.lab.folder import LabFolder
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from rigup.lab.network import network
from rigup.lab.network.addresses import hub_address, loopback_address, machine_namespace, namespace
from rigup.lab.network.network import identity

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("lab")]

IMPATIENT = ("-o", "ConnectTimeout=2")


def traces(lab: Lab) -> set[str]:
    """Everything of a lab that this machine knows of: files, mounts, namespaces, control groups, processes."""
    folder = lab.folder.path
    named = (f"{folder}/", f" {lab.record.name}")
    found = {f"folder {folder}"} if folder.exists() else set()
    found |= {f"mount {line}" for line in _mounts() if named[0] in line}
    found |= {f"process {words}" for words, _ in _processes() if named[1] in words}
    numbered = _traces_of_number(lab.record.number)
    # Once the network is gone another lab, of a test beside this one, may have the number and all that goes by it.
    return found | (numbered if identity(lab.record.number) in (lab.record.network, 0) else set())


def _traces_of_number(number: int) -> set[str]:
    names = os.listdir("/run/netns") if Path("/run/netns").exists() else []
    found = {f"namespace {name}" for name in names if f"{name}-".startswith(f"{namespace(number)}-")}
    found |= {f"mount {line}" for line in _mounts() if f"/{namespace(number)}" in line}
    found |= {f"control group {group}" for group in Cgroup(number, 1).path.parent.glob("**/")}
    return found | {f"process {words}" for words, group in _processes() if f"rigup-lab/{number}/" in group}


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def _processes() -> Iterator[tuple[str, str]]:
    """Number and command line, and control group, of each process of this machine."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield f"{entry.name} {words}", (entry / "cgroup").read_text()


def test_machines_answer_ssh_soon(new_lab: Callable[..., Lab]) -> None:
    new_lab(hosts=1)  # builds the image where it is not there yet
    started = time.monotonic()
    new_lab(hosts=2)
    seconds = time.monotonic() - started
    print(f"two machines answered SSH after {seconds:.2f} s")
    assert seconds < 30


@pytest.mark.parametrize("user", ["root", "ops", "opspw"])
def test_every_user_logs_in_with_the_host_key_checked(lab: Lab, user: str) -> None:
    for machine in lab.machines:
        done = machine.ssh("id -un; hostname", user=user)
        assert (done.stdout.split(), done.stderr) == ([user, machine.name], "")


def test_an_unknown_host_key_is_refused(lab: Lab, tmp_path: Path) -> None:
    other = (lab.machines[1].folder / "ssh_host_ed25519_key.pub").read_text().split()[:2]
    (tmp_path / "known_hosts").write_text(f"{lab.machines[0].address} {' '.join(other)}\n")
    done = lab.machines[0].ssh("true", options=("-o", f"UserKnownHostsFile={tmp_path / 'known_hosts'}"))
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_sudo_asks_opspw_for_the_password_and_ops_for_none(machine: Machine) -> None:
    assert machine.ssh("sudo -n id -u", user="ops").stdout == "0\n"
    assert machine.ssh("sudo -n id -u", user="opspw").returncode == 1
    assert machine.ssh("sudo -S id -u", user="opspw", input="lab\n").stdout == "0\n"
    assert machine.ssh("sudo -S id -u", user="opspw", input="wrong\n").returncode == 1


def test_a_password_opens_no_machine(machine: Machine) -> None:
    """Every user of this machine reaches its SSH."""
    allowed = machine.ssh("sshd -T | grep -E '^(password|kbdinteractive)authentication '").stdout
    assert allowed == "passwordauthentication no\nkbdinteractiveauthentication no\n"


@pytest.mark.parametrize(
    "tried",
    [
        "mknod /root/disk b 7 0 && head -c 1 /root/disk",
        "mkdir -p /mnt/proc && mount -t proc proc /mnt/proc && : >>/mnt/proc/sys/kernel/core_pattern",
        "mkdir -p /mnt/dev && mount -t devtmpfs dev /mnt/dev && : >/mnt/dev/from-a-lab",
        ": >>/run/host/os-release",
    ],
)
def test_root_of_a_machine_is_nobody_on_this_one(machine: Machine, tried: str) -> None:
    """The kernel refuses it a disk of this machine, its settings, its devices, and a file of its that nspawn shows."""
    done = machine.ssh(f"LC_ALL=C; {tried}; code=$?; umount /mnt/* 2>/dev/null; exit $code")
    assert done.returncode != 0, done.stdout
    assert any(word in done.stderr.lower() for word in ("permission denied", "not permitted")), done.stderr
    assert not Path("/dev/from-a-lab").exists()


def test_each_machine_has_ids_of_its_own(lab: Lab) -> None:
    ranges = [machine.ssh("cat /proc/self/uid_map").stdout.split() for machine in lab.machines]
    assert [(inside, count) for inside, _, count in ranges] == [("0", "65536")] * 2
    (first, second) = (int(outside) for _, outside, _ in ranges)
    assert first >= 0x80000 and second == first + 65536
    group = f"rigup-lab/{lab.record.number}/2/"
    owners = {Path(f"/proc/{words.split()[0]}").stat().st_uid for words, found in _processes() if group in found}
    assert second in owners


def test_a_file_system_that_cannot_map_ids_is_named(labs_can_run: None) -> None:
    with pytest.raises(MissingTool, match=r"^/proc: ") as raised:
        ids.check(Path("/proc"))
    assert "XDG_CACHE_HOME" in str(raised.value.hint)


def test_systemd_is_process_1_and_every_unit_is_well(machine: Machine) -> None:
    assert machine.ssh("cat /proc/1/comm").stdout == "systemd\n"
    state = machine.ssh("systemctl is-system-running --wait").stdout
    assert state == "running\n", machine.ssh("systemctl --failed --no-legend").stdout


def test_the_machine_is_bare(machine: Machine) -> None:
    assert machine.ssh("command -v cc gcc g++ cmake make git").returncode != 0


def test_apt_installs_what_was_not_there(machine: Machine) -> None:
    assert machine.ssh("command -v tree").returncode == 1
    done = machine.ssh("apt-get update -q && apt-get install -q -y --no-install-recommends tree", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.ssh("tree --version").stdout.startswith("tree v")


def test_pip_finds_the_index(machine: Machine) -> None:
    install = "apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv"
    done = machine.ssh(f"{install} && python3 -m venv /opt/trial && /opt/trial/bin/pip install six", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.ssh("/opt/trial/bin/python -c 'import six'").returncode == 0


def test_nothing_but_the_lab_is_reachable(machine: Machine) -> None:
    assert machine.ssh("ip route show default").stdout == ""
    assert machine.ssh("getent hosts example.org").returncode != 0
    proxy = f"http://{hub_address(machine.record.number)}:3128"
    ask = f"curl -s -o /dev/null -w '%{{http_code}}' --proxy {proxy}"
    assert machine.ssh(f"{ask} http://example.org/").stdout == "403"
    assert machine.ssh(f"{ask} http://{hub_address(machine.record.number)}/../etc/passwd --path-as-is").stdout == "403"


def test_a_server_outside_listens_inside(machine: Machine) -> None:
    address = (hub_address(machine.record.number), 7001)
    with network.lab_socket(machine.record.name) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.settimeout(20)
        server.bind(address)
        server.listen()
        ask = ["ssh", "-F", str(machine.lab.ssh_config), machine.name, f"curl -s http://hub:{address[1]}/"]
        with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as client:
            connection, peer = server.accept()
            with connection:
                assert connection.recv(1 << 16).startswith(b"GET / HTTP/1.1\r\nHost: hub:7001")
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            assert client.communicate(timeout=20)[0] == "hello"
    assert peer[0] == machine.inner_address


def test_journald_keeps_logs_by_unit(machine: Machine) -> None:
    machine.ssh("systemd-run --quiet --wait --unit=trial echo a line of a unit", check=True)
    assert "a line of a unit" in machine.ssh("journalctl -u trial --no-pager").stdout


def test_a_machine_reaches_another_by_name(lab: Lab) -> None:
    assert lab.machines[0].ssh(f"ping -c 1 -W 2 {lab.machines[1].name}").returncode == 0


def test_reboot_is_another_boot_with_the_same_files(machine: Machine) -> None:
    machine.ssh("echo kept >/root/file; echo gone >/run/file", check=True)
    before = machine.boot_id()
    machine.reboot()
    assert machine.boot_id() != before
    assert machine.ssh("cat /root/file").stdout == "kept\n"
    assert machine.ssh("cat /run/file").returncode == 1
    assert float(machine.ssh("cut -d' ' -f1 /proc/uptime").stdout) < 30


def test_a_cut_cable_is_silence_until_it_is_healed(machine: Machine) -> None:
    machine.cut()
    done = machine.ssh("true", options=IMPATIENT)
    assert done.returncode == 255
    assert "timed out" in done.stderr
    assert machine.on
    machine.heal()
    assert machine.ssh("echo back", options=IMPATIENT).stdout == "back\n"


def test_a_power_cut_keeps_the_disk_and_nothing_else(machine: Machine) -> None:
    machine.ssh("echo kept >/root/file; systemd-run --quiet --unit=sleeper sleep infinity", check=True)
    before = machine.boot_id()
    machine.power_off()
    assert not machine.on
    machine.power_off()
    assert machine.ssh("true", options=IMPATIENT).returncode == 255
    machine.power_on()
    assert machine.boot_id() != before
    assert machine.ssh("cat /root/file; pgrep -c sleep").stdout == "kept\n0\n"


def test_every_boot_is_soon_on_the_network(lab: Lab) -> None:
    """A machine keeps its hardware address: the others need not learn a new one, which takes them half a minute."""
    machine, other = lab.machines
    for _ in range(4):
        other.ssh(f"ping -c 1 {machine.name}", check=True)
        machine.power_off()
        started = time.monotonic()
        machine.power_on()
        other.ssh(f"ping -c 1 -W 2 {machine.name}", check=True)
        assert time.monotonic() - started < 15


def test_a_machine_that_powered_itself_off_can_be_started(machine: Machine) -> None:
    machine.ssh("systemctl poweroff")
    assert process.wait_for(lambda: not machine.on, 30)
    machine.power_on()
    assert machine.ssh("echo back").stdout == "back\n"


def test_a_rate_limit_slows_both_ways(machine: Machine) -> None:
    machine.rate("8mbit")
    for command, input in (("head -c 2097152 /dev/zero", None), ("cat >/dev/null", "0" * 2097152)):
        started = time.monotonic()
        machine.ssh(command, input=input, check=True)
        assert time.monotonic() - started > 1.5  # 16 Mbit at 8 Mbit a second take 2 s
    with pytest.raises(InputError, match="rate: fast "):
        machine.rate("fast")


def test_the_disk_has_a_limit(new_lab: Callable[..., Lab]) -> None:
    machine = new_lab(disk="300m").machines[0]
    assert machine.ssh("df --output=size --block-size=1M / | tail -1").stdout.strip() == "300"
    machine.fill_disk(leave_mib=8)
    done = machine.ssh("head -c 16M /dev/zero >/root/file")
    assert (done.returncode, os.strerror(errno.ENOSPC) in done.stderr) == (1, True)
    machine.ssh("rm /var/filler", check=True)
    assert machine.ssh("head -c 16M /dev/zero >/root/file").returncode == 0


def test_up_again_changes_nothing_and_adds_what_is_missing(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(hosts=1)
    first = lab.machines[0]
    boot, record = first.boot_id(), lab.record
    pids = {file: file.read_text() for file in lab.folder.path.glob("**/*.pid")}
    assert Lab.up(record.name, hosts=1).record == record
    assert first.boot_id() == boot
    assert {file: file.read_text() for file in lab.folder.path.glob("**/*.pid")} == pids

    again = Lab.up(record.name, hosts=2)
    assert [machine.ssh("hostname").stdout.strip() for machine in again.machines] == [
        f"{record.name}1",
        f"{record.name}2",
    ]
    assert first.boot_id() == boot
    assert first.ssh(f"ping -c 1 -W 2 {record.name}2").returncode == 0, "a machine knows those that came later"
    with pytest.raises(InputError, match=f"lab {record.name} .* --suite bookworm --disk 4g, .* --disk 1g"):
        Lab.up(record.name, disk="1g")


def test_up_repairs_what_was_killed(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(hosts=2)
    folder = lab.folder.path
    lab.machines[1].power_off()
    for pid_file in (folder / "packages.pid", folder / "forwarder.pid", lab.machines[0].folder / "holder.pid"):
        pid = process.running(pid_file)
        assert pid is not None
        os.kill(pid, 9)
    with pytest.raises(HostFailed, match=f"{lab.machines[0].name}: .*disk"):
        lab.machines[0].power_off()
        lab.machines[0].power_on()
    Lab.up(lab.record.name, hosts=2)
    for machine in lab.machines:
        assert machine.ssh("apt-get update").returncode == 0


def test_up_makes_a_lab_again_whose_network_is_gone(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    before, number = lab.machines[0].boot_id(), lab.record.number
    for name in (namespace(number), machine_namespace(number, 1)):
        process.run(["ip", "netns", "delete", name])
    again = Lab.up(lab.record.name)
    assert again.machines[0].boot_id() != before
    again.down()
    assert process.wait_for(lambda: not traces(lab) | traces(again), 10), traces(lab) | traces(again)


@pytest.mark.slow
def test_an_up_that_was_killed_leaves_nothing_that_down_does_not_end(labs_can_run: None) -> None:
    name = f"k{os.getpid()}"
    up = [sys.executable, "-c", f"from rigup.lab.lab import Lab; Lab.up({name!r}, hosts=2)"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for moment in ("lab.json", "packages.pid", "machines/1/holder.pid", "machines/2/holder.pid"):
        with subprocess.Popen(up, env=environment) as first:
            assert process.wait_for((LabFolder(name).path / moment).exists, 60, 0.001)
            first.kill()
        subprocess.run(up, env=environment, check=True, timeout=120)
        lab = Lab.named(name)
        assert lab.machines[1].ssh("echo up").stdout == "up\n"
        lab.down()
        assert process.wait_for(lambda lab=lab: not traces(lab), 10), traces(lab)  # type: ignore[misc]


def test_a_pid_file_of_a_process_long_gone_stops_nobody(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (lab.folder.path / "stranger.pid").write_text(f"{bystander.pid} 1\n")
        lab.down()
        assert bystander.poll() is None
        bystander.kill()


def test_down_leaves_nothing(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(hosts=2)
    assert {trace.split()[0] for trace in traces(lab)} == {"mount", "namespace", "control", "process", "folder"}
    lab.down()
    assert process.wait_for(lambda: not traces(lab), 10), traces(lab)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past connections may linger, a listener not
        probe.bind((loopback_address(lab.record.number, 1), 22))
    with pytest.raises(InputError, match=f"lab {lab.record.name} does not exist"):
        Lab.named(lab.record.name)


def test_labs_do_not_see_each_other(lab: Lab, new_lab: Callable[..., Lab]) -> None:
    other = new_lab()
    assert other.record.number != lab.record.number
    assert lab.machines[0].ssh(f"ping -c 1 -W 1 {other.machines[0].inner_address}").returncode != 0
    assert other.machines[0].ssh("hostname").stdout == f"{other.record.name}1\n"


@pytest.mark.slow
def test_debian_13_boots_as_well(new_lab: Callable[..., Lab]) -> None:
    machine = new_lab(suite="trixie").machines[0]
    assert "VERSION_CODENAME=trixie" in machine.ssh("cat /etc/os-release").stdout
    assert machine.ssh("systemctl is-system-running --wait").stdout == "running\n"
    machine.reboot()
    done = machine.ssh("apt-get update -q && apt-get install -q -y --no-install-recommends tree", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_image_build_that_was_killed_leaves_no_image(labs_can_run: None, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    build = "from rigup.lab import base; print(base.ensure('bookworm', print))"
    images = tmp_path / "rigup" / "lab" / "base"
    with subprocess.Popen([sys.executable, "-c", build], env=environment, start_new_session=True) as first:
        assert process.wait_for(lambda: any(images.glob(".bookworm-*/usr/bin")), 120)
        first.kill()

    def builders() -> list[str]:
        words = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it may end while it is read
                words.append(entry.read_text(errors="replace"))
        return [line for line in words if str(images) in line]

    assert process.wait_for(lambda: not builders(), 10), builders()
    assert not list(images.glob("bookworm-*/"))
    subprocess.run([sys.executable, "-c", build], env=environment, check=True, timeout=400)
    assert [path.name.split("-")[0] for path in images.iterdir() if path.is_dir()] == ["bookworm"]


def test_the_command_line_lists_and_breaks_machines(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    lab_command.add_arguments(parser)

    def rigup_lab(*words: str) -> str:
        assert lab_command.run(parser.parse_args(words)) == 0
        return capsys.readouterr().out

    labs = json.loads(rigup_lab("list", "--json"))["labs"]
    shown = next(lab for lab in labs if lab["name"] == machine.record.name)
    assert shown["machines"][0] == {
        "name": machine.name,
        "address": machine.address,
        "ssh_port": 22,
        "inner_address": machine.inner_address,
        "power": "on",
        "cable": "plugged",
        "rate": None,
    }
    where = f"{machine.name}  {machine.address}  {machine.inner_address}"
    assert rigup_lab("cut", machine.name) == f"{where}  on  cable cut\n"
    assert rigup_lab("heal", machine.name) == f"{where}  on\n"
    assert rigup_lab("rate", machine.name, "8mbit") == f"{where}  on  limited to 8mbit\n"
    assert rigup_lab("rate", machine.name, "off") == f"{where}  on\n"
    assert rigup_lab("kill", machine.name) == f"{where}  off\n"
    assert rigup_lab("start", machine.name) == f"{where}  on\n"


def test_the_inventory_serves_pyinfra_as_it_is(lab: Lab) -> None:
    words = [sys.executable, "-m", "pyinfra", "-y", str(lab.folder.inventory), "exec", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
