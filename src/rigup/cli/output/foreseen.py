"""How long the changes of a host will take, as far as that can be known before they are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rigup.facts.probe import Probe
from rigup.layout import weights_folder
from rigup.operations.weights.checkpoint import step_name
from rigup.plan import Build, Plan
from rigup.run.result import Change
from rigup.units import bytes_text, seconds_text

LINKS = {"1 Gbit/s": 125_000_000, "100 Mbit/s": 12_500_000}
"""Bytes per second, by name; nobody knows the host's link before the download."""

COMPILE_SECONDS = 671
"""Processor time of compiling llama.cpp b11434 without CUDA, 211 steps: 10 min 23 s of user and 48 s of system time,
measured with `ninja -j2 llama-server` on two cores. With CUDA it was not measured."""


def sentences(plans: Sequence[Plan], changes: Iterable[Change], probe: Probe, limit: int = 0) -> list[str]:
    """What of the changes takes minutes, each with its size or duration.

    limit: of the fleet for downloads of weights, in bytes per second; 0 for none.
    """
    steps = [change.step for change in changes]
    return [*_downloads(plans, steps, probe, limit), *_builds(plans, steps, probe), *_reboots(steps)]


def _downloads(plans: Sequence[Plan], steps: Sequence[str], probe: Probe, limit: int) -> Iterator[str]:
    sizes: dict[str, int] = {}
    for plan in plans:
        for checkpoint in plan.checkpoints:
            name = step_name(checkpoint)
            if name in steps and checkpoint.host_folder is None and checkpoint.revision:
                there = probe.incoming.get(weights_folder(checkpoint.repo, checkpoint.revision), 0)
                sizes[name] = max(0, checkpoint.bytes - there)
        image = plan.build.image if plan.build else None
        if image and any(step.startswith("image ") for step in steps):
            sizes[image.reference] = image.bytes
    if not (count := sum(sizes.values())):
        return
    links = {f"{bytes_text(limit)}/s": limit} if limit else LINKS
    times = ", ".join(f"{seconds_text(count / speed)} at {name}" for name, speed in links.items())
    yield f"download {bytes_text(count)}: {times}"


def _builds(plans: Sequence[Plan], steps: Sequence[str], probe: Probe) -> Iterator[str]:
    for build in {plan.build.method: plan.build for plan in plans if plan.build}.values():
        step = next((step for step in steps if step.startswith(f"build {build.engine}-")), None)
        if step is None or "builder" in step:
            continue
        if build.method == "wheel" and build.environment:
            packages = f"{len(build.environment.files)} Python packages"
            yield f"install {build.engine} {build.version}: {packages}{_kernels(build)}"
        elif build.method == "source" and build.made_for:
            yield f"compile {build.engine} {build.version} for CUDA: longer than without CUDA; no measured time"
        elif build.method == "source" and probe.cpus:
            time = seconds_text(COMPILE_SECONDS / probe.cpus)
            yield f"compile {build.engine} {build.version}: about {time} on {probe.cpus} cores"


def _kernels(build: Build) -> str:
    """What of an environment is compiled."""
    compiler = build.own_compiler
    if compiler is None or not compiler.kernels:
        return ""
    seconds = sum(compiler.seconds.get(kernel, 0) for kernel in compiler.kernels) * len(compiler.compute_capabilities)
    cards = " and ".join(compiler.compute_capabilities)
    return f"; compile GPU kernels for compute capability {cards}: about {seconds_text(seconds)} on 2 cores"


def _reboots(steps: Sequence[str]) -> Iterator[str]:
    if any("reboots" in step for step in steps):
        yield "reboot where the driver needs it"
