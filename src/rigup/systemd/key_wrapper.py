"""How each engine gets the API key: never on a command line, and an engine does not start without it."""

from __future__ import annotations

from rigup.systemd.api_key import CREDENTIAL_NAME

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


def wrapped(engine: str, words: tuple[str, ...], swaps: bool = False) -> tuple[str, ...]:
    """The command behind a shell that fetches the key and then executes the engine; unchanged for llama.cpp alone.

    swaps: whether it is the router of a swap group.
    """
    script = ROUTER if swaps else SCRIPTS.get(engine)
    return words if script is None else ("/bin/sh", "-c", script, *words)
