"""Reads from an engine's log how much memory it allocated on each GPU. Pure.

Sources: vLLM 0.12.0 to 0.33.0, v1/worker/gpu_worker.py, gpu_model_runner.py and v1/core/kv_cache_utils.py, ranks as
v1/executor/multiproc_executor.py names its workers; SGLang 0.5.9 and 0.5.23, model_executor/model_runner.py,
mem_cache/memory_pool.py and kv_pool_runtime.py, whose "GB" is 2**30 bytes (utils/common.py); llama.cpp b11434,
llama-model.cpp, llama-kv-cache.cpp and llama-context.cpp, which log this only with `--verbosity 4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from rigup.plan import Parallel

# The host filters its log with these words (`grep -E`); every line that this module reads contains one of them.
WORDS = (
    "Model loading took|Available KV cache memory|GPU KV cache size|Graph capturing finished|"
    "CUDA graph memory profiling is enabled|Load weight end|#tokens: |CUDA[0-9]+ .*buffer size|cells, "
)

_GIB = 1024
# limits on lines and digits that no engine exceeds
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_MOST_LINE, _MOST_LINES = 4096, 20_000
# vLLM writes (Worker_DP0_PP1_TP3 pid=7), SGLang [2026-11-21 20:15:00 DP0 PP1 TP3].
_VLLM_RANK = re.compile(r"\((?:Worker|EngineCore)((?:_[A-Z]+[0-9]+)*)[ )]")
_SGLANG_RANK = re.compile(r"^\[[\d:. -]+?((?: [A-Z_]+\d+)+)\]")
_RANK_PART = re.compile(r"(?:^_|(?<=\d)_| )(DP|PP|TP)([0-9]{1,6})")

_WEIGHTS = re.compile(rf"Model loading took {_NUMBER} GiB|Load weight end\..*mem usage={_NUMBER} GB")
_CACHE = re.compile(rf"Available KV cache memory: {_NUMBER} GiB|#tokens: \d+, KV size: {_NUMBER} GB")
_CACHE_HALVES = re.compile(rf"#tokens: \d+, K size: {_NUMBER} GB, V size: {_NUMBER} GB")
_TOKENS = re.compile(
    r"GPU KV cache size: ([0-9][0-9,]{0,18}) tokens|KV [Cc]ache (?:is )?allocated\..*#tokens: ([0-9]{1,15})(?![0-9])"
)
_GRAPHS = re.compile(rf"Graph capturing finished in .* took {_NUMBER} GiB")
_GRAPHS_COUNTED = "CUDA graph memory profiling is enabled"
_LLAMA_CPP = re.compile(rf"CUDA([0-9]{{1,4}}) (model|KV|compute) buffer size = +{_NUMBER} MiB")
_LLAMA_CPP_CELLS = re.compile(
    r"llama_kv_cache: size = .*\( *([0-9]{1,12}) cells, +[0-9]+ layers, +[0-9]+/([0-9]{1,6}) seqs\)"
)


@dataclass(frozen=True)
class Parts:
    """The memory on one GPU, as the log states it; None if the log does not state it.

    kv_tokens: size in tokens of the cache that this GPU holds a part of. graphs_mib: vLLM's CUDA graphs.
    graphs_counted: whether vLLM counts them in its memory limit, which makes the KV cache smaller. compute_mib:
    llama.cpp's compute buffers.
    """

    weights_mib: float | None = None
    kv_cache_mib: float | None = None
    kv_tokens: int | None = None
    graphs_mib: float | None = None
    graphs_counted: bool = False
    compute_mib: float | None = None


def read_log(lines: Iterable[str], parallel: Parallel, gpus: int, first: int = 0) -> tuple[Parts, ...]:
    """The memory on each GPU, in the order in which the engine was given them.

    lines: the log of one start on one host. first: how many of the service's GPUs are on earlier hosts. If the log
    repeats a figure, the last one counts, except that llama.cpp's buffers are added up.
    """
    found = [Parts() for _ in range(gpus)]
    for line in islice((line for line in lines if len(line) <= _MOST_LINE), _MOST_LINES):
        for rank in _ranks(line, parallel, gpus, first):
            found[rank] = _with(found[rank], line, rank)
    return tuple(found)


def _ranks(line: str, parallel: Parallel, gpus: int, first: int) -> Iterator[int]:
    """The GPUs that a line may refer to; all of them if it names no rank.

    Both engines order ranks by data, then pipeline, then tensor. llama.cpp names the device elsewhere in the line,
    which `_with` handles.
    """
    rank_label = _VLLM_RANK.search(line) or _SGLANG_RANK.search(line)
    own = {name: int(number) for name, number in _RANK_PART.findall(rank_label[1])} if rank_label else {}
    for rank in range(gpus):
        stage, own_tensor = divmod(first + rank, parallel.tensor)
        place = {"TP": own_tensor, "PP": stage % parallel.pipeline, "DP": stage // parallel.pipeline}
        if all(place[name] == number for name, number in own.items()):
            yield rank


def _with(parts: Parts, line: str, rank: int) -> Parts:
    """The known figures, updated from one line of the log."""
    if buffer := _LLAMA_CPP.search(line):
        return _with_buffer(parts, buffer[2], float(buffer[3])) if int(buffer[1]) == rank else parts
    if cells := _LLAMA_CPP_CELLS.search(line):
        return replace(parts, kv_tokens=int(cells[1]) * int(cells[2]))
    if tokens := _TOKENS.search(line):
        parts = replace(parts, kv_tokens=int((tokens[1] or tokens[2]).replace(",", "")))
    if weights := _WEIGHTS.search(line):
        return replace(parts, weights_mib=_mib(weights[1] or weights[2]))
    if cache := _CACHE.search(line):
        return replace(parts, kv_cache_mib=_mib(cache[1] or cache[2]))
    if halves := _CACHE_HALVES.search(line):
        return replace(parts, kv_cache_mib=_mib(halves[1]) + _mib(halves[2]))
    if graphs := _GRAPHS.search(line):
        return replace(parts, graphs_mib=_mib(graphs[1]))
    return replace(parts, graphs_counted=True) if _GRAPHS_COUNTED in line else parts


def _with_buffer(parts: Parts, kind: str, size: float) -> Parts:
    match kind:
        case "model":
            return replace(parts, weights_mib=(parts.weights_mib or 0) + size)
        case "KV":
            return replace(parts, kv_cache_mib=(parts.kv_cache_mib or 0) + size)
        case _:
            return replace(parts, compute_mib=size)


def _mib(gib: str) -> float:
    return float(gib) * _GIB
