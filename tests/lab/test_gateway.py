"""A gateway and two hosts behind it: from a bare machine to an answer, and what may happen to it afterwards."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.gateway.paths import (
    ACME_FILE,
    ACME_PORT,
    ACME_UNIT,
    ACME_UNIT_FILE,
    ACME_USER,
    ADMIN_SOCKET,
    CERTIFICATE_PROGRAM,
    FOLDER,
    SMG_FOLDER,
    SMG_UNIT,
    SMG_UNIT_FILE,
    UNIT,
)
from rigup.gateway_settings import MOST_CLIENTS
from rigup.layout import PROGRAMS
from rigup.lock import load_lock
from rigup.lockfile.lock import write_lock
from rigup.project.inventory import LOCK
from tests.certificates import certificate_with_key
from tests.gateways import SMG
from tests.lab.fleet import ANSWER, ROOTS, Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_site

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "gateways", "rollback", "locking", "builds from source"),
    pytest.mark.rests_on("src/rigup/operations/builds/wheels.py", "src/rigup/programs/release_metrics.py"),
]

MODEL = "smollm2-135m-instruct"
PORT = 8080
NAME = "llm.example.org"
STAND_IN = Path(__file__).parents[1] / "stand_in_acme.py"
KEYS = {"backends": "backend-key-0123456789", "team-a": "client-key-of-team-a", "team-b": "client-key-of-team-b"}
CLIENTS: dict[str, Any] = {
    "team-a": {"key_file": "secrets/team-a.key"},
    "team-b": {"key_file": "secrets/team-b.key", "requests_per_minute": 3},
}
RUNS = "InvocationID,MainPID,NRestarts"
# Asks on one connection, again and again, until a file says that it is enough; prints how many of how many failed.
ASKING = """
import http.client, json, os, time
failed = asked = 0
link = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30)
body = json.dumps({"messages": [{"role": "user", "content": "?"}], "model": "smollm2-135m-instruct"})
while not os.path.exists("/run/enough"):
    asked += 1
    try:
        link.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer client-key-of-team-a"})
        reply = link.getresponse()
        said = reply.read()
        if b"Paris" not in said or reply.status != 200:
            failed += 1
            print(reply.status, said[:500])
    except (OSError, http.client.HTTPException) as error:
        failed += 1
        print(repr(error))
    time.sleep(0.02)
print(json.dumps({"failed": failed, "asked": asked}))
"""
# Takes all connections of clients, from addresses that may have so many; each has had an answer, and stays.
FILLING = """
import socket, sys, time
ask = b"GET /v1/models HTTP/1.1\\r\\nHost: gateway\\r\\nAuthorization: Bearer client-key-of-team-a\\r\\n\\r\\n"
links = []
for number in range(int(sys.argv[1])):
    link = socket.create_connection(("127.0.0.1", 8080), source_address=(f"127.0.1.{number // 3000}", 0))
    link.sendall(ask)
    assert link.recv(65536).startswith(b"HTTP/1.1 200 ")
    links.append(link)
time.sleep(600)
"""


class GatewayFleet(Fleet):
    """Two hosts with engines, and a third that is their gateway."""

    @property
    def gateway(self) -> Host:
        """The machine that is the gateway."""
        return self.hosts[2]

    def describe_gateway(
        self, gateway: dict[str, Any] | None = None, context: int = 8192, port_of_services: int = 8000, **changes: Any
    ) -> None:
        """Writes the inventory. gateway: all it says; None for the usual with `changes`. The rest: its services'."""
        key = "secrets/backends.key"
        service = {"context": context, "listen": "0.0.0.0", "port": port_of_services, "api_key_file": key}
        self.describe(2, **service, served_name=MODEL)
        entries = [host.machine.inventory for host in self.hosts]
        text = f"boxes = {entries[:2]!r}\nedge = {entries[2:]!r}\n"
        (self.root / "inventories/rehearsal.py").write_text(text)
        wanted = {"listen": "0.0.0.0", "clients": CLIENTS, **changes} if gateway is None else gateway
        said = f"gateway = {wanted!r}\n" if wanted else 'rig = {"gpus": []}\nservices = {}\n'
        (self.root / "group_data/edge.py").write_text(said)
        (self.root / "secrets").mkdir(exist_ok=True)
        for name, key in KEYS.items():
            file = self.root / f"secrets/{name}.key"
            file.write_text(f"{key}\n")
            file.chmod(0o600)

    def ask(self, key: str = "team-a", path: str = "/v1/chat/completions", **body: Any) -> tuple[int, str]:
        """Status and text of a request from the gateway's own machine; a GET without a body."""
        data = f"-d {json.dumps(json.dumps(body))}" if body else ""
        words = f"curl -s -m 30 -w ' %{{http_code}}' -H 'Authorization: Bearer {KEYS.get(key, key)}' {data}"
        text, _, status = self.gateway.tell(f"{words} http://127.0.0.1:{PORT}{path}").rpartition(" ")
        return int(status), text

    def chats(self, key: str = "team-a") -> bool:
        """Whether a question is answered."""
        status, text = self.ask(key, messages=[], model=MODEL)
        return status == 200 and ANSWER in text

    def rows(self) -> list[dict[str, str]]:
        """The rows of HAProxy's statistics."""
        rows = self.gateway.tell(_admin("show stat")).splitlines()
        keys = rows[0].removeprefix("# ").split(",")
        return [dict(zip(keys, row.split(","), strict=False)) for row in rows[1:] if row]

    def backends(self) -> dict[str, str]:
        """The state of each backend, by its name at the gateway."""
        return {row["svname"]: row["status"] for row in self.rows() if row["svname"] not in ("FRONTEND", "BACKEND")}

    def changed(self, name: str) -> float:
        """When a backend came into its state, to a second, by the gateway's own clock: as time.monotonic() tells it."""
        now = time.monotonic()
        return now - next(int(row["lastchg"]) for row in self.rows() if row["svname"] == name)

    def check_of(self, server: str) -> str:
        """What the gateway's last check of a server found, by its full name."""
        found = (row for row in self.rows() if f"{row['pxname']}/{row['svname']}" == server)
        return next((row["check_status"] for row in found), "")


def _admin(command: str) -> str:
    program = "import json,sys; print(json.load(sys.stdin)[0])"
    words = f"echo '[\"{command}\"]' | python3 -I /opt/rigup/programs/gateway_admin.py {ADMIN_SOCKET}"
    return f"{words} | python3 -c '{program}'"


@pytest.fixture(scope="module")
def applied(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFleet]:
    with made_site(tmp_path_factory.mktemp("site"), "gateway", hosts=3) as site:
        fleet = GatewayFleet(*site)
        fleet.describe_gateway()
        run = fleet.apply(seconds=400)
        assert [host["state"] for host in run.json["hosts"]] == ["changed"] * 3
        wait_for(lambda: set(fleet.backends().values()) == {"UP"}, "both backends up")
        yield fleet
        fleet.end_runs()


@pytest.fixture
def fleet(applied: GatewayFleet) -> Iterator[GatewayFleet]:
    yield applied
    applied.gateway.tell("touch /run/enough")
    applied.describe_gateway()


def changes(fleet: GatewayFleet, *words: str) -> list[str]:
    """The steps that an apply made on the gateway."""
    hosts = fleet.apply("--limit", "edge", *words).json["hosts"]
    return [change["step"] for host in hosts for change in host["changes"]]


def asking(fleet: GatewayFleet, meanwhile: Callable[[], object]) -> dict[str, int]:
    """What a client on one connection has seen `meanwhile`."""
    fleet.gateway.tell("rm -f /run/enough")
    fleet.gateway.machine.ssh("cat > /run/asking.py", input=ASKING)
    fleet.gateway.tell(
        "systemd-run --quiet --unit=asking --property=StandardOutput=file:/run/asked python3 /run/asking.py"
    )
    meanwhile()
    fleet.gateway.tell("touch /run/enough; while systemctl is-active --quiet asking; do sleep 0.1; done")
    said = fleet.gateway.tell("cat /run/asked; rm -f /run/asked").splitlines()
    print(*said[:-1], sep="\n")
    found: dict[str, int] = json.loads(said[-1])
    return found


def test_a_question_goes_to_a_host_that_serves_the_model(fleet: GatewayFleet) -> None:
    assert fleet.chats()
    status, text = fleet.ask(path="/v1/models")
    assert (status, [model["id"] for model in json.loads(text)["data"]]) == (200, [MODEL])
    assert fleet.backends() == {f"{host.name}.chat": "UP" for host in fleet.hosts[:2]}


def test_what_it_answers_itself(fleet: GatewayFleet) -> None:
    seen = {
        "no key": fleet.ask("wrong", model=MODEL),
        "unknown model": fleet.ask(model="nobody's"),
        "no model": fleet.ask(messages=[]),
        "an engine's own endpoint": fleet.ask(path="/slots"),
    }
    assert {what: status for what, (status, _) in seen.items()} == {
        "no key": 401,
        "unknown model": 404,
        "no model": 400,
        "an engine's own endpoint": 404,
    }
    assert all(set(json.loads(text)["error"]) >= {"message", "type", "code"} for _, text in seen.values())
    assert MODEL in seen["unknown model"][1]


def test_a_client_has_so_many_requests_in_a_minute(fleet: GatewayFleet) -> None:
    statuses = [fleet.ask("team-b", messages=[], model=MODEL)[0] for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    assert fleet.chats("team-a")


def test_smg_chooses_while_hosts_change_and_nobody_else_reaches_it(fleet: GatewayFleet) -> None:
    """The real one, from the package index, chosen and given up again under load."""
    lock = fleet.root / LOCK
    before = lock.read_text()
    write_lock(lock, load_lock(lock).model_copy(update={"smg": SMG}))
    host = fleet.gateway
    try:
        fleet.describe_gateway(kind="cache_aware")
        seen = asking(fleet, lambda: fleet.apply("--limit", "edge", seconds=300))
        assert seen["failed"] == 0 < seen["asked"]
        smg = f"cached-{MODEL}/smg"
        wait_for(lambda: fleet.check_of(smg) == "L7OK", "smg ready")
        assert fleet.apply("--limit", "edge").json["hosts"][0]["state"] == "unchanged"
        ask = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8406/health"
        assert host.tell(ask) == "200"
        assert not host.says(f"runuser -u nobody -- {ask}")
        assert not host.says("runuser -u nobody -- curl -s -m 3 http://127.84.1.1:8406/health")
        verdict = host.tell(f"systemd-analyze security --no-pager {SMG_UNIT} | tail -n 1")
        assert float(verdict.split(":")[1].split()[0]) <= 2.0, verdict

        fleet.describe_gateway(kind="cache_aware", context=4096)
        seen = asking(fleet, lambda: fleet.apply("--rolling", "1", seconds=400))
        assert seen["failed"] == 0 < seen["asked"]
        assert fleet.rigup("status", "--json").json["gateways"][0]["prefix_routing_away"] == []
        seen = asking(fleet, lambda: host.tell(f"systemctl kill -s KILL {SMG_UNIT}; sleep 3"))
        assert seen["failed"] <= 1
    finally:
        fleet.describe_gateway()
        fleet.apply(seconds=400)
        lock.write_text(before)
    assert not host.says(f"systemctl is-active --quiet {SMG_UNIT} || ls {SMG_FOLDER} {SMG_UNIT_FILE}")


def test_it_runs_in_its_sandbox_and_keeps_its_keys(fleet: GatewayFleet) -> None:
    host = fleet.gateway
    fleet.chats()
    assert host.tell(f"ps -o user= --ppid $(systemctl show {UNIT} -P MainPID)") == "haproxy"
    verdict = host.tell(f"systemd-analyze security --no-pager {UNIT} | tail -n 1")
    assert float(verdict.split(":")[1].split()[0]) <= 2.0, verdict
    assert host.tell(f"stat -c '%a %U:%G' {ADMIN_SOCKET}") == "600 haproxy:haproxy"
    assert set(host.tell(f"stat -c '%a %U:%G' {FOLDER}/*").splitlines()) == {"640 root:haproxy"}
    assert not host.says("systemctl is-enabled --quiet haproxy || systemctl is-active --quiet haproxy")
    clients = f"grep -rqE '{KEYS['team-a']}|{KEYS['team-b']}' {FOLDER}"
    assert not host.says(clients)
    for key in KEYS.values():
        assert not host.says(f"journalctl -o cat -u {UNIT} | grep -qF {key}")
        assert not host.says(f"cat /proc/$(systemctl show {UNIT} -P MainPID)/cmdline | grep -qF {key}")
    assert host.says(f'journalctl -o cat -u {UNIT} | grep -qF \'"client":"team-a","model":"{MODEL}"\'')


def test_twice_is_once(fleet: GatewayFleet) -> None:
    listed = f"find {ROOTS} /etc/systemd/system/{UNIT} -printf '%p %i %T@ %C@ %m %U:%G\\n'"
    before = fleet.gateway.tell(listed), fleet.gateway.show(RUNS, UNIT)
    run = fleet.apply()
    assert [host["state"] for host in run.json["hosts"]] == ["unchanged"] * 3
    assert (fleet.gateway.tell(listed), fleet.gateway.show(RUNS, UNIT)) == before
    assert fleet.rigup("diff", "--json").json["hosts"][2]["changes"] == []


def test_a_revoked_key_ends_with_the_apply_and_no_process_does(fleet: GatewayFleet) -> None:
    workers = f"pgrep --parent $(systemctl show {UNIT} -P MainPID)"
    before = fleet.gateway.show(RUNS, UNIT), fleet.gateway.tell(workers)
    fleet.describe_gateway(clients={"team-a": CLIENTS["team-a"]})
    assert changes(fleet) == [f"gateway for {MODEL}"]
    assert (fleet.ask("team-b", model=MODEL)[0], fleet.chats("team-a")) == (401, True)
    assert (fleet.gateway.show(RUNS, UNIT), fleet.gateway.tell(workers)) == before
    fleet.describe_gateway()
    changes(fleet)


def test_a_changed_configuration_ends_no_connection(fleet: GatewayFleet) -> None:
    before = fleet.gateway.show(RUNS, UNIT)
    fleet.describe_gateway(weights={"boxes": 7}, hold=20)
    seen = asking(fleet, lambda: changes(fleet))
    assert (seen["failed"], seen["asked"] > 20, fleet.gateway.show(RUNS, UNIT)) == (0, True, before)
    fleet.describe_gateway()
    assert changes(fleet) == [f"gateway for {MODEL}"]


def test_a_limit_of_memory_costs_no_restart(fleet: GatewayFleet) -> None:
    host, limit = fleet.gateway, f"systemctl show {UNIT} -P MemoryMax"
    # as rigup wrote the unit before it had one
    host.tell(f"sed -i /^MemoryMax=/d /etc/systemd/system/{UNIT}; systemctl daemon-reload")
    assert host.tell(limit) == "infinity"
    before = host.show(RUNS, UNIT)
    assert changes(fleet) == [f"gateway for {MODEL}"]
    assert host.show(RUNS, UNIT) == before
    assert int(host.tell(limit)) > 0


def test_status_says_that_idle_clients_fill_it(fleet: GatewayFleet) -> None:
    host = fleet.gateway
    host.machine.ssh("cat > /run/filling.py", input=FILLING, check=True)
    host.tell(
        f"systemd-run --quiet --collect --unit=filling -p LimitNOFILE=10000 python3 /run/filling.py {MOST_CLIENTS}"
    )
    try:
        wait_for(lambda: any(row["scur"] == str(MOST_CLIENTS) for row in fleet.rows()), "every connection is taken")
        said = fleet.rigup("status", "--limit", "edge", expect=1).text
    finally:
        host.tell("systemctl stop filling")
    assert f"http://127.0.0.1:{PORT}/health: no answer within 5 s" in said
    assert f"ss -Htn sport = :{PORT}" in said
    wait_for(fleet.chats, "an answer")
    fleet.rigup("status", "--limit", "edge")


def test_a_host_that_dies_costs_nobody_an_answer(fleet: GatewayFleet) -> None:
    host = fleet.hosts[0]

    def die() -> None:
        host.tell("systemctl kill --signal=KILL rigup-chat; systemctl stop rigup-chat")
        died = time.monotonic()
        wait_for(lambda: fleet.backends()[f"{host.name}.chat"].startswith("DOWN"), "the dead backend is out")
        assert fleet.changed(f"{host.name}.chat") - died < 2
        host.tell("systemctl start rigup-chat")
        wait_for(lambda: fleet.backends()[f"{host.name}.chat"] == "UP", "the backend is back")

    seen = asking(fleet, die)
    assert (seen["failed"], seen["asked"] > 20) == (0, True)


def test_a_rolling_change_costs_nobody_an_answer(fleet: GatewayFleet) -> None:
    fleet.describe_gateway(context=4096)
    seen = asking(fleet, lambda: fleet.apply("--rolling", "1", seconds=300))
    assert (seen["failed"], seen["asked"] > 50) == (0, True)
    assert set(fleet.backends().values()) == {"UP"}
    commands = [host.tell("systemctl show rigup-chat -P ExecStart") for host in fleet.hosts[:2]]
    assert ["--ctx-size 4096" in command for command in commands] == [True, True]


def test_a_rollback_costs_nobody_an_answer(fleet: GatewayFleet) -> None:
    seen = asking(fleet, lambda: fleet.rigup("rollback", "--yes", seconds=300))
    assert (seen["failed"], seen["asked"] > 50) == (0, True)
    assert set(fleet.backends().values()) == {"UP"}
    # one host alone finds the gateway, which --limit leaves out
    first = fleet.hosts[0]
    seen = asking(fleet, lambda: fleet.rigup("rollback", "--yes", "--to", "2", "--limit", first.name, seconds=300))
    assert (seen["failed"], seen["asked"] > 20) == (0, True)
    fleet.describe_gateway(context=4096)
    fleet.apply(seconds=300)


def test_a_stop_that_was_asked_for_drains_first(fleet: GatewayFleet) -> None:
    host = fleet.hosts[0]
    name = f"{host.name}.chat"
    said = {"messages": [], "model": MODEL, "stream": True, "max_tokens": 300}
    body = json.dumps(json.dumps(said, separators=(",", ":")))
    ask = f"curl -sN -m 90 -H 'Authorization: Bearer {KEYS['team-a']}' -d {body}"
    for number in (1, 2):  # one for each backend
        unit = f"--unit=long{number} --property=StandardOutput=file:/run/long{number}"
        fleet.gateway.tell(f"systemd-run --quiet {unit} {ask} http://127.0.0.1:{PORT}/v1/chat/completions")
    wait_for(lambda: fleet.gateway.says("grep -q word2 /run/long1 && grep -q word2 /run/long2"), "both are answered")

    def stop() -> None:
        stopping = fleet.start("stop", "chat", "--limit", host.name)
        wait_for(lambda: fleet.backends()[name] == "DRAIN", "the gateway sends it no more requests")
        assert host.says("systemctl is-active --quiet rigup-chat")
        assert stopping.wait() == 0, stopping.text
        assert fleet.backends()[name].startswith("DOWN")

    seen = asking(fleet, stop)
    assert (seen["failed"], seen["asked"] > 20) == (0, True)
    assert [fleet.gateway.tell(f"grep -c word299 /run/long{number}") for number in (1, 2)] == ["1", "1"]
    fleet.rigup("start", "chat", "--limit", host.name)
    wait_for(lambda: fleet.backends()[name] == "UP", "it gets requests again")

    seen = asking(fleet, lambda: fleet.rigup("uninstall", host.name, "--yes"))
    assert seen["failed"] == 0
    (record,) = fleet.rigup("log", host.name, "--here", "--last", "1", "--json").json["applies"]
    assert (record["verb"], record["result"]) == ("uninstall", "changed")
    fleet.describe_gateway(context=4096)
    fleet.apply(seconds=400)


def test_a_rollout_leaves_no_model_without_a_host(fleet: GatewayFleet) -> None:
    first, second = fleet.hosts[:2]
    second.tell("systemctl stop rigup-chat")
    wait_for(lambda: fleet.backends()[f"{second.name}.chat"].startswith("DOWN"), "the second is out")
    fleet.describe_gateway(context=2048)
    run = fleet.apply("--rolling", "1", expect=1)
    errors = {host["host"]: host["errors"] for host in run.json["hosts"] if host["errors"]}
    assert list(errors) == [first.name]
    assert re.match(rf"{first.name}: {fleet.gateway.name} .* {MODEL}", errors[first.name][0]["message"])
    assert fleet.chats()
    left_out = fleet.rigup("apply", "--yes", "--rolling", "1", "--limit", "boxes", expect=2)
    assert "leaves out" in left_out.text
    fleet.describe_gateway(context=4096)
    fleet.apply()


def test_an_edit_by_hand_is_mended(fleet: GatewayFleet) -> None:
    fleet.gateway.tell(f"sed -i 's/balance leastconn/balance first/' {FOLDER}/haproxy.cfg; systemctl reload {UNIT}")
    assert [c["step"] for c in fleet.rigup("diff", "--json", expect=1).json["hosts"][2]["changes"]]
    assert changes(fleet) == [f"gateway for {MODEL}"]
    assert not fleet.gateway.says(f"grep -q 'balance first' {FOLDER}/haproxy.cfg")
    assert "first" not in {row["algo"] for row in fleet.rows()}, "the process still has the edit"
    name = next(iter(fleet.backends()))
    fleet.gateway.tell(_admin(f"set server model-{MODEL}/{name} state drain"))
    assert fleet.backends()[name] == "DRAIN"
    assert changes(fleet) == [f"gateway for {MODEL}"]
    assert fleet.backends()[name] == "UP"
    fleet.gateway.tell(f"systemctl stop {UNIT}")
    assert changes(fleet) == [f"gateway for {MODEL}"]
    assert fleet.chats()


def test_a_new_port_is_not_rolled_out(fleet: GatewayFleet) -> None:
    fleet.describe_gateway(port_of_services=8001)
    run = fleet.rigup("apply", "--yes", "--rolling", "1", expect=2)
    assert re.search(r"\b8000 .*\b8001\b", run.text)
    assert fleet.chats()


def test_tls_with_a_certificate_of_the_users(fleet: GatewayFleet) -> None:
    for name in ("gateway.one", "gateway.two"):
        certificate, key = certificate_with_key(name).split("-----BEGIN PRIVATE KEY-----")
        (fleet.root / "secrets/gateway.crt").write_text(certificate)
        (fleet.root / "secrets/gateway.key").write_text(f"-----BEGIN PRIVATE KEY-----{key}")
        (fleet.root / "secrets/gateway.key").chmod(0o600)
        fleet.describe_gateway(tls={"certificate_file": "secrets/gateway.crt", "key_file": "secrets/gateway.key"})
        before = fleet.gateway.show(RUNS, UNIT)
        changes(fleet)
        assert fleet.gateway.show(RUNS, UNIT) == before, "it is reloaded"
        fleet.gateway.machine.ssh("cat > /run/ca.pem", input=certificate, check=True)
        ask = f"curl -s --cacert /run/ca.pem --resolve {name}:{PORT}:127.0.0.1 https://{name}:{PORT}/health"
        assert fleet.gateway.tell(ask) == "ok"
        assert not fleet.gateway.says(f"curl -sf http://127.0.0.1:{PORT}/health")
        assert changes(fleet) == []
    (seen,) = fleet.rigup("status", "--json", "--limit", "edge").json["gateways"]
    assert 1 < seen["certificate_days"] <= 2
    assert {one["state"] for one in seen["backends"]} == {"up"}
    assert re.search(r"certificate .* 2 days", fleet.rigup("status", "--limit", "edge").text)
    fleet.describe_gateway()
    changes(fleet)


def test_tls_with_a_certificate_by_acme(fleet: GatewayFleet) -> None:
    """The distribution's certbot, and a stand-in for the ACME server that really asks port 80 of the gateway."""
    host = fleet.gateway
    host.tell("DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3-cryptography")
    host.machine.ssh("cat > /run/stand_in_acme.py", input=STAND_IN.read_text(), check=True)
    host.tell("mkdir -p /run/acme")
    acme = {"domains": [NAME], "email": "admin@example.org", "directory": "https://127.0.0.1:14000/directory"}
    tls = {"port": PORT, "tls": {"acme": acme}}
    before = host.show(RUNS, UNIT), host.tell(f"sha256sum {FOLDER}/*")
    fleet.describe_gateway(**tls)
    failed = fleet.apply("--limit", "edge", expect=1, seconds=300)
    assert any(f" {acme['directory']} " in error["message"] for error in failed.json["hosts"][0]["errors"])
    assert (host.show(RUNS, UNIT), host.tell(f"sha256sum {FOLDER}/*")) == before
    assert fleet.chats()

    program = "python3 /run/stand_in_acme.py 14000 127.0.0.1 80 /run/acme"
    host.tell(f"systemd-run --quiet --unit=stand-in-acme {program}")
    wait_for(lambda: host.says("test -s /run/acme/ca.pem"), "the stand-in's certificate")
    host.tell("cp /run/acme/ca.pem /usr/local/share/ca-certificates/stand-in.crt; update-ca-certificates")
    assert "certificate" in str(changes(fleet))
    ask = f"curl -s --cacert /run/acme/ca.pem --resolve {NAME}:{PORT}:127.0.0.1 https://{NAME}:{PORT}/health"
    assert host.tell(ask) == "ok"
    assert host.tell(f"stat -c '%a %U:%G' {ACME_FILE}") == "640 root:haproxy"
    assert changes(fleet) == []

    # as a rigup before wrote both files, with certbot at a port of every user's
    written = f"{ACME_UNIT_FILE} {FOLDER}/haproxy.cfg"
    host.tell(f"sed -Ei 's/([ :]){ACME_PORT}( certonly|$)/\\18404\\2/' {written}; systemctl daemon-reload")
    assert host.tell(f"systemctl reload {UNIT}; grep -ohw 8404 {written}").split() == ["8404"] * 2
    assert "certificate" in str(changes(fleet))
    assert not host.says(f"grep -w 8404 {written}")

    first = host.tell(f"openssl x509 -in {ACME_FILE} -noout -serial")
    runs = host.show(RUNS, UNIT)
    host.tell(f"systemctl start {ACME_UNIT}")  # it lasts for a day, so that it is renewed each time
    assert host.tell(f"openssl x509 -in {ACME_FILE} -noout -serial") != first
    assert host.show(RUNS, UNIT) == runs, "it is reloaded"
    served = f"openssl s_client -connect 127.0.0.1:{PORT} -servername {NAME} </dev/null 2>/dev/null"
    now = host.tell(f"openssl x509 -in {ACME_FILE} -noout -serial")
    wait_for(lambda: host.tell(f"{served} | openssl x509 -noout -serial") == now, "the renewed certificate")
    assert changes(fleet) == []
    (seen,) = fleet.rigup("status", "--json", "--limit", "edge").json["gateways"]
    assert 0 < seen["certificate_days"] <= 1
    # nobody else answers the ACME server while certbot does not run
    listen = f"import socket; socket.create_server(('127.0.0.1', {ACME_PORT}))"
    assert not host.says(f'runuser -u nobody -- python3 -c "{listen}"') and host.says(f'python3 -c "{listen}"')
    # certbot's user may put anything in the place of what root copies
    mine = host.tell(f"sha256sum {ACME_FILE}")
    (kept,) = host.tell("ls /var/lib/rigup/acme/config/live/*/fullchain.pem").split()
    host.tell(f"mv {kept} {kept}.kept")
    deploy = f"python3 -I {PROGRAMS}/{CERTIFICATE_PROGRAM} deploy {Path(kept).parent.name}"
    deploy = f"systemd-run --quiet --pipe --wait -p MemoryMax=64M {deploy}"
    none = "no certificate"
    for makes, says in (("ln -s /dev/zero", "larger than"), ("mkfifo", none), ("ln -s /etc/shadow", none)):
        host.tell(f"runuser -u {ACME_USER} -- {makes} {kept}")
        assert says in host.tell(f"{deploy} 2>&1 || true")
        host.tell(f"rm {kept}")
    host.tell(f"mv {kept}.kept {kept}")
    assert host.tell(f"sha256sum {ACME_FILE}") == mine
    verdict = host.tell(f"systemd-analyze security --no-pager {ACME_UNIT} | tail -n 1")
    assert float(verdict.split(":")[1].split()[0]) <= 2.5, verdict

    fleet.describe_gateway()
    changes(fleet)
    assert fleet.chats() and not host.says(f"ls {ACME_UNIT_FILE} {ACME_FILE} /var/lib/rigup/acme")
    host.tell("systemctl stop stand-in-acme; rm /usr/local/share/ca-certificates/stand-in.crt; update-ca-certificates")


def test_a_configuration_that_cannot_run_is_taken_back(fleet: GatewayFleet) -> None:
    fleet.gateway.tell("systemd-run --quiet --unit=stranger python3 -m http.server 8099")
    wait_for(lambda: fleet.gateway.says("ss -Hltn sport = :8099 | grep -q 8099"), "the stranger listens")
    files = fleet.gateway.tell(f"sha256sum {FOLDER}/*")
    fleet.describe_gateway(port=8099)
    run = fleet.apply("--limit", "edge", expect=1)
    (error,) = run.json["hosts"][0]["errors"]
    assert "restored" in error["message"], error
    assert fleet.chats()
    assert fleet.gateway.tell(f"sha256sum {FOLDER}/*") == files
    fleet.gateway.tell("systemctl stop stranger")
    fleet.describe_gateway()
    assert fleet.apply("--limit", "edge").json["hosts"][0]["state"] == "unchanged"


def test_a_gateway_that_is_no_longer_wanted_is_removed(fleet: GatewayFleet) -> None:
    fleet.describe_gateway(gateway={})
    assert changes(fleet) == ["no gateway"]
    assert not fleet.gateway.says(f"systemctl cat {UNIT} || ls -d {FOLDER} || ss -Hltn sport = :{PORT} | grep {PORT}")
    assert fleet.apply("--limit", "edge").json["hosts"][0]["state"] == "unchanged"
