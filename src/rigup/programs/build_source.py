"""Runs on a host, as an unprivileged user: builds one engine from a source archive into its own folder.

usage: build_source.py JOB.json

The job: {"archive", "sha256", "root", "flags": [cmake flags], "cmake": text for CMake to read after each project(),
"targets": [...], "library": null or {"path": of a wheel, "sha256", "folder": in it, "file": in that}, "judge": {} or
by name the text of the files that a judge is compiled from, "work": folder for the build, "result": folder to install
to, "check": argv whose output must contain "expect"}. Archive and wheel are verified first; `result` gets a
manifest.json last, so a result without one is unfinished.

The library is unpacked below the build tree, to the folder that {library} in flags stands for, so that CMake does not
write that path into programs. It is copied to them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.check_build import answer_of, verify
    from rigup.programs.unit_status import notify_status
else:
    sys.dont_write_bytecode = True
    from check_build import answer_of, verify  # type: ignore[import-not-found, no-redef]
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]

# What an nvcc may take for a file of flash-attention templates: builds with one for each core are killed for want of
# memory. Source: ggml-org/llama.cpp#13375.
MIB_OF_NVCC = 3072
CUDA = "-DGGML_CUDA=ON"
JUDGE = "rigup-judge"
# Where llama.cpp's headers are that a judge includes, from the top of its tree.
HEADERS = ("include", "common", "ggml/include", "ggml/src", "src", "vendor")
STEP = re.compile(r"^\[(\d+)/(\d+)\]\s*(.*)")


def unpack(archive: Path, root: str, work: Path) -> Path:
    """Unpacks the archive and returns the folder that holds the tree to build."""
    notify_status("unpacking")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(work, filter="data")
        else:
            tar.extractall(work)  # noqa: S202  Debian 12's Python has no filter; the archive has the locked sha256
    tree = work / root
    if not (tree / "CMakeLists.txt").is_file():
        sys.exit(f"{archive.name}: no CMakeLists.txt in {root}/")
    return tree


def unpack_library(library: dict[str, str], folder: Path) -> Path:
    """Unpacks the part of a wheel that has a library and its headers, and returns its folder."""
    with zipfile.ZipFile(library["path"]) as wheel:
        for name in wheel.namelist():
            if name.startswith(f"{library['folder']}/"):
                wheel.extract(name, folder)
    return folder / library["folder"]


def run(command: list[str]) -> None:
    """Runs a build command and passes ninja's counter on to systemd; exits with its last error line if it fails."""
    last = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            line = line.rstrip()
            print(line, flush=True)
            step = STEP.match(line)
            if step:
                notify_status(f"{step[1]}/{step[2]} compiling")
            if re.search(r"error|fatal", line, re.IGNORECASE) or not last:
                last = line
    if process.returncode:
        sys.exit(f"{command[0]} {command[1]}: exit status {process.returncode}: {last}")


def compile_judge(sources: dict[str, str], tree: Path, build: Path, program: Path) -> str:
    """Compiles a judge against llama.cpp's tree and its build, with cards that are simulated; returns why it failed.

    The judge has the backend that would be CUDA's, so that nothing of ggml-cuda is linked.
    """
    folder = build / "judge"
    folder.mkdir(exist_ok=True)
    for name, text in sources.items():
        (folder / name).write_text(text)
    archives = sorted(path for path in build.rglob("*.a") if path.name != "libggml-cuda.a")
    own = sorted(folder / name for name in sources if name.endswith(".cpp"))
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-s",
        "-w",
        f"-I{folder}",
        *(f"-I{tree / name}" for name in HEADERS),
        *map(str, own),
    ]
    command += ["-o", str(program), "-Wl,--start-group", *map(str, archives), "-Wl,--end-group"]
    command += ["-lgomp", "-lpthread", "-ldl"]
    with (folder / "cuda_rules.h").open("w") as rules:
        words = [sys.executable, str(folder / "cuda_rules.py"), str(tree / "ggml/src/ggml-cuda")]
        done = subprocess.run(words, stdout=rules, stderr=subprocess.PIPE, text=True)
    if not done.returncode:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = [line for line in done.stderr.splitlines() if re.search(r"error|nothing begins", line)] or [done.stderr]
    return lines[0] or "no message" if done.returncode else ""


def at_once(flags: list[str]) -> tuple[str, ...]:
    """How many compilers run at once: as many as ninja thinks right; with CUDA no more than fit into the memory."""
    cores, total_mib = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    fit = max(1, total_mib // MIB_OF_NVCC)
    return ("--parallel", str(fit)) if CUDA in flags and fit < cores else ()


def main(job: dict[str, Any]) -> None:
    """Verifies, unpacks, configures, builds, installs and checks; writes the manifest only after all of that."""
    archive, work, result = Path(job["archive"]), Path(job["work"]), Path(job["result"])
    library = job["library"]
    verify(archive, job["sha256"])
    if library:
        verify(Path(library["path"]), library["sha256"])
    tree = unpack(archive, job["root"], work / "source")
    build = work / "build"
    notify_status("configuring")
    shutil.rmtree(build, ignore_errors=True)
    included = work / "included.cmake"
    included.write_text(job["cmake"])
    unpacked = unpack_library(library, build / "library") if library else None
    named = [flag.replace("{library}", str(unpacked)) for flag in job["flags"]] if unpacked else job["flags"]
    flags = [f"-DCMAKE_PROJECT_INCLUDE={included}", *named]
    run(["cmake", "-S", str(tree), "-B", str(build), "-G", "Ninja", *flags])
    run(["cmake", "--build", str(build), *at_once(job["flags"]), "--target", *job["targets"]])
    shutil.rmtree(result, ignore_errors=True)
    (result / "bin").mkdir(parents=True)
    for target in job["targets"]:
        shutil.copy2(build / "bin" / target, result / "bin" / target)
    if unpacked:
        found = unpacked / library["file"]
        shutil.copy2(found, result / "bin" / found.name)
    if job["judge"]:
        notify_status("compiling the judge")
        if why := compile_judge(job["judge"], tree, build, result / "bin" / JUDGE):
            print(f"no judge: {why}", flush=True)  # the release serves without one
    output = answer_of(result, job["check"], job["expect"])
    (result / "manifest.json").write_text(
        json.dumps({**job["manifest"], "version_output": output}, indent=1, sort_keys=True)
    )
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
