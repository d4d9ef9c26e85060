"""The plan held against the probe: every reason not to begin, with both values in its message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.artifacts import LockedEnvironment, Variant
from rigup.facts.probe import Disk, Listener, Nvidia, PciGpu, Probe, ProbedGpu
from rigup.node import Node
from rigup.operations.builds.source import name_of
from rigup.plan import Build, Checkpoint, Plan
from rigup.preflight.checks import preflight, spare_bytes, uncounted_notes
from rigup.preflight.rig import memory_speed_note
from rigup.rig import Gpu as RigGpu
from rigup.rig import HostMemory, Rig
from rigup.service import Service

NOW = 1_800_000_000
CARD = RigGpu(
    key="rtx3090",
    name="NVIDIA GeForce RTX 3090",
    moe_config_name="NVIDIA_GeForce_RTX_3090",
    architecture="ampere",
    compute_capability="8.6",
    memory_mib=24576,
    memory_bandwidth_gbs=936,
)
PLAN = Plan(
    host="box",
    group="boxes",
    verdict="ok",
    rig=Rig(gpus=()),
    service=Service(name="chat", model="m", port=8000),
    build=Build(engine="llama.cpp", version="b1", method="source"),
    checkpoint=Checkpoint(repo="o/m", quant="Q4", bytes=10**11, revision="a" * 40),
)
GOOD = Probe(
    os="debian-12",
    os_name="Debian GNU/Linux 12 (bookworm)",
    architecture="x86_64",
    init="systemd",
    clock=NOW,
    disks=(Disk("/opt", True, 10**12), Disk("/var/lib", True, 10**12), Disk("/etc", True, 10**12)),
)


def messages(probe: Probe, plan: Plan = PLAN) -> list[str]:
    return [finding.message for finding in preflight(probe, (plan,), NOW)]


def in_use(holder: str) -> str:
    return f"port 8000 of service chat is in use by {holder}"


def test_a_good_host_has_nothing_against_it() -> None:
    assert messages(GOOD) == []


def test_the_service_itself_may_hold_its_port() -> None:
    own = Listener(8000, "127.0.0.1", "rigup-chat.service", "llama-server")
    assert messages(replace(GOOD, listeners=(own,))) == []


def test_a_host_behind_a_head_does_not_listen_there() -> None:
    probe = replace(GOOD, listeners=(Listener(8000, "127.0.0.1", "", "python3"),))
    assert messages(probe) == [in_use("python3")]
    assert messages(probe, PLAN.model_copy(update={"rank": 1, "nodes": (Node(host="head"), Node(host="box"))})) == []


def test_a_service_that_is_taken_away_may_hold_the_port_of_a_new_one() -> None:
    other = Listener(8000, "127.0.0.1", "rigup-old.service", "llama-server")
    probe = replace(GOOD, listeners=(other,), current={"old": "1"})
    (finding,) = preflight(probe, (PLAN,), NOW)
    assert finding.message == in_use("rigup-old.service")
    assert finding.hint == "remove that service, which is no longer in the inventory: rigup apply --remove"
    assert preflight(probe, (PLAN,), NOW, remove=True) == ()


def test_a_gpu_that_a_service_names_must_be_there() -> None:
    service = Service(name="chat", model="m", gpus=("GPU-a", "GPU-x"))
    probe = replace(
        GOOD, gpus=(ProbedGpu(CARD.name, index=0, uuid="GPU-a"), ProbedGpu(CARD.name, index=1, uuid="GPU-b"))
    )
    plan = PLAN.model_copy(update={"service": service, "rig": Rig(gpus=(CARD, CARD))})
    (finding,) = [found for found in preflight(probe, (plan,), NOW) if found.rule == "host-gpu-uuid"]
    assert finding.message == "services.chat.gpus: GPU-x does not exist; found: GPU-a, GPU-b"


SYSTEMS = "use one of: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04, ubuntu-26.04"
SET_IT = "set it: timedatectl set-ntp true"
ROOM = "free up space, or mount a larger disk there"
SAYS = [
    (
        replace(GOOD, os="fedora-41", os_name="Fedora Linux 41"),
        "Fedora Linux 41 is not supported: it would need roles for dnf, RPM names of all packages, and SELinux rules",
        SYSTEMS,
    ),
    (
        replace(GOOD, os="rocky-9.6", os_name="Rocky Linux 9.6 (Blue Onyx)", os_like="rhel centos fedora"),
        "Rocky Linux 9.6 (Blue Onyx) is not supported: it would need roles for dnf, RPM names of all packages, and "
        "SELinux rules",
        SYSTEMS,
    ),
    (
        replace(GOOD, os="arch-", os_name="Arch Linux"),
        "Arch Linux is not supported: it would need roles for pacman, whose repositories keep only the newest driver, "
        "so that none could be held",
        SYSTEMS,
    ),
    (
        replace(GOOD, os="ubuntu-25.10", os_name="Ubuntu 25.10", os_like="debian"),
        "Ubuntu 25.10 is not supported: it would need its kernels, package sources and versions in the catalogue, and "
        "a rehearsal",
        SYSTEMS,
    ),
    (
        replace(GOOD, os="linuxmint-22.3", os_name="Linux Mint 22.3", os_like="ubuntu debian"),
        "Linux Mint 22.3 is not supported: it would need its kernels, package sources and versions in the catalogue, "
        "and a rehearsal",
        SYSTEMS,
    ),
    (replace(GOOD, os="plan9-4", os_name="Plan 9"), "Plan 9 is not supported", SYSTEMS),
    (replace(GOOD, init="bash"), "process 1 is bash, not systemd", "use a machine that boots with systemd"),
    (replace(GOOD, architecture="riscv64"), "riscv64 is not supported", "use x86_64 or aarch64"),
    (
        replace(GOOD, clock=NOW - 4000),
        "its clock is 4000 s behind this machine's: certificate checks and apt would fail",
        SET_IT,
    ),
    (
        replace(GOOD, clock=NOW + 301),
        "its clock is 301 s ahead of this machine's: certificate checks and apt would fail",
        SET_IT,
    ),
    (
        replace(GOOD, disks=(Disk("/opt", False, 10**12), *GOOD.disks[1:])),
        "/opt is not writable",
        "check whether it is mounted read-only",
    ),
    (
        replace(GOOD, disks=(Disk("/opt", True, 10**9), *GOOD.disks[1:])),
        "a build needs 2.1 GB in /opt, but only 1.0 GB are free",
        ROOM,
    ),
    (
        replace(GOOD, disks=(GOOD.disks[0], Disk("/var/lib", True, 5 * 10**10))),
        "the weights need 102.0 GB in /var/lib, but only 50.0 GB are free",
        ROOM,
    ),
    (
        replace(GOOD, listeners=(Listener(8000, "0.0.0.0", "nginx.service", "nginx"),)),
        in_use("nginx.service"),
        "stop it, or give the service another port",
    ),
    (
        replace(GOOD, listeners=(Listener(8000, "0.0.0.0", "", "python3"),)),
        in_use("python3"),
        "stop it, or give the service another port",
    ),
]


@pytest.mark.parametrize(("probe", "message", "hint"), SAYS, ids=[row[1] for row in SAYS])
def test_each_reason(probe: Probe, message: str, hint: str) -> None:
    assert [(found.message, found.hint) for found in preflight(probe, (PLAN,), NOW)] == [(message, hint)]


def test_all_reasons_at_once() -> None:
    bad = replace(GOOD, os="fedora-41", os_name="Fedora Linux 41", clock=NOW + 4000)
    assert len(messages(bad)) == 2


def test_weights_that_are_there_or_on_their_way_need_no_room() -> None:
    folder = f"/var/lib/rigup/weights/o/m/{'a' * 40}"
    full = replace(GOOD, disks=(GOOD.disks[0], Disk("/var/lib", True, 10**10)))
    assert messages(replace(full, weights=(folder,))) == []
    assert messages(replace(full, incoming={folder: 95 * 10**9})) == []


def test_services_of_one_checkpoint_need_its_room_once() -> None:
    both = (PLAN, PLAN.model_copy(update={"service": Service(name="second", model="m", port=8001)}))
    room = replace(GOOD, disks=(GOOD.disks[0], Disk("/var/lib", True, 15 * 10**10)))
    assert preflight(room, both, NOW) == ()
    assert PLAN.checkpoint is not None
    other = PLAN.checkpoint.model_copy(update={"revision": "b" * 40})
    (finding,) = preflight(room, (PLAN, both[1].model_copy(update={"checkpoint": other})), NOW)
    assert finding.message == "the weights need 204.0 GB in /var/lib, but only 150.0 GB are free"


@pytest.mark.parametrize("order", [1, -1])
def test_quantisations_of_one_revision_need_room_for_each(order: int) -> None:
    assert PLAN.checkpoint is not None
    large = PLAN.checkpoint.model_copy(update={"quant": "Q8", "bytes": 2 * 10**11})
    service = Service(name="second", model="m", port=8001)
    both = (PLAN, PLAN.model_copy(update={"service": service, "checkpoint": large}))[::order]
    room = replace(GOOD, disks=(GOOD.disks[0], Disk("/var/lib", True, 25 * 10**10)))
    (finding,) = preflight(room, both, NOW)
    assert finding.message == "the weights need 306.0 GB in /var/lib, but only 250.0 GB are free"
    folder = f"/var/lib/rigup/weights/o/m/{'a' * 40}"
    assert preflight(replace(room, incoming={folder: 56 * 10**9}), both, NOW) == ()
    (finding,) = preflight(replace(room, incoming={folder: 55 * 10**9}), both, NOW)
    assert finding.message == "the weights need 251.0 GB in /var/lib, but only 250.0 GB are free"


def test_what_lies_on_one_disk_needs_room_together() -> None:
    disks = (Disk("/opt", True, 103 * 10**9, mount="/"), Disk("/var/lib", True, 103 * 10**9, mount="/"))
    needs = "a build needs 2.1 GB in /opt and the weights need 102.0 GB in /var/lib, on the same disk"
    assert messages(replace(GOOD, disks=disks)) == [f"{needs}, but only 103.0 GB are free"]
    apart = (disks[0], replace(disks[1], mount="/var"))
    assert messages(replace(GOOD, disks=apart)) == []


@pytest.mark.parametrize(("variant", "needs"), [("cuda", "9.0 GB"), ("cpu", "14.3 GB")])
def test_an_environment_needs_room_for_its_unpacked_wheels(variant: Variant, needs: str) -> None:
    locked = LockedEnvironment(engine="vllm", version="1", python="3.12.1", variant=variant, files={}, bytes=42 * 10**8)
    plan = PLAN.model_copy(
        update={"build": Build(engine="vllm", version="1", method="wheel", variant=variant, environment=locked)}
    )
    room = replace(GOOD, disks=(Disk("/opt", True, 8 * 10**9), *GOOD.disks[1:]))
    assert messages(room, plan) == [f"an environment needs {needs} in /opt, but only 8.0 GB are free"]
    assert plan.build
    there = name_of(plan.build, GOOD.architecture, GOOD.os)
    assert messages(replace(room, builds=(there,)), plan) == []


@pytest.mark.parametrize(("wheelhouse", "kept"), [(False, "9.0 GB"), (True, "4.2 GB")])
def test_the_wheels_that_a_host_keeps_need_room_too(wheelhouse: bool, kept: str) -> None:
    locked = LockedEnvironment(engine="vllm", version="1", python="3.12.1", files={}, bytes=42 * 10**8)
    build = Build(engine="vllm", version="1", method="wheel", environment=locked)
    plan = PLAN.model_copy(update={"build": build, "checkpoint": None})
    room = Disk("/opt", True, 13 * 10**9, mount="/")
    host = replace(GOOD, disks=(room, replace(room, folder="/var/cache")))
    (finding,) = preflight(host, (plan,), NOW, wheelhouse=wheelhouse)
    assert f" 9.0 GB in /opt and its packages, which the host keeps, need {kept} in /var/cache, " in finding.message
    large = replace(room, free_bytes=20 * 10**9)
    whole = replace(GOOD, disks=(large, replace(large, folder="/var/cache")))
    assert preflight(whole, (plan,), NOW, wheelhouse=wheelhouse) == ()
    left = 20 * 10**9 - int(42 * 10**8 * (3.15 if wheelhouse else 4.3))
    assert spare_bytes(whole, (plan,), wheelhouse)["/"] == left
    assert preflight(replace(host, kept_wheels=True), (plan,), NOW, wheelhouse=wheelhouse) == ()


def test_an_environment_without_a_size_is_left_out_and_said() -> None:
    locked = LockedEnvironment(engine="vllm", version="1", python="3.12.1", variant="cuda", files={})
    plan = PLAN.model_copy(
        update={"build": Build(engine="vllm", version="1", method="wheel", variant="cuda", environment=locked)}
    )
    full = replace(GOOD, disks=(Disk("/opt", True, 1), *GOOD.disks[1:]))
    assert messages(full, plan) == []
    (note,) = uncounted_notes(full, (plan,))
    assert note.startswith("warning: rigup.lock has no size of the wheels of vllm 1, so the disk check leaves")
    assert note.endswith("this environment out. To add the size: rigup lock --upgrade vllm")
    (sent,) = uncounted_notes(full, (plan,), wheelhouse=True)
    assert "; the host checks again before it unpacks them. " in sent
    assert plan.build
    there = replace(full, builds=(name_of(plan.build, GOOD.architecture, GOOD.os),))
    assert list(uncounted_notes(there, (plan,))) == []
    sized = plan.build.model_copy(update={"environment": locked.model_copy(update={"bytes": 1})})
    assert list(uncounted_notes(full, (plan.model_copy(update={"build": sized}),))) == []


def test_what_the_plans_will_leave_of_each_disk() -> None:
    disks = (Disk("/opt", True, 110 * 10**9, mount="/"), Disk("/var/lib", True, 110 * 10**9, mount="/"))
    beside = Disk("/etc", True, 5 * 10**9, mount="/etc")
    assert spare_bytes(replace(GOOD, disks=(*disks, beside)), (PLAN,)) == {
        "/": (110 - 102) * 10**9 - 2 * 2**30,
        "/etc": 5 * 10**9,
    }


def test_only_the_very_build_needs_no_room() -> None:
    full = replace(GOOD, disks=(Disk("/opt", True, 10**9), *GOOD.disks[1:]))
    assert PLAN.build is not None
    name = name_of(PLAN.build, "x86_64", "debian-12")
    assert messages(replace(full, builds=("vllm-0.33.0-abc", name))) == []
    assert messages(replace(full, builds=("vllm-0.33.0-abc",))) == [
        "a build needs 2.1 GB in /opt, but only 1.0 GB are free"
    ]


@pytest.mark.parametrize(
    ("there", "listen", "taken"),
    [
        ("10.0.0.5", "127.0.0.1", False),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "0.0.0.0", True),
        ("*", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("::1", "127.0.0.1", False),
        ("::1", "0.0.0.0", False),
        ("::1", "::", True),
        ("0.0.0.0", "::", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::ffff:10.0.0.5", "127.0.0.1", False),
        ("::ffff:0.0.0.0", "127.0.0.1", True),
        ("::ffff:0.0.0.0", "::1", False),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1%lo", "127.0.0.1", True),
        ("10.0.0.5", "box.lan", True),
    ],
)
def test_a_port_is_taken_where_the_service_is_to_listen(there: str, listen: str, taken: bool) -> None:
    probe = replace(GOOD, listeners=(Listener(8000, there, "", "python3"),))
    plan = PLAN.model_copy(update={"service": Service(name="chat", model="m", port=8000, listen=listen)})
    assert messages(probe, plan) == [in_use("python3")] * taken


FOUR = PLAN.model_copy(update={"rig": Rig(gpus=(CARD,) * 4)})
CARDS = tuple(ProbedGpu(CARD.name, 0, 24576, 40, index=index, uuid=f"GPU-{index}") for index in range(4))
ON_THE_BUS = "on the PCI bus"
BUS = tuple(PciGpu(f"0000:0{index}:00.0") for index in range(4))


def declaring(**rig: object) -> Plan:
    return PLAN.model_copy(update={"rig": FOUR.rig.model_copy(update=rig)})


def test_the_rig_that_was_declared() -> None:
    assert messages(replace(GOOD, gpus=CARDS), FOUR) == []
    memory = replace(GOOD, gpus=CARDS, memory_kib=62 * 2**20)
    assert messages(memory, declaring(host_memory_gib=64, os="debian-12")) == []


def test_a_lie_about_the_gpus_is_told_with_both_counts() -> None:
    three = replace(GOOD, gpus=CARDS[:3])
    assert messages(three, FOUR) == ["declared: 4x NVIDIA GeForce RTX 3090; found: 3x NVIDIA GeForce RTX 3090"]
    mixed = replace(GOOD, gpus=(*CARDS[:3], replace(CARDS[3], name="NVIDIA GeForce RTX 3080")))
    assert messages(mixed, FOUR) == [
        "declared: 4x NVIDIA GeForce RTX 3090; found: 3x NVIDIA GeForce RTX 3090, 1x NVIDIA GeForce RTX 3080"
    ]


def test_before_there_is_a_driver_the_cards_are_counted_on_the_bus() -> None:
    assert messages(replace(GOOD, pci_gpus=BUS), FOUR) == []
    assert messages(replace(GOOD, pci_gpus=BUS[:1]), FOUR) == [
        f"declared: 4x NVIDIA GeForce RTX 3090; found: 1 NVIDIA GPU {ON_THE_BUS}"
    ]
    assert messages(GOOD, FOUR) == [f"declared: 4x NVIDIA GeForce RTX 3090; found: no NVIDIA GPUs {ON_THE_BUS}"]


def test_what_nvml_says_is_told_where_nothing_answers() -> None:
    broken = replace(GOOD, nvidia=Nvidia(loaded="580.95.05", error="Unknown Error"))
    assert messages(broken, FOUR)[0].endswith(f"found: no NVIDIA GPUs {ON_THE_BUS} (NVML: Unknown Error)")


def test_a_lost_card_is_named_by_index_and_uuid() -> None:
    lost = replace(CARDS[2], error="GPU is lost", memory_total_mib=None)
    assert messages(replace(GOOD, gpus=(*CARDS[:2], lost, CARDS[3])), FOUR) == [
        "GPU 2 (NVIDIA GeForce RTX 3090, GPU-2) does not respond: GPU is lost"
    ]
    nameless = ProbedGpu("", index=2, error="Unknown Error")
    assert messages(replace(GOOD, gpus=(*CARDS[:2], nameless, CARDS[3])), FOUR) == [
        "GPU 2 does not respond: Unknown Error"
    ]
    assert messages(replace(GOOD, gpus=(*CARDS[:2], nameless)), FOUR) == [
        "GPU 2 does not respond: Unknown Error",
        "declared: 4x NVIDIA GeForce RTX 3090; found: 2x NVIDIA GeForce RTX 3090 and 1 unidentified",
    ]


def test_a_lost_card_comes_with_the_way_to_serve_on_the_rest() -> None:
    lost = replace(GOOD, gpus=(*CARDS[:2], replace(CARDS[2], error="GPU is lost"), CARDS[3]))
    (finding,) = preflight(lost, (FOUR,), NOW)
    assert 'gpus = "3x RTX 3090" in group_data' in finding.hint
    assert messages(lost, declaring(gpus=FOUR.rig.gpus[:3])) == []
    assert messages(lost, declaring(gpus=FOUR.rig.gpus[:2])) != []


def test_a_card_with_another_memory_than_the_catalogue_says() -> None:
    half = replace(CARDS[0], memory_total_mib=12288)
    found = preflight(replace(GOOD, gpus=(half, *CARDS[1:])), (FOUR,), NOW)
    assert [finding.message for finding in found] == [
        "GPU 0 (NVIDIA GeForce RTX 3090, GPU-0): declared: 24,576 MiB; found: 12,288 MiB"
    ]
    ecc = replace(CARDS[0], memory_total_mib=23040, ecc=True)
    (finding,) = preflight(replace(GOOD, gpus=(ecc, *CARDS[1:])), (FOUR,), NOW)
    assert "ECC" in finding.hint
    near = replace(CARDS[0], memory_total_mib=24268)
    assert messages(replace(GOOD, gpus=(near, *CARDS[1:])), FOUR) == []


def test_a_card_that_is_split() -> None:
    split = replace(CARDS[3], mig=True)
    assert messages(replace(GOOD, gpus=(*CARDS[:3], split)), FOUR) == [
        "GPU 3 (NVIDIA GeForce RTX 3090, GPU-3): declared: a whole GPU; found: MIG is on"
    ]


def test_a_gpu_whose_memory_nobody_tells_is_not_held_to_any() -> None:
    silent = tuple(replace(card, memory_total_mib=None) for card in CARDS)
    assert messages(replace(GOOD, gpus=silent), FOUR) == []


def test_host_memory_and_release() -> None:
    probe = replace(GOOD, gpus=CARDS, memory_kib=32 * 2**20)
    assert messages(probe, declaring(host_memory_gib=64, os="debian-13")) == [
        "declared: debian-13; found: debian-12",
        "declared: 64 GiB of host memory; found: 32.0 GiB",
    ]


def test_a_rig_without_gpus_minds_only_those_that_a_driver_drives() -> None:
    assert messages(replace(GOOD, pci_gpus=BUS)) == []
    driven = replace(GOOD, gpus=CARDS, nvidia=Nvidia(loaded="580.95.05", cuda="13.0"))
    assert messages(driven) == ["declared: no GPU; found: 4x NVIDIA GeForce RTX 3090"]


@pytest.mark.parametrize(
    ("declared", "found", "says"),
    [
        ("8x DDR5-4800", "8x DDR5-4800", ""),
        ("8x DDR5-4800", "", ""),
        (None, "2x DDR4-2666", ""),
        (
            "8x DDR5-4800",
            "4x DDR5-4800",
            "warning: declared: host memory of 8x DDR5-4800 (307 GB/s); found: 4x DDR5-4800 (154 GB/s): "
            'set rig.host_memory to "4x DDR5-4800"',
        ),
    ],
)
def test_host_memory_that_is_not_as_fast_as_declared(declared: str | None, found: str, says: str) -> None:
    plan = declaring(host_memory_gib=64, host_memory=HostMemory.read(declared) if declared else None)
    probe = replace(GOOD, memory_kib=64 * 2**20, host_memory=found)
    assert memory_speed_note(plan.rig, probe) == says
    assert messages(replace(probe, gpus=CARDS), plan) == []
