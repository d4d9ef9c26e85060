"""Stands where an engine's tuner imports Ray, which the engine's environment does not hold: the work in one process.

The tuners hand each number of tokens to a worker with one GPU. rigup starts one such process a GPU, each for its own
numbers, so that a worker here is an ordinary object. How far a search is goes into the file RIGUP_PROGRESS, "12/640".
Only what vLLM's and SGLang's tuners take from Ray is here. Python 3.10 standard library only.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


def init(*_: Any, **__: Any) -> None:
    """Nothing has to be started."""


def available_resources() -> dict[str, float]:
    """The one GPU that CUDA_VISIBLE_DEVICES leaves."""
    return {"GPU": 1.0}


def get_gpu_ids() -> list[int]:
    """Its index among those that are visible."""
    return [0]


def get(results: Any) -> Any:
    """Results are there when a call returns."""
    return results


def remote(*_: Any, **__: Any) -> Callable[[type], _RemoteClass]:
    """A decorator for the class of the workers: `Worker.remote(...)` makes one."""
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
    """Goes through the steps and notes how far it is."""
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
