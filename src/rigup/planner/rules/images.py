"""What a container image build needs: a published image, and a podman that generates units from it."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.artifacts import Variant
from rigup.catalogue.tools.containers import container_facts
from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses


@refuses("image", "the images that each engine's makers publish, in the catalogue with their sources")
def image(candidate: Candidate) -> Iterator[Complaint]:
    """An image build needs an image from the engine's makers, for GPUs or for CPUs as the rig has them."""
    variant: Variant = "cuda" if candidate.rig.gpus else "cpu"
    if candidate.build == "image" and candidate.release.image(variant) is None:
        machines = "GPUs" if variant == "cuda" else "machines without a GPU"
        yield (
            f"the catalogue has no image of {engine_name(candidate)} for {machines}",
            f'leave build out, which means "{candidate.engine.method}", or add it to the engine\'s file',
        )


@refuses("quadlet", container_facts().podman.source)
def quadlet(candidate: Candidate) -> Iterator[Complaint]:
    """An image build needs an operating system whose podman has Quadlet."""
    os = candidate.rig.os
    if candidate.build == "image" and os is not None and (problem := without_quadlet(os)):
        yield problem


def without_quadlet(os: str) -> tuple[str, str] | None:
    """Why an operating system cannot run an image as a unit, and what to do; None if it can."""
    podman = container_facts().podman
    if podman.has_quadlet(os):
        return None
    there = f"has podman {podman.versions[os]}" if os in podman.versions else "has no podman that rigup supports"
    enough = " or ".join(known for known in podman.versions if podman.has_quadlet(known))
    return (
        f"{os} {there}; units for containers (Quadlet) need {podman.quadlet_since} or later",
        f"use {enough}, or leave build out to install the engine without a container",
    )
