"""Which hosts of a run download the same checkpoint together. Nobody is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rigup.fleet.weights_settings import WeightsSettings
from rigup.operations.weights import checkpoint_key
from rigup.plan import Checkpoint, Plan


@dataclass(frozen=True)
class Swarm:
    """One checkpoint on one LAN. fetchers: the hosts that lack it, in the run's order; complete: those that have it."""

    key: str
    checkpoint: Checkpoint
    fetchers: tuple[str, ...]
    complete: tuple[str, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.fetchers, *self.complete)


def swarms(
    plans: Mapping[str, Sequence[Plan]],
    settings: Mapping[str, WeightsSettings],
    lacking: Mapping[str, Collection[str]],
    ready: Collection[str],
) -> tuple[Swarm, ...]:
    """The swarms of a run: of two hosts at least, one of which lacks the checkpoint, which is large enough.

    lacking: keys of the checkpoints that each host is about to fetch; ready: hosts that have all that they do not lack.
    """
    found: dict[tuple[str, str], dict[str, Checkpoint]] = {}
    for name, of_host in plans.items():
        said = settings[name]
        for plan in of_host:
            checkpoint = plan.checkpoint
            if checkpoint is None or checkpoint.revision is None or not said.share:
                continue
            if sum(file.size for file in checkpoint.files) >= said.from_bytes:
                found.setdefault((said.lan, checkpoint_key(checkpoint)), {})[name] = checkpoint
    made = []
    for (_, key), hosts in found.items():
        fetchers = tuple(name for name in hosts if key in lacking.get(name, ()))
        complete = tuple(name for name in hosts if name in ready and name not in fetchers)
        if fetchers and len(fetchers) + len(complete) > 1:
            made.append(Swarm(key, next(iter(hosts.values())), fetchers, complete))
    return tuple(made)


def distinct(addresses: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Each host's addresses without those that several hosts have, as of a container bridge: they lead nowhere."""
    owners: dict[str, int] = {}
    for own in addresses.values():
        for address in set(own):
            owners[address] = owners.get(address, 0) + 1
    return {name: tuple(one for one in own if owners[one] == 1) for name, own in addresses.items()}
