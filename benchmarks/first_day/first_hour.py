"""The first tasks: from the wheel to a service that answers, and what a user looks at then."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.first_day.new_user import MODEL, QUESTION, NewUser
from benchmarks.first_day.task import Task
from tests import openai_client

SECOND: dict[str, Any] = {"model": MODEL, "port": 8001}
COMPILES_HERE = "compiling on the controlling machine"
ASK = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
said = [{"role": "user", "content": sys.argv[2]}]
model = client.models.list().data[0].id
pieces = client.chat.completions.create(model=model, messages=said, max_tokens=32, temperature=0, stream=True)
print(json.dumps([piece.choices[0].delta.content or "" for piece in pieces if piece.choices]))
"""


def install(user: NewUser) -> str:
    """pip install, from the wheel."""
    subprocess.run([sys.executable, "-m", "venv", str(user.environment)], check=True)
    user.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(user.wheel))
    version = user.rigup("--version").stdout.split()[-1]
    assert f"rigup-{version}-" in user.wheel.name
    place = Path(user.run("python", "-c", "import rigup; print(rigup.__file__)").stdout.strip())
    assert place.is_relative_to(user.environment), place
    return f"rigup {version}, wheel of {user.wheel.stat().st_size / 1e6:.1f} MB"


def empty_folder(user: NewUser) -> str:
    """Verbs in an empty folder, and a mistyped one."""
    assert "rigup init USER@HOST" in user.rigup("plan", expect=2).stderr
    assert "status" in user.rigup("statsu", expect=2).stderr
    assert "usage: rigup" in user.rigup().text
    assert list(user.fleet.iterdir()) == []
    return "names rigup init USER@HOST, and status for statsu"


def what_fits(user: NewUser) -> str:
    """rigup fit."""
    models = user.json("fit", "4x RTX 3090", "--host-memory", "64")
    text = user.rigup("fit", "4x RTX 3090", "--host-memory", "64").stdout
    assert "MiniMax-M2" in text and models["schema"] == 1
    return "for 4x RTX 3090, without a host"


def machines(user: NewUser) -> str:
    """rigup lab up."""
    (lab,) = user.json("lab", "up", "--name", user.lab, "--hosts", "3")["labs"]
    user.hosts = [machine["name"] for machine in lab["machines"]]
    user.addresses = [machine["address"] for machine in lab["machines"]]
    user.ssh_config = lab["ssh_config"]
    assert lab["hub"], "the lab has no hub"
    assert user.ssh(user.hosts[2], "uname -n") == user.hosts[2]
    return "3 bare machines and a hub"


def up(user: NewUser) -> str:
    """rigup up, from a bare machine to an answer."""
    (user.fleet / "group_data").mkdir()
    (user.fleet / "group_data/all.py").write_text('builder = "controller"\n')
    said = user.rigup("up", user.hosts[0], MODEL, *user.connection, "--yes")
    assert "Paris" in said.stdout
    for file in ("inventories/cpu.py", "group_data/cpu.py", "rigup.lock", ".gitignore"):
        assert f"{file}: new" in said.stdout and (user.fleet / file).is_file(), file
    curl = next(line.strip() for line in said.stdout.splitlines() if line.startswith("  curl "))
    assert "Paris" in user.ssh(user.hosts[0], curl)
    return "llama.cpp compiled here" if COMPILES_HERE in said.text else "llama.cpp compiled earlier, from the cache"


def nothing_to_do(user: NewUser) -> str:
    """rigup up, apply and lock --check again."""
    assert "no changes" in user.rigup("up", user.hosts[0], MODEL, *user.connection).text
    took = re.search(r"no changes\S* in (.*)", user.rigup("apply").text)
    assert took and user.json("lock", "--check")["stale"] == []
    return f"apply says {took[1]}"


def chat(user: NewUser) -> str:
    """rigup chat."""
    pace = user.asks("chat")["tokens_per_second"]
    return f"{pace:.0f} tokens/s"


def openai_through_a_tunnel(user: NewUser) -> str:
    """The openai client, streaming through rigup tunnel."""
    with user.tunnel("chat") as url:
        words = [str(openai_client.interpreter()), "-c", ASK, url, QUESTION]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    pieces = re.findall(r'"([^"]*)"', done.stdout)
    assert len(pieces) > 3 and "Paris" in "".join(pieces), done.stdout
    return f"{len(pieces)} pieces"


def status(user: NewUser) -> str:
    """rigup status, as a table and a page."""
    row = user.state("chat")
    assert (row["health"], row["drift"]) == ("answers", "none"), row
    assert "answers" in user.rigup("status", "--html", "status.html").text
    assert user.hosts[0] in (user.fleet / "status.html").read_text()
    return "answers, no drift"


def second_service(user: NewUser) -> str:
    """A second service on the same machine."""
    user.serve({**user.services, "second": SECOND})
    plans = user.json("plan")["hosts"]
    assert sorted(plan["service"]["name"] for plan in plans) == ["chat", "second"]
    user.rigup("apply", "--yes")
    assert user.asks("second")["service"] == "second" and user.asks("chat")["service"] == "chat"
    return "at port 8001"


def pull_request(user: NewUser) -> str:
    """What CI asks: lock --check, plan as Markdown, a JSON schema."""
    assert "chat" in user.rigup("plan", "--format", "markdown").stdout
    assert "pins everything" in user.rigup("lock", "--check").text
    assert "properties" in user.rigup("schema", "plan").stdout
    return ""


TASKS = (
    Task("install", install),
    Task("empty folder", empty_folder, ("install",)),
    Task("what fits", what_fits, ("install",)),
    Task("machines", machines, ("install",)),
    Task("up", up, ("machines",)),
    Task("nothing to do", nothing_to_do, ("up",)),
    Task("chat", chat, ("up",)),
    Task("openai client, tunnel", openai_through_a_tunnel, ("up",)),
    Task("status", status, ("up",)),
    Task("second service", second_service, ("up",)),
    Task("pull request", pull_request, ("up",)),
)
