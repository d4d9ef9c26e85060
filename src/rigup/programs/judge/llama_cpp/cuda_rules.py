#!/usr/bin/python3
"""Takes the functions out of llama.cpp's ggml-cuda that decide on the host: which operations, how many bytes, how long.

usage: cuda_rules.py FOLDER_OF_GGML_CUDA

Prints them as they are, but for two places: the search for CUDA graphs at the end of one, and a kernel's address that
is a truth value here. A name that another release no longer has ends it, and so the build that asked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

WANTED = (
    ("common.cuh", r"#define GGML_CUDA_CC_(?!IS_MTHREADS)"),
    ("common.cuh", r"static bool turing_mma_available\("),
    ("common.cuh", r"static bool volta_mma_available\("),
    ("common.cuh", r"#define MATRIX_ROW_PADDING"),
    ("fattn-common.cuh", r"#define FATTN_KQ_STRIDE "),
    ("fattn-common.cuh", r"struct ggml_cuda_flash_attn_ext_f16_extra_data \{"),
    ("fattn-common.cuh", r"static inline \w+ ggml_cuda_flash_attn_ext_get_f16_extra_data\("),
    ("fattn-mma-f16.cuh", r"static constexpr .* ggml_cuda_flash_attn_ext_mma_f16_may_use_sparse\("),
    ("fattn.cu", r"bool ggml_cuda_flash_attn_ext_mma_f16_shall_use_sparse\("),
    ("fattn.cu", r"enum best_fattn_kernel \{"),
    ("fattn.cu", r"static bool ggml_cuda_fattn_kv_type_supported\("),
    ("fattn.cu", r"static best_fattn_kernel ggml_cuda_get_best_fattn_kernel\("),
    ("fattn.cu", r"size_t ggml_cuda_flash_attn_ext_get_alloc_size\("),
    ("fattn.cu", r"bool ggml_cuda_flash_attn_ext_supported\("),
    ("fwht.cu", r"bool ggml_cuda_op_mul_mat_use_fwht\("),
    ("lightning-indexer.cu", r"bool ggml_cuda_lightning_indexer_supported\("),
    ("topk-moe.cuh", r"struct ggml_cuda_topk_moe_args \{"),
    ("topk-moe.cu", r"bool ggml_cuda_should_use_topk_moe\("),
    ("ggml-cuda.cu", r"static bool ggml_cuda_should_fuse_mul_mat\("),
    ("ggml-cuda.cu", r"static bool ggml_cuda_match_shared_expert\("),
    ("ggml-cuda.cu", r"static bool ggml_cuda_topk_moe_fusion\("),
    ("ggml-cuda.cu", r"static constexpr int MOE_WEIGHTED_REDUCTION_MAX_EXPERTS"),
    ("ggml-cuda.cu", r"struct ggml_cuda_moe_weighted_reduction_match \{"),
    ("ggml-cuda.cu", r"static bool ggml_cuda_match_moe_weighted_reduction\("),
    ("ggml-cuda.cu", r"static size_t ggml_backend_cuda_buffer_type_get_alloc_size\("),
    ("ggml-cuda.cu", r"static void ggml_backend_cuda_graph_optimize\("),
    ("ggml-cuda.cu", r"static bool ggml_backend_cuda_device_supports_op\("),
    ("ggml-cuda.cu", r"static int64_t get_op_batch_size\("),
    ("ggml-cuda.cu", r"static bool ggml_backend_cuda_device_offload_op\("),
)
"""The file and the beginning of each definition's first line, in the order in which they need each other."""
GRAPHS = "#ifdef USE_CUDA_GRAPH"
KERNEL = "ggml_cuda_get_fattn_vec_case(Q->ne[0], K->type, V->type) == nullptr"
COMPILED = "!vector_kernel_is_compiled(Q->ne[0], K->type, V->type)"


def definitions(lines: Sequence[str], beginning: str) -> Iterator[str]:
    """The definitions that begin so: one line, or up to the brace in the first column that closes it."""
    for at, line in enumerate(lines):
        if not re.match(beginning, line):
            continue
        if line.startswith("#define") or "constexpr int" in line:
            yield line
        elif not line.rstrip().endswith(";"):  # which a declaration does
            end = next(number for number in range(at + 1, len(lines)) if lines[number].startswith("}"))
            yield "\n".join(lines[at : end + 1])


def main(folder: str) -> None:
    """Prints every definition, or ends with the name of the file that lacks one."""
    for name, beginning in WANTED:
        found = list(definitions((Path(folder) / name).read_text().splitlines(), beginning))
        if not found:
            sys.exit(f"{name}: nothing begins with {beginning}")
        for text in found:
            if "ggml_backend_cuda_graph_optimize(" in text:
                text = text[: text.index(GRAPHS)] + "}"
            print(f"/* {name} */\n{text.replace(KERNEL, COMPILED)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
