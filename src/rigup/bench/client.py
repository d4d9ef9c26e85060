"""The benchmark client: how it is sent to the endpoint's host, and its requests.

It runs on a host that needs only Python: its modules are sent over standard input, nothing remains on the host, and the
API key is read on the host. For an endpoint given by its address, the same program runs on this machine.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pynvml

from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from rigup.programs import program_file

# in import order
MODULES = (
    *("http_reader", "listeners", "unprivileged"),
    *(f"bench.bench_{name}" for name in ("target", "prompts", "endpoint", "stream", "statistics", "load", "watch")),
)
MAIN = "bench.bench_main"

BOOT = """\
import base64, json, sys, types, zlib
modules = json.loads(zlib.decompress(base64.b64decode(sys.stdin.readline())))
for name, text in modules.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
sys.exit(sys.modules[name].main())
"""
"""Loads the modules that arrive on standard input, and starts the last of them."""

KINDS: dict[str, type[RigupError]] = {"input": InputError, "unreachable": Unreachable, "failed": HostFailed}


@dataclass(frozen=True)
class LevelRequest:
    """One level: concurrency, tokens of prompt and answer, and duration or number of requests."""

    concurrency: int
    input: int
    output: int
    seconds: float | None = None
    requests: int | None = None


@dataclass(frozen=True)
class BenchRequest:
    """What to measure. model: None for the endpoint's first. leave_out: skip levels that exceed the context."""

    levels: tuple[LevelRequest, ...]
    model: str | None = None
    chat: bool = False
    warmup: int = 1
    timeout_s: float = 300.0
    leave_out: bool = False
    seed: int | None = None

    def request(self, url: str, key: str | None = None, **more: Any) -> dict[str, Any]:
        """The program's request. more: key_file, unit and user on the host where it runs, and gpus."""
        there = {"key_file": None, "unit": None, "user": None, "gpus": False}
        return {"url": url, "key": key, **there, **asdict(self), **more}


def program(request: dict[str, Any]) -> str:
    """Two lines for the standard input of `python3 -I -c BOOT`: the program and its request."""
    return f"{_packed(request['gpus'], MAIN)}\n{json.dumps(request)}\n"


def multiplication(seconds: int) -> str:
    """The same for the program that needs no endpoint, multiply_matrices.py."""
    return f"{_packed(True, 'bench.multiply_matrices')}\n{json.dumps({'seconds': seconds})}\n"


@lru_cache(maxsize=2)
def _packed(with_nvml: bool, main: str) -> str:
    # under their full names, so that they import one another there as they do here
    paths = {f"rigup.programs.{name}": program_file(f"{name.rpartition('.')[2]}.py") for name in (*MODULES, main)}
    modules = {name: path.read_text() for name, path in paths.items()}
    if with_nvml:
        modules = {"pynvml": Path(pynvml.__file__).read_text(), **modules}
    return base64.b64encode(zlib.compress(json.dumps(modules).encode(), 9)).decode()


def failure(error: dict[str, str], where: str = "") -> RigupError:
    """Converts the program's error into a RigupError. where: prefix of the message, "gpu1.lan: chat: "."""
    return KINDS[error["kind"]](where + error["message"], error["hint"] or None)
