"""`rigup verify`: its tables, its JSON, and what it refuses."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rigup.cli.output.console import Console
from rigup.cli.schema.documents import adapter_of
from rigup.cli.verify import as_json
from rigup.cli.verify.link_tables import show
from rigup.facts.gpu_load import GpuLoad, HostLoad
from rigup.facts.links import GpuLink, Links, PairLink
from rigup.facts.probe import GpuPair, Probe, ProbedGpu
from rigup.preflight.links import link_findings
from rigup.run.result import HostResult
from tests.command_line import CommandLine

LINKS = Links(
    gpus=(
        GpuLink(
            gpu=0,
            bus="0000:01:00.0",
            generation=1,
            width=16,
            most_generation=4,
            most_width=16,
            loaded_generation=4,
            loaded_width=8,
            host_gbs=12.5,
            nvlinks=4,
            nvlinks_active=4,
        ),
        GpuLink(gpu=1, bus="0000:21:00.0", generation=1, width=16, most_generation=4, most_width=16, unmeasured="busy"),
    ),
    pairs=(
        PairLink(pair=[0, 1], read=True, nvlink=True, direct=True, gbs=45.2, correct=True),
        PairLink(pair=[1, 0], read=False, nvlink=False, unmeasured="busy"),
    ),
    done=True,
)
PROBE = Probe(
    gpus=tuple(ProbedGpu("NVIDIA GeForce RTX 3090", index=index) for index in (0, 1)),
    gpu_pairs=(GpuPair(0, 1, "host-bridge"),),
)
SHOWN = """\
gpu1.lan
GPU  card      link now         card and slot can  from host     NVLink
0    RTX 3090  gen 4 x8         gen 4 x16          12.5 GB/s     4 of 4 up
1    RTX 3090  gen 1 x16, idle  gen 4 x16          not measured  none
from  to  P2P                   speed         data
0     1   by NVLink             45.2 GB/s     unchanged
1     0   no, through the host  not measured  not measured
  not measured: busy
  problem GPU 0: its link has 8 lanes of 16
          hint: set the slot's lanes in the BIOS, or reseat the card and its riser
"""


def test_the_tables_and_the_findings() -> None:
    output = StringIO()
    console = Console(file=output, width=120, highlight=False)
    show("gpu1.lan", LINKS, link_findings(LINKS, PROBE), PROBE, console)
    assert output.getvalue() == SHOWN


LOAD = HostLoad(
    by="chat",
    seconds=120.4,
    gpus=[
        GpuLoad(
            gpu=0,
            name="NVIDIA GeForce RTX 3090",
            power_w=340.2,
            power_most_w=351,
            memory_most_mib=22000,
            temperature_most_c=92,
            clock_mhz=1400,
            clock_least_mhz=900,
            highest_clock_mhz=2100,
            held_back={"power cap": 0.5, "hardware thermal": 0.25},
        ),
        GpuLoad(
            gpu=1,
            name="NVIDIA GeForce RTX 3090",
            power_w=None,
            power_most_w=None,
            memory_most_mib=None,
            temperature_most_c=None,
        ),
    ],
)
UNDER_LOAD = """\
GPU  clock under load  card can  power    at most  held back by
0    1400 MHz          2100 MHz  340 W    92 °C    power cap 50%, hardware thermal 25%
1    unknown           unknown   unknown  unknown  unknown
  loaded for 120 s by chat
"""


def test_the_cards_under_load() -> None:
    output = StringIO()
    console = Console(file=output, width=120, highlight=False)
    show("gpu1.lan", LINKS, link_findings(LINKS, PROBE), PROBE, console, LOAD)
    assert UNDER_LOAD in output.getvalue()


def test_the_json() -> None:
    result = HostResult("gpu1.lan")
    result.state = "differs"
    run = SimpleNamespace(
        results={"gpu1.lan": result},
        links={"gpu1.lan": LINKS},
        loads={"gpu1.lan": LOAD},
        found={"gpu1.lan": link_findings(LINKS, PROBE)},
    )
    adapter_of("verify").validate_python(as_json(cast("Any", run)))
    (row,) = as_json(cast("Any", run))["hosts"]
    assert (row["host"], row["state"], row["errors"]) == ("gpu1.lan", "problems", [])
    first = row["findings"][0]
    assert (first["problem"], first["message"]) == (True, "GPU 0: its link has 8 lanes of 16")
    assert first["hint"].startswith("set the slot")
    assert row["links"]["pairs"][0]["gbs"] == 45.2
    assert row["load"]["gpus"][0]["held_back"] == {"power cap": 0.5, "hardware thermal": 0.25}


REFUSED = [
    ((), "rigup: verify: HOST: missing", "rigup verify --help"),
    (("nobody.lan",), 'HOST: "nobody.lan" ', ""),
    (("boxes", "absent.py"), "rigup: absent.py: ", ""),
    (("boxes", "--measure"), "unknown option --measure", "rigup verify --help"),
    (("boxes", "--load", "1"), "--load: 1 ", "omit it "),
    (("boxes", "--load", "a minute"), '--load: "a minute" ', "write it "),
]


@pytest.mark.parametrize(("words", "message", "hint"), REFUSED)
def test_what_it_refuses(tmp_path: Path, words: tuple[str, ...], message: str, hint: str) -> None:
    line = CommandLine(tmp_path)
    line.describe(["gpu1.lan"])
    done = line.call("verify", *words)
    assert done.code == 2 and done.out == ""
    assert message in done.err and f"hint: {hint}" in done.err
