"""`rigup lock` and an engine's official image: at a stand-in registry, as a user runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.registry import Registry

REPOSITORY = "vllm/vllm-openai"
# The rest is locked already, so that no hub is asked.
LOCK = """\
schema = 1

[driver]
version = "580.178.04"
branch = "580"

[[checkpoints]]
repo = "MiniMaxAI/MiniMax-M2.5"
quant = "FP8"
revision = "0123456789abcdef0123456789abcdef01234567"

[[checkpoints.files]]
path = "model.safetensors"
size = 230134260592
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
"""
GROUP_DATA = """\
rig = {{"gpus": "4x B200"}}
services = {{"chat": {{"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "version": "0.20.2",
                     "build": "image", "tensor_parallel": 4, "context": 32768}}}}
image_mirrors = {{"docker.io": "{address}"}}
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.stop()


@pytest.fixture
def line(tmp_path: Path, registry: Registry) -> CommandLine:
    made = CommandLine(tmp_path)
    made.describe(["a.example"], GROUP_DATA.format(address=registry.address))
    made.write("rigup.lock", LOCK)
    return made


def publish(registry: Registry, content: bytes, architecture: str = "amd64") -> str:
    digest = registry.image(architecture, content)
    registry.tag(REPOSITORY, "v0.20.2", registry.index({architecture: digest}))
    return digest


def test_the_digest_is_locked_kept_and_moved_only_when_that_is_asked(line: CommandLine, registry: Registry) -> None:
    stale = line.call("lock", "--check")
    assert (stale.code, "image vllm 0.20.2 is missing" in stale.out) == (1, True)
    assert "image    not locked; run rigup lock" in line.call("plan").out

    first = publish(registry, b"first")
    done = line.call("lock", "--json")
    assert done.code == 0, done.text
    (change,) = done.json["changes"]
    assert (change["name"], change["change"]) == ("image vllm 0.20.2", "added")
    assert change["after"] == f"docker.io/{REPOSITORY} {first[:19]}"
    text = (line.fleet / "rigup.lock").read_text()
    assert text.endswith(
        '[[images]]\nengine = "vllm"\nversion = "0.20.2"\nvariant = "cuda"\narchitecture = "x86_64"\n'
        f'repository = "docker.io/{REPOSITORY}"\ndigest = "{first}"\nbytes = 5\n'
    )
    assert registry.address not in text
    assert line.call("lock", "--check").code == 0
    assert f"image    docker.io/{REPOSITORY}@{first}" in line.call("plan").out

    second = publish(registry, b"second")
    asked = len(registry.requests)
    assert line.call("lock").code == 0
    assert (line.fleet / "rigup.lock").read_text() == text
    assert len(registry.requests) == asked

    moved = line.call("lock", "--upgrade", "vllm=0.20.2", "--json").json["changes"]
    assert [change["name"] for change in moved] == ["image vllm 0.20.2"]
    assert second in (line.fleet / "rigup.lock").read_text()


@pytest.mark.parametrize(
    ("tag", "architecture", "message"),
    [
        ("v0.20.3", "amd64", "image or tag"),
        ("v0.20.2", "arm64", "linux/amd64"),
    ],
)
def test_what_is_not_published_leaves_the_lock_alone(
    line: CommandLine, registry: Registry, tag: str, architecture: str, message: str
) -> None:
    registry.tag(REPOSITORY, tag, registry.index({architecture: registry.image(architecture)}))
    done = line.call("lock", "--json")
    assert done.code == 2
    ((said, _),) = done.errors
    assert said.startswith(f"docker.io/{REPOSITORY}:v0.20.2: ") and message in said
    assert (line.fleet / "rigup.lock").read_text() == LOCK


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('{"docker.io": "mirror.lan"}', 'image_mirrors.docker.io: "mirror.lan" '),
        ('{"https://docker.io": "http://m"}', 'image_mirrors: "https://docker.io" is not a registry name'),
        ('"http://mirror.lan"', "image_mirrors: must be "),
    ],
)
def test_mirrors_that_are_none(line: CommandLine, said: str, message: str) -> None:
    text = (line.fleet / "group_data/boxes.py").read_text().partition("image_mirrors")[0]
    line.write("group_data/boxes.py", f"{text}image_mirrors = {said}\n")
    done = line.call("lock")
    assert done.code == 2
    assert f"group_data/boxes.py: {message}" in done.err
