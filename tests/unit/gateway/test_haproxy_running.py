"""What clients see of HAProxy with the rendered files, hostile ones among them; its engines are stand-ins."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rigup.gateway import acme, haproxy
from rigup.gateway.files import files_of
from rigup.gateway.haproxy import digest_of
from rigup.gateway.paths import ADMIN_SOCKET, CERTIFICATE_FILE, FOLDER, RUNTIME_FOLDER
from rigup.gateway.responses import RETRY_SECONDS
from rigup.gateway_settings import (
    Acme,
    Backend,
    Certificate,
    Gateway,
    GatewayClient,
    GatewayPlan,
    GatewaySettings,
    Route,
)
from rigup.operations.gateway import admin
from rigup.programs import program_file, release_metrics
from tests.certificates import certificate_with_key
from tests.hostile import SAFETY_S
from tests.unit.local_host import LocalHost

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")

KEY, LIMITED, LONELY, NARROW = "k" * 32, "l" * 32, "o" * 32, "n," * 16
ENGINES_KEY = "e" * 32
CHAT = "/v1/chat/completions"


class Engine(ThreadingHTTPServer):
    """Stands for an engine. heard: the headers of its requests, in lower case. status: what it answers.

    read: the bodies of its requests. free: it answers while this is set.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, status: int = 200) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.heard: list[dict[str, str]] = []
        self.read: list[bytes] = []
        self.status, self.free = status, threading.Event()
        self.free.set()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_: Any) -> None:
        """Says nothing of health checks that end early."""

    def end(self) -> None:
        """Listens no more."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self.answer(self.server.status, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.read.append(body)
        self.server.heard.append({name.lower(): value for name, value in self.headers.items()})
        self.server.free.wait(SAFETY_S)
        self.answer(self.server.status, {"bytes": len(body)})

    def answer(self, status: int, content: object) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ask(
    port: int, body: object = None, key: str | None = KEY, path: str = CHAT, method: str = "POST", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, content and headers of an answer."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=SAFETY_S)
    data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
    link.request(method, path, data, {**({"Authorization": f"Bearer {key}"} if key else {}), **headers})
    reply = link.getresponse()
    text = reply.read().decode()
    link.close()
    found = {name.lower(): value for name, value in reply.getheaders()}
    return reply.status, json.loads(text) if text.startswith("{") else text, found


@contextmanager
def running(
    folder: Path, engines: dict[str, list[int]], certificate: str | None = None, **changes: Any
) -> Iterator[int]:
    """The port of a gateway in front of engines, which are ports by model. changes: of its settings."""
    port = free_port()
    names = {"team": KEY, "limited": LIMITED, "lonely": LONELY, "narrow": NARROW}
    clients = {
        "team": GatewayClient(key_file="t"),
        "limited": GatewayClient(key_file="l", requests_per_minute=4),
        "lonely": GatewayClient(key_file="o", concurrency=1),
        "narrow": GatewayClient(key_file="n", models=("small",)),
    }
    tls = Certificate(certificate_file="c", key_file="k") if certificate else None
    about = {"port": port, "metrics_port": free_port(), "body_limit_mib": 1, **changes}
    gateway = Gateway(clients=clients, tls=tls, **about)
    routes = tuple(
        Route(model=model, key_file="e", backends=tuple(backend(port, number) for number, port in enumerate(ports)))
        for model, ports in engines.items()
    )
    plan = GatewayPlan(host="h", group="g", gateway=gateway, routes=routes)
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in names.items()}
    files = files_of(GatewaySettings(plan, digests, dict.fromkeys(engines, ENGINES_KEY), certificate))
    for path, text in files.by_path.items():
        for there, here in ((FOLDER, folder), (ADMIN_SOCKET, folder / "a.sock"), (f"/run/{RUNTIME_FOLDER}", folder)):
            text = text.replace(there, str(here))
        (folder / Path(path).name).write_text(text)
    with (folder / "log").open("w") as log:
        words = [str(HAPROXY), "-db", "-f", str(folder / "haproxy.cfg")]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SAFETY_S
        while not (listens(port) and (folder / "a.sock").exists()):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def backend(port: int, number: int) -> Backend:
    about = {"host": f"h{number}", "group": "g", "service": "s", "address": "127.0.0.1", "health_path": "/health"}
    return Backend.model_validate({**about, "port": port, "weight": 1, "engine": "", "wants_key": True})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, list[Engine], Path]]:
    """A gateway with two engines for one model and one for another; nobody serves a third."""
    folder = tmp_path_factory.mktemp("g")
    with ExitStack() as stack:
        engines = [Engine(), Engine(), Engine()]
        for engine in engines:
            stack.callback(engine.end)
        ports = [engine.server_port for engine in engines]
        served = {"big": ports[:2], "small": ports[2:], "away": [free_port()]}
        port = stack.enter_context(running(folder, served))
        yield port, engines, folder


def test_a_request_goes_where_its_model_is_with_the_engines_key(site: tuple[int, list[Engine], Path]) -> None:
    port, engines, _ = site
    for engine in engines:
        engine.heard.clear()
    keys = {"x-api-key": KEY}
    assert ask(port, {"messages": ["x" * 900_000], "model": "small"}, **keys)[:2] == (200, {"bytes": 900_036})
    assert [len(engine.heard) for engine in engines] == [0, 0, 1]
    assert engines[2].heard[0]["authorization"] == f"Bearer {ENGINES_KEY}"
    assert KEY not in str(engines[2].heard)


def test_what_is_nested_deeply_may_be_before_the_model_and_behind_it(site: tuple[int, list[Engine], Path]) -> None:
    deep = json.loads("[" * 99 + "]" * 99)
    assert ask(site[0], {"tools": deep, "model": "small", "more": deep})[0] == 200


def test_a_name_may_have_an_escaped_slash(tmp_path: Path) -> None:
    """PHP's json_encode writes one."""
    engine = Engine()
    with running(tmp_path, {"org/chat": [engine.server_port]}) as port:
        for name in (r"org\/chat", r"org\u002fchat", r"o\u0072g\/cha\u0074"):
            assert ask(port, f'{{"messages":["a\\/b"],"model":"{name}"}}')[0] == 200
        for name in (r"org\\/chat", r"org\\\/chat", r"org\\u002fchat"):
            assert ask(port, f'{{"model":"{name}"}}')[0] in (400, 404)
    assert len(engine.heard) == 3
    engine.end()


def test_a_client_that_does_not_begin_with_tls_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = haproxy._defaults()
    monkeypatch.setattr(haproxy, "_defaults", lambda: [line.replace("client 5m", "client 1s") for line in defaults])
    with running(tmp_path, {"small": [free_port()]}, certificate=certificate_with_key()) as port:
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01"):
            with socket.create_connection(("127.0.0.1", port), timeout=SAFETY_S) as link:
                link.sendall(sent)
                assert link.recv(100) == b""


def test_a_client_waits_for_its_answer_longer_than_it_may_be_silent_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = haproxy._defaults()
    monkeypatch.setattr(haproxy, "_defaults", lambda: [line.replace("client 5m", "client 1s") for line in defaults])
    engine = Engine()
    with running(tmp_path, {"small": [engine.server_port]}) as port:
        engine.free.clear()
        threading.Timer(2.5, engine.free.set).start()
        assert ask(port, {"model": "small"})[0] == 200
    engine.end()


def test_usage_is_counted_by_client_and_model(site: tuple[int, list[Engine], Path]) -> None:
    port, engines, folder = site

    def counted() -> dict[str, float]:
        samples = list(release_metrics.gateway(str(folder / "a.sock")))
        ours = {"client": "narrow", "model": "small"}
        return {name.removeprefix("rigup_gateway_"): value for name, labels, value in samples if labels == ours}

    assert counted() == {}
    for status, model in ((200, "small"), (200, "small"), (500, "small"), (200, "big"), (200, "nobody's")):
        engines[2].status = status
        ask(port, {"model": model}, NARROW)
    engines[2].status = 200
    deadline = time.monotonic() + SAFETY_S
    while (found := counted())["failed_requests_total"] != 1:  # HAProxy answers a client before it has counted that
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert found["requests_total"] == 3
    assert 300 < found["received_bytes_total"] < 1000 and 300 < found["sent_bytes_total"] < 1000
    assert release_metrics.GATEWAY == ADMIN_SOCKET
    assert release_metrics.CERTIFICATE == CERTIFICATE_FILE


def test_it_says_when_its_certificate_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_metrics, "CERTIFICATE", str(tmp_path / "certificate.pem"))
    with running(tmp_path, {"small": [free_port()]}, certificate=certificate_with_key()):
        samples = {name: value for name, _, value in release_metrics.gateway(str(tmp_path / "a.sock"))}
    now = time.time()
    assert now + 1.9 * 86_400 < samples["rigup_gateway_certificate_end_timestamp_seconds"] <= now + 2 * 86_400


def test_requests_spread_over_the_engines_of_a_model(site: tuple[int, list[Engine], Path]) -> None:
    port, engines, _ = site
    for engine in engines:
        engine.heard.clear()
    assert {ask(port, {"model": "big"})[0] for _ in range(6)} == {200}
    assert [len(engine.heard) for engine in engines] == [3, 3, 0]


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"body": {"model": "small"}, "key": None}, 401, "invalid_api_key"),
        ({"body": {"model": "small"}, "key": "wrong"}, 401, "invalid_api_key"),
        ({"body": {"model": "small"}, "key": KEY + "\x7f"}, 401, "invalid_api_key"),
        ({"body": {"model": "small"}, "key": None, "authorization": f"Basic {KEY}"}, 401, "invalid_api_key"),
        ({"body": {"model": "big"}, "key": NARROW}, 403, "model_not_allowed"),
        ({"body": {"model": 'no\n"body'}}, 404, "model_not_found"),
        ({"body": {"model": "x" * 5000}}, 404, "model_not_found"),
        ({"body": {"model": "small "}}, 404, "model_not_found"),
        ({"body": {"messages": []}}, 400, "model_required"),
        ({"body": {"model": ""}}, 400, "model_required"),
        ({"body": "not JSON"}, 400, "model_required"),
        ({"body": '"small"'}, 400, "model_required"),
        ({"body": '["model"]'}, 400, "model_ambiguous"),
        ({"body": {"model": "small"}, "path": "/v1/load_lora_adapter"}, 404, "not_found"),
        ({"body": {"model": "small"}, "path": "/v1/chat/../chat/completions"}, 404, "not_found"),
        ({"method": "GET"}, 404, "not_found"),
        ({"body": {"model": "away"}}, 503, "no_backend"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_error_is_openais_json(
    site: tuple[int, list[Engine], Path], asked: dict[str, Any], status: int, code: str
) -> None:
    found, content, headers = ask(site[0], **asked)
    assert (found, content["error"]["code"]) == (status, code)
    assert set(content["error"]) == {"message", "type", "param", "code"}
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        (f"Content-Length: {2**20 + 1}\r\n\r\n", b""),
        ("Transfer-Encoding: chunked\r\n\r\n", b"200000\r\n" + b" " * 2**21),
    ],
    ids=["length", "chunks"],
)
def test_a_body_that_is_too_large_is_not_read(site: tuple[int, list[Engine], Path], body: tuple[str, bytes]) -> None:
    with socket.create_connection(("127.0.0.1", site[0]), timeout=SAFETY_S) as link:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n{body[0]}"
        with suppress(ConnectionError):
            link.sendall(head.encode() + body[1])
        said = link.recv(65536)
    assert said.split(b" ")[1] == b"413"
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_too_large"


def test_an_unknown_model_is_answered_with_those_that_there_are(site: tuple[int, list[Engine], Path]) -> None:
    for key, models in ((KEY, "big, small, away"), (NARROW, "small")):
        message = ask(site[0], {"model": 'x"y'}, key)[1]["error"]["message"]
        assert message == f'The model `x"y` does not exist; models: {models}'


def test_each_client_has_the_list_of_its_models(site: tuple[int, list[Engine], Path]) -> None:
    lists = [ask(site[0], key=key, path="/v1/models", method="GET")[1] for key in (KEY, NARROW)]
    assert [[model["id"] for model in found["data"]] for found in lists] == [["big", "small", "away"], ["small"]]


def test_an_engine_that_is_away_is_tried_again_later(site: tuple[int, list[Engine], Path]) -> None:
    assert ask(site[0], {"model": "away"})[2]["retry-after"] == str(RETRY_SECONDS)


def test_a_client_has_so_many_requests_a_minute(site: tuple[int, list[Engine], Path]) -> None:
    port, _, _ = site
    seen = [ask(port, {"model": "small"}, LIMITED) for _ in range(6)]
    assert [status for status, _, _ in seen] == [200, 200, 200, 200, 429, 429]
    assert (seen[4][1]["error"]["code"], seen[4][2]["retry-after"]) == ("rate_limit_exceeded", str(RETRY_SECONDS))
    assert ask(port, {"model": "small"})[0] == 200


def test_a_client_has_so_many_requests_at_once(site: tuple[int, list[Engine], Path]) -> None:
    port, engines, _ = site
    engines[2].free.clear()
    first: list[int] = []
    slow = threading.Thread(target=lambda: first.append(ask(port, {"model": "small"}, LONELY)[0]))
    before = len(engines[2].heard)
    slow.start()
    while len(engines[2].heard) == before:
        time.sleep(0.01)
    status, content, headers = ask(port, {"model": "small"}, LONELY)
    engines[2].free.set()
    slow.join()
    assert (first, status, content["error"]["code"], headers["retry-after"]) == (
        [200],
        429,
        "concurrency_exceeded",
        "1",
    )


@pytest.mark.parametrize(
    "head",
    [
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nContent-Length: 60\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY[:8]}\0{KEY[8:]}\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n Authorization: Bearer {KEY}\r\n\r\n",
        "nonsense\r\n\r\n",
        "\x16\x03\x01\x02",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["lengths", "coding", "codings", "null", "folded", "nonsense", "TLS", "HTTP/2"],
)
def test_what_is_not_http_reaches_no_engine(site: tuple[int, list[Engine], Path], head: str) -> None:
    port, engines, _ = site
    before = [len(engine.heard) for engine in engines]
    smuggled = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n" + '{"model":"small"}'
    with socket.create_connection(("127.0.0.1", port), timeout=SAFETY_S) as link:
        link.sendall((head + smuggled).encode())
        said = link.recv(65536).split(b" ")[1:2]
    # HAProxy 3.0 says nothing to a null
    assert said in ([], [b"400"], [b"401"], [b"422"], [b"501"])
    assert [len(engine.heard) for engine in engines] == before


def test_length_and_chunks_together_are_read_as_chunks_alone(site: tuple[int, list[Engine], Path]) -> None:
    """RFC 9112, 6.3: and the connection ends, so that no two parties count differently."""
    port, engines, _ = site
    engines[2].heard.clear()
    body = b'{"model":"small"}'
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    head += "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=SAFETY_S) as link:
        link.sendall(head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        said = b""
        while part := link.recv(65536):
            said += part
    assert said.split(b" ")[1] == b"200"
    assert len(engines[2].heard) == 1


def test_the_log_has_client_and_model_and_no_key(site: tuple[int, list[Engine], Path]) -> None:
    port, _, folder = site
    ask(port, {"model": "small"})
    deadline = time.monotonic() + SAFETY_S
    lines: list[dict[str, Any]] = []
    while ("team", "small", 200) not in {(line["client"], line["model"], line["status"]) for line in lines}:
        assert time.monotonic() < deadline, lines
        lines = [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")]
    assert [key for key in (KEY, LIMITED, LONELY, NARROW, ENGINES_KEY) if key in (folder / "log").read_text()] == []


def tried(port: int, address: str, many: int, sent: str = "") -> list[socket.socket]:
    """Connections of one address on which this was asked. HAProxy has closed those that it did not let in."""
    links = []
    for _ in range(many):
        link = socket.socket()
        link.bind((address, 0))
        link.settimeout(SAFETY_S)
        links.append(link)
        with suppress(ConnectionError):
            link.connect(("127.0.0.1", port))
            link.sendall(sent.encode())
    return links


def is_answered(link: socket.socket) -> bool:
    try:
        return bool(link.recv(65536))
    except ConnectionError:
        return False


def close(links: list[socket.socket]) -> None:
    for link in links:
        link.close()


def question(key: str) -> str:
    body = '{"model":"small"}'
    return (
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )


def test_an_address_has_as_many_connections_as_it_may(tmp_path: Path) -> None:
    engine = Engine()
    with running(tmp_path, {"small": [engine.server_port]}, connections_per_address=10) as port:
        links = tried(port, "127.0.0.2", 12, question(KEY))
        assert sum(map(is_answered, links)) == 10
        close(links)
        assert ask(port, {"model": "small"})[0] == 200
    engine.end()


@pytest.mark.parametrize(
    "start",
    ["GET / HTTP/1.1\r\nX: ", "\r\n\r\nGET / HTTP/1.1\r\nX: ", "1 / HTTP/1.1\r\nX: ", "G\0", "\r\n\r\n" * 100],
    ids=["header", "empty lines", "odd method", "null", "lines"],
)
def test_a_head_without_an_end_is_cut(site: tuple[int, list[Engine], Path], start: str) -> None:
    with socket.create_connection(("127.0.0.1", site[0]), timeout=SAFETY_S) as link:
        link.sendall(start.encode())
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                link.sendall(b"x" * 8192)
                time.sleep(0.001)


@pytest.fixture(scope="module")
def open_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Of a gateway, those where nobody needs a key."""
    ports = {"metrics": free_port(), "challenges": free_port()}
    sections = acme.challenge_sections
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acme, "HTTP", ports["challenges"])
        with_acme = Gateway(tls=Certificate(acme=Acme(domains=(), directory="x")))
        patch.setattr(acme, "challenge_sections", lambda _, *more: sections(with_acme, *more))
        folder = tmp_path_factory.mktemp("open")
        with running(folder, {"small": [free_port()]}, metrics_port=ports["metrics"]):
            yield ports


@pytest.mark.parametrize(("name", "path"), [("metrics", "/metrics"), ("challenges", f"{acme.CHALLENGES}x")])
def test_a_port_without_keys_takes_a_short_head_and_one_request(
    open_ports: dict[str, int], name: str, path: str
) -> None:
    status, _, headers = ask(open_ports[name], path=path, method="GET")
    assert (status, headers["connection"]) == ({"metrics": 200, "challenges": 503}[name], "close")
    assert ask(open_ports[name], path="/", method="GET")[0] == 404
    with socket.create_connection(("127.0.0.1", open_ports[name]), timeout=SAFETY_S) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nX: ".encode())
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                link.sendall(b"x" * 8192)
                time.sleep(0.001)


def test_an_address_does_not_keep_the_acme_server_out(open_ports: dict[str, int]) -> None:
    port = open_ports["challenges"]
    links = tried(port, "127.0.0.9", 150)
    assert ask(port, path=f"{acme.CHALLENGES}x", method="GET")[0] == 503
    close(links)


@pytest.mark.parametrize(
    ("asked", "stays"),
    [
        ("GET /health HTTP/1.1\r\nHost: x\r\n\r\n", False),
        (f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n", False),
        (question("wrong"), False),
        ("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", False),
        (question(KEY), True),
        (question(KEY).replace('"small"', '"nosuch"').replace("Length: 17", "Length: 18"), True),
        (f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n", True),
    ],
    ids=["health", "health with a key", "wrong key", "list", "answer", "unknown model", "list with a key"],
)
def test_a_connection_is_kept_for_a_key(site: tuple[int, list[Engine], Path], asked: str, stays: bool) -> None:
    with socket.create_connection(("127.0.0.1", site[0]), timeout=SAFETY_S) as link:
        link.sendall(asked.encode())
        said = b""
        while b"HTTP/1." not in said[1:] and (part := link.recv(65536)):
            if stays and not said:
                link.sendall(question(KEY).encode())
            said += part
    assert (b"connection: close" in said) is not stays
    assert (b"HTTP/1." in said[1:]) is stays


def test_each_request_of_a_kept_connection_may_be_large(site: tuple[int, list[Engine], Path]) -> None:
    link = http.client.HTTPConnection("127.0.0.1", site[0], timeout=SAFETY_S)
    body = json.dumps({"messages": ["x" * 900_000], "model": "small"})
    for _ in range(20):
        link.request("POST", CHAT, body, {"Authorization": f"Bearer {KEY}"})
        reply = link.getresponse()
        assert (reply.status, json.loads(reply.read())) == (200, {"bytes": 900_036})
    link.close()


def test_metrics_answer_when_clients_have_all_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haproxy, "MOST_CLIENTS", 20)
    metrics = free_port()
    engine = Engine()
    with running(tmp_path, {"small": [engine.server_port]}, metrics_port=metrics) as port:
        links = [socket.create_connection(("127.0.0.1", port), timeout=SAFETY_S) for _ in range(40)]
        reply = http.client.HTTPConnection("127.0.0.1", metrics, timeout=SAFETY_S)
        reply.request("GET", "/metrics")
        assert reply.getresponse().status == 200
        reply.close()
        close(links)
    engine.end()


def test_a_request_waits_for_the_only_engine(tmp_path: Path) -> None:
    """It does not listen, then listens and says 503, then answers."""
    port = free_port()
    with running(tmp_path, {"small": [port]}, hold=int(SAFETY_S)) as gateway:
        seen: list[int] = []
        waiting = threading.Thread(target=lambda: seen.append(ask(gateway, {"model": "small"})[0]))
        waiting.start()
        time.sleep(1.2)
        engine = Engine(port, status=503)
        time.sleep(1.5)
        assert seen == []
        engine.status = 200
        waiting.join(SAFETY_S)
        engine.end()
        assert seen == [200]


def test_a_request_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    with running(tmp_path, {"small": [free_port()]}, hold=2) as gateway:
        status, content, headers = ask(gateway, {"model": "small"})
        assert (status, content["error"]["code"], headers["retry-after"]) == (503, "no_backend", str(RETRY_SECONDS))


def test_a_running_process_takes_over_its_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of it, and told to it, by the program on the host."""
    words = (sys.executable, "-I", str(program_file("gateway_admin.py")), str(tmp_path / "a.sock"))
    monkeypatch.setattr(admin, "WORDS", words)
    host: Any = LocalHost()
    engine = Engine()
    with running(tmp_path, {"small": [engine.server_port]}) as port:
        maps = {str(path): path.read_text() for path in sorted(tmp_path.glob("*.map"))}
        digest = digest_of((tmp_path / "haproxy.cfg").read_text())
        answers = admin.tell(host, *admin.state_commands(maps))
        assert admin.is_current(answers, digest, maps)
        assert ENGINES_KEY not in "".join(answers)

        clients = str(tmp_path / "clients.map")
        maps[clients] = "".join(line for line in maps[clients].splitlines(True) if '"team"' not in line)
        assert admin.outdated_maps(answers, maps) == (clients,)
        admin.replace_map(host, clients, maps[clients])
        assert admin.is_current(admin.tell(host, *admin.state_commands(maps)), digest, maps)
        assert [ask(port, {"model": "small"}, key)[0] for key in (KEY, NARROW)] == [401, 200]
        admin.replace_map(host, clients, "")
        assert ask(port, {"model": "small"}, NARROW)[0] == 401
    engine.end()
