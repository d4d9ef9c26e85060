"""GPU names: entries of a catalogue file, and how rigup finds the GPU that a user means."""

import difflib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from rigup.rig import Gpu

_VENDOR = re.compile(r"^(nvidia\s+)?(geforce\s+)?", re.IGNORECASE)


class GpuEntry(Gpu):
    """One [[gpu]] of a catalogue file. Only what planning needs is required; the rest is derived or unknown."""

    key: str = ""
    moe_config_name: str = ""
    sources: Annotated[dict[str, str], Field(min_length=1)]

    def gpu(self) -> Gpu:
        """The entry as a Gpu; key and fused-MoE name are derived from the name if the file does not give them."""
        data = dict(self)
        data["key"] = self.key or re.sub(r"[^a-z0-9]+", "-", short_name(self.name).lower()).strip("-")
        # vLLM 0.33.0 platform_utils.get_device_name_as_file_name: white space and slashes become underscores.
        data["moe_config_name"] = self.moe_config_name or re.sub(r"[\s/]+", "_", self.name)
        return Gpu.model_validate(data)


def short_name(name: str) -> str:
    """A name without NVML's prefixes "NVIDIA" and "GeForce"."""
    return _VENDOR.sub("", name.strip())


def matching(name: str, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that a user may mean: one if the name is exact, several if it is ambiguous, none if it is unknown.

    A name is exact if it is NVML's, with or without "NVIDIA" and "GeForce", or the catalogue's key, in any case.
    """
    known = tuple(gpus)
    wanted = _words(name)
    exact = tuple(gpu for gpu in known if wanted in (_words(gpu.name), _words(gpu.key)))
    if exact or not wanted:
        return exact
    return tuple(gpu for gpu in known if set(wanted) <= set(_words(gpu.name)))


def nearest(name: str, gpus: Iterable[Gpu]) -> str | None:
    """The known short name that is most similar, with a number that may be meant: another number is another card."""
    names = [short_name(gpu.name) for gpu in gpus]
    folded = {known.lower(): known for known in names if _may_mean(_number(name), _number(known))}
    found = difflib.get_close_matches(short_name(name).lower(), folded, n=1, cutoff=0.7)
    return folded[found[0]] if found else None


def _may_mean(typed: str, known: str) -> bool:
    """Whether a number is a slip of another: "3900" and "309" of "3090"; "3060" is not, nor "10" of "100"."""
    short, long = sorted((typed, known), key=len)
    one_missing = len(short) > 2 and any(short == long[:at] + long[at + 1 :] for at in range(len(long)))
    return not typed or sorted(typed) == sorted(known) or one_missing


def _number(name: str) -> str:
    """The digits of a name's first number."""
    found = re.search(r"\d+", name)
    return found[0] if found else ""


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.split(r"[\s_-]+", short_name(name).lower()))
