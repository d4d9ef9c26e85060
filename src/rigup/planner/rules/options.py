"""The user's own flags and variables: the engine version must know them, and the plan must not decide them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rigup.catalogue.option_names import is_own_variable, last_version_with, listed_version, nearest
from rigup.planner.abilities import parsers_of
from rigup.planner.candidate import Candidate
from rigup.planner.rules.decided import DECIDED, instead_of_secret
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns

PACKAGE = "the option and variable names in the engine's own package, per version"
KEY_VARIABLES = {
    "VLLM_API_KEY": "set api_key_file in the service instead",
    "LLAMA_API_KEY": "set api_key_file in the service instead",
    "HF_TOKEN": "leave it out: the service downloads nothing",
    "HUGGING_FACE_HUB_TOKEN": "leave it out: the service downloads nothing",
    "AWS_SECRET_ACCESS_KEY": "leave it out: the service downloads nothing",
    "S3_SECRET_ACCESS_KEY": "leave it out: the service downloads nothing",
    "SGLANG_S3_SECRET_ACCESS_KEY": "leave it out: the service downloads nothing",
}
_SOUNDS_SECRET = re.compile(r"(^|_)(API_KEY|ACCESS_KEY|SECRET|(?<!PER_)TOKEN|PASSWORD|PASSWD|PASSPHRASE)$")
SAMPLING_PARAMETERS = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
OF_CHAT_IN_SGLANG = frozenset(("temperature", "top_p", "top_k", "min_p", "repetition_penalty"))
SPARSE_ATTENTION = ("--nsa-", "--dsa-")

# What replaced names that are gone. Source: vLLM 0.24.0 and SGLang 0.5.23, compared with earlier releases.
SUCCESSORS = {
    "VLLM_USE_FLASHINFER_MOE_FP4": "--moe-backend",
    "VLLM_USE_FLASHINFER_MOE_FP8": "--moe-backend",
    "VLLM_USE_FLASHINFER_MOE_FP16": "--moe-backend",
    "VLLM_FLASHINFER_MOE_BACKEND": "--moe-backend",
    "VLLM_NVFP4_GEMM_BACKEND": "--linear-backend",
    "VLLM_ATTENTION_BACKEND": "--attention-backend",
    "VLLM_ALL2ALL_BACKEND": "--all2all-backend",
    "--nsa-prefill-backend": "--dsa-prefill-backend",
    "--nsa-decode-backend": "--dsa-decode-backend",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--no-mmap": "--load-mode",
    "--mlock": "--load-mode",
    "--mmap": "--load-mode",
}


@refuses("unknown-option", PACKAGE)
def unknown_option(candidate: Candidate) -> Iterator[Complaint]:
    """Every flag of a service must be an option of the engine version."""
    known = candidate.known_options
    for option in candidate.service.flags:
        if _spelled(option) not in known:
            yield _unknown(candidate, "options", option, known)


@refuses("unknown-variable", PACKAGE)
def unknown_variable(candidate: Candidate) -> Iterator[Complaint]:
    """Every engine variable of a service must be one that the engine version reads."""
    known = candidate.known_variables
    for name in candidate.service.environment:
        if is_own_variable(candidate.engine.name, name) and name not in known:
            yield _unknown(candidate, "variables", name, known)


@refuses("unknown-value", "the fixed choices in the engine's own package, per version")
def unknown_value(candidate: Candidate) -> Iterator[Complaint]:
    """A flag with fixed choices must have one of them."""
    for option, value in candidate.service.flags.items():
        known = candidate.known_values(option)
        if known and isinstance(value, str) and value not in known:
            close = _own_parser(candidate, option) or nearest(value, known)
            choices = ", ".join(sorted(known))
            yield (
                f'{engine_name(candidate)}: {option} does not accept "{value}"',
                f'try "{close}"' if close else f"choose from: {choices}",
            )


@refuses("decided-option", "the plan: memory, placement and names depend on these options")
def decided_option(candidate: Candidate) -> Iterator[Complaint]:
    """Settings that the plan decides belong in the service's keys, so that memory is computed from them."""
    for option in candidate.service.flags:
        if (key := DECIDED[candidate.engine.name].get(_spelled(option))) is not None:
            yield f"{option} is decided by the plan", f"set {key} in the service instead"


@refuses("secret-in-command", "a process's command line is world-readable: ps prints it")
def secret_in_command(candidate: Candidate) -> Iterator[Complaint]:
    """A secret must not appear on the command line."""
    for option, value in candidate.service.flags.items():
        if _spelled(option) not in DECIDED[candidate.engine.name] and (
            hint := instead_of_secret(_spelled(option), value)
        ):
            yield f"{option} would put a secret on the command line, where every user of the host can read it", hint


@refuses("key-in-environment", "a unit's environment is world-readable: systemctl show prints it")
def key_in_environment(candidate: Candidate) -> Iterator[Complaint]:
    """An API key belongs in a file that only the service can read, not in its environment."""
    for name in candidate.service.environment:
        if name in KEY_VARIABLES or _SOUNDS_SECRET.search(name):
            hint = KEY_VARIABLES.get(name, "leave it out; a service's only secret is its API key, from api_key_file")
            yield f"{name} would put a secret in the unit, where every user of the host can read it", hint


@warns("unread-version", PACKAGE)
def unread_version(candidate: Candidate) -> Iterator[Complaint]:
    """A version without an option list is checked against the list of the newest version before it."""
    listed = listed_version(candidate.engine.name, candidate.version)
    if candidate.names is None and listed != candidate.version:
        yield (
            f"rigup does not know the option names of {engine_name(candidate)} and assumes those of {listed}",
            "try the command on a host by hand before relying on it",
        )


@warns("sparse-attention", "MiniMax M2's config: attn_type_list is full attention in all 62 layers")
def sparse_attention(candidate: Candidate) -> Iterator[Complaint]:
    """Flags for DeepSeek's sparse attention have no effect on a model with full attention."""
    for option in candidate.service.flags:
        if option.startswith(SPARSE_ATTENTION) and not any(
            getattr(entry, "index_dim", 0) for entry in candidate.model.attention
        ):
            yield f"{option} has no effect: {candidate.model.name} has no sparse attention", "leave it out"


@warns("expandable-segments", "vllm#42609")
def expandable_segments(candidate: Candidate) -> Iterator[Complaint]:
    """PyTorch's expandable segments break the custom all-reduce of tensor parallelism."""
    setting = candidate.service.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if "expandable_segments:True" in setting and candidate.parallel.tensor > 1:
        yield "expandable_segments breaks the custom all-reduce of tensor parallelism", "leave it out"


@refuses("unknown-sampling", "the OpenAI-compatible servers of the three engines")
def unknown_sampling(candidate: Candidate) -> Iterator[Complaint]:
    """Sampling defaults must be parameters that every engine accepts."""
    for name in candidate.service.sampling:
        if name not in SAMPLING_PARAMETERS:
            close = nearest(name, SAMPLING_PARAMETERS)
            known = ", ".join(SAMPLING_PARAMETERS)
            yield f'unknown sampling parameter "{name}"', f'try "{close}"' if close else f"choose from: {known}"


@warns("sampling-of-chat", "SGLang 0.5.23 entrypoints/openai/protocol.py, to_sampling_params")
def sampling_of_chat(candidate: Candidate) -> Iterator[Complaint]:
    """SGLang takes the sampling of chat requests from a file of the checkpoint's, and of few parameters."""
    if candidate.engine.name != "sglang":
        return
    sampling = candidate.service.sampling
    names = sorted(sampling) if candidate.build == "image" else sorted(sampling.keys() - OF_CHAT_IN_SGLANG)
    if names:
        where = "in an image, " if candidate.build == "image" else ""
        yield (
            f"{where}SGLang ignores sampling.{' and sampling.'.join(names)} in chat requests",
            "have clients send it, or use vLLM",
        )


def _spelled(option: str) -> str:
    """An option as in the lists: engines accept underscores for dashes, and a dot before a key of a JSON value."""
    return option.partition(".")[0].replace("_", "-")


def _own_parser(candidate: Candidate, option: str) -> str | None:
    """The engine's parser for the model, because users easily take the name from another engine, where it differs."""
    parsers = parsers_of(candidate)
    own = {"--tool-call-parser": parsers.tool, "--reasoning-parser": parsers.reasoning}.get(option, ())
    return next(iter(own), None)


def _unknown(candidate: Candidate, kind: str, name: str, known: frozenset[str]) -> Complaint:
    last = last_version_with(candidate.engine.name, kind, name)
    what = "option" if kind == "options" else "variable"
    message = f"{engine_name(candidate)} has no {what} {name}"
    if last is not None and candidate.release.at_least(last):
        message += f"; {last} was the last version with it"
    successor = SUCCESSORS.get(name)
    if successor and successor in candidate.known_options:
        return message, f"use the option {successor}"
    close = nearest(name, known)
    return message, f"try {close}" if close else "leave it out"
