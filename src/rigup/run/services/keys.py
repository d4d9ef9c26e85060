"""API keys of services: read from their hosts, and replaced there or in the user's own file."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from rigup import layout
from rigup.errors import HostFailed, InputError, Refused
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.endpoints import endpoint_of
from rigup.operations.service.health import ask_release, of_lost_host
from rigup.operations.service.held import note_held
from rigup.operations.service.history import check_applied, hosts_of
from rigup.operations.service.secrets import KEY_BYTES
from rigup.operations.service.stopping import start
from rigup.project.inventory import Project
from rigup.project.settings import read_secret
from rigup.regular_files import user_path
from rigup.run.hosts_run import HostsRun, services_in
from rigup.run.result import Change
from rigup.run.services.endpoints import read_key
from rigup.run.services.startable import check_startable


class KeyRun(HostsRun):
    """A run that reads keys, or replaces those that rigup made. keys: by host and service; None where it has none."""

    keys: dict[tuple[str, str], str | None]

    def read(self, services: tuple[str, ...]) -> None:
        """Reads the keys of these services, or of all that have a release.

        A host that is to have one and lacks it fails.
        """
        self.keys = {}
        self.context.each(lambda host: self._read(host, services))

    def rotate(self, service: str) -> None:
        """Gives the service a new key on each host. If it does not answer with it, the earlier one is put back."""
        self.record("key rotate")
        self.context.each(lambda host: self._rotate(host, service))

    def _read(self, host: Host, services: tuple[str, ...]) -> None:
        probe = self.context.handshakes[host.name].probe
        for name in self._of_host(host.name, services) if services else probe.releases:
            check_applied(host.name, name, probe)
            if endpoint := endpoint_of(host.name, name, probe.releases[name]):
                self.keys[host.name, name] = read_key(host, endpoint.key_file)

    def _of_host(self, name: str, services: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these services that a host is to have: not those that the inventory gives to others alone."""
        (entry,) = (each for each in self.context.project.hosts if each.name == name)
        here, anywhere = services_in((entry,)), services_in(self.context.project.hosts)
        return tuple(service for service in services if service in here or service not in anywhere)

    def _rotate(self, host: Host, service: str) -> None:
        if not self._of_host(host.name, (service,)):
            return
        result, probe = self.results[host.name], self.context.handshakes[host.name].probe
        earlier = self.keys.get((host.name, service))
        if earlier is None:
            hint = f"to require one, set services.{service}.api_key_file, then run rigup apply"
            raise Refused(f"{host.name}: {service} needs no API key", hint)
        manifest = probe.releases[service]
        if hosts_of(manifest):
            hint = f"set services.{service}.api_key_file, which rigup key rotate then writes"
            message = f"{host.name}: {service} spans several hosts, so rigup replaces its key only in a file of yours"
            raise Refused(message, hint)
        if not probe.rests(service):
            check_startable(host.name, probe, service, manifest)
        self._claim_unchanged(host)
        path = layout.api_key_file(service)
        remote.write_file(host, path, secrets.token_urlsafe(KEY_BYTES), "600")
        try:
            if not probe.rests(service):
                start(host, service, again=True)
                result.answers.append(ask_release(host, manifest, service))
                note_held(host, service)
        except (HostFailed, *remote.CONNECTION_ERRORS) as error:
            if lost := of_lost_host(host, error, f"{service} has its new key"):
                raise lost from None
            if not isinstance(error, HostFailed):
                raise
            remote.write_file(host, path, earlier, "600")
            start(host, service, again=True)
            raise HostFailed(f"{error.message}; the earlier key was restored", error.hint) from None
        result.changes = [Change("service", f"API key of {service}")]
        result.state = "changed"


def key_file_of(project: Project, service: str) -> str | None:
    """The user's own file with the key of a service, relative to the fleet's folder; None if rigup makes the key.

    Raises InputError where the selected hosts differ in it.
    """
    said = [host.services[service] for host in project.hosts if service in host.services]
    files = dict.fromkeys(each.get("api_key_file") for each in said)
    if len(files) > 1:
        names = ", ".join(str(name) for name in files if name)
        raise InputError(f"the hosts have different keys of {service}: {names}", "select one group: --limit GROUP")
    return next(iter(files), None)


def write_new_key(root: Path, name: str) -> None:
    """Replaces the key in the user's own file, which must be fit for one. Raises InputError."""
    read_secret(root, "api_key_file", name)
    path = (root / user_path(name, "api_key_file")).resolve()
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False) as file:  # of mode 0600
            file.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n")
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(
            f"{name}: cannot be written: {error.strerror}", "check the permissions of its folder"
        ) from None
