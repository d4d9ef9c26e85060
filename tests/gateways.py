"""Fleets with a gateway, written to a folder: the same for golden files, unit tests and HAProxy's own check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rigup.artifacts import LockedSmg
from rigup.gateway_settings import CACHE_AWARE, GatewaySettings
from rigup.lock import load_lock
from rigup.lockfile.text import lock_text
from rigup.plan import Plan, plans_by_host
from rigup.project.gateways import with_gateways
from rigup.project.inventory import LOCK, Project, load_project
from rigup.project.planning import plan_project
from rigup.project.settings import settings_by_host
from rigup.toolkit import toolkit_root
from tests.certificates import certificate_with_key

BACKENDS = "b" * 32
# Release 1.13.0 on the package index.
SMG = LockedSmg(
    version="1.13.0",
    files={
        "smg-1.13.0-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": (
            "cfae8171dac68a74b4822263b1864fa79952992ee472a25ba7266ccd200399b4"
        ),
        "smg-1.13.0-cp38-abi3-manylinux_2_28_aarch64.whl": (
            "5276328560354dca26ea9f454694c3d56994fb5a41c323c8edf97508181d2d7e"
        ),
    },
)
SMALL = {"model": "SmolLM2-135M-Instruct"}
OPEN = {"listen": "0.0.0.0", "api_key_file": "secrets/backends.key"}
TWO_HOSTS = {"gpus": [], "host_memory_gib": 16, "hosts_per_service": 2}
FLEETS: dict[str, dict[str, dict[str, Any]]] = {
    # two groups serve one model on different engines, and a third group another model
    "fleet": {
        "quad_3090": {
            "rig": {"gpus": "4x RTX 3090", "host_memory_gib": 64},
            "services": {"chat": {"model": "MiniMax-M2.5", "context": 8192, **OPEN}},
        },
        "pro": {
            "rig": {"gpus": "2x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 256},
            "services": {"chat": {"model": "MiniMax-M2.5", **OPEN}},
        },
        "cpu": {
            "rig": {"gpus": [], "host_memory_gib": 16},
            "services": {"small": {**SMALL, **OPEN, "port": 8001, "served_name": "org/small:latest"}},
        },
        "edge": {
            "gateway": {
                "listen": "10.0.0.2",
                "weights": {"pro": 4, "cpu/small": 2},
                "clients": {
                    "team-a": {"key_file": "secrets/team-a.key", "requests_per_minute": 600, "concurrency": 32},
                    "team-b": {"key_file": "secrets/team-b.key", "models": ["org/small:latest"]},
                },
            },
        },
    },
    # two gateways, of which one has the address
    "shared": {
        "cpu": {"rig": {"gpus": [], "host_memory_gib": 16}, "services": {"chat": {**SMALL, **OPEN}}},
        "two": {
            "gateway": {
                "listen": "0.0.0.0",
                "clients": {"team-a": {"key_file": "secrets/team-a.key"}},
                "shared_address": {"address": "10.0.0.5/24", "interface": "eth0", "id": 52},
            },
        },
    },
    # smg chooses among two hosts for one model; another model has one backend, and one of the hosts is to get nothing
    "cached": {
        "cpu": {"rig": {"gpus": [], "host_memory_gib": 16}, "services": {"small": {**SMALL, **OPEN, "port": 8001}}},
        "quad_3090": {
            "rig": {"gpus": "4x RTX 3090", "host_memory_gib": 64},
            "services": {"chat": {"model": "MiniMax-M2.5", "context": 8192, "served_name": "org/chat:latest", **OPEN}},
        },
        "edge": {
            "gateway": {
                "kind": "cache_aware",
                "listen": "10.0.0.2",
                "weights": {"quad_3090": 3},
                "clients": {"team-a": {"key_file": "secrets/team-a.key"}},
            },
        },
    },
    # a certificate by ACME
    "acme": {
        "cpu": {"rig": {"gpus": [], "host_memory_gib": 16}, "services": {"chat": {**SMALL, **OPEN}}},
        "edge": {
            "gateway": {
                "listen": "0.0.0.0",
                "port": 443,
                "tls": {"acme": {"domains": ["llm.example.org", "ai.example.org"], "email": "admin@example.org"}},
                "clients": {"team-a": {"key_file": "secrets/team-a.key"}},
            },
        },
    },
    # two gateways with addresses, of which one has an IPv6 address
    "shared_ipv6": {
        "cpu": {"rig": {"gpus": [], "host_memory_gib": 16}, "services": {"chat": {**SMALL, **OPEN}}},
        "two_v6": {
            "gateway": {
                "listen": "::",
                "clients": {"team-a": {"key_file": "secrets/team-a.key"}},
                "shared_address": {"address": "fd00::5/64", "interface": "eth0"},
            },
        },
    },
    # the only engine, and its gateway on the same machine
    "one_box": {
        "box": {
            "rig": {"gpus": [], "host_memory_gib": 16},
            "services": {"chat": SMALL},
            "gateway": {"hold": 120},
        }
    },
    # two models that take turns on one machine, which is the gateway, too
    "in_turn": {
        "box": {
            "rig": {"gpus": [], "host_memory_gib": 16},
            "services": {"chat": {**SMALL, "swap": True}, "tiny": {**SMALL, "served_name": "tiny:8b", "swap": True}},
            "gateway": {"hold": 120, "weights": {"box/tiny": 2}},
        }
    },
    # a certificate, the well-known port, IPv6, and a service over two hosts
    "with_tls": {
        "pair": {"rig": TWO_HOSTS, "services": {"chat": {**SMALL, **OPEN}}},
        "edge": {
            "gateway": {
                "listen": "::",
                "port": 443,
                "hold": 30,
                "tls": {"certificate_file": "secrets/gateway.crt", "key_file": "secrets/gateway.key"},
                "clients": {"team-a": {"key_file": "secrets/team-a.key"}},
            },
        },
    },
}
HOSTS: dict[str, list[Any]] = {
    "quad_3090": [("ada@g1.lan", {"lan_address": "10.0.0.11"}), ("g2.lan", {"ssh_hostname": "10.0.0.12"})],
    "pro": [("g3.lan", {"lan_address": "fd00::13"})],
    "cpu": ["localhost"],
    "pair": [("p1.lan", {"lan_address": "10.0.0.21"}), ("p2.lan", {"lan_address": "10.0.0.22"})],
    "edge": ["gw1.lan"],
    "two_v6": [("gw1.lan", {"lan_address": "fd00::3"}), ("gw2.lan", {"lan_address": "fd00::4"})],
    "two": ["gw1.lan", ("gw2.lan", {"ssh_hostname": "10.0.0.4"})],
}


def write_fleet(folder: Path, fleet: dict[str, dict[str, Any]]) -> Project:
    """Writes inventory, group_data and secrets, and reads the project."""
    for name in ("inventories", "group_data", "secrets"):
        (folder / name).mkdir(parents=True)
    groups = "".join(f"{group} = {HOSTS.get(group, [f'{group}.lan'])!r}\n" for group in fleet)
    (folder / "inventories" / "a.py").write_text(groups)
    for group, data in fleet.items():
        (folder / "group_data" / f"{group}.py").write_text("".join(f"{key} = {said!r}\n" for key, said in data.items()))
    secrets = {"backends": BACKENDS, "team-a": "a" * 32, "team-b": "c" * 32}
    for name, text in secrets.items():
        (folder / "secrets" / f"{name}.key").write_text(f"{text}\n")
    certificate, begin, key = certificate_with_key().partition("-----BEGIN PRIVATE KEY")
    for name, text in {"gateway.crt": certificate, "gateway.key": f"{begin}{key}"}.items():
        (folder / "secrets" / name).write_text(text)
    for file in (folder / "secrets").iterdir():
        file.chmod(0o600)
    if any(data.get("gateway", {}).get("kind") == CACHE_AWARE for data in fleet.values()):
        lock = load_lock(toolkit_root() / LOCK).model_copy(update={"smg": SMG})
        (folder / LOCK).write_text(lock_text(lock))
    return load_project(str(folder / "inventories" / "a.py"))


def settings_of(project: Project) -> GatewaySettings:
    """The settings of a fleet's last gateway."""
    plans: dict[str, tuple[Plan, ...]] = {host.name: () for host in project.hosts}
    plans |= plans_by_host(plan_project(project))
    settings = with_gateways(project, plans, settings_by_host(project, plans))
    *_, found = (one.gateway for one in settings.values() if one.gateway)
    return found
