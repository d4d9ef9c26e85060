"""Tasks with several machines, and the end: join, compare, rename, remove, clean up, uninstall."""

from __future__ import annotations

from typing import Any

from benchmarks.first_day.first_hour import SECOND
from benchmarks.first_day.new_user import MODEL, NewUser
from benchmarks.first_day.task import Task

ROOTS = "/opt/rigup /etc/rigup /var/lib/rigup /var/cache/rigup /var/log/rigup"
ONE: dict[str, dict[str, Any]] = {"chat": {"model": MODEL}, "second": SECOND}


def one_setting(user: NewUser) -> str:
    """Back to services that only answer on their own machine."""
    user.serve(ONE)
    user.rigup("apply", "--yes")
    assert user.asked_with("") == [0]
    return "the LAN finds the port closed"


def second_host(user: NewUser) -> str:
    """rigup up for a second machine, which joins the group of the first."""
    user.rigup("up", user.hosts[1], MODEL, *user.connection, "--yes")
    assert (user.fleet / "inventories/cpu.py").read_text().count(user.hosts[1]) == 1
    user.asks("chat", user.hosts[1])
    user.asks("second", user.hosts[1])
    return "joins the group and serves what it serves"


def third_host(user: NewUser) -> str:
    """rigup init, diff and apply --limit for a third."""
    third = user.hosts[2]
    user.rigup("init", third, *user.connection)
    assert f"{third}: " in user.rigup("diff", "--limit", third, expect=1).text
    user.rigup("apply", "--limit", third, "--yes")
    user.asks("chat", third)
    hosts = user.json("status")["hosts"]
    assert sorted(host["host"] for host in hosts) == sorted(user.hosts)
    return "init, diff, apply --limit"


def compare(user: NewUser) -> str:
    """rigup compare of two machines, before and after a service of one is stopped."""

    def differences() -> set[str]:
        return {each["what"] for each in user.json("compare", *user.hosts[:2], expect=None)["differences"]}

    before = differences()
    user.rigup("stop", "second", "--limit", user.hosts[1])
    assert differences() - before == {"second: state"}, differences()
    user.rigup("start", "second", "--limit", user.hosts[1])
    assert differences() == before
    return f"a stopped service, and {len(before)} more: {', '.join(sorted(before))}" if before else "a stopped service"


def bench(user: NewUser) -> str:
    """rigup bench, short."""
    words = ("--service", "chat", "--limit", user.hosts[0], "--requests", "2", "--input", "32", "--output", "16")
    text = user.rigup("bench", *words).stdout
    assert "out tok/s" in text, text
    return "2 requests"


def rename(user: NewUser) -> str:
    """A service gets another name on three machines."""
    user.serve({"chat": ONE["chat"], "notes": SECOND})
    user.rigup("apply", "--yes", "--remove")
    for host in user.hosts:
        user.asks("notes", host)
        assert user.ssh(host, "systemctl is-active rigup-second.service || true") == "inactive"
    return "on three machines"


def remove(user: NewUser) -> str:
    """A service leaves the inventory: apply names it, apply --remove takes it away."""
    user.serve({"chat": ONE["chat"]})
    assert "not in the inventory: notes" in user.rigup("apply", "--yes").text
    assert user.ssh(user.hosts[0], "systemctl is-active rigup-notes.service") == "active"
    user.rigup("apply", "--yes", "--remove")
    for host in user.hosts:
        assert user.ssh(host, "ls /etc/systemd/system /etc/rigup/services | grep notes || true") == ""
    return "named first, removed when asked"


def clean_up(user: NewUser) -> str:
    """rigup prune and report."""
    removed = user.json("prune", "--weights", "--yes")["hosts"]
    assert {host["state"] for host in removed} <= {"changed", "unchanged"}, removed
    assert "no changes" in user.rigup("apply").text
    report = user.json("report", user.hosts[0])["file"]
    assert "llama.cpp" in (user.fleet / report).read_text()
    return f"{sum(len(host['removed']) for host in removed)} leftovers"


def uninstall(user: NewUser) -> str:
    """rigup uninstall of one machine; the others go on."""
    last = user.hosts[2]
    user.rigup("uninstall", last, "--weights", "--yes")
    left = f"ls -d {ROOTS} /etc/systemd/system/rigup-* 2>/dev/null; getent passwd rigup"
    assert user.ssh(last, f"{left} || true") == ""
    user.asks("chat", user.hosts[1])
    return "nothing is left"


def lab_down(user: NewUser) -> str:
    """rigup lab down."""
    assert user.json("lab", "down", user.lab)["down"] == [user.lab]
    names = [lab["name"] for lab in user.json("lab", "list")["labs"]]
    assert user.lab not in names
    return ""


TASKS = (
    Task("loopback again", one_setting, ("up",)),
    Task("second host", second_host, ("up",)),
    Task("third host", third_host, ("second host",)),
    Task("compare", compare, ("second host",)),
    Task("bench", bench, ("up",)),
    Task("rename", rename, ("third host",)),
    Task("remove", remove, ("rename",)),
    Task("clean up", clean_up, ("up",)),
    Task("uninstall", uninstall, ("third host",)),
    Task("lab down", lab_down, ("machines",)),
)
