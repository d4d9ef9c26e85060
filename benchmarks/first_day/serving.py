"""Tasks with a service that runs: a LAN with keys, tool calls, another checkpoint, releases, what goes wrong."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

from benchmarks.first_day.new_user import MODEL, NewUser
from benchmarks.first_day.task import Task
from rigup.lab import demo_model
from rigup.lab.hub.server_process import StandInHub
from tests import openai_client

OPEN = {"model": MODEL, "listen": "0.0.0.0"}
OTHER = "example/SmolLM2-135M-Tools-GGUF"
TEMPLATE_KEY = b"tokenizer.chat_template"
# The prompt of the model's own template, and calls in the words of Hermes, which its own template lacks.
TEMPLATE = """\
{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face' }}{% if tools %}{{ '
You may call these functions: ' }}{{ tools | tojson }}{{ '
Call one in this way: <tool_call>{"name": "...", "arguments": {...}}</tool_call>' }}{% endif %}{{ '<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + message['role'] + '
' + message['content'] }}{% for call in message['tool_calls'] or [] %}{{ '<tool_call>
{"name": "' + call['function']['name'] + '", "arguments": ' }}{{ call['function']['arguments'] | tojson }}{{ '}
</tool_call>' }}{% endfor %}{{ '<|im_end|>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
ALIGNMENT = 32
# Two calls came before, which makes a model of 135M parameters call: first freely, then required to, as a stream.
CALLS = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
model = client.models.list().data[0].id
city = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": city}}]
said = []
for number in (1, 2):
    rome = {"name": "weather", "arguments": json.dumps({"city": "Rome"})}
    call = {"id": f"call-{number}", "type": "function", "function": rome}
    said.append({"role": "user", "content": "Weather in Rome?"})
    said.append({"role": "assistant", "content": "", "tool_calls": [call]})
said += [{"role": "user", "content": "Weather in Paris?"}]
def ask(choice, **more):
    return client.chat.completions.create(
        model=model, messages=said, tools=tools, tool_choice=choice, temperature=0, max_tokens=64, **more
    )
whole = ask("auto").choices[0]
pieces = [piece.choices[0].delta.tool_calls or [] for piece in ask("required", stream=True) if piece.choices]
streamed = "".join(call.function.arguments or "" for calls in pieces for call in calls)
(call,) = whole.message.tool_calls
said += [{"role": "assistant", "content": "", "tool_calls": [call.model_dump()]}]
said += [{"role": "tool", "tool_call_id": call.id, "content": json.dumps({"sky": "clear"})}]
answer = ask("none").choices[0].message.content
found = {"finish": whole.finish_reason, "name": call.function.name, "answer": answer}
print(json.dumps({**found, "arguments": [json.loads(call.function.arguments), json.loads(streamed)]}))
"""


def key_for_the_lan(user: NewUser) -> str:
    """listen: the LAN needs the key that rigup made."""
    user.serve({**user.services, "chat": OPEN})
    applied = user.rigup("apply", "--yes")
    key = user.rigup("key", "show", "chat").stdout.strip()
    assert len(key) >= 32 and key not in applied.text
    statuses = user.asked_with("", "k" * 32, key)
    assert statuses == [401, 401, 200], statuses
    return "401 without it, 200 with it, from another machine"


def tool_calls(user: NewUser) -> str:
    """Tool calls with the openai client and the key, whole, streamed, and with the tool's result sent back."""
    key = user.rigup("key", "show", "chat").stdout.strip()
    words = [str(openai_client.interpreter()), "-c", CALLS, f"http://{user.addresses[0]}:8000/v1", key]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["finish"], found["name"]) == ("tool_calls", "weather"), found
    assert found["arguments"] == [{"city": "Paris"}] * 2, found
    assert found["answer"].strip(), found
    return "the model calls by itself after two examples"


def other_key(user: NewUser) -> str:
    """rigup key rotate."""
    old = user.rigup("key", "show", "chat").stdout.strip()
    said = user.rigup("key", "rotate", "chat", "--yes")
    new = user.rigup("key", "show", "chat").stdout.strip()
    assert new != old and new not in said.text
    statuses = user.asked_with(old, new)
    assert statuses == [401, 200], statuses
    return "the old one is refused"


def stop_and_start(user: NewUser) -> str:
    """rigup stop, start, restart."""
    user.rigup("stop", "chat")
    row = user.state("chat")
    assert (row["health"], row["drift"]) == ("stopped", "none"), row
    assert "chat is stopped" in user.rigup("chat", "chat", "Hello", expect=1).text
    user.rigup("start", "chat")
    before = user.state("chat")["since"]
    user.rigup("restart", "chat")
    row = user.state("chat")
    assert row["since"] != before and row["health"] == "answers", row
    return "a stop is not drift"


def logs(user: NewUser) -> str:
    """rigup logs, exec and log."""
    lines = user.rigup("logs", "chat", "--lines", "1000", "--json").stdout.splitlines()
    said = [json.loads(line)["message"] for line in lines]
    assert any("listening" in message for message in said), said[-5:]
    assert user.rigup("exec", "--limit", user.hosts[0], "uname -n").stdout.strip() == user.hosts[0]
    verbs = [record["verb"] for record in user.json("log", user.hosts[0], "--last", "50")["applies"]]
    assert {"apply", "start", "stop", "restart"} <= set(verbs), verbs
    return f"{len(lines)} lines"


def other_checkpoint(user: NewUser) -> str:
    """A checkpoint that the catalogue does not have, with a template that has tools: model add, lock, apply."""
    served = _other_hub(user.folder / "hub")
    StandInHub(Path(user.ssh_config).parent).stop()
    StandInHub.start(served, lab=user.lab)
    here = StandInHub.start(served, user.folder / "hub-here")
    try:
        user.rigup("model", "add", OTHER, "--model", MODEL, HF_ENDPOINT=here.url)
        with user.trying({**user.services, "chat": {**OPEN, "checkpoint": OTHER, "tools": True}}):
            assert OTHER in user.lock_at(here.url).text
            user.rigup("apply", "--yes")
    finally:
        here.stop()
    assert user.state("chat")["checkpoint"]["repo"] == OTHER
    assert "<tool_call>" in _template(user)
    user.asks("chat")
    return "read from its own header on a hub; its template has tools"


def _other_hub(root: Path) -> Path:
    """A hub's folder with the demo's model, and with the same weights under another chat template."""
    repository = demo_model.provide() / demo_model.REPOSITORY
    (root / demo_model.REPOSITORY).parent.mkdir(parents=True)
    (root / demo_model.REPOSITORY).symlink_to(repository)
    other = root / OTHER / "SmolLM2-135M-Tools.Q4_1.gguf"
    other.parent.mkdir(parents=True)
    other.write_bytes(with_template((repository / demo_model.MODEL.path).read_bytes(), TEMPLATE))
    return root


def with_template(content: bytes, template: str) -> bytes:
    """A GGUF file with another chat template (ggml-org/ggml docs/gguf.md: key, type, length, text).

    Spaces in its last tag keep the alignment of what comes behind it.
    """
    assert content.count(TEMPLATE_KEY) == 1
    at = content.index(TEMPLATE_KEY) + len(TEMPLATE_KEY) + 4
    length: int = struct.unpack_from("<Q", content, at)[0]
    raw = template.encode()
    padding = b" " * (-(len(raw) - length) % ALIGNMENT)
    raw = raw.removesuffix(b"%}") + padding + b"%}"
    return content[:at] + struct.pack("<Q", len(raw)) + raw + content[at + 8 + length :]


def _template(user: NewUser) -> str:
    """The template of the model that is being served, as the engine has it."""
    key = user.rigup("key", "show", "chat", "--limit", user.hosts[0]).stdout.strip()
    return str(json.loads(user.on_the_lan("/props", key)[1])["chat_template"])


def rollback(user: NewUser) -> str:
    """rigup releases and rollback, then forward again by apply."""
    releases = user.json("releases")["hosts"][user.hosts[0]]["chat"]
    (changed,) = (release["changed"] for release in releases if release["current"])
    assert any(OTHER in change for change in changed), changed
    user.rigup("rollback", "--service", "chat", "--yes")
    assert user.state("chat")["checkpoint"]["repo"] == demo_model.REPOSITORY
    assert "<tool_call>" not in _template(user)
    assert "checkpoint" in user.rigup("diff", expect=1).text
    user.rigup("apply", "--yes")
    assert user.state("chat")["checkpoint"]["repo"] == OTHER
    return "to the earlier checkpoint, and forward again"


def bad_start(user: NewUser) -> str:
    """A release whose answer is wrong: the earlier one is restored by itself."""
    good = user.services
    with user.trying({**good, "chat": {**good["chat"], "context": 4096, "expected_answer": "Madrid"}}):
        said = user.rigup("apply", "--yes", expect=1)
        assert "Madrid" in said.text and "Paris" in said.text, said.text[-1500:]
        user.asks("chat")
    user.serve(good)
    user.rigup("apply", "--yes")
    assert user.state("chat")["health"] == "answers"
    return "the message has question and answer"


def too_large(user: NewUser) -> str:
    """A model that does not fit."""
    good = user.services
    with user.trying({**good, "big": {"model": "MiniMax-M2.5", "port": 8002}}):
        for verb in ("plan", "apply"):
            said = user.rigup(verb, expect=1).text
            assert "big" in said and "host memory" in said and "hint: " in said, said[-1500:]
    user.serve(good)
    unchanged = user.rigup("apply").text
    assert "no changes" in unchanged, unchanged[-1500:]
    return "plan and apply refuse with a hint; the machine is as it was"


def drift(user: NewUser) -> str:
    """Somebody edits the unit on the machine: diff names it, apply mends it."""
    user.ssh(user.hosts[0], "echo '# edited' >> /etc/systemd/system/rigup-chat.service; systemctl daemon-reload")
    found = user.rigup("diff", expect=1).text
    assert "its unit file differs" in found, found
    user.rigup("apply", "--yes")
    left = user.json("diff")["hosts"][0]["drift"]
    assert left == [], left
    return "named by diff, mended by apply"


TASKS = (
    Task("LAN with a key", key_for_the_lan, ("up",)),
    Task("another key", other_key, ("LAN with a key",)),
    Task("stop, start, restart", stop_and_start, ("up",)),
    Task("logs", logs, ("stop, start, restart",)),
    Task("other checkpoint", other_checkpoint, ("LAN with a key",)),
    Task("tool calls", tool_calls, ("other checkpoint",)),
    Task("rollback", rollback, ("other checkpoint",)),
    Task("bad start", bad_start, ("up",)),
    Task("too large", too_large, ("up",)),
    Task("drift", drift, ("up",)),
)
