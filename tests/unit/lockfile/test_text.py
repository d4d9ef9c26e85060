"""The lock as text: the checked-in one byte for byte, sorted whatever the order, and read back as what it was."""

from __future__ import annotations

import random
from pathlib import Path

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.lock import Lock, LockedCheckpoint, LockedFile, LockedSource, load_lock
from rigup.lockfile.text import lock_text

CHECKED_IN = Path(__file__).parents[3] / "rigup.lock"


def checkpoint(repo: str, quant: str, *paths: str) -> LockedCheckpoint:
    files = tuple(LockedFile(path=path, size=len(path), sha256="0" * 64) for path in paths)
    return LockedCheckpoint(repo=repo, quant=quant, revision="1" * 40, files=files)


def source(engine: str, version: str) -> LockedSource:
    return LockedSource(engine=engine, version=version, address="https://host/a", sha256="2" * 64, root="a")


def test_the_checked_in_lock_is_as_rigup_writes_it() -> None:
    assert lock_text(load_lock(CHECKED_IN)) == CHECKED_IN.read_text()


def test_an_empty_lock_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(lock_text(Lock()))
    assert (tmp_path / "lock").read_text() == "schema = 1\n"
    assert load_lock(tmp_path / "lock") == Lock()


def test_order_does_not_matter_and_nothing_is_lost(tmp_path: Path) -> None:
    checkpoints = [
        checkpoint("a/b", "Q4_1", "z.gguf", "sub/a b+c.gguf"),
        checkpoint("a/b", "FP8", "x"),
        checkpoint("A/c", "F", "x"),
    ]
    sources = [source("llama.cpp", "b2"), source("llama.cpp", "b1")]
    inputs = {f'inventories/{name}".py': f"sha256:{'3' * 64}" for name in ("b", "a", "ä\\")}
    full = Lock(inputs=inputs, checkpoints=tuple(checkpoints), sources=tuple(sources))
    text = lock_text(full)
    (tmp_path / "lock").write_text(text)
    read = load_lock(tmp_path / "lock")
    assert {**read.inputs} == inputs
    assert {c.repo + c.quant: set(c.files) for c in read.checkpoints} == {
        c.repo + c.quant: set(c.files) for c in checkpoints
    }
    assert set(read.sources) == set(sources)
    for seed in range(5):
        random.Random(seed).shuffle(checkpoints)
        random.Random(seed).shuffle(sources)
        shuffled = [c.model_copy(update={"files": c.files[::-1]}) for c in checkpoints]
        mixed = Lock(inputs=dict(reversed(inputs.items())), checkpoints=tuple(shuffled), sources=tuple(sources))
        assert lock_text(mixed) == text
    assert lock_text(read) == text


def test_environments_and_uv_are_read_back_a_wheel_a_line(tmp_path: Path) -> None:
    wheels = {"zlib_ng-1.0-cp312-cp312-linux_x86_64.whl": "a" * 64, "vllm-0.19.1+cu130-cp38-abi3-any.whl": "b" * 64}
    address = "https://wheels.example/0.19.1/vllm-0.19.1%2Bcu130-cp38-abi3-any.whl"
    cuda = LockedEnvironment(
        engine="vllm",
        version="0.19.1",
        python="3.12.12",
        files=wheels,
        addresses={"vllm-0.19.1+cu130-cp38-abi3-any.whl": address},
        bytes=4_290_616_652,
    )
    cpu = cuda.model_copy(update={"variant": "cpu", "python": "3.11", "python_from": "os", "addresses": {}, "bytes": 0})
    uv = LockedUv(version="0.13.9", files={"uv-0.13.9-py3-none-b.whl": "d" * 64, "uv-0.13.9-py3-none-a.whl": "c" * 64})
    text = lock_text(Lock(uv=uv, environments=(cuda, cpu)))
    (tmp_path / "lock").write_text(text)
    read = load_lock(tmp_path / "lock")
    assert (read.uv, read.environments) == (uv, (cpu, cuda))
    assert read.environment("vllm", "0.19.1", "cpu", "x86_64") == cpu
    assert read.environment("vllm", "0.19.1", "cpu", "aarch64") is None
    assert lock_text(read) == text
    assert (
        text
        == f"""schema = 1

[uv]
version = "0.13.9"

[uv.files]
"uv-0.13.9-py3-none-a.whl" = "{"c" * 64}"
"uv-0.13.9-py3-none-b.whl" = "{"d" * 64}"

[[environments]]
engine = "vllm"
version = "0.19.1"
variant = "cpu"
architecture = "x86_64"
python = "3.11"
python_from = "os"

[environments.files]
"vllm-0.19.1+cu130-cp38-abi3-any.whl" = "{"b" * 64}"
"zlib_ng-1.0-cp312-cp312-linux_x86_64.whl" = "{"a" * 64}"

[[environments]]
engine = "vllm"
version = "0.19.1"
variant = "cuda"
architecture = "x86_64"
python = "3.12.12"
python_from = "uv"
bytes = 4290616652

[environments.files]
"vllm-0.19.1+cu130-cp38-abi3-any.whl" = "{"b" * 64}"
"zlib_ng-1.0-cp312-cp312-linux_x86_64.whl" = "{"a" * 64}"

[environments.addresses]
"vllm-0.19.1+cu130-cp38-abi3-any.whl" = "{address}"
"""
    )
