"""Requests to a hub from a host, its token, and messages for a hub that denies access.

Part of fetch_weights.py, which is in the same folder on a host.
"""

from __future__ import annotations

import urllib.parse
from pathlib import Path

if __package__:
    from rigup.programs.weights import curl_transfers as curl
    from rigup.programs.weights.weights_folder import EXIT_INPUT, FetchError, FetchJob, File
else:
    import curl_transfers as curl  # type: ignore[import-not-found, no-redef]
    from weights_folder import EXIT_INPUT, FetchError, FetchJob, File  # type: ignore[import-not-found, no-redef]


def denial(job: FetchJob, file: File, status: int) -> str:
    """The message for a final denial by the hub, with what to do about it."""
    given = "the token given" if job.token_file else "no token was given"
    if status == 404:
        return f"{job.hub} has no {file.path} in {job.repo} at revision {job.revision} (404)"
    if job.blobs:
        return f"{job.hub} refuses {job.repo} ({status}): choose a public model, as rigup does not log in there"
    if status == 403:
        return f"{job.hub} refuses {job.repo} (403, {given}): accept its terms on its page with the token's account"
    return f"{job.hub} requires a token that may read {job.repo} (401, {given}), or the repository does not exist"


def configuration(job: FetchJob, file: File, part: Path, most: int = 0) -> str:
    """curl's configuration for a file of a job, or for its first bytes. most: how many of them, 0 for all."""
    url = f"{job.hub}/{job.repo}/resolve/{job.revision}/{urllib.parse.quote(file.path)}"
    url = f"{job.blobs}/sha256:{file.sha256}" if job.blobs else url
    token = read_token(job.token_file) if job.token_file else None
    return curl.configuration(url, part, file.size, job.stall_s, token, job.hub_bytes_per_second, most=most)


def read_token(path: str) -> str:
    """Reads the hub token; it must be one printable word, because it becomes a line of curl's configuration."""
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise FetchError(EXIT_INPUT, f"token_file: {path}: {error.strerror}") from None
    if not token or not token.isascii() or not token.isprintable() or set(token) & set(' "\\'):
        raise FetchError(EXIT_INPUT, f"token_file: {path} does not hold a token (one word)")
    return token
