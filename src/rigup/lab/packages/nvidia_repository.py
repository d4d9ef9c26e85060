"""The lab's apt repositories, in NVIDIA's layout and signed, built once and cached by content.

Served to a lab by `python -m rigup.lab.packages.nvidia_repository LAB FOLDER`.

compute/cuda/repos/debian12/x86_64/   flat: packages, Packages, Release, InRelease, Release.gpg, the key as <id>.pub
compute/cuda/repos/debian13/x86_64/   the same with another key, like NVIDIA's
compute/cuda/repos/ubuntu2404/x86_64/ the same with the package names of Ubuntu
debian/                               the lab's additions to Debian: dkms, and headers of the running kernel
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import sys
import time
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from rigup.errors import MissingTool
from rigup.lab import process
from rigup.lab.folder import LabFolder, lab_folders, lab_root, locked, make_folder, remove_tree, write
from rigup.lab.gpus.description import NVML
from rigup.lab.network.addresses import hub_address
from rigup.lab.network.listening_server import ListeningServer, listen
from rigup.lab.network.network import lab_socket
from rigup.lab.packages.nvidia_repository_packages import BuiltPackage, Site, build
from rigup.lab.process import environment, run

PORT = 8091
SERVER = "nvidia_repository"
"""The name of its process in a lab's folder: nvidia_repository.pid, and .log with one line per request."""
DISTRIBUTIONS = {"bookworm": "debian12", "trixie": "debian13", "noble": "ubuntu2404"}
CODE = ("nvidia_repository.py", "nvidia_repository_packages.py")
PACKAGE_OF = {"gcc": "gcc", "dpkg-deb": "dpkg", "gpg": "gnupg"}
FIRST_LINE = "deb [signed-by={key}] {url} /"


@dataclass(frozen=True)
class AptRepository:
    """One repository: its address for machines of a lab, and its signing key.

    folder: relative to the served folder. fingerprint: of the key, 40 hexadecimal digits.
    """

    folder: str
    fingerprint: str

    @property
    def url(self) -> str:
        """Its address, the same in every lab."""
        return f"http://hub:{PORT}/{self.folder}/"

    @property
    def key_file(self) -> str:
        """The name of the public key beside the packages: the last eight digits of the fingerprint."""
        return f"{self.fingerprint[-8:].lower()}.pub"


def cuda_repository(suite: str) -> AptRepository:
    """The CUDA repository for machines of a suite of `DISTRIBUTIONS`; its key is made on the first call."""
    distribution = DISTRIBUTIONS[suite]
    return AptRepository(f"compute/cuda/repos/{distribution}/x86_64", _fingerprint(distribution))


def debian_repository() -> AptRepository:
    """The repository with the lab's additions to Debian."""
    return AptRepository("debian", _fingerprint("debian"))


def public_key(repository: AptRepository, armoured: bool = False) -> bytes:
    """The key that signs a repository, in apt's format."""
    target = lab_root() / "nvidia" / f".key.{os.getpid()}"
    form = ["--armor"] if armoured else []
    run([*_gpg(), *form, "--yes", "--output", target, "--export", repository.fingerprint])
    content = target.read_bytes()
    target.unlink()
    return content


def ensure() -> Path:
    """Builds the repositories if they are missing; returns the folder to serve. Removes older ones that no lab serves.

    Raises MissingTool if this machine cannot compile or sign, HostFailed if a package cannot be built.
    """
    missing = [tool for tool in PACKAGE_OF if shutil.which(tool, path=environment()["PATH"]) is None]
    if not Path("/usr/include/stdio.h").exists():
        missing.append("/usr/include/stdio.h")
    if missing:
        packages = sorted({PACKAGE_OF.get(tool, "libc6-dev") for tool in missing})
        install = f"apt-get install --no-install-recommends {' '.join(packages)}"
        raise MissingTool(f"simulated GPUs require {', '.join(missing)}", install)
    with locked(make_folder(lab_root() / "nvidia") / "repositories.lock"):
        folder = lab_root() / "nvidia" / _content()
        if not folder.exists():
            if not any(process.running(lab.path / f"{SERVER}.pid") for lab in lab_folders()):
                for old in folder.parent.glob("content-*"):
                    remove_tree(old)
            for left in folder.parent.glob(".part.*"):
                remove_tree(left)
            part = make_folder(folder.with_name(f".part.{os.getpid()}"))
            for suite in DISTRIBUTIONS:
                _make("nvidia", cuda_repository(suite), DISTRIBUTIONS[suite], part)
            _make("debian", debian_repository(), "debian", part)
            part.rename(folder)
            _end_agent()
    return folder


def fit_out(root: Path) -> None:
    """Configures a machine before its first boot: the lab's additions to Debian, fetched without a proxy."""
    repository = debian_repository()
    (root / "usr/share/keyrings/lab.gpg").write_bytes(public_key(repository))
    line = FIRST_LINE.format(key="/usr/share/keyrings/lab.gpg", url=repository.url)
    (root / "etc/apt/sources.list.d/lab.list").write_text(f"{line}\n")
    (root / "etc/apt/apt.conf.d/96lab-gpus").write_text('Acquire::http::Proxy::hub "DIRECT";\n')


def _content() -> str:
    """The folder's name, which changes with the packages, the code that builds them, and this machine's kernel."""
    digest = hashlib.sha256(os.uname().release.encode())
    sources = sorted(path for path in NVML.iterdir() if path.is_file())
    for file in [*sources, *(Path(__file__).with_name(name) for name in CODE)]:
        digest.update(file.name.encode() + file.read_bytes())
    return f"content-{digest.hexdigest()[:12]}"


def _make(packages: str, repository: AptRepository, distribution: str, part: Path) -> None:
    folder = make_folder(part / repository.folder)
    keyring = "/usr/share/keyrings/cuda-archive-keyring.gpg"
    source = FIRST_LINE.format(key=keyring, url=repository.url)
    built = build(packages, Site(distribution, public_key(repository), source), folder)
    listing = "".join(_stanza(package) for package in built).encode()
    (folder / "Packages").write_bytes(listing)
    (folder / "Packages.gz").write_bytes(gzip.compress(listing, mtime=0))
    (folder / "Release").write_text(_release(folder, distribution))
    (folder / repository.key_file).write_bytes(public_key(repository, armoured=True))
    sign = [*_gpg(), "--yes", "--local-user", repository.fingerprint, "--digest-algo", "SHA512"]
    run([*sign, "--clearsign", "--output", folder / "InRelease", folder / "Release"])
    run([*sign, "--armor", "--detach-sign", "--output", folder / "Release.gpg", folder / "Release"])


def _stanza(package: BuiltPackage) -> str:
    content = package.path.read_bytes()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return (
        f"{package.control}Filename: ./{package.path.name}\nSize: {len(content)}\n"
        f"MD5sum: {md5}\nSHA256: {hashlib.sha256(content).hexdigest()}\n\n"
    )


def _release(folder: Path, distribution: str) -> str:
    lines = ["Origin: NVIDIA", "Label: NVIDIA CUDA", "Architecture: x86_64", f"Date: {formatdate(usegmt=True)}"]
    lines += [f"Description: the lab's stand-in for {distribution}", "SHA256:"]
    for name in ("Packages", "Packages.gz"):
        content = (folder / name).read_bytes()
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
    return "\n".join(lines) + "\n"


def _gpg() -> list[str]:
    home = make_folder(lab_root() / "nvidia" / "keys")
    home.chmod(0o700)
    return ["gpg", "--homedir", str(home), "--batch", "--no-tty", "--quiet", "--pinentry-mode", "loopback"]


def _fingerprint(name: str) -> str:
    """The fingerprint of the key of that name; the key is made on the first call."""
    kept = make_folder(lab_root() / "nvidia" / "keys") / f"{name}.fingerprint"
    if not kept.exists():
        with locked(lab_root() / "nvidia" / "keys.lock"):
            if not kept.exists():
                write(kept, _make_key(name))
                _end_agent()
    return kept.read_text()


def _make_key(name: str) -> str:
    identity = f"rigup lab, not NVIDIA: {name}, {time.time_ns()}"
    run([*_gpg(), "--passphrase", "", "--quick-generate-key", identity, "rsa2048", "sign", "never"])
    listed = run([*_gpg(), "--with-colons", "--list-keys", f"={identity}"]).stdout
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))


def _end_agent() -> None:
    """Ends gpg's background process, which keeps keys in memory: these do not need it."""
    run(["gpgconf", "--homedir", _gpg()[2], "--kill", "gpg-agent"], check=False)


def settings(suite: str) -> dict[str, str]:
    """The group_data settings for machines of a lab: the address of the repositories, and the key's fingerprint."""
    repository = cuda_repository(suite)
    address = repository.url.rpartition(f"/{DISTRIBUTIONS[suite]}/")[0]
    return {"nvidia_repository": address, "nvidia_key_fingerprint": repository.fingerprint}


class RepositoryHandler(SimpleHTTPRequestHandler):
    """One connection of a machine's apt; the log has one line per request."""

    protocol_version = "HTTP/1.1"


def serve(name: str, folder: str) -> None:
    """Serves a folder at the lab's own address inside."""
    inside = (hub_address(LabFolder(name).existing().number), PORT)
    ListeningServer(listen(lab_socket(name), inside), partial(RepositoryHandler, directory=folder)).serve_forever()


if __name__ == "__main__":
    serve(*sys.argv[1:])
