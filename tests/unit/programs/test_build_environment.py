"""What the program that makes environments asks of uv, and what it makes of uv's complaints."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rigup.programs import build_environment as program
from tests.lab.wheels import write_wheel

TORCH = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
FILES = {TORCH: "a" * 64, "typing_extensions-4.16.0-py3-none-any.whl": "b" * 64}


def test_every_line_names_one_wheel_by_version_and_hash() -> None:
    address = f"https://example.org/whl/{TORCH}"
    assert program.requirements(FILES, {TORCH: address}) == (
        f"torch @ {address} --hash=sha256:{'a' * 64}\ntyping-extensions==4.16.0 --hash=sha256:{'b' * 64}\n"
    )
    assert f"torch==2.13.0+cpu --hash=sha256:{'a' * 64}\n" in program.requirements(FILES, {})


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "  \u00d7 Failed to download `torch==2.13.0+cpu`\n"
            "  ╰─▶ Hash mismatch for `torch==2.13.0+cpu`\n\n      Expected:\n"
            f"        sha256:{'a' * 64}\n\n      Computed:\n        sha256:{'c' * 64}\n",
            f"{TORCH}: sha256 is {'c' * 64}, not the locked {'a' * 64}",
        ),
        (
            "error: Failed to extract archive\n  Caused by: No space left on device (os error 28)\n",
            "the disk is full: No space left on device (os error 28)",
        ),
        (
            "Using Python 3.11.2 environment at: x\n  \u00d7 No solution found when resolving dependencies:\n"
            "  ╰─▶ Because torch was not found in the provided package locations, it cannot be used.\n\nhint: more\n",
            "No solution found when resolving dependencies: Because torch was not found in the provided package "
            "locations, it cannot be used.",
        ),
    ],
)
def test_a_complaint_of_uv_is_one_line(output: str, said: str) -> None:
    assert program.reason(output, FILES) == said


def test_nothing_of_the_process_that_starts_it_reaches_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "https://elsewhere.example.org/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "https://elsewhere.example.org/simple")
    job = {"work": "/w", "result": "/r", "cache": "/c", "wheels": None, "python_mirror": "https://mirror.lan/python"}
    variables = program.environment(job)
    assert not [name for name, value in variables.items() if "elsewhere" in value]
    assert (variables["UV_NO_CONFIG"], variables["UV_CACHE_DIR"], variables["UV_LINK_MODE"]) == ("1", "/c", "copy")
    assert variables["UV_PYTHON_INSTALL_MIRROR"] == "https://mirror.lan/python"
    assert variables["UV_PYTHON_INSTALL_DIR"] == "/r/python"


def test_a_wheel_that_is_missing_or_another_is_named(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "one", "1.0", {"one.py": ""})
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    program.check_wheels(tmp_path, {wheel.name: right}, tmp_path)
    with pytest.raises(SystemExit) as found:
        program.check_wheels(tmp_path, {wheel.name: "0" * 64}, tmp_path)
    assert str(found.value) == f"{wheel.name}: sha256 is {right}, not the locked {'0' * 64}"
    with pytest.raises(SystemExit) as found:
        program.check_wheels(tmp_path, {"two-1.0-py3-none-any.whl": right}, tmp_path)
    assert str(found.value) == f"two-1.0-py3-none-any.whl: missing in {tmp_path}"


def test_a_wheel_without_uv_in_it_is_not_uv(tmp_path: Path) -> None:
    wheel = tmp_path / "uv-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("uv/__init__.py", "")
    with pytest.raises(SystemExit) as found:
        program.unpack_uv(wheel, hashlib.sha256(wheel.read_bytes()).hexdigest(), tmp_path)
    assert str(found.value) == "uv-1.0-py3-none-any.whl does not contain uv"


def test_what_is_there_must_be_what_the_lock_says(tmp_path: Path) -> None:
    for name, version in (("typing_extensions", "4.16.0"), ("torch", "2.12.0"), ("six", "1.17.0")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with pytest.raises(SystemExit) as found:
        program.check_complete(tmp_path, FILES)
    assert (
        str(found.value)
        == "packages differ from the lock: missing torch==2.13.0+cpu; unexpected six==1.17.0, torch==2.12.0"
    )


def test_a_check_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/engine").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bin/engine").chmod(0o755)
    monkeypatch.setattr(program, "CHECK_SECONDS", 0.2)
    job = {
        "work": "/w",
        "result": str(tmp_path),
        "cache": "/c",
        "wheels": None,
        "python_mirror": None,
        "compiler": None,
    }
    with pytest.raises(SystemExit, match=r"^bin/engine --version: no answer within 0\.2 s$"):
        program.check_runs(job | {"checks": [[["bin/engine", "--version"], "1.0"]]})


def packages(site: Path) -> Path:
    """What NVIDIA's packages leave of CUDA below site-packages, without the content."""
    folder = site / "nvidia/cu13"
    for path in ("bin/nvcc", "include/cuda.h", "nvvm/bin/cicc", "lib/libcudart.so.13", "lib/libnvrtc.so.13"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def test_a_cuda_home_has_the_names_that_compilers_and_linkers_look_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "driver_library", lambda: "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    folder, home = packages(tmp_path / "lib/python3.12/site-packages"), tmp_path / "cuda"
    program.make_cuda_home(home, folder)
    assert (home / "bin/nvcc").read_text() == "bin/nvcc"
    assert {(home / "lib64" / name).resolve() for name in ("libcudart.so", "libcudart.so.13")} == {
        folder / "lib/libcudart.so.13"
    }
    assert (home / "lib/libnvrtc.so").exists() and (home / "nvvm/bin/cicc").exists()
    assert (home / "lib64/libcuda.so").readlink() == Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    links = [path for path in home.rglob("*") if path.is_symlink() and path.name != "libcuda.so"]
    assert not [path for path in links if path.readlink().is_absolute()], (
        "a build is mounted elsewhere while it is made"
    )


def test_the_drivers_library_is_where_the_linker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(lines: str) -> None:
        done = subprocess.CompletedProcess((), 0, stdout=lines)
        monkeypatch.setattr(program.subprocess, "run", lambda *_, **__: done)

    old = "\tlibcudart.so.12 (libc6,x86-64) => /opt/x\n\tlibcuda.so.1 (libc6) => /usr/lib/i386/libcuda.so.1\n"
    for kind in ("libc6,x86-64", "libc6,AArch64", "libc6,x86-64, OS ABI: Linux 3.2.0"):
        known(f"{old}\tlibcuda.so.1 ({kind}) => /usr/lib/y/libcuda.so.1\n")
        assert program.driver_library() == "/usr/lib/y/libcuda.so.1"
    known("\tlibcudart.so.12 (libc6,x86-64) => /opt/x\n")
    with pytest.raises(SystemExit, match=r"^libcuda\.so\.1 is missing: it comes with NVIDIA's driver$"):
        program.driver_library()


def job_of(result: Path, python: str) -> dict[str, Any]:
    """A job whose environment's Python is a script."""
    (result / "bin").mkdir()
    (result / "bin/python").write_text(f"#!/bin/sh\n{python}\n")
    (result / "bin/python").chmod(0o755)
    compiler = {
        "folder": "nvidia/cu13",
        "home": "cuda",
        "kept": "kernels",
        "program": "/p.py",
        "kernels": ["a:b"],
        "compute_capabilities": ["8.6", "9.0"],
        "made": None,
    }
    return {
        "work": "/w",
        "result": str(result),
        "cache": "/c",
        "wheels": None,
        "python_mirror": None,
        "compiler": compiler,
        "manifest": {"name": "sglang-1", "built_by": "gpu2"},
    }


def test_kernels_are_compiled_for_the_cards_of_the_rig_with_the_compiler_of_the_build(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = 'echo "$FLASHINFER_CUDA_ARCH_LIST|$CUDA_HOME|$PATH|$FLASHINFER_WORKSPACE_BASE|$*"'
    assert program.have_kernels(job_of(tmp_path, said)) == "gpu2"
    (line,) = capfd.readouterr().out.splitlines()
    path = f"{tmp_path}/bin:{tmp_path}/cuda/bin:/usr/bin:/bin"
    assert line == f"8.6 9.0|{tmp_path}/cuda|{path}|/w|-I /p.py --keep {tmp_path}/kernels a:b"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("echo ninja; echo 'x.cu(3): error: no such thing'; echo more; exit 1", "x.cu(3): error: no such thing"),
        ("echo Killed; exit 1", "Killed"),
        ("exit 3", "exit status 3"),
    ],
)
def test_a_kernel_that_does_not_compile_ends_the_build_with_the_compilers_error(
    tmp_path: Path, output: str, said: str
) -> None:
    with pytest.raises(SystemExit) as found:
        program.have_kernels(job_of(tmp_path, output))
    assert str(found.value) == f"compiling kernels: {said}"


MADE = {"folder": "/made", "by": "gpu1"}


@pytest.mark.parametrize(("line", "maker"), [("taking kernels 1/1: b", "gpu1"), ("compiling kernels 1/1: b", "gpu2")])
def test_the_maker_of_a_build_is_the_builder_only_where_its_kernels_were_taken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, maker: str
) -> None:
    job = job_of(tmp_path, f"echo '{line}'; echo \"$*\"")
    job["compiler"]["made"] = MADE
    assert program.have_kernels(job) == maker
    assert capfd.readouterr().out.splitlines()[-1] == f"-I /p.py --keep {tmp_path}/kernels --made /made a:b"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("echo 'loading kernels 1/1: b'; echo 'OSError: b.so: invalid ELF header'; exit 1", "OSError: b.so: inv"),
        ("echo 'loading kernels 1/1: b'; kill -SEGV $$", "exit status -11"),
    ],
)
def test_a_builders_kernels_that_do_not_load_are_named_and_nothing_is_touched(
    tmp_path: Path, output: str, said: str
) -> None:
    job = job_of(tmp_path, f'test "$FLASHINFER_WORKSPACE_BASE" != /w && test -w "$TMPDIR" || exit 3; {output}')
    job["compiler"]["made"] = MADE
    with pytest.raises(SystemExit) as found:
        program.main(job, program.TRIAL)
    assert str(found.value).startswith(f"loading kernels: {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_the_parts_of_a_job_make_what_the_whole_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "driver_library", lambda: "/usr/lib/libcuda.so.1")
    monkeypatch.setattr(program, "unpack_uv", lambda *_: Path("uv"))
    installed: list[Path] = []

    def install(job: dict[str, Any], _: Path) -> None:
        result = Path(job["result"])
        packages(result / "lib/python3.12/site-packages")
        job_of(result, "echo fine")
        installed.append(result)

    monkeypatch.setattr(program, "make", install)
    trees = []
    for name, parts in (("whole", ("",)), ("parts", (program.PACKAGES, program.KERNELS))):
        (tmp_path / name).mkdir()
        job = job_of(tmp_path / name, "") | {"uv": {"file": "", "sha256": ""}, "files": {}, "provides": {}}
        job["checks"] = [[["bin/python"], "fine"]]
        for part in parts:
            assert not (tmp_path / name / "manifest.json").exists()
            program.main(job, part)
        trees.append(sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*")))
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert (manifest["built_by"], manifest["answers"]) == ("gpu2", ["fine"])
    assert trees[0] == trees[1]
    assert len(installed) == 2, "once each"
    assert program.INSTALLED not in trees[0]
