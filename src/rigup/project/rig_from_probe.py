"""From a probe to what a user would have written: a rig, a name for its group, a service that fits. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.gpu_names import matching, short_name
from rigup.catalogue.model import Model
from rigup.catalogue.quality import LEVELS
from rigup.errors import InputError, Refused
from rigup.facts.probe import Probe, ProbedGpu
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.preflight.rig import described
from rigup.project.planning import plan_service
from rigup.rig import HostMemory, Rig
from rigup.units import MIB

SERVICE = "chat"
_WHERE = "the probe"
_WORDS = {1: "single", 2: "dual", 3: "triple", 4: "quad", 6: "six", 8: "eight"}
_MOST_ALTERNATIVES = 3
_DEGRADED = LEVELS[-1]
# Below this, whole GiB are too coarse for the comparison with the declared figure at every apply.
_WHOLE_FROM_GIB = 32


@dataclass(frozen=True)
class Suggestion:
    """A service that fits, as group_data has it, and its plan."""

    service: dict[str, Any]
    plan: Plan


def rig_of(host: str, probe: Probe, said: str | None = None, command: str = "") -> dict[str, Any]:
    """The rig of a probed host, as group_data has it.

    said: what the user says the GPUs are, with commas between, for a host whose cards no driver can name yet.
    command: of the user's, to be repeated with what `said` needs; by default that of `rigup init`.
    Raises Refused where the GPUs cannot be told, or one of them does not answer.
    """
    for gpu in probe.gpus:
        if gpu.error:
            raise Refused(
                f"{host}: {described(gpu)} does not respond: {gpu.error}", "repair the GPU, then run the command again"
            )
    memory = probe.memory_kib / MIB
    return {
        "gpus": _gpus(host, probe, said, command or f"rigup init {host}"),
        "host_memory_gib": int(memory) if memory >= _WHOLE_FROM_GIB else round(memory, 1),
        **({"host_memory": probe.host_memory} if HostMemory.read(probe.host_memory) else {}),
        "os": probe.os,
    }


def gpus_of(said: str) -> str | list[str]:
    """The GPUs that a user names, with commas between, as group_data has them."""
    parts = [part.strip() for part in said.split(",") if part.strip()]
    return parts[0] if len(parts) == 1 else parts


def _gpus(host: str, probe: Probe, said: str | None, command: str) -> str | list[str]:
    if said is not None:
        return gpus_of(said)
    if not probe.gpus and probe.pci_gpus:
        why = "nouveau drives them" if probe.nvidia.nouveau else probe.nvidia.error or "no NVIDIA driver is loaded"
        count = len(probe.pci_gpus)
        raise Refused(
            f"{host}: found {count} NVIDIA GPU{'s' if count > 1 else ''} on the PCI bus but could not identify them: "
            f"{why}",
            f'name them: {command} --gpus "{count}x RTX 3090"',
        )
    names = [short_name(gpu.name) for gpu in sorted(probe.gpus, key=lambda gpu: gpu.index)]
    if not names:
        return []
    return f"{len(names)}x {names[0]}" if len(set(names)) == 1 else names


def check_known(host: str, probe: Probe, catalogue: Catalogue) -> None:
    """Raises InputError for a GPU that the catalogue lacks, with the entry that would add it."""
    for gpu in probe.gpus:
        if len(matching(gpu.name, catalogue.gpus)) != 1:
            raise InputError(
                f"{host}: {described(gpu)} is not in the catalogue",
                f"write catalogue/gpus/mine.toml:\n{_entry(gpu)}",
            )


def _entry(gpu: ProbedGpu) -> str:
    lines = [
        "[[gpu]]",
        f"name = {json.dumps(gpu.name)}",
        'architecture = "..."',
        f'compute_capability = "{gpu.compute_capability or "..."}"',
        f"memory_mib = {gpu.memory_total_mib}" if gpu.memory_total_mib and not gpu.memory_of_host else "",
        "memory_bandwidth_gbs = ...",
        'sources = { memory_mib = "NVML", memory_bandwidth_gbs = "..." }',
    ]
    return "\n".join(f"    {line}" for line in lines if line)


def group_name(rig: Rig) -> str:
    """A name for a group of such rigs: quad_3090, single_gb10, dual_3090_and_single_4090, cpu without GPUs."""
    counts = Counter(short_name(gpu.name) for gpu in rig.gpus)
    parts = [f"{_WORDS.get(count, f'rig_of_{count}')}_{slug(name)}" for name, count in counts.items()]
    return "_and_".join(parts) or "cpu"


def slug(name: str) -> str:
    """A name as a part of another: lower case, with underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower().removeprefix("rtx ")).strip("_")


def suggestions(host: str, group: str, data: dict[str, Any], catalogue: Catalogue, lock: Lock) -> list[Suggestion]:
    """Services that fit on a rig, the best first: the largest model, the newest of a size.

    What fits in GPU memory comes first, but degraded quantisations after the others.
    """
    rig = read_rig(data, _WHERE, catalogue)
    found: list[Suggestion] = []
    for offload in ("none", "auto"):
        degraded: list[Suggestion] = []
        for model in sorted(catalogue.served, key=_rank):
            if any(model.name == known.service["model"] for known in found):
                continue
            service = {"model": model.name, "offload": offload}
            (wanted,) = read_services({SERVICE: service}, _WHERE, rig)
            plan = plan_service(host, group, rig, wanted, catalogue, lock, advise=False)
            if plan.verdict == "ok":
                (degraded if plan.quality == _DEGRADED else found).append(Suggestion({"model": model.name}, plan))
            if len(found) > _MOST_ALTERNATIVES:
                return found
        found = [*found, *degraded][: _MOST_ALTERNATIVES + 1]
    return found


def _rank(model: Model) -> tuple[int, list[float]]:
    return -model.parameters, [-float(number) for number in re.findall(r"\d+(?:\.\d+)?", model.name)]


def group_data(
    host: str,
    rig: dict[str, Any],
    service: dict[str, Any],
    settings: Mapping[str, Any],
    others: Sequence[Suggestion] = (),
    name: str = SERVICE,
) -> str:
    """The text of a group_data file.

    service: what is served, under this name; `others` stand in comments. settings: more that the file says.
    """
    lines = [
        f'"""What rigup found on {host}. Edit it as you like: rigup does not write this file again."""',
        "",
        f"rig = {_literal(rig)}",
        f"services = {_literal({name: service})}",
        *(f"{key} = {_literal(value)}" for key, value in settings.items()),
        *_comments(others),
    ]
    return "\n".join(lines) + "\n"


def _comments(others: Sequence[Suggestion]) -> Iterator[str]:
    if others:
        yield ""
        yield "# These fit as well:"
    for other in others:
        plan = other.plan
        assert plan.checkpoint is not None and plan.build is not None
        yield f"# services = {_literal({SERVICE: other.service})}"
        yield f"#   {plan.checkpoint.repo} {plan.checkpoint.quant}, {plan.build.engine}, {plan.context:,} tokens"


def _literal(value: Any) -> str:
    """Plain values as Python and, with double quotes, as formatters like it."""
    return json.dumps(value, ensure_ascii=False)
