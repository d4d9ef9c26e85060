"""Puts a gateway's files on its host: checked before, taken over without dropping a connection, asked afterwards.

If HAProxy refuses the new configuration nothing is changed. If the gateway does not answer with it, the earlier files
are put back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator

import gevent
from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.deb import DebPackages

from rigup.errors import HostFailed
from rigup.gateway.files import EVERY_FILE, PROGRAM, GatewayFiles, needs_restart
from rigup.gateway.paths import (
    CANDIDATE,
    CONFIGURATION_FILE,
    FOLDER,
    PACKAGE,
    PREVIOUS,
    UNIT,
    UNIT_FILE,
    USER,
)
from rigup.host import Host, state_of
from rigup.operations.apt import commands as apt
from rigup.operations.gateway.admin import (
    WORDS,
    AdminAnswers,
    DrainedNow,
    is_current,
    left_out,
    outdated_maps,
    read_answers,
    replace_map,
    running_digest,
    state_commands,
    tell,
)
from rigup.operations.gateway.http_status import http_status
from rigup.operations.gateway.removal import GATEWAY, STOP_SECONDS
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.removal import remove_part
from rigup.operations.primitives.root_files import FileDigests
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles
from rigup.operations.primitives.units import unit_state

STEP = "gateway"
MODE = "640"
READY_SECONDS = 20.0
LOG = f"on the host: journalctl -u {UNIT}"
_KEEP = 'rm -rf -- "$2"; [ ! -d "$1" ] || cp -a -- "$1" "$2"'
_RESTORE = 'rm -rf -- "$1"; [ ! -d "$2" ] || mv -T -- "$2" "$1"'
_NAMES = tuple(path.rpartition("/")[2] for path in EVERY_FILE)
_CONFIGURATION = CONFIGURATION_FILE.rpartition("/")[2]


@operation()
def installed_haproxy() -> Generator[FunctionCommand, None, None]:
    """Ensures that the distribution's HAProxy is installed. Its own service is neither started nor enabled."""
    if PACKAGE in host.get_fact(DebPackages):
        host.noop("haproxy is installed")
        return
    yield step(_install)


def _install(host: Host) -> None:
    report(Progress(host.name, STEP, text="installing haproxy"))
    apt.install_without_service(host, STEP, PACKAGE)


@operation()
def running_gateway(files: GatewayFiles, urls: tuple[tuple[str, str], ...]) -> Generator[FunctionCommand, None, None]:
    """Ensures that a gateway runs with these files, and answers.

    + files: all that it needs
    + urls: what it must answer, each with the status
    """
    there = host.get_fact(FileDigests, folder=FOLDER, names=_NAMES)
    wanted = {path.rpartition("/")[2]: text for path, text in files.by_path.items()}
    right = {name: f"{_digest(text)} regular file|{MODE}|root:{USER}" for name, text in wanted.items()}
    answers = host.get_fact(AdminAnswers, commands=state_commands(files.maps))
    unit = host.get_fact(TextFiles, paths=(UNIT_FILE,)).get(UNIT_FILE, "")
    if (
        there == right
        and unit == files.unit.strip()
        and unit_state(host, UNIT).is_right
        and is_current(answers, files.digest, files.maps, _drained(host))
    ):
        host.noop("the gateway is up to date")
        return
    yield step(_place, files, urls)


def _digest(text: str) -> str:
    # as `remote.write_file` writes it: standard input ends with a newline
    return hashlib.sha256(f"{text.rstrip()}\n".encode()).hexdigest()


def _place(host: Host, files: GatewayFiles, urls: tuple[tuple[str, str], ...]) -> None:
    _check(host, files)
    remote.script(host, _KEEP, FOLDER, PREVIOUS, doing="keeping the earlier gateway")
    earlier = remote.run(host, "cat", UNIT_FILE).stdout
    try:
        _write(host, FOLDER, files)
        remote.write_file(host, UNIT_FILE, files.unit.rstrip("\n"))
        _take_over(host, files, restart=needs_restart(earlier, files.unit))
        _ask(host, urls)
    except HostFailed as error:
        try:
            _go_back(host, earlier)
            what = "the earlier gateway was restored" if earlier else "it was stopped"
        except HostFailed as second:
            what = f"restoring the earlier gateway also failed: {second.message}"
        raise HostFailed(f"{error.message}; {what}", error.hint) from None
    remote.check_output(host, "rm", "-rf", PREVIOUS)


def _check(host: Host, files: GatewayFiles) -> None:
    """Has HAProxy read the files in a folder beside. Raises HostFailed with its complaint."""
    _write(host, CANDIDATE, files)
    checked = remote.run(host, PROGRAM, "-c", "-f", f"{CANDIDATE}/{_CONFIGURATION}")
    remote.check_output(host, "rm", "-rf", CANDIDATE)
    lines = checked.stderr.splitlines()
    if unknown := [line for line in lines if "could not resolve address" in line]:
        name = unknown[0].partition("could not resolve address")[2].strip(" ,'").partition("'")[0]
        raise HostFailed(
            f"{host.name}: the gateway cannot resolve {name}",
            f'set its address in the inventory: ("{name}", {{"lan_address": "192.168.1.10"}})',
        )
    if not checked.ok:
        told = next((line for line in lines if "[ALERT]" in line), checked.last_line)
        raise HostFailed(f"{host.name}: HAProxy refuses the configuration: {told.replace(CANDIDATE, FOLDER)}")


def _write(host: Host, folder: str, files: GatewayFiles) -> None:
    remote.make_folders(host, folder)
    for path, text in files.by_path.items():
        text = text.replace(FOLDER, folder) if path == CONFIGURATION_FILE else text
        remote.write_file(host, path.replace(FOLDER, folder), text.rstrip("\n"), MODE, USER)
    unwanted = [path.replace(FOLDER, folder) for path in EVERY_FILE if path not in files.by_path]
    if unwanted:
        remote.check_output(host, "rm", "-f", *unwanted)


def _take_over(host: Host, files: GatewayFiles, restart: bool) -> None:
    """Has the running process use the files, with as little as the change needs, and waits until it does."""
    if restart or not remote.run(host, "systemctl", "is-active", "--quiet", UNIT).ok:
        _restart(host)
    else:
        remote.check_output(host, "systemctl", "daemon-reload")
        answers = tell(host, *state_commands(files.maps))
        # a file that somebody edited, and had the process read, still has the digest that rigup wrote into it
        edited = not remote.run(host, "cmp", "--silent", CONFIGURATION_FILE, f"{PREVIOUS}/{_CONFIGURATION}").ok
        if edited or running_digest(answers) != files.digest:
            _reload(host)
        else:
            for path in outdated_maps(answers, files.maps):
                replace_map(host, path, files.maps[path])
            if names := left_out(answers, _drained(host)):
                tell(host, *(f"set server {name} state ready" for name in names))
    remote.check_output(host, "systemctl", "--quiet", "enable", UNIT)
    with gevent.Timeout(
        READY_SECONDS, HostFailed(f"{host.name}: the gateway did not take over its configuration", LOG)
    ):
        while not _is_current(host, files):
            gevent.sleep(0.2)


def _is_current(host: Host, files: GatewayFiles) -> bool:
    output = remote.run(host, *WORDS, stdin=json.dumps(state_commands(files.maps)))
    return is_current(read_answers(output.stdout.strip()), files.digest, files.maps, _drained(host))


def _drained(host: Host) -> set[str]:
    return state_of(host, DrainedNow).servers


def _restart(host: Host) -> None:
    remote.script(host, 'systemctl daemon-reload; systemctl reset-failed "$1" 2>/dev/null || true', UNIT)
    if not remote.run(host, "systemctl", "restart", UNIT, timeout=STOP_SECONDS).ok:
        raise HostFailed(f"{host.name}: the gateway does not start: {_complaint(host)}", LOG)


def _reload(host: Host) -> None:
    if not remote.run(host, "systemctl", "reload", UNIT).ok:
        raise HostFailed(f"{host.name}: the gateway does not reload: {_complaint(host)}", LOG)


def _complaint(host: Host) -> str:
    return next((line for line in reversed(remote.log_lines(host, UNIT, 30)) if "[ALERT]" in line), "no output")


def _ask(host: Host, urls: tuple[tuple[str, str], ...]) -> None:
    """Raises HostFailed unless the gateway answers as it must."""
    for url, status in urls:
        if (found := http_status(host, url, 10)) != status:
            raise HostFailed(f"{host.name}: the gateway answers {url} with {found}, not {status}", LOG)


def _go_back(host: Host, unit: str) -> None:
    """Puts the earlier files back, as far as there were any."""
    remote.script(host, _RESTORE, FOLDER, PREVIOUS, doing="restoring the earlier gateway")
    if unit:
        remote.write_file(host, UNIT_FILE, unit.rstrip("\n"))
        remote.script(host, 'systemctl daemon-reload; systemctl reload-or-restart "$1"', UNIT, timeout=STOP_SECONDS)
    else:
        remove_part(host, GATEWAY)
