"""The base image of machines: Debian as a provider delivers it, built once and cached by its recipe.

With packages it is a box that has been in use: a rehearsal that is not about installing them does not wait for apt.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rigup.errors import HostFailed, InputError, Refused
from rigup.lab.folder import lab_folders, lab_root, locked, make_folder, remove_tree
from rigup.lab.packages.registries import debian_mirrors, sources
from rigup.lab.process import run, tail
from rigup.units import seconds_text

SUITES = ("bookworm", "trixie", "noble")
UNDERNEATH = {"noble": "trixie"}
"""The Debian release below a suite that only looks like another system."""
RECIPE = Path(__file__).parent / "recipe"
UBUNTU = Path(__file__).parent / "ubuntu"
Log = Callable[[str], None]


def image_name(suite: str, packages: Collection[str] = (), recipe: Path = RECIPE) -> str:
    """The name of a suite's image, which changes with any file of the recipe; with packages, it begins with that."""
    digest = hashlib.sha256()
    for file in sorted([*recipe.iterdir(), *(UBUNTU.iterdir() if suite in UNDERNEATH else ())]):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    bare = f"{suite}-{digest.hexdigest()[:12]}"
    return f"{bare}-{hashlib.sha256(_list(packages).encode()).hexdigest()[:12]}" if packages else bare


def image(name: str) -> Path:
    """The folder of an image, which is complete or absent."""
    return lab_root() / "base" / name


def ensure(suite: str, log: Log, fresh: bool = False, packages: Collection[str] = ()) -> str:
    """Builds the image of a suite if missing, and removes older ones that no lab uses.

    fresh: build it again even if it exists, because its packages are outdated. packages: installed in it already.
    Returns the image's name. Raises InputError for an unknown suite, Refused if a lab uses the image to be rebuilt,
    HostFailed with the log if the build fails.
    """
    if suite not in SUITES:
        raise InputError(f"--suite: {suite} is not one of {', '.join(SUITES)}", f"--suite {SUITES[0]}")
    with locked(make_folder(lab_root() / "base") / "lock"):
        return _ensure(suite, log, fresh, packages)


def _ensure(suite: str, log: Log, fresh: bool, packages: Collection[str] = ()) -> str:
    name = image_name(suite, packages)
    if image(name).exists():
        if not fresh:
            return name
        if lab := _in_use().get(name):
            raise Refused(f"{name}: lab {lab} uses this image", f"rigup lab down {lab}")
    if packages or suite in UNDERNEATH:
        _ensure(suite if packages else UNDERNEATH[suite], log, fresh)
    _remove(path for path in image(name).parent.iterdir() if path.name.startswith(".") and path.is_dir())
    started = time.monotonic()
    what = f"the {suite} image{f' with {_list(packages)}' if packages else ''}"
    log(f"building {what} (once, about a minute)")
    _build(suite, name, packages)
    log(f"built {what} in {seconds_text(time.monotonic() - started)}")
    _remove({path for path in image(name).parent.glob(f"{suite}-*") if path.name not in {*_kept(name), *_in_use()}})
    return name


def _kept(name: str) -> set[str]:
    """Images of a suite that are as new as the one just built: it, the one below it, and others on that one."""
    bare = "-".join(name.split("-")[:2])
    beside = {path.name for path in image(name).parent.glob(f"{bare}-*")} if name != bare else set()
    return {name, bare, *beside}


def _build(suite: str, name: str, packages: Collection[str]) -> None:
    debian = UNDERNEATH.get(suite, suite)
    mirrors = debian_mirrors(sources())
    lines = []
    if mirrors:
        archive, security = mirrors
        lines = [archive, f"deb {archive} {debian}-updates main", f"deb {security} {debian}-security main"]
    part = image(f".{name}.{os.getpid()}")
    log = lab_root() / "base" / f"{suite}.log"
    # With its own mounts and processes: they end with this process, so a killed build leaves nothing behind.
    alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation=private"]
    alone += ["--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    options = [
        *_contents(suite, packages),
        "--mode=root",
        "--components=main",
        '--aptopt=Acquire::Languages "none"',
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale")),
    ]
    done = run([*alone, "mmdebstrap", *options, debian, str(part), *lines], check=False)
    log.write_text(done.stdout)
    if done.returncode:
        remove_tree(part)
        raise HostFailed(f"cannot build the {suite} image\n{tail(log)}", f"see the complete log: {log}")
    # mmdebstrap writes these for the build only: a real machine has neither.
    for settings in ("apt/apt.conf.d/99mmdebstrap", "dpkg/dpkg.cfg.d/99mmdebstrap"):
        (part / "etc" / settings).unlink(missing_ok=True)
    remove_tree(image(name))
    part.rename(image(name))


def _contents(suite: str, packages: Collection[str]) -> tuple[str, ...]:
    """What mmdebstrap begins with and adds. On top of another image it takes a third of the time."""
    if packages:
        return *_on_top(image_name(suite)), f"--include={','.join(packages)}", _customised(RECIPE, "tidy")
    if suite in UNDERNEATH:
        own = "--include=needrestart"  # which a server of Ubuntu has from the start
        return *_on_top(image_name(UNDERNEATH[suite])), own, _customised(UBUNTU)
    listed = ",".join((RECIPE / "packages.txt").read_text().split())
    return "--variant=minbase", f"--include={listed}", _customised(RECIPE)


def _on_top(name: str) -> tuple[str, ...]:
    return "--variant=custom", "--skip=check/empty", f'--setup-hook=cp -a {shlex.quote(str(image(name)))}/. "$1"'


def _customised(recipe: Path, script: str = "customise") -> str:
    return f'--customize-hook=sh {shlex.quote(str(recipe / script))} "$1"'


def _list(packages: Collection[str]) -> str:
    return ", ".join(sorted(packages))


def _in_use() -> dict[str, str]:
    """The images in use, each with a lab that uses it."""
    return {str(folder.fields().get("base")): folder.name for folder in lab_folders()}


def _remove(images: Iterator[Path] | set[Path]) -> None:
    for path in images:
        remove_tree(path)
