"""A tuned kernel for tests. The numbers are made up: nobody has measured them, and nothing of it is shipped."""

from __future__ import annotations

import hashlib
from typing import Any

from rigup.catalogue.moe_configs import MoeConfigFile, TunedKernel
from rigup.commands.moe_configs import canonical_text

MAX_Q = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"


def kernel(**changes: Any) -> TunedKernel:
    """The shape of MiniMax M2 in FP8 on eight cards with whole experts."""
    launch = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}
    said = dict.fromkeys(("measured_by", "measured_on", "engine", "baseline", "gain", "source", "licence"), "a test")
    fields = {
        "experts": 32,
        "width": 1536,
        "dtype": "fp8_w8a8",
        "block_shape": [128, 128],
        "device": MAX_Q,
        "triton": "3.6.0",
        "provenance": said,
        "launches": {"1": {**launch, "num_stages": 3}, "64": {**launch, "num_stages": 2, "SPLIT_K": 1}},
        "measurements": [{"tokens": 1, "baseline_us": 20.5, "tuned_us": 10.25}],
        **changes,
    }
    return TunedKernel.model_validate(fields)


def file_of(tuned: TunedKernel, path: str = "max-q.toml") -> MoeConfigFile:
    """The kernel as a file of that name."""
    return MoeConfigFile(path, hashlib.sha256(canonical_text(tuned).encode()).hexdigest(), tuned)
