"""What is known of operating systems is complete for those that rigup supports, and says what others would need."""

from __future__ import annotations

import pytest

from rigup.catalogue.systems import system_facts
from rigup.catalogue.tools.containers import container_facts
from rigup.rig import SUPPORTED_OS


def test_every_supported_system_is_known() -> None:
    assert tuple(known.os for known in system_facts().systems) == SUPPORTED_OS
    assert tuple(container_facts().podman.versions) == SUPPORTED_OS
    assert all(known.source for known in system_facts().systems)
    assert all(known.source for known in system_facts().kernels)


def test_only_the_makers_kernels_are_foreign() -> None:
    facts = system_facts()
    assert facts.foreign_kernel("6.14.11-4-pve") is not None
    assert facts.foreign_kernel("6.14.0-33-generic") is None


@pytest.mark.parametrize(
    ("os", "like", "word"),
    [
        ("fedora-42", "", "dnf"),
        ("rocky-9.5", "rhel centos fedora", "dnf"),
        ("nobara-42", "fedora", "dnf"),
        ("bazzite-43", "fedora", "image"),
        ("arch-", "", "pacman"),
        ("cachyos-", "arch", "pacman"),
        ("opensuse-leap-15.6", "suse opensuse", "zypper"),
        ("linuxmint-22.3", "ubuntu debian", "rehearsal"),
        ("ubuntu-20.04", "debian", "rehearsal"),
        ("nixos-25.05", "", "NixOS"),
    ],
)
def test_a_system_that_is_refused_is_told_what_it_would_need(os: str, like: str, word: str) -> None:
    assert word in system_facts().needs(os, like)


def test_of_an_unheard_of_system_nothing_is_claimed() -> None:
    assert system_facts().needs("plan9-4", "") == ""
