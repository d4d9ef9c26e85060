"""Stands for vLLM in tests: `vllm serve` with the same options and endpoints, and one fixed answer.

How it behaves is a part of the wheel, BEHAVIOUR: "answer", "crash" (ends at once), "unhealthy" (never ready), "garbage"
(what it answers is not a completion).
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BEHAVIOUR = "answer"
ANSWER = "The capital of France is Paris."
SWITCHES = ("--enforce-eager",)
WITH_VALUE = (
    "--served-model-name", "--host", "--port", "--max-model-len", "--tensor-parallel-size", "--max-num-seqs",
    "--max-num-batched-tokens", "--shutdown-timeout",
)  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self) -> None:
        """/health."""
        self.answer(503 if BEHAVIOUR == "unhealthy" or self.path != "/health" else 200, {})

    def do_POST(self) -> None:
        """/v1/chat/completions."""
        self.rfile.read(int(self.headers["Content-Length"]))
        if BEHAVIOUR == "garbage":
            self.answer(200, {"choices": "?"})
            return
        message = {"role": "assistant", "content": None, "reasoning": ANSWER}
        self.answer(200, {"choices": [{"message": message}], "usage": {"completion_tokens": 7}})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        """Sends JSON."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main() -> None:
    """The command `vllm`."""
    command, model, *words = sys.argv[1:]
    options: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word in WITH_VALUE:
            options[word] = words.pop(0)
        elif word not in SWITCHES:
            sys.exit(f"stand-in: unknown option {word}")
    if command != "serve" or not (Path(model) / "config.json").is_file():
        sys.exit(f"stand-in: cannot {command} {model}")
    if BEHAVIOUR == "crash":
        sys.exit("stand-in: rehearsed crash")
    print(f"stand-in: {BEHAVIOUR}, listening", flush=True)
    ThreadingHTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
