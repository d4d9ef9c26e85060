"""An estimate of decode speed: a range around what a step reads, computes and waits for.

docs/speed.md says how far it is off. The figures of engines are in `rigup.catalogue.paces`, fitted to published runs.
What lies in host memory, and CPUs without a GPU, rest on few runs or none: their ends are below.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rigup.attention.attention_class import Storage
from rigup.catalogue.paces import Pace, paces
from rigup.plan import Speed
from rigup.planner.candidate import Candidate, stage_ranks
from rigup.planner.memory.kv_cache import sequence_bytes
from rigup.planner.memory.weights import active_bytes, weights_of
from rigup.planner.moe_config import lacks_tuned_kernel
from rigup.rig import Gpu
from rigup.units import GIB

UNTUNED = "no tuned expert kernel for this card and shape"
# How much longer a step takes then: eight B200 with SGLang (docs/speed.md) are 1.2 to 1.3 times slower than estimated.
_UNTUNED_FACTOR = 1.25
# How many times as many operations as in bf16 a card does in a format that it computes in (NVIDIA's whitepapers).
_RATES = {"fp8": 2, "mxfp8": 2, "nvfp4": 4}
_LATENT = ("latent", "latent_indexed", "compressed_sparse")
_ADA = (8, 9)
# A100 and A30, H100 to GH200, B200 and GB200, B300 (NVIDIA's data sheets); others have GDDR or LPDDR.
_WITH_HBM = ((8, 0), (9, 0), (10, 0), (10, 3))


class _Host(NamedTuple):
    """One end of the range for what the host reads and computes.

    part: of the host memory's bandwidth if the rig declares it, else bytes_per_s applies.
    """

    part: float
    bytes_per_s: float
    flops_per_s: float


_FAST, _SLOW = _Host(0.8, 60e9, 500e9), _Host(0.18, 20e9, 20e9)


class Stage(NamedTuple):
    """GPUs that read side by side, at the pace of the slowest: `part` of the model's layers lies on `ranks` of them.

    bandwidth: bytes a second of one. flops: of one, in the format that it computes in; 0 where it is not known.
    """

    part: float
    ranks: int
    bandwidth: float
    flops: float = 0.0


class DecodeStep(NamedTuple):
    """What the GPUs do for one token of each of `sequences` requests.

    dense, experts: bytes of weights, of all layers and ranks together. routed: the part of the experts that a token
    takes. cache: bytes that are read, of one rank and all layers. layers: of all kinds, the others among them. active:
    parameters that a token is multiplied with. hbm: whether the cards have such memory. older: whether one is older
    than Ada.
    """

    sequences: int
    dense: float
    experts: float
    routed: float
    cache: float
    layers: int
    expert_layers: int
    latent_layers: int
    linear_layers: int
    hidden: int
    active: float
    hbm: bool
    older: bool
    stages: tuple[Stage, ...]


def gpu_seconds(pace: Pace, step: DecodeStep) -> float:
    """The most likely duration. Stages work one after the other."""
    cards = pace.hbm if step.hbm else pace.gddr
    micro = step.layers * cards.layer + step.expert_layers * cards.expert_layer + step.sequences * pace.sequence
    micro += step.latent_layers * cards.latent_layer + step.linear_layers * cards.linear_layer
    micro += pace.boundary * (len(step.stages) - 1)
    seconds = micro * 1e-6
    experts = step.experts * touched(step.routed, step.sequences**pace.alike)
    read_at = cards.older_experts if step.older else cards.experts
    for stage in step.stages:
        bytes_read = stage.part * (step.dense / cards.weights + experts / read_at) / stage.ranks
        operations = 2.0 * stage.part * step.active * step.sequences / stage.ranks
        computing = operations / (stage.flops * pace.compute) if stage.flops else 0.0
        seconds += max(bytes_read / stage.bandwidth, computing)
        seconds += stage.part * step.cache / (cards.cache * stage.bandwidth)
        if stage.ranks > 1:
            sent = 4.0 * step.sequences * step.hidden / (cards.link_gbs * 1e9) if cards.link_gbs else 0.0
            seconds += 2 * stage.part * step.layers * (cards.reduce * 1e-6 * math.log2(stage.ranks) + sent)
    return seconds


def touched(routed: float, tokens: float) -> float:
    """The part of the experts that so many tokens take together, expected of independent uniform draws."""
    return float(1 - (1 - routed) ** tokens)


def decode_speed(candidate: Candidate, concurrency: int = 1, storage: Storage | None = None, tokens: int = 0) -> Speed:
    """Estimated decode tokens per second of `concurrency` requests together, each with `tokens` in its cache.

    A tuned kernel that is known to be missing makes it slower, and the note says so. storage: another KV cache than the
    candidate's, to compare speeds.
    """
    sequences = max(1, concurrency // candidate.parallel.data)
    kept = storage or candidate.storage
    untuned = lacks_tuned_kernel(candidate)
    if not candidate.gpu_indices:
        fast, slow = (_on_the_host(candidate, kept, sequences, tokens, end) for end in (_FAST, _SLOW))
    else:
        pace = paces()[candidate.engine.name]
        step = step_of(candidate, kept, sequences, tokens)
        middle = gpu_seconds(pace, step) * (_UNTUNED_FACTOR if untuned else 1.0)
        away, spread = _away_bytes(candidate, sequences), pace.spread_of(sequences)
        fast = middle / spread + away / _host_pace(candidate, _FAST)
        slow = middle * spread + away / _host_pace(candidate, _SLOW)
    low, high = (round(concurrency / seconds, 1) for seconds in (slow, fast))
    return Speed(low=low, high=high, note=UNTUNED if untuned else "")


def step_of(candidate: Candidate, storage: Storage, sequences: int, tokens: int) -> DecodeStep:
    """What the candidate's GPUs do for a step."""
    model, ggml = candidate.model, candidate.engine.name == "llama.cpp"
    weights = weights_of(candidate.checkpoint, model)
    experts = sum(layer.experts for layer in weights.layers)
    dense = active_bytes(candidate.checkpoint, model, 0)
    if candidate.offloads_experts:
        experts -= weights.experts_on_host(candidate.host_expert_shares)
    here = 1 - _offloaded(candidate)
    stages = _cards_in_turn(candidate) if ggml else _stages(candidate)
    kept = storage._replace(tensor=1) if ggml else storage
    return DecodeStep(
        sequences=sequences,
        dense=dense * here,
        experts=experts * here,
        routed=_routed(candidate),
        cache=sequence_bytes(model, kept, tokens) * sequences / (stages[0].ranks if ggml else 1),
        layers=model.layers,
        expert_layers=model.moe_layers,
        latent_layers=sum(len(entry.layers) for entry in model.attention if entry.kind in _LATENT),
        linear_layers=sum(len(entry.layers) for entry in model.attention if entry.folds),
        hidden=model.hidden,
        active=model.active_parameters,
        hbm=all(gpu.capability in _WITH_HBM for gpu in candidate.gpus),
        older=any(gpu.capability < _ADA for gpu in candidate.gpus),
        stages=stages,
    )


def _stages(candidate: Candidate) -> tuple[Stage, ...]:
    parallel, gpus = candidate.parallel, candidate.gpus
    shares = candidate.pipeline_partition or (candidate.model.layers,)
    found = []
    for number, layers in enumerate(shares):
        cards = [gpus[rank] for rank in stage_ranks(parallel, number)]
        flops = min(_flops(candidate, card) for card in cards)
        bandwidth = min(card.memory_bandwidth_gbs for card in cards) * 1e9
        found.append(Stage(layers / candidate.model.layers, parallel.tensor, bandwidth, flops))
    return tuple(found)


def _flops(candidate: Candidate, gpu: Gpu) -> float:
    """Operations a second of a card in what it computes the checkpoint's layers in."""
    support, scheme = candidate.format_support, candidate.checkpoint.scheme
    native = support is not None and support.native_on(gpu.compute_capability) and not scheme.endswith("_a16")
    return (gpu.tensor_tflops or 0.0) * 1e12 * (_RATES.get(candidate.checkpoint.weight_format, 1) if native else 1)


def _cards_in_turn(candidate: Candidate) -> tuple[Stage, ...]:
    """llama.cpp's: layers on one card after the other, or each layer on all of them."""
    gpus = candidate.gpus
    split = candidate.tensor_split or (1,) * len(gpus)
    cards = [
        Stage(part / sum(split), 1, gpu.memory_bandwidth_gbs * 1e9, (gpu.tensor_tflops or 0.0) * 1e12)
        for gpu, part in zip(gpus, split, strict=True)
    ]
    if candidate.parallel.tensor == 1:
        return tuple(cards)
    return (Stage(1.0, len(cards), min(card.bandwidth for card in cards), min(card.flops for card in cards)),)


def _routed(candidate: Candidate) -> float:
    """The part of a layer's experts that one token takes."""
    kept = candidate.experts
    return candidate.model.experts_per_token / kept if kept else 0.0


def _offloaded(candidate: Candidate) -> float:
    """The part of the weights that vLLM has in host memory (--cpu-offload-gb), of the first rank as of all."""
    offload = candidate.cpu_offload_gib * GIB
    return offload / (candidate.usage[0].weights + offload) if offload else 0.0


def _away_bytes(candidate: Candidate, sequences: int) -> float:
    """Bytes of a step that lie in host memory: llama.cpp's experts, or what vLLM offloads, which every rank sends."""
    if candidate.cpu_offload_gib:
        read = active_bytes(candidate.checkpoint, candidate.model, sequences)
        return _offloaded(candidate) * read * candidate.parallel.data
    weights = weights_of(candidate.checkpoint, candidate.model)
    return weights.experts_on_host(candidate.host_expert_shares) * touched(_routed(candidate), sequences)


def _host_pace(candidate: Candidate, end: _Host) -> float:
    """Bytes a second. What vLLM offloads crosses PCIe, which is narrower than fast memory."""
    memory = candidate.rig.host_memory
    pace = memory.bandwidth_gbs * 1e9 * end.part if memory else end.bytes_per_s
    return min(pace, _FAST.bytes_per_s) if candidate.cpu_offload_gib else pace


def _on_the_host(candidate: Candidate, storage: Storage, sequences: int, tokens: int, end: _Host) -> float:
    """Seconds of a step where everything is read from host memory and computed there."""
    model = candidate.model
    cache = sequence_bytes(model, storage._replace(tensor=1), tokens) * sequences
    read = active_bytes(candidate.checkpoint, model, sequences) + cache
    return read / _host_pace(candidate, end) + 2.0 * model.active_parameters * sequences / end.flops_per_s
