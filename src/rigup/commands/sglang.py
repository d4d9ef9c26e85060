"""SGLang: the command line of `sglang.launch_server`, with the names that each version knows."""

from __future__ import annotations

from rigup.catalogue.option_names import known_values
from rigup.catalogue.versions import version_key
from rigup.commands.options import Options, gpu_variables, kv_cache_type, model_path, parsers, sampling_json
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from rigup.planner.moe_config import takes_own_files
from rigup.systemd.api_key import wants_key

# SGLang accepts a key as an option or from a configuration file; the unit writes a file that only the service can read.
KEY_FILE = "${RUNTIME_DIRECTORY}/api-key.yaml"
CHOOSES_BY_CARD = "0.5.13"


def program(candidate: Candidate, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The first words: the interpreter of the build and the server's module."""
    return ("bin/python", "-m", "sglang.launch_server")


def options(candidate: Candidate, checkpoint: Checkpoint) -> Options:
    """The options for this candidate, in display order."""
    service, parallel = candidate.service, candidate.parallel
    chosen: Options = {
        "--model-path": model_path(candidate.checkpoint, checkpoint),
        "--served-model-name": candidate.served_name,
        "--host": service.listen,
        "--port": service.port,
        "--context-length": candidate.context,
        "--tp-size": parallel.tensor,
    }
    if parallel.pipeline > 1:
        chosen["--pp-size"] = parallel.pipeline
    if parallel.data > 1:
        chosen["--dp-size"] = parallel.data
    if parallel.expert > 1:
        chosen["--ep-size"] = parallel.expert
    chosen |= _memory(candidate)
    chosen |= _mistral_format(candidate)
    chosen.update(candidate.checkpoint.engine_flags.get("sglang", {}))
    chosen |= _backends(candidate)
    if service.trust_remote_code:
        chosen["--trust-remote-code"] = True
    chosen["--enable-metrics"] = True
    chosen |= parsers(candidate)
    if text := sampling_json(candidate):
        chosen["--preferred-sampling-params"] = text
    if wants_key(service):
        chosen["--config"] = KEY_FILE
    return chosen


def environment(candidate: Candidate, checkpoint: Checkpoint) -> dict[str, str]:
    """Variables: offline, the GPUs and the pipeline's partition."""
    variables = {"HF_HUB_OFFLINE": "1", **gpu_variables(candidate)}
    if candidate.pipeline_partition:
        variables["SGLANG_PP_LAYER_PARTITION"] = ",".join(str(part) for part in candidate.pipeline_partition)
    return variables


def _memory(candidate: Candidate) -> Options:
    chosen: Options = {
        "--mem-fraction-static": candidate.memory_fraction,
        "--max-running-requests": candidate.sequences,
        "--chunked-prefill-size": candidate.batched_tokens,
    }
    chosen |= kv_cache_type(candidate)
    if candidate.eager:
        chosen["--disable-cuda-graph"] = True
    return chosen


def _mistral_format(candidate: Candidate) -> Options:
    """The reader of Mistral's own format; releases before 0.5.12 choose that of params.json by the path alone."""
    if not candidate.checkpoint.mistral_class:
        return {}
    chosen: Options = {"--load-format": "mistral"}
    if "--model-config-parser" in candidate.known_options:
        chosen["--model-config-parser"] = "mistral"
    return chosen


def _backends(candidate: Candidate) -> Options:
    """Chooses kernels where the automatic choice is known to be wrong, or would not read rigup's tuned configs.

    NVFP4 on compute capability 12: the choice is flashinfer_trtllm, made for 10 (0.5.23 modelopt_quant.py,
    create_moe_runner). FP8 and NVFP4 from 10.0 on with releases before 0.5.13: reported for 0.5.12 and earlier
    (sglang#26324; sglang#19971: garbage on B200). Later ones choose FP8 kernels by card, and need to: DeepSeek V4's
    experts in FP4 end in Triton's (0.5.23 quantization/fp8.py).
    """
    capabilities, scheme = [gpu.capability for gpu in candidate.gpus], candidate.checkpoint.scheme
    if not capabilities:
        return {}
    wrong = min(capabilities) >= (10, 0) and version_key(candidate.version) < version_key(CHOOSES_BY_CARD)
    chosen: Options = {"--moe-runner-backend": "triton"} if takes_own_files(candidate) else {}
    if scheme == "fp8_block128" and wrong:
        chosen = {"--fp8-gemm-backend": "triton", "--moe-runner-backend": "triton"}
    elif scheme == "nvfp4" and (wrong or min(capabilities) >= (12, 0)):
        chosen = {"--moe-runner-backend": "flashinfer_cutlass"}
    return {o: v for o, v in chosen.items() if v in known_values("sglang", candidate.version, o)}
