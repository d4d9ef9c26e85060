"""Replaces Ray, which an engine's tuner imports but its environment lacks: does the work in one process.

The tuners hand each number of tokens to a worker with one GPU. rigup starts one such process per GPU, each for its own
numbers, so a worker here is an ordinary object. A search writes its progress, such as "12/640", to the file
RIGUP_PROGRESS. Only the parts of Ray that vLLM's and SGLang's tuners use exist.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


def init(*_: Any, **__: Any) -> None:
    """Does nothing: no process has to start."""


def available_resources() -> dict[str, float]:
    """The one GPU that CUDA_VISIBLE_DEVICES selects."""
    return {"GPU": 1.0}


def get_gpu_ids() -> list[int]:
    """Its index among the visible GPUs."""
    return [0]


def get(results: Any) -> Any:
    """Returns the results, which are complete when a call returns."""
    return results


def remote(*_: Any, **__: Any) -> Callable[[type], _RemoteClass]:
    """A decorator for the workers' class: `Worker.remote(...)` creates one."""
    return _RemoteClass


class _RemoteClass:
    def __init__(self, cls: type) -> None:
        self._cls = cls

    def remote(self, *arguments: Any) -> _RayWorker:
        return _RayWorker(self._cls(*arguments))


class _RayWorker:
    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(remote=getattr(self._instance, name))


def tqdm(steps: Iterable[Any], *_: Any, **__: Any) -> Iterator[Any]:
    """Iterates over the steps and records the progress."""
    steps, path = list(steps), os.environ.get("RIGUP_PROGRESS")
    for number, step in enumerate([*steps, None]):
        if path:
            Path(path).write_text(f"{number}/{len(steps)}")
        if number < len(steps):
            yield step


_experimental, _tqdm_ray = types.ModuleType("ray.experimental"), types.ModuleType("ray.experimental.tqdm_ray")
_tqdm_ray.__dict__["tqdm"] = tqdm
_experimental.__dict__["tqdm_ray"] = _tqdm_ray
sys.modules |= {"ray.experimental": _experimental, "ray.experimental.tqdm_ray": _tqdm_ray}
