"""rigup without what only Linux has: a Mac's Python finds no /proc and no epoll, and its user is not root.

What cannot be faked here: BSD's tools. `test_no_tool_of_this_machine_is_needed` shows that none but git is run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ssh_server import SshServer

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("the run", "new hosts")]

ROOT = Path(__file__).parents[2]

# What a Mac's Python lacks, from its documentation's "Availability: Linux"; and the files that only Linux has.
ELSEWHERE = """
import fcntl, os, resource, select, signal, socket, sys, _socket
import gevent.os, gevent.select, gevent.socket  # the one that was built for Linux asks for Linux's constants
for module, names in {
    os: "sched_getaffinity sched_setaffinity O_PATH O_TMPFILE memfd_create pidfd_open eventfd splice copy_file_range "
        "posix_fadvise posix_fallocate getrandom getxattr listxattr setxattr O_DIRECT",
    socket: "TCP_QUICKACK TCP_USER_TIMEOUT SO_PEERCRED SO_BINDTODEVICE SO_MARK AF_NETLINK AF_VSOCK MSG_NOSIGNAL",
    _socket: "TCP_QUICKACK TCP_USER_TIMEOUT SO_PEERCRED SO_BINDTODEVICE SO_MARK AF_NETLINK AF_VSOCK MSG_NOSIGNAL",
    select: "epoll EPOLLIN",
    signal: "sigwaitinfo sigtimedwait",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_OFD_SETLK",
    resource: "prlimit",
}.items():
    for name in names.split():
        vars(module).pop(name, None)
os.geteuid = os.getuid = lambda: 501

LINUX = ("/proc", "/sys", "/etc/machine-id", "/etc/os-release", "/usr/lib/os-release", "/run", "/dev/shm")

def absent(path):
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if any(text == one or text.startswith(one + "/") for one in LINUX):
        raise FileNotFoundError(2, "No such file or directory", text)

def without(function):
    def call(path=".", *given, **named):
        absent(path)
        return function(path, *given, **named)
    return call

for name in ("stat", "lstat", "listdir", "scandir", "access", "readlink"):
    setattr(os, name, without(getattr(os, name)))
sys.addaudithook(lambda event, given: absent(given[0]) if event == "open" else None)
"""

NO_TOOLS = """
def refused(event, given):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"):
        program = given[0] if isinstance(given[0], (str, bytes)) else str(given[0])
        if os.path.basename(os.fsdecode(program)) not in ("git", os.path.basename(sys.executable)):
            sys.stderr.write(f"ran {program}\\n")
            os._exit(99)
sys.addaudithook(refused)
"""

EVERY_MODULE = """
import importlib, pkgutil
from pathlib import Path
from rigup.connection.startup import patch_for_many_hosts
from rigup.toolkit import find_roles
patch_for_many_hosts()
find_roles()
import rigup, roles
for package in (rigup, roles):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.startswith(("rigup.lab", "rigup.programs", "rigup.__main__")):
            importlib.import_module(found.name)
from rigup.cli.main import build_parser
build_parser()
from rigup.connection.lease import _lives, myself
import dataclasses
me = myself()
assert me.machine and me.started == "" and _lives(me), me
assert not _lives(me._replace(pid=2**22 + 1))
from rigup.operations.builds.controller import own_os
assert own_os() == ""
"""

ON_A_MAC = """
import sys, types
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxy_settings=None, _get_proxies=None)
sys.platform = "darwin"
"""

RIGUP = "from rigup.cli.main import main\nsys.exit(main())"


def elsewhere(folder: Path, program: str, *words: str, before: str = ELSEWHERE) -> subprocess.CompletedProcess[str]:
    """Runs Python on such a machine, in a folder that is also the user's home."""
    return subprocess.run(
        [sys.executable, "-c", f"{before}\n{program}", *words],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet folder that the toolkit's lock suffices for."""
    for folder in ("inventories", "group_data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "inventories/home.py").write_text('boxes = ["gpu1.lan"]\n')
    (tmp_path / "group_data/boxes.py").write_text(
        'rig = {"gpus": []}\nservices = {"chat": {"model": "SmolLM2-135M-Instruct"}}\n'
    )
    return tmp_path


def test_the_fake_machine_lacks_what_it_should(tmp_path: Path) -> None:
    assert elsewhere(tmp_path, "open('/proc/self/stat')").returncode == 1
    assert elsewhere(tmp_path, "import pathlib; sys.exit(pathlib.Path('/proc/self').exists())").returncode == 0
    assert elsewhere(tmp_path, "socket.TCP_QUICKACK").returncode == 1


def test_every_module_but_the_lab_is_imported(tmp_path: Path) -> None:
    done = elsewhere(tmp_path, EVERY_MODULE)
    assert done.returncode == 0, done.stderr


def test_verbs_that_ask_no_host(fleet: Path) -> None:
    for words, says in (
        (["plan"], "none refused"),
        (["lock"], "+ "),
        (["lock", "--check"], "rigup.lock "),
        (["fit", "1x RTX 3090"], "gpt-oss-20b"),
        (["completion", "zsh"], "#compdef rigup"),
    ):
        done = elsewhere(fleet, RIGUP, *words)
        assert (done.returncode, says in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr


def test_no_tool_of_this_machine_is_needed(fleet: Path) -> None:
    for words in (["plan"], ["lock"], ["fit", "1x RTX 3090"], ["log"], ["diff", "--json"]):
        done = elsewhere(fleet, RIGUP, *words, before=ELSEWHERE + NO_TOOLS)
        assert "ran " not in done.stderr and done.returncode != 99, done.stderr
        assert "Traceback" not in done.stderr, done.stderr


def test_a_connection_is_made(fleet: Path) -> None:
    """As far as a server that lets nobody in: the handshake of SSH and the check of its host key."""
    with SshServer() as server:
        data = {"ssh_hostname": "127.0.0.1", "ssh_port": server.port, "ssh_known_hosts_file": str(fleet / "known")}
        (fleet / "inventories/home.py").write_text(f"boxes = {[('gpu1.lan', data)]!r}\n")
        (fleet / "known").write_text(f"[127.0.0.1]:{server.port} {server.key.get_name()} {server.key.get_base64()}\n")
        done = elsewhere(fleet, RIGUP, "diff")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "gpu1.lan: unreachable" in done.stdout + done.stderr


def test_the_lab_says_that_it_needs_linux(tmp_path: Path) -> None:
    done = elsewhere(tmp_path, RIGUP, "lab", "up", before=ON_A_MAC)
    assert done.returncode == 2, done.stderr
    assert re.search(r"\bLinux\b.*\bdarwin\b", done.stderr)
