"""Debian's Prometheus scrapes a host that rigup fitted out, by the configuration that rigup wrote, and answers Grafana.

The exporter of the host is Debian's, its llama.cpp the pinned one; vLLM, SGLang and NVIDIA's exporter are recorded text
(tests/stand_in_metrics). Every query of the dashboard is asked. The tests go on from one another, in this order.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.monitoring.alerts import ALERTS
from rigup.monitoring.dashboard_panels import ROWS
from rigup.monitoring.exporters import NODE_FILES, NODE_UNIT, TEXT_FILE, TIMER
from tests import tiny_minimax_m2_gguf as tiny
from tests.lab.fleet import Fleet, wait_for
from tests.lab.fleet_fixtures import made_fleet
from tests.lab.wheels import sha256

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("llama.cpp's package", "monitoring")]

METRICS = Path(__file__).parents[2] / "stand_in_metrics"
STAND_INS = {8001: "vllm.txt", 8002: "sglang.txt", 8405: "haproxy.txt", 9400: "dcgm.txt"}
SECONDS = 2400
KEY = "a-key-that-only-the-service-and-prometheus-know"
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
CARDS = "4x RTX PRO 6000 Blackwell Workstation Edition"
EXPORTER = "http://127.0.0.1:9100/metrics"
GRAFANA = {"$group": ".*", "$host": ".*", "$service": ".*", "$__rate_interval": "20s"}
ASK = r"""
import json, sys, urllib.parse, urllib.request
for line in sys.stdin:
    address = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": line.strip()})
    try:
        said = urllib.request.urlopen(address, timeout=20).read()
    except urllib.error.HTTPError as error:
        said = error.read()
    print(json.dumps(json.loads(said)))
"""


class Site:
    """The fleet, and the second machine, on which Prometheus and the stand-ins run."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.watcher = fleet, fleet.hosts[1]

    @property
    def address(self) -> str:
        """Of the first machine, where the second one reaches it."""
        return self.fleet.host.machine.inner_address

    def describe(self, monitoring: dict[str, Any] | None) -> None:
        """One host that is really there, and two whose engines and cards the second machine stands for."""
        host, there = self.fleet.host.machine.inventory, self.watcher.machine.inner_address
        stand_ins = [("vllm-box", {"ssh_hostname": there}), ("sglang-box", {"ssh_hostname": there})]
        said = f"monitoring = {monitoring!r}\n" if monitoring is not None else ""
        service = {
            "model": tiny.MODEL,
            "context": 2048,
            "quick_build": True,
            "listen": self.address,
            "api_key_file": "secrets/chat.key",
        }
        service["expected_answer"] = None  # its weights are random
        cards = {"listen": "0.0.0.0", "api_key_file": "secrets/chat.key", "model": "MiniMax-M2.5"}
        files = {
            "inventories/rehearsal.py": f"boxes = {[host]!r}\ncards = {stand_ins[:1]!r}\nothers = {stand_ins[1:]!r}\n",
            "group_data/boxes.py": f'rig = {{"gpus": []}}\nservices = {{"chat": {service!r}}}\n'
            f"hub = {self.fleet.hub.url!r}\nbuilder = {self.fleet.builder!r}\n{said}",
            "group_data/cards.py": f'rig = {{"gpus": "{CARDS}"}}\n'
            f"services = {{'large': { ({**cards, 'engine': 'vllm', 'port': 8001})!r}}}\n"
            "monitoring = {'node_exporter': False, 'dcgm_exporter': True, 'listen': '0.0.0.0'}\n",
            "group_data/others.py": f'rig = {{"gpus": "{CARDS}"}}\n'
            f"services = {{'other': { ({**cards, 'engine': 'sglang', 'port': 8002})!r}}}\n"
            "gateway = {'services': ['others'], 'metrics_listen': '0.0.0.0'}\n",
            "secrets/chat.key": KEY,
        }
        for name, text in files.items():
            path = self.fleet.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        (self.fleet.root / "secrets/chat.key").chmod(0o600)

    def send(self, path: Path, to: str) -> None:
        """Puts a file onto the second machine."""
        self.watcher.tell(f"mkdir -p $(dirname {to})")
        folder = self.watcher.machine.lab.path
        words = ["scp", "-q", "-F", f"{folder}/ssh_config", str(path), f"{self.watcher.name}:{to}"]
        subprocess.run(words, check=True, timeout=60)

    def query(self, expressions: list[str]) -> list[dict[str, Any]]:
        """What Prometheus' API answers to each, where Prometheus runs."""
        listed = self.fleet.root / "expressions"
        listed.write_text("".join(f"{expression}\n" for expression in expressions))
        program = self.fleet.root / "ask.py"
        program.write_text(ASK)
        self.send(listed, "/root/expressions")
        self.send(program, "/root/ask.py")
        return [json.loads(line) for line in self.watcher.tell("python3 ask.py < expressions").splitlines()]


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two bare machines, a hub with the tiny checkpoint, and a fleet whose lock pins it and the toolkit's llama.cpp."""
    root, served = (tmp_path_factory.mktemp(name) for name in ("fleet", "served"))
    tiny.provide(root, served, TEMPLATE)
    with made_fleet(Fleet, "prom", root, served, hosts=2) as fleet:
        yield Site(fleet)


def steps(site: Site, verb: str, expect: int = 0) -> list[str]:
    """What a verb changes, or would change, for the exporters of the first machine."""
    words = ("--yes",) if verb == "apply" else ()
    run = site.fleet.rigup(verb, "--json", "--limit", "boxes", *words, expect=expect, seconds=SECONDS)
    (host,) = run.json["hosts"]
    return [change["step"] for change in host["changes"] if change["role"] == "monitoring"]


def test_the_exporter_listens_on_loopback_from_its_first_second_and_twice_is_once(site: Site) -> None:
    site.describe({})
    assert steps(site, "apply") == [
        "exporters listen at 127.0.0.1 port 9100",
        "Debian packages prometheus-node-exporter",
        f"run {TIMER} and {NODE_UNIT}",
    ]
    host = site.fleet.host
    assert host.tell("ss -Hltn sport = :9100 | tr -s ' ' | cut -d' ' -f4") == "127.0.0.1:9100"
    logged = host.tell(f"journalctl -o cat -u {NODE_UNIT} | grep -o 'address=.*' | sort -u")
    assert [line for line in logged.splitlines() if "9100" in line] == ["address=127.0.0.1:9100"]
    assert host.tell(f"ps -o user= -p $(systemctl show {NODE_UNIT} -P MainPID)") == "prometheus"
    assert steps(site, "diff") == [] == steps(site, "apply")


def test_a_change_that_was_cut_short_before_the_restart_is_seen(site: Site) -> None:
    host, (file, *_) = site.fleet.host, NODE_FILES
    other = f"sed -i s/9100/9199/ {file}; systemctl daemon-reload; systemctl restart {NODE_UNIT}"
    host.tell(f"{other}; sed -i s/9199/9100/ {file}")
    assert steps(site, "apply") == [f"run {TIMER} and {NODE_UNIT}"]
    assert host.says("ss -Hltn sport = :9100 | grep -q 127.0.0.1:9100")
    assert steps(site, "diff") == []


def test_it_tells_which_release_runs_from_which_lock(site: Site) -> None:
    host = site.fleet.host
    assert steps(site, "apply") == []
    ended = f"curl -s {EXPORTER} | grep -q '^rigup_apply_info.*result=\"unchanged\"'"
    wait_for(lambda: host.says(ended), "the record of the last apply", 60)
    said = host.tell(f"curl -s {EXPORTER} | grep ^rigup_")
    release = re.search(r"^rigup_release_info\{(.*)\} 1$", said, re.MULTILINE)
    assert release and release[1].startswith('build="llama.cpp-b11434-')
    assert 'quant="F32",release="1",repo="example/Tiny-MiniMax-M2-GGUF"' in release[1] and 'service="chat"' in said
    assert f'lock="{sha256(site.fleet.root / "rigup.lock")[:16]}"' in said
    assert 'rigup_service_active{service="chat"} 1' in said and 'rigup_release_answered{service="chat"} 1' in said
    now = f"systemctl start {TIMER.removesuffix('.timer')}.service; grep rigup_service_active{{ {TEXT_FILE}"
    assert host.tell(f"systemctl stop rigup-chat; {now}; systemctl start rigup-chat").endswith("} 0")
    assert KEY not in said


def test_prometheus_takes_the_configuration_and_reaches_every_target(site: Site) -> None:
    site.describe({"listen": site.address})
    assert steps(site, "apply") == [f"exporters listen at {site.address} port 9100", f"run {TIMER} and {NODE_UNIT}"]
    run = site.fleet.rigup("metrics", "--out", "out", "--interval", "1")
    key_file = f"keys/{site.fleet.host.name}.chat.key"
    assert f"put it into out/{key_file}" in run.text and KEY not in run.text
    assert all(KEY not in (site.fleet.root / "out" / name).read_text() for name in ("prometheus.yml", "alerts.yml"))
    site.watcher.tell(
        "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus"
    )
    for name in ("prometheus.yml", "alerts.yml"):
        site.send(site.fleet.root / "out" / name, f"/etc/prometheus/{name}")
    site.send(site.fleet.root / "secrets/chat.key", f"/etc/prometheus/{key_file}")
    site.watcher.tell(f"chown -R prometheus: /etc/prometheus/keys; chmod 600 /etc/prometheus/{key_file}")
    site.watcher.tell("promtool check config /etc/prometheus/prometheus.yml")
    for name in ("serve.py", *STAND_INS.values()):
        site.send(METRICS / name, f"/root/{name}")
    words = " ".join(f"{port}=/root/{name}" for port, name in STAND_INS.items())
    site.watcher.tell(f"systemd-run --quiet --unit=stand-ins python3 /root/serve.py {words}")
    site.watcher.tell("systemctl restart prometheus")
    wait_for(lambda: site.watcher.says("curl -sf http://127.0.0.1:9090/-/ready"), "Prometheus", 60)
    # the package has scraped itself before it got this configuration
    up, all_up = 'up{group!=""}', 'count(up{group!=""} == 1) == 6'
    wait_for(lambda: site.query([all_up])[0]["data"]["result"], "every target", 30)
    (found_up,) = site.query([up])
    labels = [series["metric"] for series in found_up["data"]["result"]]
    found = sorted((said["job"], said["host"], said.get("service", ""), said.get("engine", "")) for said in labels)
    assert found == sorted(
        [
            ("llamacpp", site.fleet.host.name, "chat", "llama.cpp"),
            ("node", site.fleet.host.name, "", ""),
            ("vllm", "vllm-box", "large", "vllm"),
            ("sglang", "sglang-box", "other", "sglang"),
            ("dcgm", "vllm-box", "", ""),
            ("gateway", "sglang-box", "", ""),
        ]
    )


def test_every_query_of_the_dashboard_returns_data(site: Site) -> None:
    chat = (
        f"curl -sf -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' "
        '-d \'{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 32}\' '
        f"http://{site.address}:8000/v1/chat/completions"
    )
    queries = {}
    for panel in (panel for row in ROWS for panel in row.panels):
        for query in panel.queries:
            text = query.expression
            for name, value in GRAFANA.items():
                text = text.replace(name, value)
            queries[text] = panel.title
    without: list[tuple[str, str]] = []

    # the exporter leaves the file systems out that a lab machine has, and those below /mnt
    site.fleet.host.tell("mkdir /srv/disk && mount -t tmpfs -o size=64m stands-for-a-disk /srv/disk")

    def answered() -> bool:
        site.fleet.host.tell(chat)
        said = dict(zip(queries, site.query(list(queries)), strict=True))
        assert {text: answer for text, answer in said.items() if answer["status"] != "success"} == {}
        without[:] = [(queries[text], text) for text, answer in said.items() if not answer["data"]["result"]]
        return not without

    assert len(queries) > 60
    try:
        wait_for(answered, "data for every query", 60)
    except BaseException:
        print("without data:", *without, sep="\n")
        raise


def test_every_alert_can_be_computed(site: Site) -> None:
    said = json.loads(site.watcher.tell("curl -s http://127.0.0.1:9090/api/v1/rules"))
    rules = [rule for group in said["data"]["groups"] for rule in group["rules"]]
    assert len(rules) == len(ALERTS)
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    site.fleet.host.tell("systemctl stop rigup-chat")
    firing = ['ALERTS{alertname="RigupServiceNotActive", service="chat"}']
    wait_for(lambda: site.query(firing)[0]["data"]["result"], "the alert of a stopped service", 60)
    site.fleet.host.tell("systemctl start rigup-chat")


def test_without_the_key_diff_tells_and_apply_takes_the_exporter_away(site: Site) -> None:
    site.describe(None)
    (step,) = steps(site, "diff", expect=1)
    assert step.startswith("exporters ")
    assert steps(site, "apply") == [step]
    host = site.fleet.host
    for unit in (NODE_UNIT, TIMER):
        assert not host.says(f"systemctl is-active {unit}") and not host.says(f"systemctl is-enabled {unit}")
    assert not host.says(f"ls {' '.join(NODE_FILES)} {TEXT_FILE} 2>/dev/null | grep .")
    assert host.tell("ss -Hltn sport = :9100") == ""
    assert steps(site, "diff") == [] == steps(site, "apply")
