"""What engines say of their memory, in the words of their own sources: vLLM, SGLang and llama.cpp."""

from __future__ import annotations

import re

import pytest

from rigup.facts.engine_memory import WORDS, Parts, read_log
from rigup.plan import Parallel

VLLM_TP2 = """\
(Worker_TP0 pid=11) INFO 11-21 20:15:00 [gpu_model_runner.py:5089] Model loading took 53.75 GiB memory and 61.5 seconds
(Worker_TP1 pid=12) INFO 11-21 20:15:00 [gpu_model_runner.py:5089] Model loading took 53.5 GiB memory and 61.2 seconds
(Worker_TP0 pid=11) INFO 11-21 20:15:20 [gpu_worker.py:773] Available KV cache memory: 23.62 GiB
(Worker_TP1 pid=12) INFO 11-21 20:15:20 [gpu_worker.py:773] Available KV cache memory: 23.87 GiB
(Worker_TP0 pid=11) INFO 11-21 20:15:20 [gpu_worker.py:786] CUDA graph memory profiling is enabled (default since
(EngineCore pid=10) INFO 11-21 20:15:20 [kv_cache_utils.py:1708] GPU KV cache size: 399,424 tokens
(Worker_TP0 pid=11) INFO 11-21 20:15:40 [gpu_model_runner.py:6517] Graph capturing finished in 21 secs, took 0.75 GiB
(EngineCore pid=10) INFO 11-21 20:15:41 [core.py:300] Application startup complete.
"""
SGLANG_0_5_9 = """\
[2026-11-21 20:15:00 TP1] Load weight end. elapsed=31.50 s, type=MiniMaxM2ForCausalLM, dtype=torch.bfloat16, \
avail mem=41.01 GB, mem usage=53.25 GB.
[2026-11-21 20:15:00 TP0] Load weight end. elapsed=31.52 s, type=MiniMaxM2ForCausalLM, dtype=torch.bfloat16, \
avail mem=40.95 GB, mem usage=53.50 GB.
[2026-11-21 20:15:01 TP0] KV Cache is allocated. #tokens: 300000, K size: 8.87 GB, V size: 8.88 GB
[2026-11-21 20:15:01 TP1] KV Cache is allocated. #tokens: 300000, K size: 8.87 GB, V size: 8.88 GB
[2026-11-21 20:15:30 TP0] max_total_num_tokens=300000, chunked_prefill_size=8192, context_len=196608
"""
SGLANG_0_5_23 = """\
[2026-11-21 20:15:00] Load weight end. elapsed=31.50 s, type=MiniMaxM2ForCausalLM, quant=fp8, avail mem=41.01 GB, \
mem usage=10.50 GB.
[2026-11-21 20:15:01] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, K size: 4.00 GB, V size: 4.00 GB
[2026-11-21 20:15:30] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 210000, \
KV size: 8.50 GB, avail mem=1.20 GB
"""
LLAMA_CPP = """\
0.00.254.811 I load_tensors:          CPU model buffer size =   166.92 MiB
0.00.254.812 I load_tensors:        CUDA0 model buffer size = 20480.50 MiB
0.00.254.813 I load_tensors:        CUDA1 model buffer size = 19456.25 MiB
0.00.260.024 I llama_context:  CUDA_Host  output buffer size =     0.77 MiB
0.00.260.148 I llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
0.00.260.149 I llama_kv_cache:      CUDA1 KV buffer size =   960.00 MiB
0.00.566.631 I llama_kv_cache: size = 1984.00 MiB ( 32768 cells,  62 layers,  2/2 seqs), K (f16): 992.00 MiB, V
0.00.576.457 I sched_reserve:      CUDA0 compute buffer size =   400.00 MiB
0.00.576.458 I sched_reserve:  CUDA_Host compute buffer size =    78.77 MiB
0.00.577.457 I sched_reserve:      CUDA0 compute buffer size =   410.00 MiB
"""


def read(text: str, gpus: int = 2, **sizes: int) -> tuple[Parts, ...]:
    return read_log(text.splitlines(), Parallel(**sizes), gpus)


def test_vllm_says_it_of_each_rank_and_of_its_cache() -> None:
    first, second = read(VLLM_TP2, tensor=2)
    assert first == Parts(53.75 * 1024, 23.62 * 1024, 399_424, 0.75 * 1024, graphs_counted=True)
    assert (second.weights_mib, second.kv_cache_mib, second.kv_tokens) == (53.5 * 1024, 23.87 * 1024, 399_424)
    assert (second.graphs_mib, second.graphs_counted) == (None, False)


def test_the_one_process_of_a_single_gpu_names_no_rank() -> None:
    older = (
        "(EngineCore_DP0 pid=9) INFO Model loading took 1.5000 GiB memory and 2 seconds\nGPU KV cache size: 96 tokens"
    )
    assert read(older, 1) == (Parts(weights_mib=1536.0, kv_tokens=96),)


def test_ranks_count_by_data_then_pipeline_then_tensor() -> None:
    lines = "\n".join(
        f"(Worker_DP{data}_PP{stage}_TP{tensor} pid=1) Model loading took {data}{stage}{tensor} GiB memory"
        for data in range(2)
        for stage in range(2)
        for tensor in range(2)
    )
    found = read(lines, 8, tensor=2, pipeline=2, data=2)
    assert [(part.weights_mib or 0) / 1024 for part in found] == [0, 1, 10, 11, 100, 101, 110, 111]


def test_the_second_host_of_a_service_has_the_later_ranks() -> None:
    lines = [f"(Worker_TP{rank} pid=1) Model loading took {rank} GiB memory" for rank in (2, 3)]
    found = read_log(lines, Parallel(tensor=4), 2, first=2)
    assert [part.weights_mib for part in found] == [2048, 3072]


def test_what_one_replica_says_is_said_of_its_gpus_alone() -> None:
    lines = "(EngineCore_DP0 pid=1) GPU KV cache size: 100 tokens\n(EngineCore_DP1 pid=2) GPU KV cache size: 90 tokens"
    assert [part.kv_tokens for part in read(lines, 4, tensor=2, data=2)] == [100, 100, 90, 90]


def test_sglang_says_it_of_each_rank() -> None:
    first, second = read(SGLANG_0_5_9, tensor=2)
    assert first == Parts(53.5 * 1024, 17.75 * 1024, 300_000)
    assert second.weights_mib == 53.25 * 1024


def test_a_cache_that_sglang_resizes_after_capture_is_what_it_became() -> None:
    assert read(SGLANG_0_5_23, 1) == (Parts(10.5 * 1024, 8.5 * 1024, 210_000),)


def test_other_ranks_of_sglang_are_not_taken_for_these() -> None:
    (found,) = read("[2026-11-21 20:15:00 ATTN_CP1 MOE_DP1] Load weight end. mem usage=2.00 GB.", 1)
    assert found.weights_mib == 2048


def test_llama_cpp_says_it_of_each_device() -> None:
    first, second = read(LLAMA_CPP)
    assert first == Parts(20480.5, 1024.0, 65_536, compute_mib=410.0)
    assert second == Parts(19456.25, 960.0, 65_536)


def test_a_log_that_says_nothing_leaves_everything_open() -> None:
    assert read("I srv  llama_server: model loaded\n\x00\n", 2) == (Parts(), Parts())


@pytest.mark.parametrize("log", [VLLM_TP2, SGLANG_0_5_9, SGLANG_0_5_23, LLAMA_CPP])
def test_a_host_that_looks_for_the_words_sends_all_that_counts(log: str) -> None:
    sent = [line for line in log.splitlines() if re.search(WORDS, line)]
    assert len(sent) < len(log.splitlines()) or log == SGLANG_0_5_23
    assert read_log(sent, Parallel(tensor=2), 2) == read_log(log.splitlines(), Parallel(tensor=2), 2)


@pytest.mark.parametrize(
    "line",
    [
        "Model loading took 1.2.3 GiB",
        "Model loading took ... GiB",
        f"Model loading took {'9' * 400} GiB",
        f"GPU KV cache size: {'9' * 5000} tokens",
        "GPU KV cache size: , tokens",
        f"CUDA{'9' * 5000} model buffer size = 1.0 MiB",
        "CUDA0 model buffer size =   1.2.3 MiB",
        f"llama_kv_cache: size = 1 ({'9' * 5000} cells, 1 layers, 1/1 seqs)",
    ],
)
def test_a_figure_that_cannot_be_is_not_one(line: str) -> None:
    assert read(line, gpus=1) == (Parts(),)
