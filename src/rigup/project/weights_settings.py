"""What an inventory says of how weights travel: whether hosts share them, with whom, and how fast they may come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigup.errors import InputError
from rigup.project.lan_address import lan_address
from rigup.settings import MB, WeightsSettings

WEIGHTS_KEYS = {"weights_sharing", "weights_mb_per_s", "lan", "lan_address"}
_DEFAULTS = WeightsSettings()


def read_weights_settings(data: Mapping[str, Any]) -> WeightsSettings:
    """From a host's data. Raises InputError, naming the key, for what cannot be."""
    sharing = data.get("weights_sharing", True)
    hint = 'use True, False, or {"keep": False, "port": 8791, "from_mb": 256}'
    if not isinstance(sharing, (bool, Mapping)):
        raise InputError(f"weights_sharing: {sharing!r} is not True, False or a dictionary", hint)
    said = sharing if isinstance(sharing, Mapping) else {}
    if unknown := sorted(set(map(str, said)) - {"keep", "port", "from_mb"}):
        raise InputError(f'weights_sharing: unknown key "{unknown[0]}"', hint)
    if not isinstance(keep := said.get("keep", False), bool):
        raise InputError(f"weights_sharing.keep: {keep!r} is not True or False", hint)
    rates = _rates(data.get("weights_mb_per_s", {}))
    if not isinstance(lan := data.get("lan", ""), str):
        raise InputError(f"lan: {lan!r} is not a name", 'name the network whose hosts share weights: lan = "rack1"')
    return WeightsSettings(
        share=sharing is not False,
        keep=keep,
        port=_whole(said.get("port", _DEFAULTS.port), "weights_sharing.port", 1024, 65535, hint=hint),
        from_bytes=_whole(
            said.get("from_mb", _DEFAULTS.from_bytes // MB), "weights_sharing.from_mb", 0, 10**9, hint=hint
        )
        * MB,
        hub_bytes_per_second=rates["hub"],
        lan_bytes_per_second=rates["lan"],
        lan=lan,
        lan_address=lan_address(data),
    )


def _rates(said: Any) -> dict[str, int]:
    """Bytes a second, by where they come from; 0 for no limit."""
    hint = 'set MB/s per host: weights_mb_per_s = {"hub": 20, "lan": 100}'
    if not isinstance(said, Mapping) or set(said) - {"hub", "lan"}:
        raise InputError(f"weights_mb_per_s: {said!r} must be a dictionary with the keys hub and lan", hint)
    for key, rate in said.items():
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.1 <= rate <= 1e6:
            raise InputError(f"weights_mb_per_s.{key}: {rate!r} is not a rate (0.1 or more)", hint)
    return {key: int(said.get(key, 0) * MB) for key in ("hub", "lan")}


def _whole(said: Any, key: str, least: int, most: int, *, hint: str) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise InputError(f"{key}: {said!r} is not a whole number from {least} to {most}", hint)
    return said
