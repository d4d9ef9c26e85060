"""Which line of a failed start's log is shown, for logs as the engines write them."""

from __future__ import annotations

import pytest

from rigup.catalogue.engine_packages.start_failures import LONGEST, reason_in, start_failures

# Shortened: llama.cpp b11434's usage text and loader; vLLM issues 17979 and 20305; SGLang issue 8974's form.
LOGS = {
    "llama.cpp: an argument": (
        "llama.cpp-b11434-3f2a",
        "error while handling argument \"--chat-template-file\": error: failed to open file '/x.jinja'\n\n\nusage:\n"
        "--chat-template-file JINJA_TEMPLATE_FILE\n                        set custom jinja chat template file\n\n"
        "to show complete usage, run with -h\n",
        "error while handling argument \"--chat-template-file\": error: failed to open file '/x.jinja'",
    ),
    "llama.cpp: a file": (
        "llama.cpp-b11434-3f2a",
        "srv    load_model: loading model '/w/a.gguf'\n"
        "gguf_init_from_file: failed to open GGUF file '/w/a.gguf' (No such file or directory)\n"
        "llama_model_load: error loading model: llama_model_loader: failed to load model from /w/a.gguf\n"
        "llama_model_load_from_file_impl: failed to load model\n"
        "srv  llama_server: exiting due to model loading error\n",
        "failed to open GGUF file '/w/a.gguf' (No such file or directory)",
    ),
    "llama.cpp: memory": (
        "llama.cpp-b11434-3f2a",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 24010.00 MiB on device 0: cudaMalloc failed: out of "
        "memory\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
        "allocating 24010.00 MiB on device 0: cudaMalloc failed: out of memory",
    ),
    "vLLM: memory": (
        "vllm-0.33.0-3f2a",
        "(EngineCore pid=9) ERROR 11-23 12:00:01 [core.py:1584] EngineCore failed to start.\n"
        "(EngineCore pid=9) ERROR 11-23 12:00:01 [core.py:1584] Traceback (most recent call last):\n"
        '(EngineCore pid=9) ERROR 11-23 12:00:01 [core.py:1584]   File "/x/core.py", line 1, in run_engine_core\n'
        "(EngineCore pid=9) ERROR 11-23 12:00:01 [core.py:1584] ValueError: Free memory on device (3.2/4.0 GiB) on "
        "startup is less than desired GPU memory utilization (0.9, 3.6 GiB).\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
        "{}\n",
        "ValueError: Free memory on device (3.2/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, "
        "3.6 GiB).",
    ),
    "vLLM: an option": (
        "vllm-0.33.0-3f2a",
        "usage: vllm serve [model_tag] [options]\nvllm: error: unrecognized arguments: --speed\n",
        "unrecognized arguments: --speed",
    ),
    "SGLang: memory": (
        "sglang-0.5.23-3f2a",
        "[2026-11-23 12:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/scheduler.py", line 1, in run_scheduler_process\n'
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
        "RuntimeError: Initialization failed. Please see the error messages above.\n",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    "nothing known": ("vllm-0.33.0-3f2a", "INFO 11-23 12:00:01 [api.py:1] Starting vLLM server\n", ""),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_line_that_says_why_is_found(name: str) -> None:
    build, log, why = LOGS[name]
    assert reason_in(log.splitlines(), build) == why


def test_a_long_line_is_cut() -> None:
    assert len(reason_in(["x: error: " + "a" * 5000], "vllm-1-2")) == LONGEST


def test_each_engine_has_lines_with_sources() -> None:
    assert {one.engine for one in start_failures()} == {"llama.cpp", "vllm", "sglang"}
    assert all(one.source for one in start_failures())
