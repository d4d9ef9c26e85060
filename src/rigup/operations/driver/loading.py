"""Loads the installed driver into the running kernel: by reloading modules if possible, else by a reboot."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.facts.probe import Probe, read_probe
from rigup.host import Host
from rigup.operations.driver import reboots
from rigup.operations.driver.state import booting_kernel, loading_problem
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.units import stop_limit
from rigup.plan import DriverPlan

STEP = "driver"
MODULES = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")

# Processes that hold the GPUs open, except units that rigup restarts: one "PID program" per line.
_USERS = r"""
again='/(rigup-[^/]*|nvidia-(persistenced|fabricmanager|dcgm|dcgm-exporter))\.service'
for process in /proc/[0-9]*; do
  ls -l "$process/fd" 2>/dev/null | grep -q ' /dev/nvidia' || continue
  grep -qE "$again" "$process/cgroup" && continue
  echo "${process#/proc/} $(cat "$process/comm")"
done
"""
# A gateway uses no GPU, and requests for other hosts go through it.
_RELOAD = r"""
running=$(systemctl list-units --plain --no-legend --state=active \
  'rigup-*.service' nvidia-persistenced.service nvidia-fabricmanager.service \
  nvidia-dcgm.service nvidia-dcgm-exporter.service | cut -d' ' -f1 \
  | grep -vE '^rigup-((build|weights)-.*|shared_weights|gateway(-address)?)\.service$' || true)
again() { [ -z "$running" ] || systemctl start --no-block $running || true; }
command -v modprobe >/dev/null || { echo "modprobe is missing" >&2; exit 1; }
[ -z "$running" ] || systemctl stop $running
for module in "$@"; do
  if [ -d "/sys/module/$module" ] && ! modprobe --remove "$module"; then again; exit 1; fi
done
if ! modprobe nvidia || ! modprobe nvidia_uvm; then again; exit 1; fi
again
"""


@operation()
def loaded_driver(
    driver: DriverPlan, problem: str, check: Callable[[Probe], None]
) -> Generator[FunctionCommand, None, None]:
    """Ensures that the kernel runs the installed driver.

    + driver: from the plan
    + problem: the current problem, from `loading_problem` of the driver's state; "" for none
    + check: called with a new probe once the driver runs; raises if the host differs from the declared rig
    """
    if not problem:
        host.noop(f"the kernel runs driver {driver.version}")
        return
    yield step(_load, driver, check)


def _load(host: Host, driver: DriverPlan, check: Callable[[Probe], None]) -> None:
    probe = read_probe(host)
    if problem := loading_problem(probe, driver):
        why = _reload(host, probe, problem)
        if why:
            reboots.reboot(host, STEP, why)
        probe = read_probe(host)
    if problem := loading_problem(probe, driver):
        raise HostFailed(*_still_wrong(host.name, probe, driver, problem))
    if probe.nvidia.error:
        raise HostFailed(
            f"{host.name}: {STEP}: driver {driver.version} is loaded, but NVML fails: {probe.nvidia.error}",
            "on the host: nvidia-smi, journalctl -k -b | grep -e NVRM -e Xid",
        )
    check(probe)


def _reload(host: Host, probe: Probe, problem: str) -> str:
    """Reloads the modules. Returns "" on success, else why a reboot is required."""
    if probe.nvidia.nouveau:
        return problem
    users = remote.run(host, "sh", "-c", _USERS).stdout.splitlines()
    if users:
        named = ", ".join(
            f"{name} (process {pid})" for pid, _, name in (user.strip().partition(" ") for user in users[:3])
        )
        return f"{problem}; {named} use the GPUs"
    report(Progress(host.name, STEP, text="loading the modules"))
    reloaded = remote.run(host, "sh", "-c", _RELOAD, "rigup", *MODULES, timeout=stop_limit(host))
    return "" if reloaded.ok else f"{problem}; the kernel modules cannot be reloaded: {reloaded.last_line}"


def _still_wrong(name: str, probe: Probe, driver: DriverPlan, problem: str) -> tuple[str, str]:
    """Message and hint if the kernel still does not run the installed driver."""
    newest = booting_kernel(probe)
    if probe.kernel != newest:
        return (
            f"{name}: {STEP}: {problem}, not {driver.version}: booted kernel {probe.kernel}, not the newest {newest}",
            "make its boot loader start the newest kernel: GRUB_DEFAULT in /etc/default/grub, or grub-reboot",
        )
    return (
        f"{name}: {STEP}: {problem}, not {driver.version}, although it is installed",
        "on the host: dkms status; journalctl -k -b | grep -e NVRM -e nvidia",
    )
