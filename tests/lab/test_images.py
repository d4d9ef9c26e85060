"""An engine as a container image on a booted machine: pulled by digest, run by a Quadlet unit, changed, rolled back.

The image is made here, from the stand-in engine and nothing else; the registry is a stand-in that speaks the real
protocol. podman, crun, conmon and Quadlet are Debian 13's own.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab.lab import Lab
from rigup.lab.network import addresses
from rigup.lab.network.network import lab_socket
from rigup.systemd.api_key import SCRIPTS
from rigup.systemd.quadlet import quadlet
from tests.lab.fleet import UNIT, Fleet
from tests.lab.fleet_fixtures import made_site
from tests.lab.readers import Readers, all_whole
from tests.registry import Registry
from tests.unit.systemd.test_quadlet import DIGEST, OTHERS, VLLM, planned

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the run", "images")]

REPOSITORY = "ggml-org/llama.cpp"
QUADLET = "/etc/containers/systemd/rigup-chat.container"
UNIT_FILE = "/etc/systemd/system/rigup-chat.service"
REGISTRY_PORT = 5000
ENGINE = Path(__file__).parent / "stand_in_engine/server.c"
SAY = """\
#!/usr/bin/python3
# Stands for podman: says what it was given.
import json, sys
with open("/run/words/said", "w") as file:
    json.dump(sys.argv[1:], file)
"""
CRASHING = '#include <stdio.h>\nint main(void) { fputs("stand-in: rehearsed crash\\n", stderr); return 1; }\n'
# What a lab's machine is kept from: overlay on overlay, keyrings, and BPF programs and controllers for control groups.
# The container's files, users, namespaces, mounts and capabilities are as on a real machine, but for the numbers of its
# users: in a user namespace podman takes those from 1 on, as many as root has in /etc/subuid.
STORAGE = '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n'
CONTAINERS = """\
[containers]
keyring = false
[engine]
runtime = "lab"
[engine.runtimes]
lab = ["/usr/local/bin/crun-in-lab"]
"""
RUNTIME = """\
#!/usr/bin/python3
# Stands before crun in the lab: takes limits out of a container's configuration, which a lab's machine may not set.
import json, os, sys
words = sys.argv[1:]
if "create" in words and "--bundle" in words:
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    config["linux"].pop("resources", None)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv("/usr/bin/crun", ["crun", *words])
"""


def program(source: str, folder: Path) -> bytes:
    """A static binary of C text."""
    (folder / "server.c").write_text(source)
    words = ["gcc", "-static", "-O1", "-DBUILD_NUMBER=11434", "-o", "server", "server.c"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return (folder / "server").read_bytes()


def layer(binary: bytes) -> bytes:
    """A container's whole file system: the program, where the official image has it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("app/llama-server")
        entry.size, entry.mode = len(binary), 0o755
        tar.addfile(entry, io.BytesIO(binary))
    return packed.getvalue()


def listening_in(lab: Lab) -> socket.socket:
    """A socket at which the machines of a lab find a registry."""
    found = lab_socket(lab.record.name)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((addresses.hub_address(lab.record.number), REGISTRY_PORT))
    found.listen(64)
    return found


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The layers of an image that works and of one that crashes."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here")
    folder = tmp_path_factory.mktemp("engine")
    # The first process of a container gets only signals that it handles; real engines handle this one.
    engine = ENGINE.read_text().replace("signal(SIGPIPE, SIG_IGN);", "signal(SIGPIPE, SIG_IGN), signal(SIGTERM, exit);")
    assert "SIGTERM" in engine
    return layer(program(engine, folder)), layer(program(CRASHING, folder))


@pytest.fixture(scope="module")
def made(
    labs_can_run: None, tmp_path_factory: pytest.TempPathFactory, images: tuple[bytes, bytes]
) -> Iterator[tuple[Fleet, Registry, str, str]]:
    """A machine with Debian 13, a registry with two images, and their digests."""
    with made_site(
        tmp_path_factory.mktemp("site"), f"images{os.getpid()}", packages=(), hosts=1, suite="trixie"
    ) as site:
        registry = Registry(listening_in(site[0]))
        good, bad = (registry.image("amd64", content) for content in images)
        registry.tag(REPOSITORY, "server-b11434", registry.index({"amd64": good}))
        fleet = Fleet(*site)
        fleet.host.tell("mkdir -p /etc/containers; echo root:1:65535 | tee -a /etc/subuid >>/etc/subgid")
        for path, text in (
            ("/etc/containers/storage.conf", STORAGE),
            ("/etc/containers/containers.conf", CONTAINERS),
            ("/usr/local/bin/crun-in-lab", RUNTIME),
        ):
            fleet.host.machine.ssh(f"cat >{path}; chmod 755 {path}", input=text, check=True)
        yield fleet, registry, good, bad
        registry.stop()


def describe(fleet: Fleet, registry: Registry, digest: str, **service: object) -> None:
    """The fleet with the service from an image, and a lock that pins it."""
    fleet.describe(**{"engine": "llama.cpp", "build": "image", **service})
    with (fleet.root / "group_data/boxes.py").open("a") as file:
        file.write(f'image_mirrors = {{"ghcr.io": "{registry.address}"}}\n')
    path = fleet.root / "rigup.lock"
    without = path.read_text().split("[[images]]")[0]
    path.write_text(
        f'{without}[[images]]\nengine = "llama.cpp"\nversion = "b11434"\nvariant = "cpu"\n'
        f'repository = "ghcr.io/{REPOSITORY}"\ndigest = "{digest}"\n'
    )


def test_a_service_from_an_image(made: tuple[Fleet, Registry, str, str]) -> None:
    fleet, registry, good, _ = made
    host = fleet.host
    describe(fleet, registry, good)
    fleet.apply()

    assert host.answers()
    assert f"Image=ghcr.io/{REPOSITORY}@{good}" in host.tell(f"cat {QUADLET}")
    assert not host.says(f"test -e {UNIT_FILE}")
    assert host.tell("systemctl is-enabled rigup-chat") == "generated"
    assert f"/v2/{REPOSITORY}/manifests/{good}" in registry.requests  # by digest, and by no tag
    assert not [path for path in registry.requests if "server-b11434" in path]
    confined(fleet)
    logged = host.tell("journalctl --no-pager -o cat -u rigup-chat -t rigup-chat")
    assert "stand-in: context 8192, listening on 127.0.0.1:8000" in logged

    asked = len(registry.requests)
    assert fleet.rigup("diff", "--json").json["hosts"][0]["changes"] == []
    assert fleet.apply().json["hosts"][0]["changes"] == []
    assert len(registry.requests) == asked
    assert fleet.rigup("status", "--json").json["services"][0]["health"] == "answers"


def confined(fleet: Fleet) -> None:
    """Root in the container is nobody on the host, can do nothing there, and sees the weights read-only."""
    process = fleet.host.tell("pgrep -f /app/llama-server | head -n 1")
    status = dict(
        line.split(":", 1) for line in fleet.host.tell(f"cat /proc/{process}/status").splitlines() if ":" in line
    )
    assert "0" not in status["Uid"].split() + status["Gid"].split()
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    mounts = [line.split() for line in fleet.host.tell(f"cat /proc/{process}/mounts").splitlines()]
    options = {fields[1]: fields[3].split(",") for fields in mounts}
    weights = next(path for path in options if path.startswith("/var/lib/rigup/weights/"))
    assert "ro" in options[weights] and "ro" in options["/"]


def test_a_key_reaches_the_container_and_nobody_else(made: tuple[Fleet, Registry, str, str]) -> None:
    fleet, registry, good, _ = made
    describe(fleet, registry, good, listen="0.0.0.0")
    fleet.rigup("apply", "--yes")
    key = fleet.host.tell("cat /etc/rigup/services/chat/api-key")
    ask = "curl -s -o /dev/null -w '%{http_code}' -X POST -d '{}' http://127.0.0.1:8000/v1/chat/completions"
    assert fleet.host.tell(f"{ask} -H 'Authorization: Bearer {key}'") == "200"
    assert fleet.host.tell(ask) == "401"
    seen = fleet.host.tell(
        f"ps -eo args; cat {QUADLET}; systemctl show rigup-chat; podman inspect rigup-chat; journalctl -o cat"
    )
    assert key not in seen
    assert fleet.rigup("diff", "--json").json["hosts"][0]["changes"] == []


def test_quadlet_passes_on_exactly_the_words_and_variables(made: tuple[Fleet, Registry, str, str]) -> None:
    """podman's generator and systemd each read the text once; a program that is not podman says what it was given."""
    odd = "a \"b\" $HOME ${HOME} %n \\x 'c' é; |"
    plan = planned("4x B200", {**VLLM, **OTHERS, "environment": {"ODD": odd}, "served_name": "m $HOME %n"})
    host = made[0].host
    host.tell("mkdir -p /run/words; systemctl stop words 2>/dev/null; true")
    text = quadlet(plan, "/opt/rigup/builds/image-1-abc").replace(
        "After=network-online.target nvidia-persistenced.service\n", ""
    )
    host.machine.ssh("cat >/run/words/words.container", input=text, check=True)
    host.machine.ssh("cat >/run/words/say; chmod 755 /run/words/say", input=SAY, check=True)
    generator = "/usr/lib/systemd/system-generators/podman-system-generator"
    host.tell(f"QUADLET_UNIT_DIRS=/run/words {generator} /run/words /run/words /run/words")
    edits = "s,^ExecStart=/usr/bin/podman ,ExecStart=/run/words/say ,;/^ExecStartPre/d;/^LoadCred/d;/^ExecStop/d"
    host.tell(f"sed '{edits};s/^Type=.*/Type=oneshot/' /run/words/words.service >/run/systemd/system/words.service")
    host.tell("systemctl daemon-reload; systemctl start words")
    words = json.loads(host.tell("cat /run/words/said"))
    image = words.index("docker.io/vllm/vllm-openai@" + DIGEST)
    script, *arguments = words[image + 2 :]
    assert words[image + 1] == "-c" and script == SCRIPTS["vllm"]
    assert tuple(arguments) == plan.command
    assert f"ODD={odd}" in words[:image]
    first, second = host.tell("grep ^ExecStop= /run/words/words.service").splitlines()
    assert "drain.py" in first and "podman rm" in second, "the container is removed before its requests have ended"
    assert "--entrypoint=/bin/sh" in words[:image] and "--pull" in words[:image] and "--device" in words[:image]


def test_an_image_that_crashes_gives_way_to_the_one_before(made: tuple[Fleet, Registry, str, str]) -> None:
    fleet, registry, good, bad = made
    describe(fleet, registry, good)
    fleet.apply()
    readers = Readers(fleet.host, fleet.host)
    begun = readers.begin(400)
    describe(fleet, registry, bad)
    run = fleet.apply(expect=1)
    assert all_whole(begun, 400)
    assert "drain: connections left: 3" in fleet.host.tell(f"journalctl -o cat -u {UNIT}")
    readers.close()
    (error,) = run.json["hosts"][0]["errors"]
    assert error["message"].endswith(", which answers")
    assert f"@{good}" in fleet.host.tell(f"cat {QUADLET}")
    assert fleet.host.answers()


def test_from_an_image_to_a_build_and_back(made: tuple[Fleet, Registry, str, str]) -> None:
    fleet, registry, good, _ = made
    describe(fleet, registry, good, build="source")
    fleet.apply()
    assert fleet.host.answers()
    assert fleet.host.tell(f"test -e {QUADLET} || ls {UNIT_FILE}") == UNIT_FILE
    assert fleet.host.tell("podman ps -q") == ""
    describe(fleet, registry, good)
    fleet.apply()
    assert fleet.host.answers()
    assert fleet.host.tell(f"test -e {UNIT_FILE} || ls {QUADLET}") == QUADLET
    assert fleet.host.tell("podman ps --format '{{.Names}}'") == "rigup-chat"


def test_an_image_that_is_not_what_the_lock_says_is_not_taken(made: tuple[Fleet, Registry, str, str]) -> None:
    fleet, registry, good, _ = made
    describe(fleet, registry, good)
    fleet.apply()
    other = registry.image("amd64", layer(b"another"))
    media_type, content = registry.content[other]
    registry.content[other] = (media_type, content + b" ")
    describe(fleet, registry, other)
    (error,) = fleet.apply(expect=1).json["hosts"][0]["errors"]
    assert other.removeprefix("sha256:")[:12] in error["message"]
    assert fleet.host.answers()


def test_debian_12_is_refused_before_anything_is_done(made: tuple[Fleet, Registry, str, str]) -> None:
    fleet, registry, good, _ = made
    describe(fleet, registry, good, rig={"os": "debian-12"})
    run = fleet.rigup("apply", "--yes", "--json", expect=1)
    assert re.search(r"debian-12 .*\bpodman 4\.3\.1; .*\b4\.4\b", run.text)
