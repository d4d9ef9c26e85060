"""Times a fused mixture-of-experts projection in Triton, for the shapes in FILE: `python gpu_moe.py kernels.json`.

One JSON object per line. The kernel is plain: one block of rows of one expert at a time, bfloat16 in, float32 sums. Its
launch is the engines' default for few tokens, not a tuned one: the figure is a floor for what tuning can gain.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOKENS = (1, 16, 256)
ROUNDS = 20
MOST_BYTES = 16 * 2**30
ROWS, COLUMNS, DEPTH = 16, 64, 64


def main(path: str) -> int:
    try:
        import torch
        import triton
    except ImportError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("torch does not see a GPU", file=sys.stderr)
        return 1
    print(
        json.dumps({"torch": torch.__version__, "triton": triton.__version__, "device": torch.cuda.get_device_name()})
    )
    for shape in json.loads(Path(path).read_text()):
        for tokens in TOKENS:
            print(json.dumps({**shape, "tokens": tokens, **timed(torch, triton, shape, tokens)}), flush=True)
    return 0


def timed(torch: Any, triton: Any, shape: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Microseconds of one launch, and its bytes of weights per second."""
    experts, used, hidden, width = (shape[key] for key in ("experts", "experts_per_token", "hidden", "intermediate"))
    experts = min(experts, MOST_BYTES // (4 * hidden * width) or 1)
    used = min(used, experts)
    kernel = compiled(triton)
    weights = torch.randn(experts, 2 * width, hidden, dtype=torch.bfloat16, device="cuda")
    rows = torch.randn(tokens, hidden, dtype=torch.bfloat16, device="cuda")
    chosen = torch.rand(tokens, experts, device="cuda").topk(used).indices.flatten()
    order = chosen.argsort()
    counts = torch.bincount(chosen, minlength=experts)
    blocks = [(expert, start) for expert, count in enumerate(counts.tolist()) for start in range(0, count, ROWS)]
    starts = torch.cumsum(counts, 0) - counts
    of_block = torch.tensor([(e, starts[e].item() + s, counts[e].item() - s) for e, s in blocks], device="cuda")
    result = torch.empty(tokens * used, 2 * width, dtype=torch.bfloat16, device="cuda")
    grid = (len(blocks), triton.cdiv(2 * width, COLUMNS))
    words = (rows, weights, result, order, of_block, hidden, 2 * width, used)
    for _ in range(3):
        kernel[grid](*words, ROWS=ROWS, COLUMNS=COLUMNS, DEPTH=DEPTH)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        kernel[grid](*words, ROWS=ROWS, COLUMNS=COLUMNS, DEPTH=DEPTH)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / ROUNDS
    expected = reference(torch, rows, weights, chosen[order], order // used)
    error = (result.float() - expected).abs().max().item() / max(expected.abs().max().item(), 1e-6)
    moved = int((counts > 0).sum()) * 2 * width * hidden * 2
    return {
        "experts_held": experts,
        "us": round(seconds * 1e6, 1),
        "gbs": round(moved / seconds / 1e9, 1),
        "error": error,
    }


def reference(torch: Any, rows: Any, weights: Any, experts: Any, indices: Any) -> Any:
    """The same product, one row at a time in float32."""
    pairs = zip(experts.tolist(), indices.tolist(), strict=True)
    return torch.stack([weights[expert].float() @ rows[index].float() for expert, index in pairs])


def compiled(triton: Any) -> Any:
    """The kernel; a block of rows of one expert, a block of columns of its weights."""
    tl = triton.language

    @triton.jit  # type: ignore[untyped-decorator]  # Triton has no types
    def kernel(  # type: ignore[no-untyped-def]  # Triton takes an annotation for what it compiles for
        rows,
        weights,
        result,
        order,
        of_block,
        hidden,
        width,
        used,
        ROWS: tl.constexpr,  # type: ignore[name-defined]  # Triton reads the words
        COLUMNS: tl.constexpr,  # type: ignore[name-defined]  # Triton reads the words
        DEPTH: tl.constexpr,  # type: ignore[name-defined]  # Triton reads the words
    ):
        block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(of_block + block * 3)
        first = tl.load(of_block + block * 3 + 1)
        count = tl.load(of_block + block * 3 + 2)
        place = tl.arange(0, ROWS)
        there = place < count
        index = tl.load(order + first + place, mask=there, other=0) // used
        sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for depth in range(0, hidden, DEPTH):
            step = depth + tl.arange(0, DEPTH)
            left = tl.load(
                rows + index[:, None] * hidden + step[None, :],
                mask=there[:, None] & (step < hidden)[None, :],
                other=0.0,
            )
            right = tl.load(
                weights + expert * width * hidden + column[None, :] * hidden + step[:, None],
                mask=(column < width)[None, :] & (step < hidden)[:, None],
                other=0.0,
            )
            sums += tl.dot(left, right)
        target = result + (first + place)[:, None] * width + column[None, :]
        tl.store(target, sums.to(tl.bfloat16), mask=there[:, None] & (column < width)[None, :])

    return kernel


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
