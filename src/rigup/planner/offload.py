"""Reads which experts a service keeps in host memory, from its offload setting and its llama.cpp flags.

Source: llama.cpp b11434 common/arg.cpp. --n-cpu-moe N and --cpu-moe keep the experts' three matrices of the first N or
of all layers on the host; --override-tensor assigns the tensors whose names match a regular expression to a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import CPU_MOE, MEMORY_OPTIONS
from rigup.planner.memory.weights import weights_of
from rigup.service import Service
from rigup.units import GIB

_FIRST_LAYERS = MEMORY_OPTIONS["llama.cpp"][CPU_MOE]
ALL_LAYERS = ("--cpu-moe", "-cmoe")
OVERRIDES = ("--override-tensor", "-ot")
OPTIONS = (*_FIRST_LAYERS.names, *ALL_LAYERS, *OVERRIDES)
_MATRICES = ("gate", "up", "down")
# Other tensors of a layer. The plan counts them on the GPU, so no pattern may match them.
_OTHERS = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate_inp", "ffn_gate", "ffn_up", "ffn_down"),
    *("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"),
)
_MOST_CHARACTERS = 500
# A quantifier on a group that has one itself can take forever.
_ENDLESS = r"[*+}]\)[*+{]"


class Overrides(NamedTuple):
    """The effect of --override-tensor. shares: the part of each layer's experts on the host; () without patterns.

    wrong: why rigup cannot count it, "" if it can.
    """

    shares: tuple[float, ...] = ()
    wrong: str = ""


def asked_in_flags(service: Service) -> bool:
    """Whether the service's own flags set which experts are in host memory."""
    return any(service.flags.get(name) not in (None, False) for name in OPTIONS)


def asked_layers(service: Service, layers: int) -> int:
    """The number of first layers whose experts --n-cpu-moe or --cpu-moe keeps on the host."""
    if any(service.flags.get(name) is True for name in ALL_LAYERS):
        return layers
    return min(layers, int(_FIRST_LAYERS.given(service)))


def overrides_of(service: Service, layers: int) -> Overrides:
    """The effect of the service's --override-tensor on a model with so many layers."""
    given = [value for name in OVERRIDES if (value := service.flags.get(name)) not in (None, False)]
    if not given:
        return Overrides()
    texts: list[str] = []
    for value in given:
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                return Overrides(wrong='must be text like "ffn_.*_exps=CPU"')
            texts += text.split(",")
    return _counted(tuple(texts), layers)


@lru_cache(maxsize=256)
def _counted(texts: tuple[str, ...], layers: int) -> Overrides:
    patterns: list[re.Pattern[str]] = []
    for text in texts:
        pattern, equals, device = text.rpartition("=")
        if not equals or not pattern:
            return Overrides(wrong=f'"{text}" is not a pattern and a device, like "ffn_.*_exps=CPU"')
        if device != "CPU":
            return Overrides(wrong=f'"{text}" names the device "{device}", and only CPU is counted')
        if len(pattern) > _MOST_CHARACTERS or re.search(_ENDLESS, pattern):
            return Overrides(wrong=f'"{pattern[:60]}" is too complex a pattern')
        try:
            patterns.append(re.compile(pattern))
        except re.error as error:
            return Overrides(wrong=f'"{pattern}" is not a regular expression: {error}')
    for name in (*(f"blk.{layer}.{other}.weight" for layer in range(layers) for other in _OTHERS), "output.weight"):
        if any(pattern.search(name) for pattern in patterns):
            return Overrides(wrong=f"it moves {name}, and only experts are counted")
    shares = tuple(
        sum(any(p.search(f"blk.{layer}.ffn_{m}_exps.weight") for p in patterns) for m in _MATRICES) / len(_MATRICES)
        for layer in range(layers)
    )
    return Overrides(shares) if any(shares) else Overrides(wrong="it finds no experts of this model")


def offloaded_bytes(candidate: Candidate) -> float:
    """Bytes of weights in host memory instead of on the GPUs, for all GPUs together."""
    experts = weights_of(candidate.checkpoint, candidate.model).experts_on_host(candidate.host_expert_shares)
    return experts + candidate.cpu_offload_gib * GIB * len(candidate.gpu_indices)


def experts_in_words(candidate: Candidate) -> str:
    """The experts in host memory: "the experts of 40 of 62 layers", "all experts", "33% of the experts"."""
    layers, shares = candidate.model.layers, candidate.host_expert_shares
    whole = sum(share == 1 for share in shares)
    if whole == layers:
        return "all experts"
    if whole == sum(shares):
        return f"the experts of {whole} of {layers} layers"
    return f"{sum(shares) / layers:.0%} of the experts"


def complaints(service: Service, layers: int) -> Iterator[str]:
    """The faults of the service's flags about experts, each as a sentence that begins with the option."""
    wrong = overrides_of(service, layers).wrong
    name = next((name for name in OVERRIDES if name in service.flags), OVERRIDES[0])
    if wrong:
        yield f"{name}: {wrong}"
    for switch in ALL_LAYERS:
        if service.flags.get(switch) not in (None, True, False):
            yield f"{switch} takes no value"
