"""Runs on a host, as an unprivileged user: builds the Python environment of one engine from wheels pinned by hash.

usage: build_environment.py JOB.json [packages | kernels | trial]

packages: installs the environment only, and leaves INSTALLED in it. kernels: goes on from there. trial: loads a
builder's kernels with the environment as it is, and writes nothing. Without any of these: packages, then kernels.

The job: {"uv": {"file", "sha256"}, "python", "python_from": "uv" | "os", "python_mirror", "files": {wheel: sha256},
"addresses": {wheel: url}, "wheels": folder with every wheel (then no index is used) or null, "index": simple index or
null for uv's default, "cache": uv's cache, "provides": {distribution: version}, "compiler": null or {"folder": below
site-packages, "home", "kept": folders below the result, "program", "kernels": its arguments, "compute_capabilities",
"made": null or {"folder": of a builder's libraries, "by"}}, "work", "result", "checks": [[argv, expected text]],
"manifest"}. `result` must be the environment's final path, since scripts and
pyvenv.cfg contain it: systemd mounts the unfinished folder there. manifest.json is written last, so a result without
one is unfinished.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.check_build import answer_of, verify
    from rigup.programs.unit_status import notify_status
else:
    sys.dont_write_bytecode = True
    from check_build import answer_of, verify  # type: ignore[import-not-found, no-redef]
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]

PACKAGES, KERNELS, TRIAL = "packages", "kernels", "trial"
INSTALLED = ".installed"
"""A file of a result whose packages are complete, and which lacks kernels and checks."""
TAKING, COMPILING, LOADING = "taking kernels", "compiling kernels", "loading kernels"
"""How compile_kernels.py begins its lines."""
MISMATCH = re.compile(r"Hash mismatch for `([^`]+)`.*?Expected:\s*sha256:(\w+).*?Computed:\s*sha256:(\w+)", re.DOTALL)
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CHECK_SECONDS = 600
MIB_OF_A_COMPILER = 4096
MARGIN = 1.05
DRIVER_LIBRARY = re.compile(r"^\s*libcuda\.so\.1 \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)$", re.MULTILINE)


def log(status: str) -> None:
    """Reports progress to the journal and to systemd."""
    print(status, flush=True)
    notify_status(status)


def distribution(wheel: str) -> tuple[str, str]:
    """The normalised name and the version in a wheel's file name."""
    name, version = wheel.split("-")[:2]
    return normalised(name), version


def normalised(name: str) -> str:
    """A distribution's name in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(files: dict[str, str], addresses: dict[str, str]) -> str:
    """A requirements file in which every line pins one wheel by version or by address, and by hash."""
    lines = []
    for wheel, sha256 in sorted(files.items()):
        name, version = distribution(wheel)
        what = f"{name} @ {addresses[wheel]}" if wheel in addresses else f"{name}=={version}"
        lines.append(f"{what} --hash=sha256:{sha256}\n")
    return "".join(lines)


def unpack_uv(wheel: Path, sha256: str, work: Path) -> Path:
    """Extracts the uv program from its wheel after verifying the wheel."""
    verify(wheel, sha256)
    with zipfile.ZipFile(wheel) as packed:
        member = next((n for n in packed.namelist() if n.endswith(".data/scripts/uv")), None)
        if member is None:
            sys.exit(f"{wheel.name} does not contain uv")
        uv = work / "uv"
        uv.write_bytes(packed.read(member))
    uv.chmod(0o755)
    return uv


def check_wheels(folder: Path, files: dict[str, str], result: Path) -> None:
    """Verifies every wheel and checks that there is room to unpack them; exits with the file's name or both sizes."""
    unpacked = 0
    for number, (wheel, sha256) in enumerate(sorted(files.items()), start=1):
        log(f"{number}/{len(files)} verifying wheels")
        if not (folder / wheel).is_file():
            sys.exit(f"{wheel}: missing in {folder}")
        verify(folder / wheel, sha256)
        with zipfile.ZipFile(folder / wheel) as packed:
            unpacked += sum(member.file_size for member in packed.infolist())
    needed, free = int(unpacked * MARGIN), shutil.disk_usage(result).free
    if needed > free:
        sys.exit(f"the environment unpacks to {needed / 1e9:.1f} GB, only {free / 1e9:.1f} GB free in {result.parent}")


def environment(job: dict[str, Any]) -> dict[str, str]:
    """uv's environment: nothing inherited except proxies, no settings files, all output in the job's folders."""
    variables = {
        "HOME": str(job["work"]),
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(job["work"]),
        "LC_ALL": "C.UTF-8",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_CACHE_DIR": f"{job['result']}/.cache" if job["wheels"] else job["cache"],
        "UV_PYTHON_INSTALL_DIR": f"{job['result']}/python",
        # hard links into a shared, writable cache could be changed later; this cache belongs to the build
        "UV_LINK_MODE": "hardlink" if job["wheels"] else "copy",
        "UV_HTTP_TIMEOUT": "120",
    }
    if Path(CERTIFICATES).exists():
        variables["SSL_CERT_FILE"] = CERTIFICATES
    if job["python_mirror"]:
        variables["UV_PYTHON_INSTALL_MIRROR"] = job["python_mirror"]
    proxies = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    return variables | {name: value for name, value in os.environ.items() if name.lower() in proxies}


def run(words: list[str], variables: dict[str, str], files: dict[str, str]) -> None:
    """Runs uv; exits with its error in one line."""
    status, lines = follow(words, variables, ("Downloading", "Downloaded", "Prepared", "Installed", "Bytecode"))
    if status:
        sys.exit(reason("\n".join(lines), files) or f"uv {words[1]}: exit status {status}")


def follow(words: list[str], variables: dict[str, str], reported: tuple[str, ...]) -> tuple[int, list[str]]:
    """Runs a program; its exit status and its output's lines.

    reported: the beginnings of the lines that are reported as progress.
    """
    lines: list[str] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=variables
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            print(lines[-1], flush=True)
            if lines[-1].lstrip().startswith(reported):
                log(lines[-1].strip())
    return process.returncode, lines


def reason(output: str, files: dict[str, str]) -> str:
    """uv's error in one line: both hashes of a file that is not the pinned one, a full disk, or uv's last lines."""
    if found := MISMATCH.search(output):
        name, _, version = found[1].partition("==")
        wheel = next((w for w in files if distribution(w) == (normalised(name), version)), found[1])
        return f"{wheel}: sha256 is {found[3]}, not the locked {found[2]}"
    if "No space left on device" in output:
        return "the disk is full: No space left on device (os error 28)"
    lines = [re.sub(r"^[^\w`(]+", "", line) for line in output.splitlines()]
    own = [line for line in lines if line and not line.startswith(("hint:", "Using Python", "warning:", "WARNING:"))]
    return ": ".join(line.rstrip(":") for line in own[-3:])[-600:]


def make(job: dict[str, Any], uv: Path) -> None:
    """Creates the environment with its Python and every locked wheel."""
    result, work, variables = Path(job["result"]), Path(job["work"]), environment(job)
    python = job["python"]
    if job["python_from"] == "uv":
        log(f"getting Python {python}")
        run([str(uv), "python", "install", "--no-bin", "--managed-python", python], variables, {})
        choice = ["--managed-python", "--no-python-downloads", "--python", python]
    else:
        version = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True).stdout.split()[-1]
        if version != python and not version.startswith(f"{python}."):
            sys.exit(f"this host's Python is {version}, not the locked {python}")
        choice = ["--no-managed-python", "--no-python-downloads", "--python", "/usr/bin/python3"]
    run([str(uv), "venv", "--allow-existing", *choice, str(result)], variables, {})
    listed = work / "requirements.txt"
    addresses = {} if job["wheels"] else job["addresses"]
    listed.write_text(requirements(job["files"], addresses))
    where = ["--offline", "--no-index", "--find-links", job["wheels"]] if job["wheels"] else []
    where += ["--default-index", job["index"]] if job["index"] and not job["wheels"] else []
    fixed = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--compile-bytecode"]
    log(f"installing {len(job['files'])} packages")
    run([str(uv), "pip", "install", "--python", f"{result}/bin/python", *fixed, *where, "-r", str(listed)],
        variables, job["files"])  # fmt: skip
    shutil.rmtree(result / ".cache", ignore_errors=True)


def provide(folder: Path, provides: dict[str, str]) -> None:
    """Writes metadata for replaced distributions, so that code can look up their version."""
    for name, version in provides.items():
        shim = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        shim.mkdir()
        (shim / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (shim / "INSTALLER").write_text("rigup\n")
        (shim / "RECORD").write_text("")


def make_cuda_home(home: Path, packages: Path) -> None:
    """A folder as CUDA's installer leaves it, of links to what is among the packages, and to the driver's library.

    Engines link what they compile with lib64/libcudart.so and libcuda.so; packages have neither name.
    """
    libraries = home / "lib64"
    libraries.mkdir(parents=True)
    (home / "lib").symlink_to("lib64")
    for name in ("bin", "include", "nvvm"):
        (home / name).symlink_to(os.path.relpath(packages / name, home))
    for library in sorted((packages / "lib").iterdir()):
        where = os.path.relpath(library, libraries)
        for name in {library.name, re.sub(r"\.so\..*", ".so", library.name)}:
            if not (libraries / name).is_symlink():
                (libraries / name).symlink_to(where)
    (libraries / "libcuda.so").symlink_to(driver_library())


def driver_library() -> str:
    """The path of the CUDA library that comes with the driver; exits without one."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, errors="replace").stdout
    found = DRIVER_LIBRARY.search(known)
    return found[1] if found else sys.exit("libcuda.so.1 is missing: it comes with NVIDIA's driver")


def have_kernels(job: dict[str, Any]) -> str:
    """Takes the kernels that a builder compiled, and compiles the others; returns who made them.

    They are those that the engine needs in its start, for the rig's GPUs. Exits with the compiler's error.
    """
    compiler, maker = job["compiler"], str(job["manifest"]["built_by"])
    status, lines = run_kernels(job)
    if status:
        errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
        sys.exit(f"compiling kernels: {in_short((errors or lines or [f'exit status {status}'])[0])}")
    return compiler["made"]["by"] if any(line.startswith(TAKING) for line in lines) else maker


def try_kernels(job: dict[str, Any]) -> None:
    """Loads the kernels that a builder compiled; exits with the error of the first that does not load."""
    with tempfile.TemporaryDirectory() as work:
        status, lines = run_kernels(job | {"work": work}, "--load")
    if status:
        said = lines[-1] if lines and status > 0 else f"exit status {status}"
        sys.exit(f"loading kernels: {in_short(said)}")


def run_kernels(job: dict[str, Any], *options: str) -> tuple[int, list[str]]:
    """Runs compile_kernels.py with the environment's Python and its compiler; its exit status and lines."""
    compiler = job["compiler"]
    total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    own = {
        "FLASHINFER_CUDA_ARCH_LIST": " ".join(compiler["compute_capabilities"]),
        "FLASHINFER_WORKSPACE_BASE": job["work"],
        "MAX_JOBS": str(max(1, min(os.cpu_count() or 1, total_mib // MIB_OF_A_COMPILER))),
    }
    words = [f"{job['result']}/bin/python", "-I", compiler["program"], "--keep", f"{job['result']}/{compiler['kept']}"]
    words += ["--made", compiler["made"]["folder"], *options] if compiler["made"] else []
    return follow([*words, *compiler["kernels"]], engine_environment(job) | own, (TAKING, COMPILING, LOADING))


def in_short(line: str) -> str:
    """The end of a line, without what aligns it."""
    return " ".join(line.split())[-600:]


def engine_environment(job: dict[str, Any]) -> dict[str, str]:
    """uv's environment with what the engine finds in its service: the build's programs, and its compiler."""
    found = environment(job) | {"PATH": f"{job['result']}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    if job["compiler"]:
        home = f"{job['result']}/{job['compiler']['home']}"
        found |= {"CUDA_HOME": home, "PATH": f"{job['result']}/bin:{home}/bin:/usr/bin:/bin"}
    return found


def check_complete(folder: Path, files: dict[str, str]) -> None:
    """Exits unless exactly the locked distributions are installed."""
    found = set()
    for metadata in folder.glob("*.dist-info/METADATA"):
        fields = HeaderParser().parsestr(metadata.read_text(errors="replace"))
        found.add((normalised(str(fields["Name"])), str(fields["Version"])))
    wanted = {distribution(wheel) for wheel in files}
    if found != wanted:
        lacking, strange = (sorted("==".join(d) for d in these) for these in (wanted - found, found - wanted))
        sys.exit(
            f"packages differ from the lock: missing {', '.join(lacking) or 'none'}; unexpected {', '.join(strange)}"
        )


def check_runs(job: dict[str, Any]) -> list[str]:
    """Runs each check; exits if one fails or its output lacks the expected text."""
    answers = []
    for words, expected in job["checks"]:
        log(f"checking: {' '.join(words)[:60]}")
        answers.append(answer_of(Path(job["result"]), words, expected, CHECK_SECONDS, engine_environment(job))[-300:])
    return answers


def main(job: dict[str, Any], part: str = "") -> None:
    """Does one part of the job, or packages and kernels."""
    if part == TRIAL:
        try_kernels(job)
        return
    if part != KERNELS:
        install(job)
    if part != PACKAGES:
        finish(job)


def install(job: dict[str, Any]) -> None:
    """Unpacks uv, verifies, and installs the packages and what makes a compiler of them."""
    result, work = Path(job["result"]), Path(job["work"])
    empty(result)
    uv = unpack_uv(Path(job["uv"]["file"]), job["uv"]["sha256"], work)
    if job["wheels"]:
        check_wheels(Path(job["wheels"]), job["files"], result)
    make(job, uv)
    packages = next((result / "lib").glob("python3.*/site-packages"))
    check_complete(packages, job["files"])
    provide(packages, job["provides"])
    if compiler := job["compiler"]:
        make_cuda_home(result / compiler["home"], packages / compiler["folder"])
    (result / INSTALLED).touch()


def finish(job: dict[str, Any]) -> None:
    """Adds the kernels and runs the checks; writes the manifest only after all of that."""
    result, manifest = Path(job["result"]), dict(job["manifest"])
    if job["compiler"] and job["compiler"]["kernels"]:
        manifest["built_by"] = have_kernels(job)
    manifest["answers"] = check_runs(job)
    (result / INSTALLED).unlink()
    (result / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))


def empty(folder: Path) -> None:
    """Deletes a folder's content; the folder itself is a mount."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


if __name__ == "__main__":
    wanted, part = json.loads(Path(sys.argv[1]).read_text()), (*sys.argv[2:], "")[0]
    try:
        main(wanted, part)
    except BaseException as error:
        if part != TRIAL:
            empty(Path(wanted["result"]))  # do not keep gigabytes of an unfinished build
        if isinstance(error, OSError):
            sys.exit(f"{error.filename or 'the environment'}: {error.strerror}")
        raise
