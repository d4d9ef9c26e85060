"""Reads from an engine's log which kernels it chose, and which it left out for want of something on the host. Pure.

Sources: vLLM 0.33.0, platforms/cuda.py, utils/flashinfer.py, utils/deep_gemm.py and below model_executor
kernels/linear/__init__.py and layers/fused_moe/oracle/; SGLang 0.5.23, server_args.py: logged when it is resolved,
but for what is "auto" and is resolved later, unlogged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

# The host filters its log with these words (`grep -E`); every line that this module reads contains one of them.
WORDS = (
    "attention backend|AttentionBackendEnum|MoE backend|Selected .* for |'attention_backend': |"
    "FlashInfer kernels are disabled|Failed to import vendored deep_gemm"
)

_MOST_LINES, _MOST_LINE = 20_000, 65_536
_NAME = r"'?([A-Za-z0-9_]{1,80})'?"
# In order of a step through a layer, with SGLang's names of the same.
_PARTS = {
    "attention": (
        rf"Using {_NAME} attention backend(?: out of|\.)",
        rf"Using AttentionBackendEnum\.{_NAME} backend\.",  # what --attention-backend names
        rf"'attention_backend': {_NAME}",
    ),
    "linear": (rf"Selected {_NAME} for [A-Za-z0-9_]+", rf"'fp8_gemm_runner_backend': {_NAME}"),
    "experts": (rf"Using {_NAME}(?: [A-Za-z0-9]+){{1,2}} MoE backend", rf"'moe_runner_backend': {_NAME}"),
    "sampling": (rf"'sampling_backend': {_NAME}",),
}
_READ = {part: tuple(re.compile(pattern) for pattern in patterns) for part, patterns in _PARTS.items()}
_UNSAID = {"auto", "None"}
LEFT_OUT = {
    "FlashInfer kernels are disabled": "FlashInfer",
    "Failed to import vendored deep_gemm": "DeepGEMM",
}


@dataclass(frozen=True)
class Kernels:
    """What a start said. chosen: kernels by the part of a step that they compute. left_out: what the host lacked."""

    chosen: dict[str, tuple[str, ...]]
    left_out: tuple[str, ...] = ()


def read_kernels(lines: Iterable[str]) -> Kernels:
    """The kernels of one start; a part of which the log says nothing is missing from `chosen`."""
    kept = [line for line in islice(lines, _MOST_LINES) if len(line) <= _MOST_LINE]
    chosen = {part: _named(kept, patterns) for part, patterns in _READ.items()}
    left_out = [what for words, what in LEFT_OUT.items() if any(words in line for line in kept)]
    return Kernels({part: names for part, names in chosen.items() if names}, tuple(left_out))


def _named(lines: Iterable[str], patterns: Iterable[re.Pattern[str]]) -> tuple[str, ...]:
    found = (match[1] for line in lines for pattern in patterns if (match := pattern.search(line)))
    return tuple(dict.fromkeys(name for name in found if name not in _UNSAID))
