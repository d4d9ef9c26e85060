"""One host's part of a Ray cluster: what starts when, what ends what, and what is said. Ray itself is left out here."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rigup.programs import program_file, ray_node
from rigup.programs.ray_node import Cluster, ClusterLost
from tests.hostile import SAFETY_S

PROGRAM = str(program_file("ray_node.py"))
HOSTS = {"gpu1": "192.168.100.1", "gpu2": "192.168.100.2"}
FOREVER = ("sleep", "3600")
INCOMPLETE = "Ray cluster incomplete after 0 s: {} did not join"


class Scripted(Cluster):
    """A cluster of which these are missing, one list a look, None where it does not answer; the last stays."""

    def __init__(self, *missing: list[str] | None) -> None:
        super().__init__("192.168.100.1:18000", HOSTS)
        self.looks = list(missing)

    def absent_hosts(self) -> list[str] | None:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_node, "POLL_SECONDS", 0.01)


def test_the_engine_starts_once_all_are_there_and_its_end_is_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen"
    cluster = Scripted(["gpu2 (192.168.100.2)"], ["gpu2 (192.168.100.2)"], [])
    engine = ("sh", "-c", f'echo "$RAY_ADDRESS" > {seen}; exit 5')
    assert ray_node.head(cluster, SAFETY_S, FOREVER, engine) == 5
    assert seen.read_text() == "192.168.100.1:18000\n"
    assert capsys.readouterr().out == "Ray: waiting for gpu2 (192.168.100.2)\nRay: complete, 2 hosts\n"


def test_who_does_not_join_in_time_is_named(tmp_path: Path) -> None:
    engine = ("touch", str(tmp_path / "started"))
    with pytest.raises(ClusterLost) as lost:
        ray_node.head(Scripted(["gpu2 (192.168.100.2)"]), 0, FOREVER, engine)
    assert str(lost.value) == INCOMPLETE.format("gpu2 (192.168.100.2)")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("cluster", "ray", "said"),
    [
        (Scripted([], [], ["gpu2 (192.168.100.2)"]), FOREVER, "gpu2 (192.168.100.2) left the Ray cluster"),
        (Scripted([], None), FOREVER, "Ray at 192.168.100.1:18000 did not respond 5 times in a row"),
        (Scripted([], None, ["gpu2 (192.168.100.2)"]), FOREVER, "gpu2 (192.168.100.2) left the Ray cluster"),
        (Scripted([], []), ("sh", "-c", "sleep 0.2; exit 7"), "Ray exited with 7"),
        (Scripted(["gpu2 (192.168.100.2)"]), ("false",), "Ray exited with 1 before the cluster was complete"),
    ],
    ids=["a host", "the head", "a host when the head answers again", "Ray", "Ray at once"],
)
def test_what_is_lost_ends_the_engine(cluster: Cluster, ray: tuple[str, ...], said: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(ClusterLost) as lost:
        ray_node.head(cluster, SAFETY_S, ray, ("sh", "-c", f"echo $$ > {pid}; exec sleep 3600"))
    assert str(lost.value) == said
    if pid.exists() and pid.read_text():
        assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_head_that_is_slow_to_answer_now_and_then_is_not_lost(tmp_path: Path) -> None:
    slow: list[list[str] | None] = [None] * 4
    cluster, over = Scripted([], *slow, [], *slow, []), tmp_path / "over"

    class Ending(Scripted):
        def absent_hosts(self) -> list[str] | None:
            over.touch() if len(cluster.looks) == 1 else None
            return cluster.absent_hosts()

    engine = ("sh", "-c", f"until [ -e {over} ]; do sleep 0.02; done; exit 5")
    assert ray_node.head(Ending(), SAFETY_S, FOREVER, engine) == 5


def test_nobody_joins_a_head_that_does_not_answer() -> None:
    with pytest.raises(ClusterLost) as lost:
        ray_node.head(Scripted(None), 0, FOREVER, ("true",))
    assert str(lost.value) == INCOMPLETE.format("gpu1 (192.168.100.1), gpu2 (192.168.100.2)")


def test_nobody_is_part_of_a_cluster_whose_head_does_not_answer() -> None:
    words = [sys.executable, "-I", PROGRAM, "nodes", "127.0.0.1:1", "gpu1=10.0.0.1", "gpu=2=10.0.0.2"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "gpu1 (10.0.0.1)\ngpu=2 (10.0.0.2)\n", "")


def test_a_worker_waits_for_its_head_and_becomes_ray() -> None:
    with socket.socket() as later:
        later.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{later.getsockname()[1]}"
        words = [sys.executable, "-I", PROGRAM, "worker", address, "--", "/bin/echo", "ray", "start", "--", "x"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == f"Ray: waiting for its head at {address}\n"
        later.listen()
        assert process.communicate(timeout=SAFETY_S)[0] == "ray start\n"
        assert process.returncode == 0


def test_stopping_the_head_ends_ray() -> None:
    words = [sys.executable, "-I", PROGRAM, "head", "127.0.0.1:1", "3600", "gpu1=10.0.0.1", "--", *FOREVER, "--"]
    process = subprocess.Popen([*words, "true"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "Ray: waiting for gpu1 (10.0.0.1)\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(SAFETY_S) == 0
    assert not Path(f"/proc/{children[0]}").exists()
    process.stdout.close()
