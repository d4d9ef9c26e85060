"""Ollama's registry at the hub stand-in: NAMESPACE/NAME is a folder as for the hub, each TAG a file TAG.gguf in it.

TAG.json, if it is there, is the configuration of the name, such as {"file_type": "Q4_K_M"}. Manifests have the form
that registry.ollama.ai gives them, and files come by a redirect to the CDN, as there.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rigup.lab.hub.content import ServedFile, ServedRepository

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def configuration(repository: ServedRepository, tag: str) -> bytes:
    """The configuration of a tag."""
    beside = repository.files.get(f"{tag}.json")
    said = json.loads(beside.location.read_text()) if beside else {}
    return json.dumps({"model_format": "gguf", "architecture": "amd64", "os": "linux", **said}).encode()


def manifest(repository: ServedRepository, tag: str) -> bytes | None:
    """The manifest of a tag; None if the repository does not have it."""
    model = repository.files.get(f"{tag}.gguf")
    if model is None:
        return None
    config = configuration(repository, tag)
    entry: dict[str, Any] = {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        "digest": f"sha256:{hashlib.sha256(config).hexdigest()}",
        "size": len(config),
    }
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{model.sha256}", "size": model.size}
    return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": entry, "layers": [layer]}).encode()


def blob(repository: ServedRepository, digest: str) -> bytes | ServedFile | None:
    """What a digest of this repository names: a configuration, or a file."""
    wanted = digest.removeprefix("sha256:")
    for path, file in repository.files.items():
        if file.sha256 == wanted:
            return file
        if path.endswith(".gguf"):
            config = configuration(repository, path.removesuffix(".gguf"))
            if hashlib.sha256(config).hexdigest() == wanted:
                return config
    return None
