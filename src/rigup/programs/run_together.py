"""Runs on each host of a service that spans several: its engine runs while those of all the others do, or not at all.

usage: run_together.py RANK ADDRESSES PORT [ADDRESS:PORT...] -- WORD...

ADDRESSES: of all hosts by rank, with commas. RANK 0, the head, listens at its own; the others connect to it, each from
its own. Its engine starts once the further places are listened at, by those of the others; where that is not so within
LISTEN_SECONDS, all start anew.

An engine whose peer is gone may hang for good, and one that is started anew cannot join others that were not. So the
head waits until all are there, has every host start its engine at once, and when one is lost (its engine has ended, or
nothing was heard of it for SILENCE seconds) each ends its own and they gather again. An engine that ends by itself ends
this program with 1, so that systemd starts it anew. Whoever is none of the others is sent away.
Python 3.10 standard library only.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

SILENCE = 10.0
BEAT = 1.0
END_SECONDS = 10.0
LISTEN_SECONDS = 120.0
MOST_STRANGERS = 64
MOST_SAID = 4096
"""Bytes that a peer or a stranger may say in one beat, which are few."""
MOST_RANK = 6
HELLO = b"rigup"
START, HERE = b"S", b"."

Address = tuple[str, int]


def log(text: str) -> None:
    """Prints a line to the journal."""
    print(f"run_together: {text}", file=sys.stderr, flush=True)


class EngineProcess:
    """The engine's process, with all that it starts, in a session of its own."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self.words, start_new_session=True)

    def check(self) -> None:
        """Ends this program where the engine has ended by itself."""
        if self.process is not None and (status := self.process.poll()) is not None:
            log(f"the engine exited with {status}")
            self._kill(signal.SIGKILL)
            sys.exit(1)

    def end(self) -> None:
        """Ends it, by force where it does not within END_SECONDS."""
        if self.process is None:
            return
        self._kill(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self._kill(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def _kill(self, number: int) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class NodeConnection:
    """A connection to another host, and when something came over it for the last time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.began = self.last_heard = time.monotonic()
        self.got = b""
        self.closed = False

    def send(self, what: bytes) -> None:
        try:
            self.connection.send(what)
        except OSError:
            self.closed = True

    def read(self) -> None:
        """Reads what has arrived, and no more than leaves time for the other connections."""
        try:
            some = self.connection.recv(MOST_SAID)
        except BlockingIOError:
            return
        except OSError:
            some = b""
        self.last_heard = time.monotonic()
        self.got += some
        self.closed = not some or len(self.got) > MOST_SAID

    @property
    def lost(self) -> bool:
        return self.closed or time.monotonic() - self.last_heard > SILENCE


def wait_for(connections: list[socket.socket]) -> None:
    """Until something comes, or it is time for the next beat."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        selector.select(BEAT)


def listened_at(address: Address) -> bool:
    """Whether something accepts connections at this address."""
    try:
        socket.create_connection(address, timeout=BEAT).close()
    except OSError:
        return False
    return True


def address_of(text: str) -> Address:
    """From "192.168.100.10:28000" or "[fd00::1]:28000"."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Head:
    """Rank 0: the others connect here. peers: by rank."""

    def __init__(self, addresses: list[str], port: int, after: list[Address], engine: EngineProcess) -> None:
        self.addresses, self.others = addresses, set(range(1, len(addresses)))
        self.engine, self.after, self.starting, self.starting_since = engine, after, False, 0.0
        family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
        self.listener = socket.create_server((addresses[0], port), family=family, backlog=16)
        self.listener.setblocking(False)
        self.newcomers: list[NodeConnection] = []
        self.peers: dict[int, NodeConnection] = {}
        self.last_beat = 0.0

    def run(self) -> NoReturn:
        self._log_missing()
        while True:
            known = [*self.newcomers, *self.peers.values()]
            wait_for([self.listener, *(peer.connection for peer in known)])
            self._accept()
            for peer in known:
                peer.read()
            self._admit()
            self._beat()
            self.engine.check()
            self._drop([rank for rank, peer in self.peers.items() if peer.lost])
            if self.engine.process is None and self.peers.keys() == self.others:
                self._start()

    def _start(self) -> None:
        """Has the others start theirs, and starts this one as soon as it finds there what it needs."""
        if not self.starting:
            log("all hosts joined; starting the engines")
            for peer in self.peers.values():
                peer.send(START)
            self.starting, self.starting_since = True, time.monotonic()
        if all(listened_at(address) for address in self.after):
            self.engine.start()
        elif time.monotonic() - self.starting_since > LISTEN_SECONDS:
            log("not every required port is listening; restarting all hosts")
            self._drop(list(self.peers))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self.newcomers.append(NodeConnection(self.listener.accept()[0]))
        if len(self.newcomers) > MOST_STRANGERS:
            self.newcomers.pop(0).connection.close()

    def _admit(self) -> None:
        """Makes a peer of each connection that has sent its rank. A rank that connects again was restarted."""
        for newcomer in list(self.newcomers):
            line, ended, _ = newcomer.got.partition(b"\n")
            word, _, rank = line.partition(b" ")
            if ended and word == HELLO and self._is_from(rank, newcomer):
                self._drop([int(rank)] if int(rank) in self.peers else [])
                log(f"host {int(rank)} joined")
                self.peers[int(rank)] = newcomer
            elif not (newcomer.lost or ended or time.monotonic() - newcomer.began > SILENCE):
                continue
            else:
                newcomer.connection.close()
            self.newcomers.remove(newcomer)

    def _is_from(self, rank: bytes, newcomer: NodeConnection) -> bool:
        if len(rank) > MOST_RANK or not rank.isdigit() or int(rank) not in self.others:
            return False
        try:
            return bool(newcomer.connection.getpeername()[0] == self.addresses[int(rank)])
        except OSError:
            return False

    def _beat(self) -> None:
        if time.monotonic() - self.last_beat >= BEAT:
            self.last_beat = time.monotonic()
            for peer in self.peers.values():
                peer.send(HERE)
                peer.got = b""

    def _drop(self, ranks: list[int]) -> None:
        """These are lost: where the engines run, all end theirs and gather again."""
        if not ranks:
            return
        log(f"host {', '.join(map(str, ranks))} is lost")
        for rank in list(self.peers) if self.starting else ranks:
            self.peers.pop(rank).connection.close()
        self.engine.end()
        self.starting = False
        self._log_missing()

    def _log_missing(self) -> None:
        log(f"waiting for host {', '.join(str(rank) for rank in sorted(self.others - self.peers.keys()))}")


class WorkerConnection:
    """Any other rank: connected to the head, or trying to be."""

    def __init__(self, rank: int, own: str, address: Address, engine: EngineProcess) -> None:
        self.rank, self.own, self.address, self.engine = rank, own, address, engine

    def run(self) -> NoReturn:
        log(f"waiting for host 0 at {self.address[0]}, port {self.address[1]}")
        while True:
            try:
                connection = socket.create_connection(self.address, SILENCE, source_address=(self.own, 0))
                connection.sendall(HELLO + b" %d\n" % self.rank)
            except OSError:
                time.sleep(BEAT)
                continue
            with connection:
                self._stay(NodeConnection(connection))
            log("host 0 is lost")
            self.engine.end()
            log(f"waiting for host 0 at {self.address[0]}, port {self.address[1]}")

    def _stay(self, head: NodeConnection) -> None:
        """Stays connected until the head is lost."""
        while not head.lost:
            wait_for([head.connection])
            head.read()
            if START in head.got and self.engine.process is None and not head.closed:
                log("all hosts joined; starting the engine")
                self.engine.start()
            head.got = b""
            head.send(HERE)
            self.engine.check()


def main() -> NoReturn:
    """Runs until the engine ends by itself, or systemd stops it."""
    at = sys.argv.index("--")
    rank, listed, port, *after = sys.argv[1:at]
    addresses, engine = listed.split(","), EngineProcess(sys.argv[at + 1 :])

    def stop(number: int, frame: object) -> None:
        engine.end()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    if int(rank) == 0:
        Head(addresses, int(port), [address_of(text) for text in after], engine).run()
    WorkerConnection(int(rank), addresses[int(rank)], (addresses[0], int(port)), engine).run()


if __name__ == "__main__":
    main()
