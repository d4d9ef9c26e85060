"""The service: a model to serve. Every key of a `services` entry in group_data is a field here."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from rigup.units import Frozen, Port

Count = Annotated[int, Field(ge=1, le=65536)]
FlagValue = bool | int | float | str | list[Any] | dict[str, Any]

EngineName = Literal["vllm", "sglang", "llama.cpp"]
BuildMethod = Literal["wheel", "source", "image"]
KvCacheType = Literal["auto", "f16", "bf16", "fp8", "q8_0", "q5_1", "q4_0"]
# What a checkpoint's configuration may name; "auto" if it names none.
NamedCacheType = Literal["auto", "fp8", "nvfp4"]

Preference = Literal["quality", "speed", "context"]
DraftKind = Literal["mtp", "eagle", "draft"]


class Speculative(Frozen):
    """`speculative` of a service: what drafts tokens, which the model then verifies together.

    kind: "mtp", the checkpoint's own draft layers; "eagle", an EAGLE head; "draft", a smaller model.
    model: of the last two, as in the service's `model`. quant: which of its checkpoints. tokens: drafted at once; None
    leaves it to the planner.
    """

    kind: DraftKind
    model: str | None = None
    quant: str | None = None
    tokens: Annotated[int, Field(ge=1, le=16)] | None = None


# Absolute, without "." and "..", and without characters that units and shells read as more than a path.
HOST_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9_+@=.-]{1,200})+")
OLLAMA = re.compile(r"ollama:((?:[a-z0-9][\w.-]{0,80}/)?[a-z0-9][\w.-]{0,80})(?::(\w[\w.-]{0,127}))?", re.ASCII)


def location_of(checkpoint: str) -> str:
    """Where the files of a service's checkpoint are, if not in a repository of the hub; "" if they are.

    That is a path on hosts, "/models/x.gguf", or a name in Ollama's registry, always with its tag: "ollama:qwen3:8b".
    Raises ValueError, with what is wrong, for one that begins like either and is not.
    """
    if checkpoint.startswith("/"):
        if not HOST_PATH.fullmatch(checkpoint) or len(checkpoint) > 1000:
            raise ValueError("not an absolute path of letters, digits and _ + @ = . - without ..")
        return checkpoint
    if checkpoint.startswith("ollama:"):
        found = OLLAMA.fullmatch(checkpoint)
        if found is None:
            raise ValueError('not a name in Ollama\'s registry, like "ollama:qwen3:8b"')
        return f"ollama:{found[1].removeprefix('library/')}:{found[2] or 'latest'}"
    return ""


def _checked_location(text: str) -> str:
    if text and location_of(text) != text:
        raise ValueError("neither a path on hosts nor a name in Ollama's registry with its tag")
    return text


Location = Annotated[str, AfterValidator(_checked_location)]
"""What `location_of` returns."""


def blobs_address(registry: str, location: str) -> str:
    """The address below which the files of a name in Ollama's registry lie, each under sha256:HASH."""
    name = location.removeprefix("ollama:").rpartition(":")[0]
    return f"{registry.rstrip('/')}/v2/{name if '/' in name else f'library/{name}'}/blobs"


class Service(Frozen):
    """One entry of `services`. `model` or `checkpoint` is required; None means "the planner decides".

    checkpoint: a repository of the catalogue, or what `location_of` reads.

    quick_build: a build from source that is compiled sooner, for rehearsals: only its kernels are optimised.
    context: tokens. concurrency: requests in flight. gpus: indices or UUIDs; None means every GPU of the rig.
    swap: whether it takes turns on them with the other services of its host that say so, one resident at a time.
    offload: "none" keeps every weight in VRAM, "experts" puts all experts into host memory, "auto" puts as few there as
    makes it fit, when nothing else fits. prefer: what decides between possibilities that fit; None is the level of
    quality, then speed.
    start_timeout: seconds until it must answer; None means a limit from its size.
    drain_timeout: seconds that requests in flight have to end when the service stops; 0 cuts them. The default is
    enough for an answer of 2,000 tokens at 20 tokens/s.
    expected_answer: what the answer to rigup's question must contain, in any case; "" accepts any answer but one that
    only repeats itself, None any at all.
    speculative: what drafts tokens, None for nothing.
    across_hosts: whether the engine itself or Ray joins the hosts of a multi-host service. join_port: where
    the head waits for the others, or where llama.cpp's RPC servers listen; None means `port` plus 10,000.
    enabled: False keeps the service stopped; it is neither planned nor installed then.
    flags: extra options for the engine (True means a bare switch). allow: ids of rules to silence.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    enabled: bool = True
    model: str | None = None
    checkpoint: str | None = None
    quant: str | None = None
    engine: EngineName | None = None
    version: str | None = None
    build: BuildMethod | None = None
    quick_build: bool = False
    context: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    kv_cache_type: KvCacheType = "auto"
    concurrency: Count = 1
    tensor_parallel: Count | None = None
    pipeline_parallel: Count | None = None
    data_parallel: Count | None = None
    expert_parallel: bool | None = None
    offload: Literal["auto", "none", "experts"] = "auto"
    prefer: Preference | None = None
    speculative: Speculative | None = None
    gpus: tuple[int | str, ...] | None = None
    swap: bool = False
    listen: str = "127.0.0.1"
    port: Port = 8000
    api_key_file: str | None = None
    served_name: str | None = None
    tools: bool = False
    reasoning: bool = False
    sampling: dict[str, float] = {}
    trust_remote_code: bool = False
    across_hosts: Literal["engine", "ray"] = "engine"
    join_port: Port | None = None
    start_timeout: Annotated[int, Field(ge=1, le=86_400)] | None = None
    drain_timeout: Annotated[int, Field(ge=0, le=3600)] = 120
    expected_answer: Annotated[str, Field(max_length=100)] | None = "Paris"
    flags: dict[str, FlagValue] = {}
    environment: dict[str, str] = {}
    allow: tuple[str, ...] = ()
