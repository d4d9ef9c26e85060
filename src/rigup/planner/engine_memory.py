"""Chooses the engine settings that determine memory, unless the service's flags set them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rigup.catalogue.engines import Engine
from rigup.rig import Rig
from rigup.service import FlagValue, Service

# Parts of a GPU that the engine may take, tried in this order: vLLM's default first. 0.97 has been run on 96 GB cards
# (rtx6kpro, minimax-m25.md, AWQ), where it leaves 2.9 GiB; on small cards it would leave too little. A GPU that shares
# the host's memory has been run at 0.91 to 0.93.
_FRACTIONS = (0.90, 0.95)
_LARGE_GPU_FRACTIONS = (0.90, 0.95, 0.97)
_UNIFIED_FRACTIONS = (0.90, 0.93)
# vLLM 0.33.0 arg_utils: prompt tokens in one step by GPU memory, 70 GiB being the line.
_LARGE_GPU_MIB = 70 * 1024
_BATCHED_TOKENS = 2048
_LARGE_GPU_BATCHED_TOKENS = 8192
# llama-server's --ubatch-size when nobody sets it, and with experts in host memory: each step of a prompt copies them
# to a GPU, so that larger steps do it less often. GLM-4.5-Air in Q4, most experts on the host: 170 to 180 tokens/s of
# prompt at 512 and 530 to 540 at 2,048 (oobabooga/textgen#7309). It is also --batch-size of b11434, which limits it.
MICRO_BATCH = 512
OFFLOAD_MICRO_BATCH = 2048
# vLLM 0.33.0 arg_utils: sequences at once for an API server, by the same line. Its sampler warms up with all of them,
# which takes 4 GiB of 1,024 and a large vocabulary: at 0.97 of a GPU that has run out of memory (a public log). So they
# come down, by quarters, before a larger part of the GPU is taken; sixteen cost 61 MiB.
_SEQUENCES = 256
_LARGE_GPU_SEQUENCES = 1024
_SEQUENCES_STEP = 4
# SGLang 0.5.23 arg_groups/memory_hook.py: the largest batch that it has a CUDA graph for on GPUs from 60 to 160 GiB and
# fewer than four ranks. On smaller ones it would be 32 or 48, which costs context there: sixteen are left.
_SGLANG_LARGE_GPU_SEQUENCES = 256
_LEAST_SEQUENCES = 16
# As many as a service may ask for in `concurrency` and `context`.
_MOST_SEQUENCES = 65_536
_MOST_TOKENS = 16_777_216
_MOST_GIB = 65_536


class MemoryOption(NamedTuple):
    """A number among the flags that memory is counted from. names: one option in all its spellings.

    lowest, highest: of whole numbers; without them it is a part of a GPU, above 0 and up to 1.
    """

    names: tuple[str, ...]
    lowest: int = 0
    highest: int = 0

    def value(self, given: FlagValue | None) -> float | None:
        """The number in a flag, or None if it is not valid: 8.0, "8k", "²" and True are not whole numbers."""
        if not self.highest:
            return positive_number(given, 1)
        number = -1 if given in (-1, "-1") else whole_number(given)
        return number if number is not None and self.lowest <= number <= self.highest else None

    def given(self, service: Service) -> float:
        """The number that the service's flags give, 0 for none; one that is out of range is the rules' business."""
        values = (self.value(service.flags.get(name)) for name in self.names)
        return next((value for value in values if value), 0)


FRACTION, TOKENS, SEQUENCES, OFFLOAD = 0, 1, 2, 3
PROMPT_CACHE = 2  # of llama.cpp: MiB, -1 for no limit
CPU_MOE = 3  # of llama.cpp: layers
MEMORY_OPTIONS = {
    "vllm": (
        MemoryOption(("--gpu-memory-utilization",)),
        MemoryOption(("--max-num-batched-tokens",), 1, _MOST_TOKENS),
        MemoryOption(("--max-num-seqs",), 1, _MOST_SEQUENCES),
        MemoryOption(("--cpu-offload-gb",), 0, _MOST_GIB),
    ),
    "sglang": (
        MemoryOption(("--mem-fraction-static",)),
        MemoryOption(("--chunked-prefill-size",), 1, _MOST_TOKENS),
        MemoryOption(("--max-running-requests",), 1, _MOST_SEQUENCES),
    ),
    "llama.cpp": (
        MemoryOption(("--ubatch-size", "-ub"), 1, _MOST_TOKENS),
        MemoryOption(("--parallel", "-np"), 1, _MOST_SEQUENCES),
        MemoryOption(("--cache-ram", "-cram"), -1, _MOST_GIB * 1024),
        MemoryOption(("--n-cpu-moe", "-ncmoe"), 0, 10_000),
    ),
}
_EAGER = {"vllm": "--enforce-eager", "sglang": "--disable-cuda-graph"}

PARTITION_VARIABLES = {"vllm": "VLLM_PP_LAYER_PARTITION", "sglang": "SGLANG_PP_LAYER_PARTITION"}


class Attempt(NamedTuple):
    """Values to try for a candidate's fields of the same names."""

    memory_fraction: float
    batched_tokens: int
    sequences: int


class MemorySettings(NamedTuple):
    """Candidate's fields of the same names.

    attempts: to try in order, the engine's own defaults first.
    """

    attempts: tuple[Attempt, ...]
    fraction_given: bool = False
    eager: bool = False
    cpu_offload_gib: int = 0
    asked_partition: tuple[int, ...] = ()


def settings_of(engine: Engine, service: Service, rig: Rig, gpu_indices: Sequence[int]) -> MemorySettings:
    """The settings for one engine: the service's flags where it gives them."""
    given = [counted.given(service) for counted in MEMORY_OPTIONS[engine.name]]
    if engine.name == "llama.cpp":
        micro_batch, slots = int(given[0] or MICRO_BATCH), int(given[1] or service.concurrency)
        return MemorySettings(attempts=(Attempt(0.0, micro_batch, slots),))
    gpus = [rig.gpus[index] for index in gpu_indices]
    smallest = min((gpu.memory_mib or _LARGE_GPU_MIB for gpu in gpus), default=0)
    large = smallest >= _LARGE_GPU_MIB
    tokens = _LARGE_GPU_BATCHED_TOKENS if large else _BATCHED_TOKENS
    fractions = _LARGE_GPU_FRACTIONS if large else _FRACTIONS
    if any(gpu.unified_memory for gpu in gpus):
        fractions = _UNIFIED_FRACTIONS
    few = max(_LEAST_SEQUENCES, service.concurrency)
    if engine.name == "sglang":
        most = max(_SGLANG_LARGE_GPU_SEQUENCES, few) if large else few
        fractions = fractions[:2]
    else:
        most = max(_LARGE_GPU_SEQUENCES if large else _SEQUENCES, few)
    attempts = _attempts(fractions, tokens, most, few)
    asked = Attempt(given[FRACTION], int(given[TOKENS]), int(given[SEQUENCES]))
    return MemorySettings(
        attempts=tuple(dict.fromkeys(_overridden(attempt, asked) for attempt in attempts)),
        fraction_given=asked.memory_fraction > 0,
        eager=bool(service.flags.get(_EAGER[engine.name])),
        cpu_offload_gib=int(given[OFFLOAD]) if engine.name == "vllm" else 0,
        asked_partition=partition(service.environment.get(PARTITION_VARIABLES[engine.name], "")),
    )


def _attempts(fractions: tuple[float, ...], tokens: int, most: int, few: int) -> list[Attempt]:
    """Fewer sequences before larger parts of the GPU, and those before smaller steps.

    most, few: sequences. The last attempt leaves most for the KV cache. The least part is tried with smaller steps,
    too: a GPU that shares the host's memory may have no more.
    """
    sequences = [most]
    while sequences[-1] > few:
        sequences.append(max(few, sequences[-1] // _SEQUENCES_STEP))
    attempts = [Attempt(fractions[0], tokens, number) for number in sequences]
    attempts += [Attempt(fraction, tokens, few) for fraction in fractions[1:]]
    return [*attempts, *(Attempt(fraction, _BATCHED_TOKENS, few) for fraction in fractions)]


def _overridden(attempt: Attempt, given: Attempt) -> Attempt:
    """An attempt with what the flags give in place of what would be tried."""
    return Attempt(
        given.memory_fraction or attempt.memory_fraction,
        given.batched_tokens or attempt.batched_tokens,
        given.sequences or attempt.sequences,
    )


def whole_number(given: object) -> int | None:
    """The whole number of 0 or more that a flag or a variable gives, or None."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given if given >= 0 else None
    is_number = isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 16
    return int(str(given)) if is_number else None


def positive_number(given: object, most: float) -> float | None:
    """The number above 0 and up to `most` that a flag gives, or None."""
    try:
        number = float(given) if isinstance(given, (int, float, str)) and not isinstance(given, bool) else 0.0
    except (ValueError, OverflowError):
        return None
    return number if 0 < number <= most else None


def partition(text: str) -> tuple[int, ...]:
    """The layers of each stage in a variable ("30,32"), () if it is not such a list."""
    parts = [whole_number(part.strip()) for part in text.split(",")]
    return tuple(part for part in parts if part is not None) if None not in parts else ()
