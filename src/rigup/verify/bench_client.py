"""The client that measures: how it gets to where the endpoint is, and what it says, line by line.

It is a program for a host with nothing but Python: its modules travel over standard input, nothing is left there, and
the API key is read where it lies. On this machine the same program runs beside rigup.
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

import rigup.programs
from rigup.errors import HostFailed, InputError, RigupError, Unreachable

# in the order in which they need each other
MODULES = ("http", "ask", "prompts", "endpoint", "stream", "statistics", "load", "watch", "main")

BOOT = """\
import base64, json, sys, types, zlib
said = json.loads(zlib.decompress(base64.b64decode(sys.stdin.readline())))
for name, text in said.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
sys.exit(sys.modules["bench_main"].main())
"""

KINDS: dict[str, type[RigupError]] = {"input": InputError, "unreachable": Unreachable, "failed": HostFailed}


@dataclass(frozen=True)
class LevelWanted:
    """One level: how many requests at once, tokens of prompt and answer, and for how long or how many in all."""

    concurrency: int
    input: int
    output: int
    seconds: float | None = None
    requests: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What is to be measured. model: None for the endpoint's first. leave_out: skip levels without room."""

    levels: tuple[LevelWanted, ...]
    model: str | None = None
    chat: bool = False
    warmup: int = 1
    timeout_s: float = 300.0
    leave_out: bool = False
    seed: int | None = None

    def request(self, url: str, key: str | None = None, **more: Any) -> dict[str, Any]:
        """As the program takes it. more: key_file and user, of the host on which it runs, and gpus."""
        return {"url": url, "key": key, "key_file": None, "user": None, "gpus": False, **asdict(self), **more}


def program(request: dict[str, Any]) -> str:
    """Two lines for the standard input of `python3 -I -c BOOT`: the program, and what it is to do."""
    return f"{_packed(request['gpus'])}\n{json.dumps(request)}\n"


@lru_cache(maxsize=2)
def _packed(with_nvml: bool) -> str:
    folder = Path(rigup.programs.__file__).parent
    modules = {f"bench_{name}": (folder / f"bench_{name}.py").read_text() for name in MODULES}
    if with_nvml:
        modules = {"pynvml": Path(pynvml.__file__).read_text(), **modules}
    return base64.b64encode(zlib.compress(json.dumps(modules).encode(), 9)).decode()


def failure(said: dict[str, str], where: str = "") -> RigupError:
    """The error that the program ended with, as rigup raises it. where: whose it is, "gpu1.lan: chat: "."""
    return KINDS[said["kind"]](where + said["message"], said["hint"] or None)
