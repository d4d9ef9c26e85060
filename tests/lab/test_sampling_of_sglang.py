"""The sampling defaults of SGLang's chat requests, on a booted machine: what the engine sees in the checkpoint's place.

The unit is rigup's; its engine is `cat`, its build a link to the machine's Python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from rigup.lab.machine import Machine
from rigup.systemd.service import unit
from tests.lab.fleet import Host, wait_for
from tests.lab.fleet_fixtures import made_lab
from tests.unit.systemd.test_sampling import OWN, SGLANG, pinned

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("src/rigup/systemd", "src/rigup/commands/sglang.py")]

BUILD = "/opt/rigup/builds/sglang-1-abc"
LEFT_OUT = ("ExecStop", "LoadCredential", "Device", "ConditionPathExists")
# Says what it sees, and is up.
ENGINE = f'ExecStart=/bin/sh -c "cat {OWN}; echo; exec sleep infinity"'


@pytest.fixture(scope="module")
def machine(labs_can_run: None) -> Iterator[Machine]:
    """A machine with a checkpoint's file and a build."""
    with made_lab(f"sampling{os.getpid()}") as lab:
        (machine,) = lab.machines
        Host(machine).tell(f"mkdir -p {BUILD}/bin {OWN.rpartition('/')[0]}; ln -s /usr/bin/python3 {BUILD}/bin/python")
        yield machine


def starts(host: Host, service: dict[str, object]) -> dict[str, float]:
    """(Re)starts the unit; what its engine reads where the checkpoint's file is."""
    lines = unit(pinned(service), BUILD).splitlines()
    kept = [ENGINE if line.startswith("ExecStart=") else line for line in lines if not line.startswith(LEFT_OUT)]
    where = "/run/systemd/system/rigup-chat.service"
    host.machine.ssh(f"cat > {where}; systemctl daemon-reload", input="\n".join(kept) + "\n", check=True)
    host.tell("systemctl restart rigup-chat")
    shown = f"journalctl -o cat _SYSTEMD_INVOCATION_ID={host.show('InvocationID').partition('=')[2]} | grep eos"
    wait_for(lambda: host.says(shown), "what the engine reads")
    return dict(json.loads(host.tell(shown)))


def test_the_engine_reads_the_plans_defaults_and_the_checkpoint_keeps_its_own(machine: Machine) -> None:
    host, own = Host(machine), {"eos_token_id": 2, "temperature": 1.0}
    machine.ssh(f"cat > {OWN}", input=json.dumps(own), check=True)
    first = starts(host, SGLANG)
    assert (first["eos_token_id"], first["temperature"], first["top_k"]) == (2, 0.2, 7)
    assert starts(host, SGLANG) == first, "each start begins with the checkpoint's own"
    assert starts(host, {**SGLANG, "sampling": {"temperature": 0.4}})["temperature"] == 0.4
    assert json.loads(host.tell(f"cat {OWN}")) == own
