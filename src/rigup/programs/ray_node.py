"""Runs on a host, as the service: one host's part of a Ray cluster, and on the head the engine that uses it.

usage: ray_node.py head ADDRESS:PORT SECONDS HOST=ADDRESS... -- RAY... -- ENGINE...
       ray_node.py worker ADDRESS:PORT -- RAY...
       ray_node.py nodes ADDRESS:PORT HOST=ADDRESS...

head: starts Ray, waits until every host has joined, then starts the engine with RAY_ADDRESS set; stops everything as
soon as the engine, Ray or a host is lost, and systemd starts it again. If the head only responds slowly, it is checked
up to SILENT_LOOKS times. Exit status 3: a host is missing.
worker: waits for the head without a limit, then becomes Ray. nodes: prints the hosts that are not part of the cluster;
exit status 3 if there are any.

Needs the Python of an environment that contains Ray; otherwise the standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

ADDRESS = "RAY_ADDRESS"
MISSING = 3
CONNECT_SECONDS = 3.0
ASK_SECONDS = 10.0
POLL_SECONDS = 2.0
SILENT_LOOKS = 5
STOP_SECONDS = 25.0
SAY_SECONDS = 60.0
ALIVE = 0


class ClusterLost(Exception):
    """Ray, the engine or a host is lost; the message names it."""


def answers(address: str) -> bool:
    """Whether something accepts connections at "10.0.0.1:18000"."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


class Cluster:
    """The Ray cluster whose head is at `address`; hosts: the addresses of its hosts by name."""

    def __init__(self, address: str, hosts: dict[str, str]) -> None:
        self.address, self.hosts = address, hosts
        self._client: Any = None

    def missing(self) -> list[str]:
        """The hosts that are not part of the cluster now, as messages name them; all if the head does not respond."""
        found = self.absent_hosts()
        return self._named(set()) if found is None else found

    def absent_hosts(self) -> list[str] | None:
        """The hosts that are not part of the cluster according to its head; None if the head does not respond."""
        if not answers(self.address):  # Ray itself would wait for almost a minute
            self._client = None
            return None
        try:
            if self._client is None:
                from ray._raylet import GcsClient

                self._client = GcsClient(address=self.address)
            nodes = self._client.get_all_node_info(timeout=ASK_SECONDS).values()
        except ImportError:
            raise
        except Exception as error:
            print(f"Ray at {self.address}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self._client = None
            return None
        return self._named({node.node_manager_address for node in nodes if node.state == ALIVE})

    def _named(self, alive: set[str]) -> list[str]:
        return [f"{name} ({address})" for name, address in self.hosts.items() if address not in alive]


def head(cluster: Cluster, seconds: float, ray: Sequence[str], engine: Sequence[str]) -> int:
    """Runs Ray, then the engine; returns the engine's exit status. Raises ClusterLost if either or a host is lost."""
    started = [subprocess.Popen(ray, env=without_address())]
    try:
        wait_for_all(cluster, seconds, started[0])
        started.append(subprocess.Popen(engine, env={**os.environ, ADDRESS: cluster.address}))
        return watch(cluster, *started)
    finally:
        for process in reversed(started):
            stop(process)


def wait_for_all(cluster: Cluster, seconds: float, ray: subprocess.Popen[bytes]) -> None:
    """Returns once the cluster is complete. Raises ClusterLost, naming the missing hosts, after `seconds`."""
    deadline, reported = time.monotonic() + seconds, None
    while missing := cluster.missing():
        if ray.poll() is not None:
            raise ClusterLost(f"Ray exited with {ray.returncode} before the cluster was complete")
        if time.monotonic() > deadline:
            raise ClusterLost(f"Ray cluster incomplete after {seconds:.0f} s: {', '.join(missing)} did not join")
        if missing != reported:
            print(f"Ray: waiting for {', '.join(missing)}", flush=True)
            reported = missing
        time.sleep(POLL_SECONDS)
    print(f"Ray: complete, {len(cluster.hosts)} hosts", flush=True)


def watch(cluster: Cluster, ray: subprocess.Popen[bytes], engine: subprocess.Popen[bytes]) -> int:
    """Returns the engine's exit status when it ends; raises ClusterLost if Ray or a host is lost before that."""
    silent = 0
    while (status := engine.poll()) is None:
        if ray.poll() is not None:
            raise ClusterLost(f"Ray exited with {ray.returncode}")
        if missing := cluster.absent_hosts():
            raise ClusterLost(f"{', '.join(missing)} left the Ray cluster")
        silent = silent + 1 if missing is None else 0
        if silent == SILENT_LOOKS:
            raise ClusterLost(f"Ray at {cluster.address} did not respond {silent} times in a row")
        time.sleep(POLL_SECONDS)
    return status if status >= 0 else 128 - status


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, by force after STOP_SECONDS."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def worker(address: str, ray: Sequence[str]) -> None:
    """Waits for the head and becomes Ray."""
    reported = 0.0
    while not answers(address):
        if time.monotonic() - reported > SAY_SECONDS:
            print(f"Ray: waiting for its head at {address}", flush=True)
            reported = time.monotonic()
        time.sleep(POLL_SECONDS)
    os.execve(ray[0], list(ray), without_address())  # noqa: S606  needs no shell


def without_address() -> dict[str, str]:
    """The environment of `ray start`, whose arguments name the cluster."""
    return {name: value for name, value in os.environ.items() if name != ADDRESS}


def nodes(cluster: Cluster) -> int:
    """Prints missing hosts, one per line."""
    missing = cluster.missing()
    print("\n".join(missing))
    return MISSING if missing else 0


def main(words: Sequence[str]) -> int:
    """Runs the subcommand."""
    what, address, *rest = words
    settings, *commands = _parts(rest)
    if what == "worker":
        worker(address, commands[0])
    if what == "nodes":
        return nodes(Cluster(address, _hosts(settings)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that systemctl stop ends the engine first, then Ray
    try:
        return head(Cluster(address, _hosts(settings[1:])), float(settings[0]), commands[0], commands[1])
    except ClusterLost as lost:
        print(lost, file=sys.stderr, flush=True)
        return MISSING


def _parts(words: Sequence[str]) -> list[list[str]]:
    """Splits words at the first two "--"."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "--" and len(parts) < 3:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _hosts(words: Sequence[str]) -> dict[str, str]:
    return {name: address for name, _, address in (word.rpartition("=") for word in words)}


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("head", "worker", "nodes"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
