"""Which hosts of a run download the same checkpoint together, according to plans and probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rigup.operations.weights.checkpoint import checkpoint_key
from rigup.plan import Checkpoint, Plan
from rigup.settings import WeightsSettings


@dataclass(frozen=True)
class DownloadGroup:
    """One checkpoint on one LAN. fetchers: hosts that lack it, in the run's order. complete: hosts that have it."""

    key: str
    checkpoint: Checkpoint
    fetchers: tuple[str, ...]
    complete: tuple[str, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """All its hosts."""
        return (*self.fetchers, *self.complete)


def download_groups(
    plans: Mapping[str, Sequence[Plan]],
    settings: Mapping[str, WeightsSettings],
    lacking: Mapping[str, Collection[str]],
    ready: Collection[str],
) -> tuple[DownloadGroup, ...]:
    """The download groups of a run: at least two hosts of which one lacks a checkpoint that is large enough to share.

    lacking: keys of the checkpoints that each host is about to download. ready: hosts that have all other checkpoints.
    """
    found: dict[tuple[str, str], dict[str, Checkpoint]] = {}
    for name, of_host in plans.items():
        own = settings[name]
        for plan in of_host:
            for checkpoint in plan.checkpoints:
                if checkpoint.revision is None or checkpoint.host_folder or not own.share:
                    continue
                if sum(file.size for file in checkpoint.files) >= own.from_bytes:
                    found.setdefault((own.lan, checkpoint_key(checkpoint)), {})[name] = checkpoint
    made = []
    for (_, key), hosts in found.items():
        fetchers = tuple(name for name in hosts if key in lacking.get(name, ()))
        complete = tuple(name for name in hosts if name in ready and name not in fetchers)
        if fetchers and len(fetchers) + len(complete) > 1:
            made.append(DownloadGroup(key, next(iter(hosts.values())), fetchers, complete))
    return tuple(made)


def distinct(addresses: Mapping[str, str]) -> dict[str, str]:
    """The addresses that belong to one host only: several hosts with one address are behind a router, for example."""
    owners = Counter(addresses.values())
    return {name: address for name, address in addresses.items() if owners[address] == 1}
