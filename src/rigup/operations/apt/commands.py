"""apt on a host: waits for its lock, repairs interrupted runs, and survives a lost connection."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import gevent
from gevent.lock import RLock

from rigup.errors import HostFailed
from rigup.host import Host, state_of
from rigup.operations.primitives import jobs, proxy, remote
from rigup.operations.primitives.progress import Progress, report

# A fresh cloud image installs a month of upgrades on its first boot, and holds the lock meanwhile.
LOCK_SECONDS = 900.0
POLL_SECONDS = 2.0
APT_SECONDS = 1800
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")

CLOUD_INIT = "cloud-init"
# Whether cloud-init still sets up this boot, which it does as long as the boot goes on; then the locks.
_HELD = rf"""
[ ! -e /run/cloud-init/enabled ] || [ -e /run/cloud-init/result.json ] ||
case $(systemctl is-system-running) in initializing|starting) echo {CLOUD_INIT} ;; esac
lslocks -n -r -o PID,COMMAND,PATH
"""
NEVER_ASK = {
    "DEBIAN_FRONTEND": "noninteractive",
    # It would ask, or restart services that rigup has not drained.
    "NEEDRESTART_SUSPEND": "1",
}
_TAKEN = r"Could not get lock|Unable to (acquire|lock)"
_TRIES = 5
JOURNAL = "on the host: journalctl -u rigup-apt"

# A separate unit, so a lost connection does not interrupt dpkg. Output goes to the journal, since a pipe may break.
_RUN = (
    proxy.COPY
    + r"""
since=$(date +%s)
systemctl reset-failed rigup-apt.service 2>/dev/null || true
systemd-run --quiet --wait --collect --unit=rigup-apt --description="rigup: $1" \
  --property=@PROXY@ \
  @ENVIRONMENT@ --setenv=LC_ALL=C.UTF-8 -- "$@" >/dev/null 2>&1 && exit 0
journalctl --no-pager -o cat -u rigup-apt.service --since="@$since" | tail -n 200 >&2
exit 1
""".replace("@PROXY@", proxy.PROPERTY).replace(
        "@ENVIRONMENT@", " ".join(f"--setenv={name}={value}" for name, value in NEVER_ASK.items())
    )
)
_ALLOW = ("--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends")
_KEEP_CONFIGURATION = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")


@dataclass
class _Turn:
    """Which greenlet uses apt on a host."""

    lock: RLock = field(default_factory=RLock)


def turn(host: Host) -> RLock:
    """Held while a step of this run uses apt on the host, since several steps run side by side."""
    return state_of(host, _Turn).lock


def wait_for_lock(host: Host, step: str) -> None:
    """Waits until cloud-init is done and apt's locks are free, reporting the holder.

    Raises HostFailed with the holder after LOCK_SECONDS, or Cancelled: a step may have waited long for its turn.
    """
    jobs.check_cancelled(f"{host.name}: {step}: cancelled before apt began")
    deadline = time.monotonic() + LOCK_SECONDS
    while holder := lock_holder(remote.run(host, "sh", "-c", _HELD).stdout):
        jobs.check_cancelled(f"{host.name}: {step}: cancelled while waiting for apt")
        if time.monotonic() > deadline:
            raise HostFailed(*_too_long(f"{host.name}: {step}", holder))
        what = "cloud-init to finish" if holder == CLOUD_INIT else f"apt's lock, held by {holder}"
        report(Progress(host.name, step, text=f"waiting for {what}"))
        gevent.sleep(POLL_SECONDS)


def _too_long(where: str, holder: str) -> tuple[str, str]:
    """Message and hint when the wait ends."""
    again = "run rigup apply again when it has ended"
    if holder == CLOUD_INIT:
        return (
            f"{where}: cloud-init has been setting up the host for {LOCK_SECONDS:.0f} s",
            f"on the host: cloud-init status --long; {again}",
        )
    return (
        f"{where}: {holder} has held apt's lock for {LOCK_SECONDS:.0f} s",
        f"on the host: ps {holder.split()[1]}; {again}",
    )


def lock_holder(listing: str) -> str:
    """The holder of an apt lock in the output of lslocks: "process 4711 (unattended-upgr)", or "" if free.

    CLOUD_INIT if a line before it says so.
    """
    for line in listing.splitlines():
        if line.strip() == CLOUD_INIT:
            return CLOUD_INIT
        pid, _, rest = line.strip().partition(" ")
        command, _, path = rest.rpartition(" ")
        if path in LOCKS:
            return f"process {pid} ({command})"
    return ""


def mend(host: Host, step: str) -> None:
    """Completes half-installed or unconfigured packages of an interrupted dpkg; raises HostFailed if that fails."""
    if not remote.run(host, "dpkg", "--audit").stdout.strip() and not _updates_left(host):
        return
    report(Progress(host.name, step, text="finishing an interrupted dpkg run"))
    run(host, step, "dpkg", "--configure", "-a", "--force-confdef", "--force-confold")


def _updates_left(host: Host) -> bool:
    """Whether dpkg was killed in the middle: apt refuses to work while it finds its journal."""
    return bool(remote.run(host, "find", "/var/lib/dpkg/updates", "-type", "f").stdout.strip())


def run(host: Host, step: str, *words: str, about: str = "", hint: str = JOURNAL) -> None:
    """Runs apt or dpkg, again if another process took the lock first. Raises HostFailed with the reason.

    about: what the message names in place of the step. hint: for a failure of which no more is known.
    """
    for _ in range(_TRIES):
        output = remote.run(host, "sh", "-c", _RUN, *words[:1], *words, timeout=APT_SECONDS)
        if output.ok:
            return
        from rigup.operations.apt.failures import failed, reason  # few runs fail

        if not (taken := re.search(_TAKEN, reason(output.stderr))):
            break
        wait_for_lock(host, step)
    raise failed(host, f"{host.name}: {about or step}", output.stderr, JOURNAL if taken else hint)


def update(host: Host, step: str, source: str | None = None, about: str = "", hint: str = JOURNAL) -> None:
    """Fetches package lists: of every source, tolerating failures, or of one file, which must succeed.

    about, hint: for an error of that fetch, as in `run`; what goes wrong before it has a message of its own.
    """
    alone = (f"Dir::Etc::sourcelist={source}", "Dir::Etc::sourceparts=-", "APT::Get::List-Cleanup=0")
    strict = "APT::Update::Error-Mode=any"
    with turn(host):
        wait_for_lock(host, step)
        mend(host, step)
        if source is None:
            run(host, step, "sh", "-c", "apt-get -q update || true")
            return
        options = (word for option in (*alone, strict) for word in ("-o", option))
        run(host, step, "apt-get", "-q", *options, "update", about=about, hint=hint)
        # apt now has a cache of that source alone; each of the commands to come would make one of all for itself.
        remote.run(host, "apt-cache", "gencaches")


def install(host: Host, step: str, packages: Iterable[str]) -> None:
    """Installs packages ("name" or "name=version") that fit; downgrades to a named version if necessary."""
    from rigup.operations.apt.room import require_room  # few runs install any

    with turn(host):
        wait_for_lock(host, step)
        mend(host, step)
        wanted = (*_ALLOW, "install", *packages)
        require_room(host, step, wanted)
        run(host, step, "apt-get", "-q", "-y", *_KEEP_CONFIGURATION, *wanted)


def install_without_service(host: Host, step: str, package: str) -> None:
    """Updates lists and installs a package whose service of the same name neither starts nor is enabled."""
    unit = f"{package}.service"
    remote.run(host, "systemctl", "mask", "--quiet", unit)
    try:
        update(host, step)
        install(host, step, [package])
    finally:
        remote.run(host, "systemctl", "unmask", "--quiet", unit)
        remote.run(host, "systemctl", "disable", "--quiet", unit)


def download(host: Host, step: str, packages: Iterable[str], without: Iterable[str]) -> None:
    """Downloads what `install` of these needs if those in `without` go; changes nothing else."""
    without_them = (f"{name}-" for name in without)
    with turn(host):
        wait_for_lock(host, step)
        mend(host, step)
        run(host, step, "apt-get", "-q", "-y", *_ALLOW, "--download-only", "install", *packages, *without_them)


def removed_with(host: Host, packages: Iterable[str]) -> tuple[str, ...]:
    """Everything that a removal of these packages takes with it, themselves included. Changes nothing."""
    listing = remote.run(host, "apt-get", "-q", "-s", "--allow-change-held-packages", "remove", *packages).stdout
    return tuple(words[1] for line in listing.splitlines() if (words := line.split())[:1] == ["Remv"])


def remove(host: Host, step: str, packages: Iterable[str]) -> None:
    """Removes packages; files that a person may have changed stay."""
    with turn(host):
        wait_for_lock(host, step)
        run(host, step, "apt-get", "-q", "-y", "--allow-change-held-packages", "remove", *packages)


def versions(host: Host, packages: Iterable[str], repository: str = "") -> dict[str, tuple[str, ...]]:
    """Every version of each package in the host's sources, newest first; unknown packages are left out.

    repository: the address of the only source that counts, since a distribution may have packages of the same name.
    """
    listing = remote.run(host, "apt-cache", "madison", *packages).stdout
    found: dict[str, list[str]] = {}
    for line in listing.splitlines():
        name, _, rest = line.partition("|")
        name, version = name.strip(), rest.partition("|")[0].strip()
        if repository.rstrip("/") in rest and version and version not in found.setdefault(name, []):
            found[name].append(version)
    return {name: tuple(there) for name, there in found.items()}


def exact(name: str, packages: Mapping[str, str], there: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """ "package=version" for each, with the revision in the host's package sources.

    name: the host's. packages: versions without revision, by name. there: from `versions`.
    Raises HostFailed with the available versions if a package does not have this version.
    """
    found = []
    for package, version in packages.items():
        full = [known for known in there.get(package, ()) if upstream(known) == version]
        if not full:
            known = ", ".join(dict.fromkeys(upstream(other) for other in there.get(package, ()))) or "none"
            raise HostFailed(
                f"{name}: {package} {version} is not in the host's package sources",
                f"available: {known}; pin one of them with rigup lock --upgrade",
            )
        found.append(f"{package}={full[0]}")
    return tuple(found)


def install_exactly(host: Host, step: str, packages: Mapping[str, str]) -> None:
    """Installs packages at these versions, without revision, from lists that are up to date. Raises like `exact`."""
    wanted = exact(host.name, packages, versions(host, packages))
    report(Progress(host.name, step, text=f"installing {', '.join(packages)}"))
    install(host, step, wanted)


def upstream(version: str) -> str:
    """A package's version without epoch and revision: "1:580.178.04-1ubuntu1" is 580.178.04."""
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]
