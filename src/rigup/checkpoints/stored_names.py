"""The name of the model in a repository's name, which often says how the weights are stored, too."""

from __future__ import annotations

import re

# What repositories put behind the name of a model to say how it is stored.
STORED = re.compile(
    r"[-_.]((quantized|dynamic|gguf|gptq|awq|autoround|auto-round|nvfp4|mxfp4|mxfp8|fp4|fp8|bf16|fp16|int4|int8|4bit|8bit"
    r"|w4a16|w8a8|w8a16|g32|g64|g128|mixed|mix|i1|ud|hf|block|static|pertensor|kv|fp8kv)([-_.]|$))+$",
    re.IGNORECASE,
)


def model_name(repo: str) -> str:
    """The name of the model in a repository's name: without its owner and without how it is stored."""
    name = repo.rpartition("/")[2]
    return STORED.sub("", name) or name
