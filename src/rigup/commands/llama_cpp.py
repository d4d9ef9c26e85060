"""llama.cpp: the command line of llama-server."""

from __future__ import annotations

from rigup.commands.options import Options, gpu_variables, model_path, sampling
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import MICRO_BATCH, OFFLOAD_MICRO_BATCH
from rigup.planner.memory.host import PROMPT_CACHE_OPTIONS, asks_for_prompt_cache
from rigup.planner.offload import asked_in_flags
from rigup.systemd.api_key import CREDENTIAL, wants_key

PROGRAM = ("bin/llama-server",)
# A request takes one of these threads until it is answered. The engine's own number is four more than its slots: with
# more clients nobody learns of its health, and a gateway takes a busy engine for a dead one. They cost 10 MiB (measured
# with b11434).
HTTP_THREADS = 256
SAMPLING = {
    "temperature": "--temp",
    "top_p": "--top-p",
    "top_k": "--top-k",
    "min_p": "--min-p",
    "repetition_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
}


def program(candidate: Candidate, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The first words: the program, relative to the build's folder."""
    return PROGRAM


def options(candidate: Candidate, checkpoint: Checkpoint) -> Options:
    """The options of llama-server b11434 for this candidate, in display order."""
    service = candidate.service
    # Each slot gets an equal share of the whole context (slots are not unified once --parallel is given).
    chosen: Options = {
        "--model": model_path(candidate.checkpoint, checkpoint),
        "--alias": candidate.served_name,
        "--host": service.listen,
        "--port": service.port,
        "--ctx-size": candidate.context * candidate.sequences,
        "--parallel": candidate.sequences,
        "--threads-http": HTTP_THREADS,
        **_placement(candidate),
        **_cache(candidate),
        "--jinja": True,
        "--metrics": True,
        "--no-ui": True,
        "--offline": True,
        # The plan has decided what fits; the engine must not shrink the context on its own.
        "--fit": "off",
    }
    if candidate.prompt_cache_mib is not None and not asks_for_prompt_cache(candidate):
        chosen[PROMPT_CACHE_OPTIONS[0]] = candidate.prompt_cache_mib
    if service.reasoning:
        chosen["--reasoning-format"] = "deepseek"
    for name, value in sampling(candidate).items():
        chosen[SAMPLING[name]] = value
    if wants_key(service):
        chosen["--api-key-file"] = CREDENTIAL
    return chosen


def environment(candidate: Candidate, checkpoint: Checkpoint) -> dict[str, str]:
    """Which GPUs the server sees, and in what order."""
    return gpu_variables(candidate)


def _placement(candidate: Candidate) -> Options:
    if not candidate.gpu_indices and candidate.hosts == 1:
        return {}
    chosen: Options = {"--n-gpu-layers": candidate.remote_layers or "all"}
    if len(candidate.gpu_indices) > 1 or candidate.tensor_split:
        chosen["--split-mode"] = "tensor" if candidate.parallel.tensor > 1 else "layer"
    if candidate.tensor_split:
        chosen["--tensor-split"] = ",".join(str(part) for part in candidate.tensor_split)
    if candidate.cpu_moe_layers and not asked_in_flags(candidate.service):
        chosen["--n-cpu-moe"] = candidate.cpu_moe_layers
    if candidate.batched_tokens != MICRO_BATCH:
        chosen["--ubatch-size"] = candidate.batched_tokens
    if candidate.batched_tokens == OFFLOAD_MICRO_BATCH and candidate.offloads_experts:
        # No micro-batch is larger than this, whatever a later release has as its default.
        chosen["--batch-size"] = OFFLOAD_MICRO_BATCH
    return chosen


def _cache(candidate: Candidate) -> Options:
    name = candidate.release.kv_cache_name(candidate.kv_cache_type)
    quantised = candidate.kv_cache_type != "f16"
    chosen: Options = {}
    if candidate.gpu_indices or quantised:
        # The value cache can only be quantised with flash attention.
        chosen["--flash-attn"] = "on"
    if quantised and name:
        chosen |= {"--cache-type-k": name, "--cache-type-v": name}
    return chosen
