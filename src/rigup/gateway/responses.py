"""What a gateway answers itself: OpenAI's error JSON, and the list of models."""

from __future__ import annotations

import json
from collections.abc import Iterable

RETRY_SECONDS = 10
"""Retry-After of a 503, and of a 429 for too many requests per minute."""


def error(message: str, kind: str = "invalid_request_error", code: str | None = None, param: str | None = None) -> str:
    """OpenAI's error object: https://platform.openai.com/docs/guides/error-codes."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def model_list(models: Iterable[str]) -> str:
    """The answer of GET /v1/models."""
    data = [{"id": model, "object": "model", "created": 0, "owned_by": "rigup"} for model in models]
    return json.dumps({"object": "list", "data": data})


NO_KEY = error("Give a valid API key: Authorization: Bearer KEY", code="invalid_api_key")
NOT_FOUND = error("This gateway has no such endpoint", code="not_found")
NO_MODEL = error("Name a model, in JSON", param="model", code="model_required")
NOT_ONE_MODEL = error(
    "The body must be a JSON object in UTF-8 with one model; write the keys beside it in ASCII, without escapes",
    param="model",
    code="model_ambiguous",
)
ENCODED = error("Send the body as it is, without Content-Encoding", code="content_encoding")
NOT_YOURS = error("This API key may not use this model", param="model", code="model_not_allowed")
TOO_LARGE = error("The request is larger than this gateway accepts", code="request_too_large")
TOO_MANY = error("Too many requests per minute for this API key", "rate_limit_error", "rate_limit_exceeded")
TOO_BUSY = error("Too many requests in flight for this API key", "rate_limit_error", "concurrency_exceeded")
# What HAProxy answers by itself, by status.
OWN = {
    400: error("The request is not valid HTTP", code="bad_request"),
    408: error("The request did not arrive in time", code="request_timeout"),
    500: error("The gateway failed", "server_error", "internal_error"),
    502: error("The engine ended before it answered", "server_error", "bad_gateway"),
    503: error("No engine can take this request now", "server_error", "no_backend"),
    504: error("The engine did not answer in time", "server_error", "gateway_timeout"),
}


def unknown_model(names: str) -> str:
    """The 404 for a model that nobody serves, as HAProxy's log format. names: of those that there are."""
    # the name comes from the request and is escaped by HAProxy
    text = error(f"The model `MODEL` does not exist; models: {names}", param="model", code="model_not_found")
    return text.replace("MODEL", "%[var(txn.model),json(utf8ps)]")
