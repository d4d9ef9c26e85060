"""`rigup verify`: its tables, its JSON, and what it refuses."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from rigup.cli.verify import as_json
from rigup.cli.verify.link_tables import show
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


def test_the_json() -> None:
    result = HostResult("gpu1.lan")
    result.state = "differs"
    run = SimpleNamespace(
        results={"gpu1.lan": result}, links={"gpu1.lan": LINKS}, found={"gpu1.lan": link_findings(LINKS, PROBE)}
    )
    (row,) = as_json(cast("Any", run))["hosts"]
    assert (row["host"], row["state"], row["errors"]) == ("gpu1.lan", "problems", [])
    assert row["findings"][0] == {
        "problem": True,
        "message": "GPU 0: its link has 8 lanes of 16",
        "hint": "set the slot's lanes in the BIOS, or reseat the card and its riser",
    }
    assert row["links"]["pairs"][0]["gbs"] == 45.2


REFUSED = [
    ((), "rigup: verify: HOST: missing", "rigup verify --help"),
    (("nobody.lan",), 'HOST: "nobody.lan" is neither a group nor a host', "groups: boxes"),
    (("boxes", "absent.py"), "absent.py: inventory does not exist", "choose from: inventories/fleet.py"),
    (("boxes", "--measure"), "unknown option --measure", "rigup verify --help"),
]


@pytest.mark.parametrize(("words", "message", "hint"), REFUSED)
def test_what_it_refuses(tmp_path: Path, words: tuple[str, ...], message: str, hint: str) -> None:
    line = CommandLine(tmp_path)
    line.describe(["gpu1.lan"])
    done = line.call("verify", *words)
    assert done.code == 2 and done.out == ""
    assert message in done.err and f"hint: {hint}" in done.err
