"""A name that stands for several addresses, of which not all are served: localhost is often ::1 first."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from rigup.programs.bench.bench_endpoint import open_endpoint
from rigup.programs.bench.bench_load import Level, Load
from rigup.programs.bench.bench_target import Target, reached
from tests.unit.bench.conftest import Engine


@pytest.fixture
def name_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    """A name that stands for these addresses, all at one port."""

    def name(port: int, *addresses: str) -> Target:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        return Target.of(f"http://gpu1:{port}", None)

    return name


def port_of(engine: Engine) -> int:
    return int(engine.url.rpartition(":")[2])


def test_the_load_goes_where_the_questions_went(engine: Callable[..., Engine], name_of: Callable[..., Target]) -> None:
    target = name_of(port_of(engine()), "127.0.0.2", "127.0.0.1")
    endpoint = open_endpoint(target, None, False, 5, 1)
    outcome = Load(endpoint, Level(2, 16, 4, requests=4), "level", 1, lambda: False, lambda said: None).run()
    assert [record.error for record in outcome.records] == [""] * 4
    assert outcome.complete


def test_where_no_address_answers_the_load_says_so_of_the_first(name_of: Callable[..., Target]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert reached(name_of(port, "127.0.0.2", "127.0.0.1"))[1] == ("127.0.0.2", port)


def test_a_single_address_is_not_tried_first(engine: Callable[..., Engine], name_of: Callable[..., Target]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        assert reached(name_of(port, "127.0.0.1")) == (socket.AF_INET, ("127.0.0.1", port))
        with pytest.raises(BlockingIOError):
            server.accept()
