"""Reads and measures the links of a host's GPUs with a program on standard input."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache

import pyinfra
from pyinfra.api import FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.facts.links import Links, parse
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles
from rigup.programs import program_file

SECONDS = 180
VERIFIED = "/var/lib/rigup/patched-driver-verified"
"""The driver and cards for which data were last seen to arrive unchanged."""
# pynvml: the part of nvidia-ml-py that the programs need, under the library's name
_PROGRAMS = {"pynvml": "nvml", **{name: name for name in ("pci_links", "link_counters", "link_copies", "verify_links")}}
_START = """
import sys
for name, text in SOURCES:
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
sys.exit(sys.modules["verify_links"].main(sys.argv[1:]))
"""


@operation()
def verified_peers(check: Callable[[Host], None], state: str) -> Generator[FunctionCommand, None, None]:
    """Checks that data between the GPUs arrive unchanged, once for each state of driver and cards.

    + check: raises if the host must not serve
    + state: the driver and the cards, on one line
    """
    if pyinfra.host.get_fact(TextFiles, paths=(VERIFIED,)).get(VERIFIED) == state:
        pyinfra.host.noop("verified with this driver and these cards")
        return
    yield step(check)
    yield step(remote.write_file, VERIFIED, state)


@lru_cache(maxsize=1)
def program() -> str:
    """The programs as one text for `python3 -`."""
    sources = [(name, program_file(f"{file}.py").read_text()) for name, file in _PROGRAMS.items()]
    return f"SOURCES = {sources!r}\n{_START}"


def read_links(host: Host, measure: bool = True) -> Links:
    """The links of this host's GPUs. Raises HostFailed if the program printed nothing, Unreadable as `parse`.

    measure: also copies data to and between GPUs with free memory.
    """
    options = () if measure else ("--read-only",)
    words = ("timeout", "-k", "5", str(SECONDS), "python3", "-IS", "-", *options)
    output = remote.run(host, *words, stdin=program(), timeout=SECONDS + 30)
    links = parse(output.stdout.splitlines())
    if not links.done and not links.gpus and not links.lost:
        raise HostFailed(
            f"{host.name}: the check of its links ended without a result: {output.last_line}", "on the host: nvidia-smi"
        )
    return links
