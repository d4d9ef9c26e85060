"""What is shown of weights that hosts share, and a folder to send from that is none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rigup.cli.output import weights_shares
from rigup.cli.output.console import Console
from rigup.cli.output.json_documents.runs import SharedWeights
from rigup.errors import InputError
from rigup.project.inventory import HostEntry, Project
from rigup.project.settings import settings_by_host
from rigup.run.weights.distribution import TransferSummary

MB = 1_000_000
TALLY = TransferSummary(
    "org/model",
    "Q4_1",
    fetchers=("a", "b"),
    complete=("c",),
    size=100 * MB,
    taken={"a": {"hub": 60 * MB, "c": 40 * MB}, "b": {"a": 30 * MB, "c": 70 * MB}},
    messages=["b: a is banned: it sent x.gguf with sha256 [1], not the locked 2"],
)


def test_in_all_and_by_host_and_what_went_wrong() -> None:
    shown = io.StringIO()

    weights_shares.show([TALLY], Console(file=shown, width=60))

    assert shown.getvalue().splitlines() == [
        "shared weights of org/model Q4_1, 100.0 MB, to 2 hosts: 60.0 MB from the hub, 140.0 MB from other hosts",
        "  a: 60.0 MB from the hub, 40.0 MB from other hosts",
        "  b: 0 B from the hub, 100.0 MB from other hosts",
        "  b: a is banned: it sent x.gguf with sha256 [1], not the locked 2",
    ]


def test_the_same_for_scripts() -> None:
    found = SharedWeights.of(TALLY)

    assert (found["hub_bytes"], found["lan_bytes"], found["bytes"]) == (60 * MB, 140 * MB, 100 * MB)
    assert (found["fetched"], found["had"]) == (["a", "b"], ["c"])


def test_a_folder_to_send_from_that_is_none_is_bad_input(tmp_path: Path) -> None:
    host = HostEntry("a", "boxes", {"wheelhouse": "house"}, {"wheelhouse": "group_data/boxes.py"})

    with pytest.raises(InputError) as refused:
        project = Project(tmp_path, tmp_path / "inventories/x.py", (host,))
        settings_by_host(project, {"a": ()}, wheelhouse=str(tmp_path / "nowhere"))

    assert refused.value.message.startswith(f"--from: wheelhouse: {tmp_path}/nowhere ")
    assert refused.value.hint == f"create it: rigup lock --vendor {tmp_path}/nowhere"
