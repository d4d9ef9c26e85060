"""SSH as a careful person has it: ssh_config, host keys, jump hosts, agents, sudo, and login shells with habits."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from tests.command_line import CommandLine, Done

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run")]

ASK_CHANGES = ("diff", "--json")
SECRET = "unseen-8f3a-by-anyone"


@pytest.fixture
def line(tmp_path: Path, machine: Machine) -> CommandLine:
    """A fleet of the shared lab's first machine, reached as root."""
    made = CommandLine(tmp_path)
    made.describe([machine.inventory])
    return made


@pytest.fixture(scope="module")
def steps(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What apply would change on the first machine, asked as root in the plainest way."""
    plain = CommandLine(tmp_path_factory.mktemp("plain"))
    plain.describe([lab.machines[0].inventory])
    return changes(plain.run(*ASK_CHANGES), lab.machines[0].name)


def changes(done: Done, host: str) -> list[Any]:
    """What a diff found, which must be something."""
    assert done.code == 1, done.text
    assert done.hosts[host]["errors"] == [], done.text
    assert done.hosts[host]["changes"] != []
    found: list[Any] = done.hosts[host]["changes"]
    return found


def host_keys(machine: Machine, address: str) -> str:
    """A line of known_hosts for this machine at another address."""
    key = (machine.folder / "ssh_host_ed25519_key.pub").read_text().split()[:2]
    return f"{address} {' '.join(key)}\n"


def outside(machine: Machine) -> str:
    """The address of a machine as known_hosts has it."""
    return machine.lab.known_hosts.read_text().splitlines()[machine.index - 1].split()[0]


def config(machine: Machine, name: str, known_hosts: Path, user: str = "root", *more: str) -> str:
    """An entry of ssh_config that says everything which is needed to reach this machine."""
    lines = (
        f"HostName {machine.address}",
        f"Port {machine.record.ssh_port}",
        f"User {user}",
        f"IdentityFile {machine.lab.key}",
        f"UserKnownHostsFile {known_hosts}",
        *more,
    )
    return "".join([f"Host {name}\n", *(f"  {line}\n" for line in lines)])


def test_ssh_config_says_where_who_and_how(line: CommandLine, machine: Machine, steps: list[Any]) -> None:
    line.describe(["box"])
    line.ssh_config(config(machine, "box", machine.lab.known_hosts, user="ops"))
    assert changes(line.run(*ASK_CHANGES), "box") == steps


def test_the_inventory_comes_before_ssh_config(line: CommandLine, machine: Machine) -> None:
    line.ssh_config(config(machine, "box", machine.lab.known_hosts, user="ops"))
    line.describe(["nobody-here@box"])
    ((message, _),) = line.run(*ASK_CHANGES).errors
    assert message.startswith("nobody-here@box: ") and message.endswith(" (username=nobody-here)")


# What the hint names, by what is wrong with a host key.
UNKNOWN, CHANGED = "ssh-keyscan", "ssh-keygen -R"


def distrusted(line: CommandLine, name: str, address: str) -> str:
    """Why a run refuses this host, whose key it gets from this address."""
    done = line.run(*ASK_CHANGES)
    message, hint = done.errors[0]
    assert done.code == 2
    assert message.startswith(f"{name}: ") and f" {address} " in message
    (why,) = [words for words in (UNKNOWN, CHANGED) if words in hint]
    return why


def test_a_host_key_under_an_alias(line: CommandLine, lab: Lab) -> None:
    machine, other = lab.machines
    known = line.home / ".ssh/known_hosts"
    line.describe(["box"])
    known.parent.mkdir(exist_ok=True)
    known.write_text(host_keys(other, outside(machine)) + host_keys(machine, "box.alias"))
    line.ssh_config(config(machine, "box", known))
    assert distrusted(line, "box", outside(machine)) == CHANGED
    line.ssh_config(config(machine, "box", known, "root", "HostKeyAlias box.alias"))
    assert changes(line.run(*ASK_CHANGES), "box")


def test_the_certificate_of_a_host(line: CommandLine, machine: Machine, tmp_path: Path) -> None:
    """OpenSSH's own sshd shows it; the authority is known, the host's key is not."""
    key, known = "ssh_host_ed25519_key.pub", line.home / ".ssh/known_hosts"
    (tmp_path / key).write_text((machine.folder / key).read_text())
    for words in (
        ("-t", "ed25519", "-N", "", "-f", "authority"),
        ("-s", "authority", "-I", machine.name, "-h", "-n", machine.address, key),
    ):
        subprocess.run(["ssh-keygen", "-q", *words], cwd=tmp_path, check=True)
    shown = (tmp_path / key.replace(".pub", "-cert.pub")).read_text()
    machine.ssh("cat >/etc/ssh/lab-cert.pub", input=shown, check=True)
    machine.ssh("echo HostCertificate /etc/ssh/lab-cert.pub >/etc/ssh/sshd_config.d/lab-cert.conf", check=True)
    machine.ssh("systemctl reload ssh", check=True)
    line.describe(["box"])
    line.ssh_config(config(machine, "box", known))
    known.parent.mkdir(exist_ok=True)
    try:
        known.write_text(f"@cert-authority *.elsewhere {(tmp_path / 'authority.pub').read_text()}")
        assert distrusted(line, "box", outside(machine)) == UNKNOWN
        known.write_text(f"@cert-authority {machine.address} {(tmp_path / 'authority.pub').read_text()}")
        assert changes(line.run(*ASK_CHANGES), "box")
    finally:
        machine.ssh("rm /etc/ssh/sshd_config.d/lab-cert.conf; systemctl reload ssh", check=True)


def test_a_proxy_command_that_ends_is_told_with_its_last_line(line: CommandLine, machine: Machine) -> None:
    line.describe(["box"])
    ended = "ProxyCommand sh -c 'echo bastion is down >&2; exit 7'"
    line.ssh_config(config(machine, "box", machine.lab.known_hosts, "root", ended))
    done = line.run(*ASK_CHANGES)
    ((message, _),) = done.errors
    assert done.code == 2 and message.endswith("ended with 7: bastion is down")
    assert "Traceback" not in done.text


def test_a_jump_host_whose_key_is_checked_too(line: CommandLine, lab: Lab) -> None:
    jump, target = lab.machines
    known = line.home / ".ssh/known_hosts"
    inner = f"Host inner\n  HostName {target.inner_address}\n  User root\n  ProxyJump jump\n"
    line.ssh_config(config(jump, "jump", known) + inner + f"  IdentityFile {target.lab.key}\n")
    line.describe(["inner"])

    known.write_text("")
    assert distrusted(line, "inner", outside(jump)) == UNKNOWN
    known.write_text(host_keys(target, outside(jump)))
    assert distrusted(line, "inner", outside(jump)) == CHANGED
    known.write_text(host_keys(jump, outside(jump)))
    assert distrusted(line, "inner", target.inner_address) == UNKNOWN
    known.write_text(host_keys(jump, outside(jump)) + host_keys(target, target.inner_address))
    assert changes(line.run(*ASK_CHANGES), "inner")


def test_an_unknown_jump_host_is_refused_on_a_terminal_too(line: CommandLine, lab: Lab) -> None:
    jump, target = lab.machines
    line.ssh_config(
        config(jump, "jump", line.home / "none") + f"Host inner\n  HostName {target.inner_address}\n  ProxyJump jump\n"
    )
    line.describe(["inner"])
    done = line.on_terminal("diff", seconds=30)
    assert done.code == 2
    assert re.search(rf"inner: .* {re.escape(outside(jump))} ", done.out)
    assert "[y/n]" not in done.out


def test_accept_new_is_the_users_to_say(line: CommandLine, lab: Lab) -> None:
    machine, other = lab.machines
    known = line.home / "new/known_hosts"
    line.describe(["box"])
    line.ssh_config(config(machine, "box", known))
    assert distrusted(line, "box", outside(machine)) == UNKNOWN
    assert not known.exists()

    line.ssh_config(config(machine, "box", known, "root", "StrictHostKeyChecking accept-new"))
    assert changes(line.run(*ASK_CHANGES), "box")
    assert known.read_text() == host_keys(machine, outside(machine))
    assert changes(line.run(*ASK_CHANGES), "box")
    assert known.read_text() == host_keys(machine, outside(machine))

    known.write_text(host_keys(other, outside(machine)))
    assert distrusted(line, "box", outside(machine)) == CHANGED


@pytest.fixture
def agent(tmp_path: Path, machine: Machine) -> Iterator[str]:
    """The socket of an ssh-agent that holds the lab's key, and before it others that open nothing."""
    address = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", address], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 10
            while not address.exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            for number in (1, 2):
                key = tmp_path / f"other{number}"
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            for key in (tmp_path / "other1", tmp_path / "other2", machine.lab.key):
                add = ["ssh-add", "-q", key]
                subprocess.run(add, env={"SSH_AUTH_SOCK": str(address)}, check=True, capture_output=True)
            yield str(address)
        finally:
            process.terminate()


def test_an_agent(line: CommandLine, machine: Machine, steps: list[Any], agent: str) -> None:
    name, data = machine.inventory
    line.describe([(name, {key: value for key, value in data.items() if key != "ssh_key"})])
    assert line.run(*ASK_CHANGES).code == 2
    assert changes(line.run(*ASK_CHANGES, SSH_AUTH_SOCK=agent), name) == steps


@pytest.mark.parametrize(
    ("data", "password"),
    [
        ({"ssh_user": "ops"}, {}),
        ({"ssh_user": "opspw"}, {"RIGUP_SUDO_PASSWORD": "lab"}),
        ({"ssh_user": "opspw", "_sudo": True, "_sudo_password": "lab"}, {}),
    ],
    ids=["without a password", "with one", "with one in the inventory"],
)
def test_sudo(
    line: CommandLine, machine: Machine, steps: list[Any], data: dict[str, Any], password: dict[str, str]
) -> None:
    name, plain = machine.inventory
    line.describe([(name, {**plain, **data})])
    assert changes(line.run(*ASK_CHANGES, **password), name) == steps


WATCH = """
import json, os, select, sys
secret = sys.stdin.buffer.readline().strip()
print("watching", flush=True)
rounds, seen, sudos = 0, set(), set()
while not select.select([sys.stdin], [], [], 0)[0]:
    rounds += 1
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{kind}", "rb") as file:
                    text = file.read().replace(b"\\0", b" ")
            except OSError:
                continue
            if secret in text:
                seen.add(f"{kind} {text.decode(errors='replace')}")
            if kind == "cmdline" and text.startswith(b"sudo -k -S "):
                sudos.add(pid)
print(json.dumps({"rounds": rounds, "seen": sorted(seen), "sudos": len(sudos)}))
"""


@contextmanager
def watched(machine: Machine) -> Iterator[dict[str, Any]]:
    """Looks, as root, at the arguments and the environment of every process over there, for the secret."""
    machine.ssh("cat >/run/watch.py", input=WATCH, check=True)
    ssh = ["ssh", "-F", str(machine.lab.ssh_config), machine.name, "exec python3 /run/watch.py"]
    found: dict[str, Any] = {}
    with subprocess.Popen(ssh, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{SECRET}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "watching\n"
        yield found
        process.stdin.close()
        found.update(json.loads(process.stdout.readline()))


@pytest.fixture
def secret_password(machine: Machine) -> Iterator[None]:
    """opspw's password is one that occurs nowhere else."""
    machine.ssh("chpasswd", input=f"opspw:{SECRET}\n", check=True)
    yield
    machine.ssh("chpasswd", input="opspw:lab\n", check=True)


def test_the_watch_sees_what_is_there_to_be_seen(machine: Machine) -> None:
    with watched(machine) as found:
        machine.ssh(f"TOLD={SECRET} sleep 1; sh -c 'sleep 1; true' {SECRET}", check=True)
    assert f"cmdline sh -c sleep 1; true {SECRET} " in found["seen"]
    assert any(line.startswith("environ ") and f"TOLD={SECRET}" in line for line in found["seen"])


@pytest.mark.usefixtures("secret_password")
def test_the_sudo_password_shows_nowhere(line: CommandLine, machine: Machine, steps: list[Any]) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    with watched(machine) as found:
        done = line.run(*ASK_CHANGES, RIGUP_SUDO_PASSWORD=SECRET)
        others = [line.run(verb, RIGUP_SUDO_PASSWORD=SECRET) for verb in ("diff", "status")]
    assert changes(done, name) == steps
    assert found["sudos"] > 0, "the watch has to be quick enough to see sudo at all"
    assert found["seen"] == []
    assert SECRET not in "".join(run.text for run in (done, *others))
    machine.ssh("journalctl --sync; sync")
    kept = machine.ssh(f"grep -rls {SECRET} /tmp /var/tmp /run /root /home /etc; journalctl | grep -c {SECRET}")
    assert kept.stdout == "0\n"


@pytest.mark.usefixtures("secret_password")
def test_the_sudo_password_is_asked_for_once_and_not_echoed(line: CommandLine, machine: Machine) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    done = line.on_terminal("diff", "--ask-sudo-password", answers={"sudo password": SECRET})
    assert done.code == 1
    assert f"{name}: " in done.out and "to change" in done.out
    assert done.out.count("password") == 1
    assert SECRET not in done.out


NOISE = """echo 'Welcome to this box'; echo 0; echo 'os plan9'; printf '{"half": '; echo trouble >&2; sleep 0.1\n"""


@pytest.fixture
def noisy_shell(machine: Machine) -> Iterator[None]:
    """Login shells that talk and dawdle."""
    files = ("/home/opspw/.bashrc", "/home/opspw/.profile", "/root/.bashrc", "/root/.profile")
    for path in files:
        machine.ssh(f"cp -p {path} {path}.kept && cat - {path}.kept >{path}", input=NOISE, check=True)
    assert "Welcome" in machine.ssh("true").stdout
    yield
    machine.ssh("; ".join(f"mv {path}.kept {path}" for path in files))


@pytest.mark.usefixtures("noisy_shell")
def test_a_login_shell_that_prints_and_is_slow_does_no_harm(
    line: CommandLine, machine: Machine, steps: list[Any]
) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    assert changes(line.run(*ASK_CHANGES, RIGUP_SUDO_PASSWORD="lab"), name) == steps
    line.describe([(name, data)])
    (row,) = line.run("status", "--json").json["services"]
    assert (row["os"], row["drift"]) == ("debian-12", "not applied")


@contextmanager
def changed_file(machine: Machine, path: str, text: str) -> Iterator[None]:
    """A file over there holds this; as before after it."""
    machine.ssh(f"[ -e {path} ] && cp -p {path} {path}.kept; cat >{path}; chmod 440 {path}", input=text, check=True)
    try:
        yield
    finally:
        machine.ssh(f"if [ -e {path}.kept ]; then mv {path}.kept {path}; else rm -f {path}; fi")


@contextmanager
def prepended(machine: Machine, path: str, shell: str) -> Iterator[None]:
    """A login script over there begins with these lines of sh."""
    machine.ssh(f"cp -p {path} {path}.kept && printf %s {shlex.quote(shell)} | cat - {path}.kept >{path}", check=True)
    try:
        yield
    finally:
        machine.ssh(f"exec 2>/dev/null; mv {path}.kept {path}", input="")


def test_a_login_script_that_prints_bytes_which_are_not_utf8(
    line: CommandLine, machine: Machine, steps: list[Any]
) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "ops"})])
    with prepended(machine, "/home/ops/.bashrc", r"printf 'gr\374\337 Gott\n\377\376\000'; printf '\374\n' >&2" + "\n"):
        assert changes(line.run(*ASK_CHANGES), name) == steps


def test_a_host_that_prints_without_end_fails_alone(line: CommandLine, lab: Lab) -> None:
    machine, other = lab.machines
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "ops"}), other.inventory])
    with prepended(machine, "/home/ops/.bashrc", "yes rigup\n"):
        began = time.monotonic()
        done = line.run(*ASK_CHANGES)
    assert time.monotonic() - began < 60
    ((message, _),) = done.errors
    assert message.startswith(f"{name}: ") and " 200000 lines " in message, done.text
    assert done.hosts[other.name]["changes"]
    assert "Traceback" not in done.text


SH_ALONE = "opspw ALL=(ALL) PASSWD: ALL, NOPASSWD: /bin/sh\n"


def test_a_sudo_password_that_nobody_asks_for_stays_here(line: CommandLine, machine: Machine, steps: list[Any]) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    with changed_file(machine, "/etc/sudoers.d/zz-test", SH_ALONE):
        assert changes(line.run(*ASK_CHANGES, RIGUP_SUDO_PASSWORD=SECRET), name) == steps
    found = machine.ssh(f"grep -rlsF {SECRET} /run /var/cache/rigup /etc/rigup /tmp /root /home")
    assert found.stdout == ""


def test_a_sudo_that_works_on_a_terminal_only(line: CommandLine, machine: Machine) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    with changed_file(machine, "/etc/sudoers.d/zz-test", "Defaults:opspw requiretty\n"):
        for password in ({}, {"RIGUP_SUDO_PASSWORD": "lab"}):
            ((message, hint),) = line.run(*ASK_CHANGES, **password).errors
            assert message.startswith(f"{name}: sudo ") and message.endswith(" (requiretty)")
            assert hint.endswith(": Defaults:opspw !requiretty")


def test_tcsh_as_the_login_shell(line: CommandLine, machine: Machine, steps: list[Any]) -> None:
    if machine.ssh("command -v tcsh").returncode:
        installed = machine.ssh("apt-get update -q && apt-get install -qy --no-install-recommends tcsh")
        assert installed.returncode == 0, installed.stdout + installed.stderr
    machine.ssh("usermod -s /bin/tcsh ops && usermod -s /bin/tcsh root", check=True)
    try:
        for user in ("ops", "root"):
            name, data = machine.inventory
            line.describe([(name, {**data, "ssh_user": user})])
            assert changes(line.run(*ASK_CHANGES), name) == steps
    finally:
        machine.ssh("usermod -s /bin/bash ops; usermod -s /bin/bash root", check=True)


def test_a_server_that_takes_one_session_at_a_time(line: CommandLine, machine: Machine, steps: list[Any]) -> None:
    limit = "/etc/ssh/sshd_config.d/zz-test.conf"
    machine.ssh(f"echo MaxSessions 1 >{limit}; systemctl restart ssh", check=True)
    try:
        assert changes(line.run(*ASK_CHANGES), machine.name) == steps
    finally:
        machine.ssh(f"rm {limit}; systemctl restart ssh", check=True)


def test_status_as_json_and_progress_on_standard_error(line: CommandLine, machine: Machine) -> None:
    done = line.run("status", "--json")
    assert done.code == 1
    (row,) = done.json["services"]
    assert (row["host"], row["health"], row["drift"]) == (machine.name, "no answer", "not applied")
    assert done.err.startswith(f"{machine.name}  connect\n")


def test_piped_diff_holds_no_escape_codes(line: CommandLine) -> None:
    assert "\x1b" not in line.run("diff").text


def test_progress_in_a_terminal_is_drawn_and_cleared(line: CommandLine, machine: Machine) -> None:
    done = line.on_terminal("diff")
    assert done.code == 1
    drawn, _, result = done.out.rpartition("\x1b[2K")
    assert "compare" in drawn
    assert "\x1b[?25l" in drawn, "the cursor is hidden while it is drawn"
    assert "\x1b[?25h" in done.out, "and comes back"
    assert "compare" not in result
    assert f"{machine.name}: " in result


def test_limit_names_hosts(line: CommandLine, lab: Lab) -> None:
    line.describe([machine.inventory for machine in lab.machines])
    second = lab.machines[1].name
    assert list(line.run(*ASK_CHANGES, "--limit", second).hosts) == [second]


def test_a_login_shell_that_hangs_fails_its_host_alone(line: CommandLine, lab: Lab) -> None:
    hanging, other = lab.machines
    name, data = hanging.inventory
    line.describe([(name, {**data, "ssh_user": "ops"}), other.inventory])
    with prepended(hanging, "/home/ops/.bashrc", "sleep 1000\n"):
        began = time.monotonic()
        done = line.run(*ASK_CHANGES)
        took = time.monotonic() - began
        hanging.ssh("pkill -u ops sleep")
    assert done.hosts[other.name]["changes"] != []
    (error,) = done.hosts[name]["errors"]
    assert "login shell" in error["message"]
    assert took < 100, "the whole handshake has three minutes"
