"""What an inventory says of how weights travel: whether hosts share them, with whom, and how fast they may come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.errors import InputError
from rigup.fleet.lan_address import lan_address

PORT = 8791
FROM_MB = 256
MB = 1_000_000


@dataclass(frozen=True)
class WeightsSettings:
    """share: whether the host takes part. keep: whether its server stays. port: of that server.

    from_bytes: smaller checkpoints are not worth a server. hub_bytes_per_second, lan_bytes_per_second: 0 for no limit.
    lan: hosts of another name are not talked to. lan_address: where the others find this one; None to ask it.
    """

    share: bool = True
    keep: bool = False
    port: int = PORT
    from_bytes: int = FROM_MB * MB
    hub_bytes_per_second: int = 0
    lan_bytes_per_second: int = 0
    lan: str = ""
    lan_address: str | None = None


def read_weights_settings(data: Mapping[str, Any]) -> WeightsSettings:
    """From a host's data. Raises InputError, naming the key, for what cannot be."""
    sharing = data.get("weights_sharing", True)
    hint = 'True, False, or {"keep": False, "port": 8791, "from_mb": 256}'
    if not isinstance(sharing, (bool, Mapping)):
        raise InputError(f"weights_sharing: {sharing!r} is neither yes nor no", hint)
    said = sharing if isinstance(sharing, Mapping) else {}
    if unknown := sorted(set(map(str, said)) - {"keep", "port", "from_mb"}):
        raise InputError(f'weights_sharing: unknown key "{unknown[0]}"', hint)
    if not isinstance(keep := said.get("keep", False), bool):
        raise InputError(f"weights_sharing.keep: {keep!r} is neither True nor False", hint)
    rates = _rates(data.get("weights_mb_per_s", {}))
    return WeightsSettings(
        share=sharing is not False,
        keep=keep,
        port=_whole(said.get("port", PORT), "weights_sharing.port", 1024, 65535, hint),
        from_bytes=_whole(said.get("from_mb", FROM_MB), "weights_sharing.from_mb", 0, 10**9, hint) * MB,
        hub_bytes_per_second=rates["hub"],
        lan_bytes_per_second=rates["lan"],
        lan=_lan(data.get("lan", "")),
        lan_address=lan_address(data),
    )


def _rates(said: Any) -> dict[str, int]:
    """Bytes a second, by where they come from; 0 for no limit."""
    hint = 'in MB/s for each host, where there is a limit: weights_mb_per_s = {"hub": 20, "lan": 100}'
    if not isinstance(said, Mapping) or set(said) - {"hub", "lan"}:
        raise InputError(f"weights_mb_per_s: {said!r} is no limit", hint)
    for key, rate in said.items():
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.1 <= rate <= 1e6:
            raise InputError(f"weights_mb_per_s.{key}: {rate!r} is not a rate (0.1 or more)", hint)
    return {key: int(said.get(key, 0) * MB) for key in ("hub", "lan")}


def _whole(said: Any, key: str, least: int, most: int, hint: str) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise InputError(f"{key}: {said!r} is not a whole number from {least} to {most}", hint)
    return said


def _lan(said: Any) -> str:
    if not isinstance(said, str):
        raise InputError(
            f"lan: {said!r} is not a name", 'hosts share weights with those of the same lan: lan = "rack1"'
        )
    return said
