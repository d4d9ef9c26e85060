"""The pinned llama.cpp on a booted machine serves a tiny MiniMax M2 with the real model's chat template.

Only the checkpoint is made up, and the hub a stand-in. The build comes from this user's cache, or is compiled.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.lock import load_lock
from rigup.project.inventory import toolkit_root
from rigup.sources.archives import fetch_source
from tests import tiny_minimax_m2_gguf as tiny
from tests.lab.fleet import Fleet
from tests.lab.fleet_fixtures import made_fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("llama.cpp's package")]
COLD_SECONDS = 2400
TEMPLATE = "models/templates/MiniMax-M2.jinja"


@pytest.fixture
def fleet(labs_can_run: None, tmp_path: Path) -> Iterator[Fleet]:
    """One bare machine, a hub with the tiny checkpoint, and a fleet whose lock pins it and the toolkit's llama.cpp."""
    tiny.provide(tmp_path, tmp_path / "served", _template())
    with made_fleet(Fleet, "gguf", tmp_path, tmp_path / "served", hosts=1) as fleet:
        settings = {"quick_build": True, "reasoning": True, "tools": True, "expected_answer": None}
        fleet.describe(model=tiny.MODEL, context=2048, **settings)
        yield fleet


def _template() -> str:
    """MiniMax M2's template, from the pinned archive of llama.cpp."""
    (source,) = (s for s in load_lock(toolkit_root() / "rigup.lock").sources if s.engine == "llama.cpp")
    archive = fetch_source(source, cache_folder() / "sources", lambda done, total: None)
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"{source.root}/{TEMPLATE}")
        assert member is not None
        return member.read().decode()


def test_llama_cpp_serves_minimax_m2_with_its_own_template(fleet: Fleet) -> None:
    first = fleet.apply(seconds=COLD_SECONDS)
    (answer,) = first.json["hosts"][0]["answers"]
    print(f"{answer['tokens']} tokens at {answer['tokens_per_second']} tokens/s: {answer['text']}")
    assert answer["tokens_per_second"] > 0

    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    asked = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "tools": [tool]}
    curl = "curl -s -H 'Content-Type: application/json' -d @- http://127.0.0.1:8000"
    message = json.loads(fleet.host.machine.ssh(f"{curl}/v1/chat/completions", input=json.dumps(asked)).stdout)
    # the template opens <think>, and the tiny model never closes it: all of it is the parser's reasoning
    assert message["choices"][0]["message"]["reasoning_content"]
    prompt = json.loads(fleet.host.machine.ssh(f"{curl}/apply-template", input=json.dumps(asked)).stdout)["prompt"]
    assert prompt.startswith("]~!b[]~b]system\n") and prompt.endswith("]~b]ai\n<think>\n")
    assert '"name": "look"' in prompt

    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    (row,) = fleet.rigup("status", "--json").json["services"]
    assert (row["health"], row["drift"]) == ("answers", "none")
