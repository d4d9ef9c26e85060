"""The probe: reads the state of a host in one round trip."""

from __future__ import annotations

from pyinfra.api import FactBase

from rigup.errors import HostFailed
from rigup.facts.gpus import FabricManager, GpuPair, GpuProcess, Nvidia, PcieLink, PciGpu, PowerLimits, ProbedGpu
from rigup.facts.host import BuiltFor, Disk, Listener, NumaNode, Probe, UnattendedUpgrades, UnitState
from rigup.facts.probe_parsing import parse
from rigup.facts.probe_script import PROBE_SECONDS, script
from rigup.host import Host

__all__ = [
    "BuiltFor",
    "Disk",
    "FabricManager",
    "GpuPair",
    "GpuProcess",
    "HostProbe",
    "Listener",
    "NumaNode",
    "Nvidia",
    "PciGpu",
    "PcieLink",
    "PowerLimits",
    "Probe",
    "ProbedGpu",
    "UnattendedUpgrades",
    "UnitState",
    "parse",
    "read_probe",
]


class HostProbe(FactBase[Probe]):
    """Runs the probe's script. Use `read_probe`, which passes the script on standard input."""

    @staticmethod
    def default() -> Probe:
        return Probe()

    def command(self) -> str:
        return "sh -s"

    def process(self, output: list[str]) -> Probe:
        return parse(output)


def read_probe(host: Host) -> Probe:
    """The current state of this host. Raises HostFailed if no output came within PROBE_SECONDS.

    The whole script, with the program that queries NVML, goes over standard input. This takes one round trip and leaves
    nothing on the host.
    """
    probe: Probe = host.get_fact(HostProbe, _stdin=script(), _timeout=PROBE_SECONDS)
    if not probe.os:
        raise HostFailed(f"{host.name}: no response from the host probe", f"check that 'ssh {host.name} true' works")
    return probe
