"""Troubles of a host that have nothing to do with rigup, and what is said of them: the cause, and what helps."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.fleet import WEIGHTS, Fleet, Run

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "drift and status", "weights")]

PACKAGE = "opaque-daemon"
CONTROL = f"Package: {PACKAGE}\\nVersion: 1\\nArchitecture: all\\nMaintainer: Opaque\\nDescription: of somebody\\n"
# Exporters come from Debian, so an apply has something to install.
EXPORTER = "monitoring = {'node_exporter': True}\n"


@pytest.fixture
def serving(fleet: Fleet) -> Iterator[Fleet]:
    """A fleet of one host whose service answers."""
    fleet.host.tell("rm -rf /run/rigup-test")
    fleet.apply()
    assert fleet.host.answers()
    yield fleet
    fleet.host.tell("rm -rf /run/rigup-test")


def said(run: Run) -> tuple[str, str]:
    """Message and hint of the one error of a run."""
    (error,) = run.json["hosts"][0]["errors"]
    return error["message"], error["hint"] or ""


def add(fleet: Fleet, line: str) -> None:
    """Adds a line to group_data."""
    file = fleet.root / "group_data/boxes.py"
    file.write_text(file.read_text() + line)


@contextmanager
def half_configured(fleet: Fleet, script: str) -> Iterator[None]:
    """Within it, a package of somebody else's is left half configured by its script."""
    made = shlex.quote(f"#!/bin/sh\n{script}\n")
    fleet.host.tell(
        f"rm -rf /tmp/p && mkdir -p /tmp/p/DEBIAN && printf '{CONTROL}' >/tmp/p/DEBIAN/control && "
        f"printf %s {made} >/tmp/p/DEBIAN/postinst && chmod 755 /tmp/p/DEBIAN/postinst && "
        "dpkg-deb --build /tmp/p /tmp/p.deb && ! dpkg -i /tmp/p.deb"
    )
    try:
        yield
    finally:
        fleet.host.tell(f"dpkg --purge --force-all {PACKAGE}")


def test_a_package_of_anybody_that_dpkg_cannot_finish_is_told_with_its_cause(serving: Fleet) -> None:
    add(serving, EXPORTER)
    with half_configured(serving, "echo 'opaque: cannot reach its licence server' >&2; exit 3"):
        drift = serving.rigup("diff", "--json", expect=1).json["hosts"][0]["drift"]
        assert any(one["what"] == "packages" and PACKAGE in one["message"] for one in drift)
        message, hint = said(serving.apply(expect=1))
        assert f"dpkg cannot finish {PACKAGE}: opaque: cannot reach its licence server" in message
        assert f"apt-get remove {PACKAGE};" in hint and serving.host.answers()
    serving.apply()
    serving.describe()
    serving.apply()


def test_a_full_boot_is_named_with_what_is_free_there(serving: Fleet) -> None:
    add(serving, EXPORTER)
    serving.host.tell("apt-get purge -q -y 'prometheus-node-exporter*'")
    serving.host.tell("mkdir -p /boot && mount -t tmpfs -o size=64k tmpfs /boot")
    try:
        with half_configured(serving, "dd if=/dev/zero of=/boot/initrd.img bs=1k count=200 || exit 1"):
            message, hint = said(serving.apply(expect=1))
            assert f"dpkg cannot finish {PACKAGE}: dd: error writing '/boot/initrd.img': No space left" in message
            assert message.endswith(" are free in /boot") and "autoremove" in hint
    finally:
        serving.host.tell("umount /boot")
    serving.describe()
    serving.apply()


def test_a_read_only_file_system_is_named(serving: Fleet) -> None:
    serving.host.tell("mount --bind /etc /etc && mount -o remount,bind,ro /etc")
    try:
        serving.describe(context=4096)
        message, hint = said(serving.apply(expect=2))
        assert message.endswith(": /etc is not writable") and "read-only" in hint
        assert serving.host.answers()
    finally:
        serving.host.tell("umount --lazy /etc")
    serving.converges()


PROXY = """
import http.server, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        target = self.path.replace("http://hf.internal", "HUB")
        print(self.path, flush=True)
        headers = {k: v for k, v in self.headers.items() if k.lower() in ("range", "authorization", "user-agent")}
        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_): return None
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay())
        try:
            answer = opener.open(urllib.request.Request(target, headers=headers))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value.replace("HUB", "http://hf.internal"))
            self.end_headers()
            while piece := answer.read(1 << 16):
                self.wfile.write(piece)
http.server.ThreadingHTTPServer(("127.0.0.1", 3128), Handler).serve_forever()
"""


def test_downloads_take_the_proxy_of_logins(serving: Fleet) -> None:
    host, hub = serving.host, serving.hub.url
    host.machine.ssh("cat >/run/proxy.py", input=PROXY.replace("HUB", hub.rstrip("/")), check=True)
    host.tell("systemd-run --quiet --collect --unit=a-proxy python3 /run/proxy.py")
    host.tell("touch /etc/environment; cp -p /etc/environment /etc/environment.kept")
    host.tell("printf 'http_proxy=\"http://127.0.0.1:3128\"\\nno_proxy=127.0.0.1\\n' >>/etc/environment")
    try:
        host.tell(f"systemctl stop rigup-chat; rm -rf {WEIGHTS}/*")
        file = serving.root / "group_data/boxes.py"
        file.write_text(file.read_text().replace(hub, "http://hf.internal"))
        serving.apply()
        assert host.answers()
        assert "http://hf.internal/" in host.tell("journalctl -o cat -u a-proxy")
    finally:
        host.tell("mv /etc/environment.kept /etc/environment; systemctl stop a-proxy")
    serving.describe()
    serving.converges()


def test_a_power_cut_while_a_service_starts_ends_the_apply_soon(serving: Fleet) -> None:
    serving.host.behave(2048, "unhealthy")
    serving.describe(context=2048)
    run = serving.start("apply", "--yes", "--json")
    run.wait_to_say("waiting for chat")
    serving.host.machine.power_off()
    began = time.monotonic()
    try:
        assert run.wait(400) == 1, run.text
        took = time.monotonic() - began
        message, hint = said(run)
        assert took < 200
        assert "stopped responding" in message and "is unknown" in message and "is on" in hint
    finally:
        serving.host.machine.power_on()
    serving.describe()
    serving.converges()
