"""Runs on each host of a service that spans several hosts: its engine runs only while all the others do.

usage: run_together.py RANK ADDRESSES PORT [drain=PORT:SECONDS] [ADDRESS:PORT...] -- WORD...

ADDRESSES: of all hosts by rank, separated by commas. RANK 0, the head, listens at its own address; the others connect
to it, each from its own. The head's engine starts once the other hosts' engines listen at the further ADDRESS:PORTs; if
they do not within LISTEN_SECONDS, all hosts start again.

An engine that loses a peer may hang forever, and a restarted engine cannot join others that were not restarted. So the
head waits until all hosts have joined, and has every host start its engine at once. When a host is lost (its engine has
ended, or it sent nothing for SILENCE seconds), every host ends its engine and they gather again. An engine that ends by
itself ends this program with status 1, so that systemd starts it again. Unknown connections are closed.

A host that systemd stops says so to the head, and keeps its engine until the head is done with the requests in flight:
until no connection leads to the API's PORT, for SECONDS at most.
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
from collections.abc import Iterator
from typing import NoReturn

if __package__:
    from rigup.programs.drain import connections
else:
    sys.dont_write_bytecode = True
    from drain import connections  # type: ignore[import-not-found, no-redef]

SILENCE = 10.0
BEAT = 1.0
END_SECONDS = 10.0
LISTEN_SECONDS = 120.0
MOST_STRANGERS = 64
MOST_SAID = 4096
"""Maximum bytes that a peer or a stranger may send in one beat."""
MOST_RANK = 6
HELLO = b"rigup"
DRAIN = "drain="
START, HERE, LEAVES = b"S", b".", b"L"

Address = tuple[str, int]


def log(text: str) -> None:
    """Prints a line to the journal."""
    print(f"run_together: {text}", file=sys.stderr, flush=True)


class Drain:
    """How long requests in flight are waited for. port: of the API; 0 if nothing is waited for."""

    def __init__(self, port: int = 0, seconds: float = 0.0) -> None:
        self.port, self.seconds, self.deadline = port, seconds, 0.0

    def begin(self) -> None:
        """Starts the time, unless it is running."""
        self.deadline = self.deadline or time.monotonic() + self.seconds

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.deadline

    def end(self) -> None:
        self.deadline = 0.0


class EngineProcess:
    """The engine's process and its children, in their own session."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; a stop that is asked for meanwhile follows, since it would not know of this process yet."""
        with _stopped_afterwards():
            self.process = subprocess.Popen(self.words, start_new_session=True)

    def check(self) -> None:
        """Ends this program if the engine has ended by itself."""
        if self.process is not None and (status := self.process.poll()) is not None:
            log(f"the engine exited with {status}")
            self._kill(signal.SIGKILL)
            sys.exit(1)

    def end(self) -> None:
        """Ends the engine, by force after END_SECONDS."""
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


@contextlib.contextmanager
def _stopped_afterwards() -> Iterator[None]:
    """Handles SIGTERM when the block has ended. Blocking it would have the engine inherit that."""
    came: list[int] = []
    handler = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
    if came:
        os.kill(os.getpid(), signal.SIGTERM)


class NodeConnection:
    """A connection to another host, and when data last arrived on it."""

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
        """Reads what has arrived, up to a limit, so that other connections get their turn."""
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
    """Waits until data arrives or the next beat is due."""
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
    """Parses "192.168.100.10:28000" or "[fd00::1]:28000"."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def drain_of(text: str) -> Drain:
    """Parses "drain=8000:120"."""
    port, _, seconds = text.removeprefix(DRAIN).partition(":")
    return Drain(int(port), float(seconds))


class Head:
    """Rank 0: the other hosts connect to it. peers: by rank."""

    def __init__(
        self, addresses: list[str], port: int, after: list[Address], engine: EngineProcess, drain: Drain
    ) -> None:
        self.addresses, self.others = addresses, set(range(1, len(addresses)))
        self.engine, self.after, self.start_sent, self.start_sent_at = engine, after, False, 0.0
        family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
        self.listener = socket.create_server((addresses[0], port), family=family, backlog=16)
        self.listener.setblocking(False)
        self.drain, self.leaving = drain, set[int]()
        self.newcomers: list[NodeConnection] = []
        self.peers: dict[int, NodeConnection] = {}
        self.last_beat = 0.0

    def run(self) -> NoReturn:
        self._report_missing()
        while True:
            known = [*self.newcomers, *self.peers.values()]
            wait_for([self.listener, *(peer.connection for peer in known)])
            self._accept()
            for peer in known:
                peer.read()
            self._admit()
            self._let_leave()
            self._beat()
            self.engine.check()
            self._drop([rank for rank, peer in self.peers.items() if peer.lost])
            if self.engine.process is None and self.peers.keys() == self.others:
                self._start()

    def _start(self) -> None:
        """Tells the others to start, then starts this engine as soon as the required ports are listening."""
        if not self.start_sent:
            log("all hosts joined; starting the engines")
            for peer in self.peers.values():
                peer.send(START)
            self.start_sent, self.start_sent_at = True, time.monotonic()
        if all(listened_at(address) for address in self.after):
            self.engine.start()
        elif time.monotonic() - self.start_sent_at > LISTEN_SECONDS:
            log("not every required port is listening; restarting all hosts")
            self._drop(list(self.peers))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self.newcomers.append(NodeConnection(self.listener.accept()[0]))
        if len(self.newcomers) > MOST_STRANGERS:
            self.newcomers.pop(0).connection.close()

    def _admit(self) -> None:
        """Turns each connection that has sent its rank into a peer. A rank that connects again was restarted."""
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

    def _let_leave(self) -> None:
        """Drops hosts that are about to stop once no request is in flight, or their time is over."""
        leaving = {rank for rank, peer in self.peers.items() if LEAVES in peer.got}
        if new := leaving - self.leaving:
            log(f"host {', '.join(map(str, sorted(new)))} is about to stop; waiting for the requests in flight")
            self.drain.begin()
            self.leaving |= new
        if self.leaving and (self.drain.over or not connections(self.drain.port)):
            self._drop(sorted(self.leaving & self.peers.keys()))

    def _beat(self) -> None:
        if time.monotonic() - self.last_beat >= BEAT:
            self.last_beat = time.monotonic()
            for peer in self.peers.values():
                peer.send(HERE)
                peer.got = b""

    def _drop(self, ranks: list[int]) -> None:
        """Drops lost hosts; if the engines were started, all hosts end theirs and gather again."""
        if not ranks:
            return
        log(f"host {', '.join(map(str, ranks))} is lost")
        for rank in list(self.peers) if self.start_sent else ranks:
            self.peers.pop(rank).connection.close()
        self.engine.end()
        self.start_sent = False
        self.leaving.clear()
        self.drain.end()
        self._report_missing()

    def _report_missing(self) -> None:
        log(f"waiting for host {', '.join(str(rank) for rank in sorted(self.others - self.peers.keys()))}")


class WorkerConnection:
    """Any other rank: connected to the head, or trying to connect."""

    def __init__(self, rank: int, own: str, address: Address, engine: EngineProcess, drain: Drain) -> None:
        self.rank, self.own, self.address, self.engine, self.drain = rank, own, address, engine, drain
        self.stops = False

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
            self.engine.end()
            if self.stops:
                sys.exit(0)
            log("host 0 is lost")
            log(f"waiting for host 0 at {self.address[0]}, port {self.address[1]}")

    def _stay(self, head: NodeConnection) -> None:
        """Stays connected until the head is lost, or has let this host stop."""
        while not head.lost and not (self.stops and self.drain.over):
            wait_for([head.connection])
            head.read()
            if START in head.got and self.engine.process is None and not head.closed:
                log("all hosts joined; starting the engine")
                self.engine.start()
            head.got = b""
            head.send(LEAVES if self.stops else HERE)
            self.engine.check()

    def stop(self) -> None:
        """Ends this program, once the head is done with the requests in flight if this host serves them."""
        if self.drain.port and self.engine.process is not None and not self.stops:
            self.stops = True
            self.drain.begin()
            return
        self.engine.end()
        sys.exit(0)


def main() -> NoReturn:
    """Runs until the engine ends by itself, or systemd stops it."""
    at = sys.argv.index("--")
    rank, listed, port, *after = sys.argv[1:at]
    drain = drain_of(after.pop(0)) if after and after[0].startswith(DRAIN) else Drain()
    addresses, engine = listed.split(","), EngineProcess(sys.argv[at + 1 :])

    def stop(number: int, frame: object) -> None:
        engine.end()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    if int(rank) == 0:
        Head(addresses, int(port), [address_of(text) for text in after], engine, drain).run()
    worker = WorkerConnection(int(rank), addresses[int(rank)], (addresses[0], int(port)), engine, drain)
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    worker.run()


if __name__ == "__main__":
    main()
