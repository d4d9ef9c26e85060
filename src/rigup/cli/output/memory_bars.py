"""Bars of planned GPU memory. Each part has its own character, so they are readable without colour."""

from __future__ import annotations

from rich.text import Text

from rigup.plan import GpuMemory

WIDTH = 20
CELL = 11
PARTS = (
    ("weights_mib", "weights", "#", "█", "blue"),
    ("kv_cache_mib", "KV", "=", "▓", "green"),
    ("overhead_mib", "overhead", "+", "▒", "yellow"),
    ("free_mib", "free", ".", "░", "dim"),
)


def bars(memory: tuple[GpuMemory, ...], names: dict[int, str], ascii_only: bool) -> list[Text]:
    """A heading, then per GPU a bar and its parts in GiB, which add up to its capacity.

    names: GPU names by index. Equal neighbours with the same name share a line.
    """
    runs = _runs(memory, names)
    labels = [str(first) if first == last else f"{first}-{last}" for first, last, _ in runs]
    width = max(len("GPU"), *map(len, labels))
    heading = Text(f"{'GPU':<{width}}  {'GiB':>5}  {'':<{WIDTH}}")
    for _, label, plain, block, style in PARTS:
        heading.append(" " * (CELL - len(label) - 2)).append(plain if ascii_only else block, style).append(f" {label}")
    lines = [heading]
    for label, (_, _, gpu) in zip(labels, runs, strict=True):
        line = Text(f"{label:<{width}}  {gpu.capacity_mib / 1024:>5.1f}  ").append_text(bar(gpu, ascii_only))
        lines.append(line.append("".join(f"{getattr(gpu, part[0]) / 1024:>{CELL}.1f}" for part in PARTS)))
    return lines


def bar(gpu: GpuMemory, ascii_only: bool) -> Text:
    """The bar alone: WIDTH characters, distributed by largest remainder."""
    shares = [getattr(gpu, part[0]) * WIDTH / max(gpu.capacity_mib, 1) for part in PARTS]
    lengths = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: lengths[i] - shares[i])
    for index in by_remainder[: max(WIDTH - sum(lengths), 0)]:
        lengths[index] += 1
    text = Text()
    for length, (_, _, plain, block, style) in zip(lengths, PARTS, strict=True):
        text.append((plain if ascii_only else block) * length, style)
    return text


def _runs(memory: tuple[GpuMemory, ...], names: dict[int, str]) -> list[tuple[int, int, GpuMemory]]:
    """Runs of neighbouring GPUs with the same name and memory use, as (first, last, memory)."""
    runs: list[tuple[int, int, GpuMemory]] = []
    for gpu in memory:
        if runs:
            first, last, kind = runs[-1]
            alike = kind.model_copy(update={"gpu": gpu.gpu}) == gpu and names.get(kind.gpu) == names.get(gpu.gpu)
            if alike and gpu.gpu == last + 1:
                runs[-1] = (first, gpu.gpu, kind)
                continue
        runs.append((gpu.gpu, gpu.gpu, gpu))
    return runs
