"""Engines as container images at the pinned digest, and what a host needs to run containers."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.container.images import image_build
from rigup.operations.container.nvidia_container_toolkit import container_toolkit
from rigup.operations.primitives.text_files import text_files
from rigup.plan import Build, Plan
from rigup.preflight.driver import managed_driver
from rigup.settings import Builder, HostSettings, PackageSource
from rigup.systemd.container_files import REGISTRIES, mirrors, toolkit_repository


@deploy("containers")
def containers(plans: tuple[Plan, ...], probe: Probe, settings: HostSettings) -> None:
    """Configure podman's mirrors and, with GPUs, install NVIDIA's container toolkit, for plans with an image."""
    used = [plan for plan in plans if plan.build and plan.build.method == "image"]
    text_files(name="mirrors of container registries", files={REGISTRIES: mirrors(settings.image_mirrors)})
    wanted = managed_driver(used[0], probe)
    driver = wanted.version if wanted else probe.nvidia.loaded
    if used[0].rig.gpus and driver:
        repository = toolkit_repository(
            probe.architecture, settings.container_toolkit_repository, settings.container_toolkit_key_fingerprint
        )
        container_toolkit(
            name=f"NVIDIA's container toolkit, GPUs described for driver {driver}", repository=repository, driver=driver
        )


@deploy("image")
def engine_image(build: Build, name: str, source: PackageSource, builders: tuple[Builder, ...] = ()) -> None:
    """Pull the image by digest and store it under the build's name."""
    image(build, name)


@deploy("engine")
def image(build: Build, name: str) -> None:
    """Pull the image; a result shows it as the host's engine, like any other build."""
    image_build(name=f"image {name}", build=build, build_name=name)
