"""The first lines of docs/lab.md, as they stand there: from no lab to a service that has answered, and to nothing.

The machine takes llama.cpp from this one, where it is compiled once for all tests; bin/demo compiles on the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rigup.settings import CONTROLLER

PAGE = Path(__file__).parents[2] / "docs/lab.md"
NAME = "whole"

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("llama.cpp's package", "lab", "docs/lab.md")]


def commands() -> list[str]:
    """What the first block types after installing packages, with a lab's name of this test's own."""
    (block,) = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)[:1]
    typed = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
    assert typed[0].startswith("apt-get install ")
    return [re.sub(r"^rigup lab (up|down)$", rf"rigup lab \1 --name {NAME}", line) for line in typed[1:]]


def test_the_first_lines_of_the_page_do_what_they_say(labs_can_run: None) -> None:
    lines = commands()
    assert [line.split()[1] for line in lines if line.startswith("rigup")] == ["lab", "lock", "plan", "apply", "lab"]
    rigup = f"{sys.executable} -m rigup"
    script = "\n".join(re.sub("^rigup", rigup, line) for line in lines).replace("labs/lab", f"labs/{NAME}")
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    script = script.replace("~/.cache", cache)
    builder = f"printf 'builder = \"{CONTROLLER}\"\\n' >>group_data/{NAME}.py"
    script = script.replace(f"labs/{NAME}\n", f"labs/{NAME}\n{builder}\n")
    assert builder in script
    try:
        done = subprocess.run(["sh", "-exc", script], capture_output=True, text=True, timeout=3000)
    finally:
        left = subprocess.run([*rigup.split(), "lab", "down", NAME], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Paris" in done.stdout and "model hub  http://10.77." in done.stdout
    assert "removed lab whole" in done.stderr and left.returncode != 0
