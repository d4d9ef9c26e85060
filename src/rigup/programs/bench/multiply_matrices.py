"""Keeps every GPU of this machine busy with products of matrices, and prints what NVML says meanwhile.

Runs with the Python of an engine's environment, for its torch. Standard input: {"seconds": n}. Prints one line,
{"seconds": ..., "gpus": [...]} with rows of `load_of_gpus`, or {"error": ...}. Takes 384 MiB of each card beside CUDA's
own. Needs torch and nvidia-ml-py.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from rigup.programs.bench.bench_watch import Watch, load_of_gpus, of_gpus

SIDE = 8192
AT_ONCE = 8


def main() -> int:
    """Multiplies for as long as the request says. Returns 0; errors are in the output."""
    seconds = json.loads(sys.stdin.readline())["seconds"]
    watch = Watch(of_gpus)  # before torch starts threads
    watch.listen()
    try:
        begin = multiply(seconds)
        end = time.monotonic()
        found: dict[str, Any] = {"seconds": end - begin, "gpus": load_of_gpus(watch.between(begin, end))}
    except Exception as error:  # torch raises whatever its libraries say
        found = {"error": f"{type(error).__name__}: {error}"[:500]}
    finally:
        watch.stop()
    print(json.dumps(found), flush=True)
    return 0


def multiply(seconds: float) -> float:
    """Multiplies on all GPUs at once; returns when each had begun. Raises the first error of any."""
    import torch

    devices = range(torch.cuda.device_count())
    if not devices:
        raise RuntimeError("torch shows no GPU")
    ready = threading.Barrier(len(devices) + 1)
    errors: list[Exception] = []

    def work(index: int) -> None:
        try:
            device = torch.device("cuda", index)
            one, other = (torch.randn(SIDE, SIDE, device=device, dtype=torch.float16) for _ in range(2))
            product = torch.matmul(one, other)
            torch.cuda.synchronize(device)
            ready.wait()
            until = time.monotonic() + seconds
            while time.monotonic() < until and not errors:
                for _ in range(AT_ONCE):
                    torch.matmul(one, other, out=product)
                torch.cuda.synchronize(device)
        except threading.BrokenBarrierError:
            pass  # another card failed
        except Exception as error:
            errors.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=(index,)) for index in devices]
    for thread in threads:
        thread.start()
    with suppress(threading.BrokenBarrierError):
        ready.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return began


if __name__ == "__main__":
    sys.exit(main())
