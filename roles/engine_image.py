"""Any engine as a container image, at the pinned digest; and what containers need on a host before that."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.fleet.settings import Settings
from rigup.operations.container_toolkit import container_toolkit
from rigup.operations.images import image_build
from rigup.operations.text_files import text_files
from rigup.operations.wheels import PackageSource
from rigup.plan import Build, Plan
from rigup.render.container_files import REGISTRIES, mirrors, toolkit_repository


@deploy("containers")
def containers(plans: tuple[Plan, ...], probe: Probe, settings: Settings) -> None:
    """Have the fleet's mirrors known to podman and, with GPUs, NVIDIA's container toolkit; nothing without an image."""
    used = [plan for plan in plans if plan.build and plan.build.method == "image"]
    if not used:
        return
    text_files(name="mirrors of container registries", files={REGISTRIES: mirrors(settings.image_mirrors)})
    driver = used[0].driver.version if used[0].driver else probe.nvidia.loaded
    if used[0].rig.gpus and driver:
        repository = toolkit_repository(
            probe.architecture, settings.container_toolkit_repository, settings.container_toolkit_key_fingerprint
        )
        container_toolkit(
            name=f"NVIDIA's container toolkit, GPUs described for driver {driver}", repository=repository, driver=driver
        )


@deploy("engine")
def engine_image(build: Build, name: str, source: PackageSource) -> None:
    """Have the image, pulled by digest, under the build's name."""
    image_build(name=f"image {name}", build=build, build_name=name)
