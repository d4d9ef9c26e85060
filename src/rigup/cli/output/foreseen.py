"""How long the changes of a host will take, as far as that can be known before they are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rigup.facts.probe import Probe
from rigup.layout import weights_folder
from rigup.operations.builds.builders import kernel_builders, names_of
from rigup.operations.builds.source import name_of
from rigup.operations.weights.checkpoint import step_name
from rigup.plan import Build, Plan
from rigup.preflight.checks import unpacked_bytes
from rigup.run.result import Change
from rigup.settings import Builder, HostSettings
from rigup.units import bytes_text, seconds_text

LINKS = {"1 Gbit/s": 125_000_000, "100 Mbit/s": 12_500_000}
"""Bytes per second, by name; nobody knows the host's link before the download."""

COMPILE_SECONDS = 671
"""Processor time of compiling llama.cpp b11434 without CUDA, 211 steps: 10 min 23 s of user and 48 s of system time,
measured with `ninja -j2 llama-server` on two cores. With CUDA it was not measured."""


def sentences(
    plans: Sequence[Plan],
    changes: Iterable[Change],
    probe: Probe,
    settings: HostSettings,
    offered: Mapping[str, int] | None = None,
) -> list[str]:
    """What of the changes takes minutes, each with its size or duration.

    offered: by the step of a checkpoint, bytes of its files that the host's wheelhouse has.
    """
    steps = [change.step for change in changes]
    named = {name_of(plan.build, probe.architecture, probe.os): plan.build for plan in plans if plan.build}
    builds = [build for name, build in named.items() if {f"build {name}", f"image {name}"} & {*steps}]
    return [
        *_transfers(plans, steps, probe, builds, settings, offered or {}),
        *(text for build in builds if (text := _made(build, probe, settings.builders))),
        *_of_nvidia(plans, steps, builds),
        *_reboots(steps),
    ]


def _transfers(
    plans: Sequence[Plan],
    steps: Sequence[str],
    probe: Probe,
    builds: Sequence[Build],
    settings: HostSettings,
    offered: Mapping[str, int],
) -> Iterator[str]:
    limit, wheelhouse = settings.weights_limits[0], settings.packages.wheelhouse is not None
    weights, sent = _weights(plans, steps, probe, offered)
    packages = sum(build.environment.bytes for build in builds if build.environment)
    # what the host has kept of them is not transferred again; which they are, the step finds out
    at_most = "at most " if packages and probe.kept_wheels else ""
    loaded = sum(build.image.bytes for build in builds if build.image) + (0 if wheelhouse else packages)
    sent += packages if wheelhouse else 0
    if limit and weights:
        yield f"download {bytes_text(weights)} of weights: {_times(weights, {f'{bytes_text(limit)}/s': limit})}"
    else:
        loaded += weights
    if loaded:
        yield f"download {'' if wheelhouse else at_most}{bytes_text(loaded)}: {_times(loaded, LINKS)}"
    if sent:
        yield f"send {at_most if wheelhouse else ''}{bytes_text(sent)} from this machine: {_times(sent, LINKS)}"


def _weights(plans: Sequence[Plan], steps: Sequence[str], probe: Probe, offered: Mapping[str, int]) -> tuple[int, int]:
    """Bytes of weights that the host downloads, and of those that this machine sends."""
    loaded = sent = 0
    for name, checkpoint in {step_name(each): each for plan in plans for each in plan.checkpoints}.items():
        if name in steps and checkpoint.host_folder is None and checkpoint.revision:
            there = probe.incoming.get(weights_folder(checkpoint.repo, checkpoint.revision), 0)
            lacking = max(0, checkpoint.bytes - there)
            sent += (own := min(lacking, offered.get(name, 0)))
            loaded += lacking - own
    return loaded, sent


def _times(count: int, links: Mapping[str, int]) -> str:
    return ", ".join(f"{seconds_text(count / speed)} at {name}" for name, speed in links.items())


def _made(build: Build, probe: Probe, builders: tuple[Builder, ...]) -> str:
    """How a build is made, and how long that takes; "" if it is only downloaded, or comes from a builder."""
    if build.environment:
        size = "size not in rigup.lock"
        if build.environment.bytes:
            size = (
                f"{bytes_text(build.environment.bytes)}, about {bytes_text(unpacked_bytes(build.environment))} unpacked"
            )
        packages = f"{len(build.environment.files)} Python packages"
        return f"install {build.engine} {build.version}: {packages}, {size}{_kernels(build, builders)}"
    if build.method == "source" and build.made_for:
        return f"compile {build.engine} {build.version} for CUDA: longer than without CUDA; no measured time"
    if build.method == "source" and probe.cpus:
        time = seconds_text(COMPILE_SECONDS / probe.cpus)
        return f"compile {build.engine} {build.version}: about {time} on {probe.cpus} cores"
    return ""


def _of_nvidia(plans: Sequence[Plan], steps: Sequence[str], builds: Sequence[Build]) -> Iterator[str]:
    """That packages of the driver and of CUDA come on top: only the host's package lists have their sizes."""
    drivers = {f"driver {plan.driver.version}" for plan in plans if plan.driver}
    starts = (*(f"{name}:" for name in drivers), *(f"{name} without" for name in drivers), "CUDA libraries ")
    if any(step in drivers or step.startswith(starts) for step in steps) or any(b.pinned_packages for b in builds):
        yield "install NVIDIA's packages: their size is unknown until the host has their lists"


def _kernels(build: Build, builders: tuple[Builder, ...]) -> str:
    """What of an environment is compiled, by the host or by a builder."""
    compiler = build.own_compiler
    if compiler is None or not compiler.kernels:
        return ""
    seconds = sum(compiler.seconds.get(kernel, 0) for kernel in compiler.kernels) * len(compiler.compute_capabilities)
    cards = " and ".join(compiler.compute_capabilities)
    others = names_of(kernel_builders(build, builders))
    once = f", or take those of {others}" if others else ""
    return f"; compile GPU kernels for compute capability {cards}{once}: about {seconds_text(seconds)} on 2 cores"


def _reboots(steps: Sequence[str]) -> Iterator[str]:
    if any("reboots" in step for step in steps):
        yield "reboot where the driver needs it"
