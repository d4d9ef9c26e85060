"""The packages of the lab's apt repositories, listed in nvml/packages.toml: real ones, built by dpkg-deb."""

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rigup.lab.gpus.description import NVML
from rigup.lab.process import run
from rigup.units import Frozen

DRIVERS = {"570.133.20": 12080, "580.95.05": 13000, "580.178.04": 13000, "590.48.01": 13010}
"""The available driver versions, and the CUDA version that each supports, in NVML's notation."""
OF_DISTRIBUTIONS = {"550.163.01": 12040}
"""The same for drivers of Debian's and Ubuntu's own archives that NVIDIA's repository does not have."""
REVISION = "1"
PINNED = "nvidia-open cuda-drivers nvidia-driver-cuda nvidia-kernel-* nvidia-persistenced nvidia-fabricmanager"
PINNED += " libnvidia-* libcuda1 firmware-nvidia-gsp"
MAINTAINER = "rigup's lab <lab@localhost>"


class PackageEntry(Frozen):
    """One [[package]] of packages.toml; that file documents the fields."""

    name: str
    description: str
    repository: str = "nvidia"
    systems: tuple[str, ...] = ("debian", "ubuntu")
    architecture: str = "amd64"
    maintainer: str = MAINTAINER
    versions: str | tuple[str, ...] = "drivers"
    depends: str = ""
    provides: str = ""
    conflicts: str = ""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    scripts: dict[str, str] = {}


@dataclass(frozen=True)
class BuiltPackage:
    """One package file and its control fields."""

    path: Path
    control: str


@dataclass(frozen=True)
class Site:
    """The parts of a package that depend on its repository: distribution, signing key, source line."""

    distribution: str
    key: bytes
    source: str


def build(repository: str, site: Site, folder: Path) -> list[BuiltPackage]:
    """Builds every package of a repository ("nvidia" or "debian") in a folder; needs gcc and dpkg-deb."""
    with tempfile.TemporaryDirectory() as scratch:
        return [
            _package(entry, full, site, Path(scratch), folder)
            for entry in _entries()
            if entry.repository == repository
            and (repository != "nvidia" or site.distribution.startswith(entry.systems))
            for full in _versions(entry)
        ]


def _entries() -> list[PackageEntry]:
    data = tomllib.loads((NVML / "packages.toml").read_text())
    return [PackageEntry.model_validate(package) for package in data["package"]]


def _versions(entry: PackageEntry) -> Iterator[str]:
    if entry.versions == "drivers":
        yield from (f"{version}-{REVISION}" for version in DRIVERS)
    elif entry.versions == "kernel":
        yield f"{os.uname().release}-{REVISION}"
    else:
        yield from entry.versions


def _package(entry: PackageEntry, full: str, site: Site, scratch: Path, folder: Path) -> BuiltPackage:
    version = full.rpartition("-")[0] or full
    words = {
        "version": version,
        "full": full,
        "branch": version.partition(".")[0],
        "distribution": site.distribution,
        "kernel": os.uname().release,
    }
    tree = scratch / "tree"
    for place, source in entry.files.items():
        target = tree / place.format(**words).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_content(source, version, site, scratch))
        target.chmod(0o755 if target.parent.name in ("bin", "sbin") else 0o644)
    for place, points_to in entry.links.items():
        link = tree / place.format(**words).lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(points_to.format(**words))
    name = entry.name.format(**words)
    control = _control(entry, name, full, words)
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(control)
    for script, source in entry.scripts.items():
        (tree / "DEBIAN" / script).write_bytes(_content(source, version, site, scratch))
        (tree / "DEBIAN" / script).chmod(0o755)
    path = folder / f"{name}_{full.rpartition(':')[2]}_{entry.architecture}.deb"
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, path])
    shutil.rmtree(tree)
    return BuiltPackage(path, control)


def _control(entry: PackageEntry, name: str, full: str, words: dict[str, str]) -> str:
    fields = {
        "Package": name,
        "Version": full,
        "Architecture": entry.architecture,
        "Maintainer": entry.maintainer,
        "Depends": entry.depends.format(**words),
        "Provides": entry.provides,
        "Conflicts": entry.conflicts,
        "Section": "non-free/metapackages",
        "Priority": "optional",
        "Description": f"{entry.description} (a stand-in, for lab machines)",
    }
    return "".join(f"{field}: {value}\n" for field, value in fields.items() if value)


def _content(source: str, version: str, site: Site, scratch: Path) -> bytes:
    """The content of a packaged file: compiled, from the repository, or a file of nvml/."""
    match source:
        case "libnvidia-ml.so":
            cuda = (DRIVERS | OF_DISTRIBUTIONS)[version]
            return _library("libnvidia_ml.c", "libnvidia-ml.so.1", scratch, f"-DCUDA_VERSION={cuda}", version)
        case "libcuda.so":
            return _library("libcuda.c", "libcuda.so.1", scratch, "-DCUDA_DRIVER", version)
        case "nvidia-open.ko" | "nvidia-proprietary.ko":
            licence = "Dual MIT/GPL" if source == "nvidia-open.ko" else "NVIDIA"
            defines = (f'-DLICENSE="{licence}"', f'-DDRIVER_VERSION="{version}"')
            return _compiled(["-c", *defines], NVML / "nvidia_module.c", scratch)
        case "key":
            return site.key
        case "source":
            return f"{site.source}\n".encode()
        case "libcudart.so.13" | "libcublas.so.13" | "libcublasLt.so.13":
            return _compiled(["-shared", "-nostdlib", f"-Wl,-soname,{source}", "-x", "c"], Path("/dev/null"), scratch)
        case "no objects":
            return b"!<arch>\n"
        case "empty":
            return b""
    if source.startswith("pin "):
        return f"Package: {PINNED}\nPin: version {source.removeprefix('pin ')}\nPin-Priority: 1000\n".encode()
    return (NVML / source).read_text().replace("@VERSION@", version).encode()


def _library(source: str, soname: str, scratch: Path, define: str, version: str) -> bytes:
    defines = (define, f'-DDRIVER_VERSION="{version}"')
    return _compiled(["-shared", "-fPIC", f"-Wl,-soname,{soname}", *defines], NVML / source, scratch)


def _compiled(options: list[str], source: Path, scratch: Path) -> bytes:
    output = scratch / "compiled"
    run(["gcc", "-O1", "-Wall", "-Wextra", *options, "-o", output, source])
    return output.read_bytes()
