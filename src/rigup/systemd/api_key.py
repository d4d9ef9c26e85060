"""The API key: which services need one, and how each engine gets it. It is never in a plan, an argv or a unit."""

from __future__ import annotations

import ipaddress

from rigup.service import Service

# systemd puts the credential into a folder that only the service can read, and names the folder in this variable.
# Units need systemd 247; the specifier for the folder is newer than the 249 of Ubuntu 22.04.
CREDENTIAL_NAME = "api-key"
CREDENTIAL = f"${{CREDENTIALS_DIRECTORY}}/{CREDENTIAL_NAME}"

READ_KEY = f'set -eu; key=$(cat "$CREDENTIALS_DIRECTORY/{CREDENTIAL_NAME}"); test -n "$key"; '
RUN = 'exec "$0" "$@"'

# llama.cpp reads a key file itself, vLLM a variable, SGLang a configuration file. printf is a shell builtin, so the key
# is not an argument of any process.
SCRIPTS = {
    "vllm": READ_KEY + 'VLLM_API_KEY="$key"; export VLLM_API_KEY; ' + RUN,
    "sglang": READ_KEY + 'umask 077; printf \'api-key: "%s"\\n\' "$key" >"$RUNTIME_DIRECTORY/api-key.yaml"; ' + RUN,
}
# llama-server's router takes the key's file from the options of the models that it starts, and any local user could
# reach those. They inherit this variable.
ROUTER = f'LLAMA_ARG_API_KEY_FILE="$CREDENTIALS_DIRECTORY/{CREDENTIAL_NAME}"; export LLAMA_ARG_API_KEY_FILE; ' + RUN


def wants_key(service: Service) -> bool:
    """Whether requests need a key: the user named a key file, or the service listens beyond loopback."""
    return service.api_key_file is not None or not is_loopback(service.listen)


def is_loopback(address: str) -> bool:
    """Whether an address is reachable from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def wrapped(engine: str, words: tuple[str, ...], swaps: bool = False) -> tuple[str, ...]:
    """The command behind a shell that fetches the key and then executes the engine; unchanged for llama.cpp alone.

    Without a key the engine does not start. swaps: whether it is the router of a swap group.
    """
    script = ROUTER if swaps else SCRIPTS.get(engine)
    return words if script is None else ("/bin/sh", "-c", script, *words)
