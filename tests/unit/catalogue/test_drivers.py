"""What is known of NVIDIA's packages is complete for every system that rigup supports."""

from __future__ import annotations

import re

from rigup.catalogue.drivers import driver_facts
from rigup.rig import SUPPORTED_OS


def test_every_supported_system_has_its_repository_and_key() -> None:
    assert tuple(known.os for known in driver_facts().distributions) == SUPPORTED_OS
    for known in driver_facts().distributions:
        assert known.source
        # NVIDIA names the file of a key by the last eight digits of its fingerprint
        assert known.key_file.removesuffix(".pub").upper() == known.fingerprint[-8:]


def test_newer_systems_have_keys_of_their_own() -> None:
    keys = {known.os: known.fingerprint for known in driver_facts().distributions}
    assert keys["debian-12"] == keys["ubuntu-22.04"] == keys["ubuntu-24.04"]
    assert len({keys["debian-12"], keys["debian-13"], keys["ubuntu-26.04"]}) == 3


def test_everything_that_is_installed_at_the_drivers_version_is_held_there() -> None:
    facts = driver_facts()
    names = (*facts.packages.open, *facts.packages.proprietary, *facts.packages.fabric_manager)
    names += tuple(name for known in facts.distributions for name in known.persistence_daemon)
    for name in names:
        assert any(re.fullmatch(pattern.replace("*", ".*"), name) for pattern in facts.held.patterns), name
        assert any(re.match(pattern, name) for pattern in facts.held.upgrades), name
