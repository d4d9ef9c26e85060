"""Resolves names to pins: a checkpoint to revision, files and sha256; a release to its archive, packages or image."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from pydantic import ValidationError

from rigup.artifacts import LockedEnvironment, LockedHarness, LockedImage, LockedNccl, LockedSmg, LockedUv
from rigup.cache import cache_folder
from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.engine_files import EngineChange
from rigup.catalogue.engines import EngineVersion
from rigup.checkpoints.describe import LARGEST_INDEX, read_contents
from rigup.checkpoints.repository import Repository, hub_repository, listed_repository, ollama_repository
from rigup.errors import InputError, Unreachable
from rigup.lock import LockedCheckpoint, LockedFile, LockedSource
from rigup.lockfile.host_reader import HostReader
from rigup.lockfile.needs import BuildName, Name, build_label
from rigup.lockfile.package_lists import abilities_with_archive, abilities_with_wheel, names_with, names_with_archive
from rigup.plan import Plan
from rigup.project.inventory import HostEntry, Project
from rigup.project.settings import hub_address, ollama_address, read_settings
from rigup.sources.archives import pin_source
from rigup.sources.gguf_files import gguf_files, gguf_quants
from rigup.sources.hub import Hub, HubFile
from rigup.sources.ollama import OllamaRegistry
from rigup.sources.python_environment import resolve_environment
from rigup.sources.registry import Registry
from rigup.sources.safetensors_files import MISTRAL, TRANSFORMERS, SafetensorsFormat, safetensors_files
from rigup.sources.uv import pin_wheels, uv_program
from rigup.units import bytes_text

HUB_VARIABLE = "HF_ENDPOINT"
OLLAMA_VARIABLE = "OLLAMA_REGISTRY"
WEIGHTS = (".gguf", ".safetensors")
EXACT_TOLERANCE, TOLERANCE = 0.001, 0.05


class Resolver:
    """Queries hubs, indexes and registries for one fleet.

    say: gets a line before each slow step. warnings: collects what the user should know at the end.

    catalogue: also gets what rigup reads from newly locked packages, which is not written to disk yet.
    added: the releases of engines that it did not have. pause: waits between attempts, for a number of seconds.
    reader: of checkpoints that lie on hosts; None without any.
    """

    def __init__(
        self,
        project: Project,
        catalogue: Catalogue,
        log: Callable[[str], None],
        pause: Callable[[float], None] = time.sleep,
        reader: HostReader | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.log = log
        self.warnings: list[str] = []
        self.added: tuple[EngineChange, ...] = ()
        self._project = project
        self._pause = pause
        self._reader = reader
        self._hubs: dict[tuple[str, str | None], Hub] = {}
        self._listings: dict[tuple[str, str, str], tuple[str, dict[str, HubFile]]] = {}
        self._hosts = {host.name: host for host in project.hosts}
        self._sources: dict[Name, LockedSource] = {}

    def checkpoint(self, name: Name, plan: Plan, revision: str = "main", asked: str | None = None) -> LockedCheckpoint:
        """One checkpoint at a revision of its repository: a branch, tag or commit.

        plan: the plan that needs it, whose hub rigup asks. asked: starts the messages, instead of the plan's service.
        Raises InputError if the hub does not have it, and Unreachable.
        """
        repo, quant = name
        host, entry = self._hosts[plan.host], self._entry(name)
        try:
            if entry.location and asked and revision != "main":
                raise InputError(
                    f"{entry.location} has no revisions", f"take what is there now: rigup lock --upgrade {repo}"
                )
            if entry.location:
                return self._located(host, entry)
            hub = self.hub(host)
            self.log(f"querying {hub.name} for {repo} {quant}")
            return self._locked(hub, entry, revision)
        except InputError as error:
            where = asked or f"{host.origins['services']}: services.{plan.service.name}"
            raise InputError(f"{where}: {error.message}", error.hint) from None

    def on_host(self, name: Name) -> bool:
        """Whether the files of a checkpoint lie on hosts already."""
        return self._entry(name).location.startswith("/")

    def repository(self, host: HostEntry, repo: str, location: str) -> tuple[Repository, str | None]:
        """What a host's service names: a repository, or what is at a location; and its quantisation, if that is known.

        Raises InputError for what does not exist, Unreachable, and HostFailed.
        """
        if location.startswith("ollama:"):
            registry = self.ollama(host)
            self.log(f"reading {location} from {registry.name}")
            return ollama_repository(registry, location)[0], None
        if location:
            name = location.rpartition("/")[2]
            quant = gguf_quants([name])[0] if name.endswith(".gguf") else None
            return self._reading(location).repository(host, location), quant
        hub = self.hub(host)
        self.log(f"reading {repo} from {hub.name}")
        return hub_repository(hub, repo, "main"), None

    def source(self, name: Name) -> LockedSource:
        """The source archive of an engine's release, downloaded and hashed. Raises InputError and Unreachable."""
        if name in self._sources:
            return self._sources[name]
        (engine, version), release = name, self._release(name)
        if release.archive is None:
            raise InputError(
                f"{engine} {version}: the catalogue has no source archive for it",
                "set archive and archive_root in the engine's file",
            )
        self.log(f"downloading {engine} {version}: {release.archive}")
        source = pin_source(engine, version, release.archive, release.archive_root, cache_folder() / "sources")
        names = names_with_archive(self.catalogue.name_lists, source, self.log)
        lists = abilities_with_archive(self.catalogue.ability_lists, source, self.log)
        self.catalogue = replace(self.catalogue, name_lists=names).with_ability_lists(lists)
        self._sources[name] = source
        return source

    def add_release(self, change: EngineChange, asked: str) -> None:
        """Adds releases to the catalogue, each as its source archive says what it can do. Raises as `source` does.

        asked: starts the messages.
        """
        self.catalogue = self.catalogue.with_release(self._project.root, change)
        self.added += (change,)
        try:
            for release in change.versions:
                self.source((change.name, release.version))
        except (InputError, Unreachable) as error:
            raise type(error)(f"{asked}: {error.message}", error.hint) from None

    def uv(self, version: str | None = None, asked: str = "uv") -> LockedUv:
        """A release of uv, by default the newest. Raises InputError and Unreachable."""
        self.log("querying the package index for uv")
        version, files = pin_wheels("uv", version, asked)
        return LockedUv(version=version, files=files)

    def smg(self, version: str | None = None, asked: str = "smg") -> LockedSmg:
        """A release of smg, by default the newest. Raises InputError and Unreachable."""
        self.log("querying the package index for smg")
        version, files = pin_wheels("smg", version, asked)
        return LockedSmg(version=version, files=files)

    def nccl(self, plan: Plan, version: str | None = None, asked: str = "nccl") -> LockedNccl:
        """A release of NCCL for a plan's build, by default the catalogue's. Raises InputError and Unreachable."""
        assert plan.build is not None
        library = self._release((plan.build.engine, plan.build.version)).nccl
        assert library is not None
        self.log(f"querying the package index for {library.project}")
        version, files = pin_wheels(library.project, version or library.version, asked)
        return LockedNccl(version=version, files=files)

    def environment(self, name: BuildName, plan: Plan, uv: LockedUv, asked: str | None = None) -> LockedEnvironment:
        """The Python environment of an engine release, as this uv resolves it. Raises InputError and Unreachable.

        plan: the plan that needs it; the environment gets Ray if Ray joins its hosts. asked: starts the messages.
        """
        _, _, variant, architecture = name
        self.log(f"resolving the packages of {build_label(name)} with uv {uv.version}")
        try:
            found = resolve_environment(uv_program(uv), self._release(name), variant, architecture, ray=plan.on_ray)
        except (InputError, Unreachable) as error:
            raise type(error)(f"{asked}: {error.message}" if asked else error.message, error.hint) from None
        names = names_with(self.catalogue.name_lists, found, self.log)
        lists = abilities_with_wheel(self.catalogue.ability_lists, found, self.log)
        self.catalogue = replace(self.catalogue, name_lists=names).with_ability_lists(lists)
        for file in found.local:
            self.warnings.append(
                f"{build_label(name)}: {file} is in a local folder of this machine, so hosts need a wheelhouse "
                "(rigup lock --vendor)"
            )
        return found.environment

    def harness(self, uv: LockedUv, version: str | None = None) -> LockedHarness:
        """The evaluation harness for this machine, by default the newest. Raises InputError and Unreachable."""
        from rigup.sources.evaluation_environment import resolve_harness

        self.log(f"resolving the packages of the evaluation harness with uv {uv.version}")
        return resolve_harness(uv_program(uv), version)

    def image(self, name: BuildName, plan: Plan) -> LockedImage:
        """The official image of an engine release, pinned to the current digest of its tag.

        plan: the plan that needs it, whose mirrors rigup uses. Raises InputError and Unreachable.
        """
        _, version, variant, architecture = name
        release = self._release(name)
        image = release.image(variant)
        if image is None:
            raise InputError(
                f"{build_label(name)}: the catalogue has no image of it", "set images in the engine's file"
            )
        self.log(f"querying the registry for {image.repository}:{image.tag}")
        host = self._hosts[plan.host]
        mirrors = read_settings(host.data, (), self._project.root, host.origins).image_mirrors
        digest, size = Registry(mirrors, self._pause).digest(image.repository, image.tag, architecture)
        return LockedImage(
            engine=release.engine,
            version=version,
            variant=variant,
            architecture=architecture,
            repository=image.repository,
            digest=digest,
            bytes=size,
        )

    def _locked(self, hub: Hub, entry: CheckpointEntry, revision: str) -> LockedCheckpoint:
        commit, there = self._listing(hub, entry.repo, revision)
        if entry.scheme == "gguf":
            paths = gguf_files(entry.repo, entry.quant, entry.entry, there)
        else:
            stored = _stored(entry)
            index = hub.content(entry.repo, commit, there[stored.index]) if stored.index in there else None
            paths = safetensors_files(entry.repo, there, index, stored)
        try:
            files = []
            for file in (there[path] for path in sorted(paths)):
                sha256 = file.sha256 or hashlib.sha256(hub.content(entry.repo, commit, file)).hexdigest()
                files.append(LockedFile(path=file.path, size=file.size, sha256=sha256))
            locked = self._pinned(entry, commit, tuple(files))
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"{entry.repo}: {first['loc'][-1]} {first['input']!r} cannot be locked") from None
        return self._with_tensors(hub, entry, locked, there)

    def _with_tensors(
        self, hub: Hub, entry: CheckpointEntry, locked: LockedCheckpoint, there: dict[str, HubFile]
    ) -> LockedCheckpoint:
        """Also where the bytes lie, unless the catalogue's entry was read from headers, or these cannot be read."""
        if entry.is_read or (model := self.catalogue.models_by_name.get(entry.model)) is None:
            return locked
        repository = listed_repository(hub, entry.repo, locked.revision, there)
        try:
            quant = entry.quant if entry.scheme == "gguf" else None
            found = read_contents(repository, quant, model, bool(entry.mistral_class))
        except (InputError, Unreachable) as error:
            self.log(f"headers of {entry.label} not read, so plans take the catalogue's shares: {error.message}")
            return locked
        return locked.model_copy(update=found)

    def _located(self, host: HostEntry, entry: CheckpointEntry) -> LockedCheckpoint:
        """A checkpoint that is not in a repository of the hub: one that lies on a host is hashed there."""
        if entry.location.startswith("ollama:"):
            return self._locked_from_ollama(host, entry)
        repository, _ = self.repository(host, entry.repo, entry.location)
        names: Iterable[str] = repository.files
        if entry.scheme != "gguf":
            stored = _stored(entry)
            index = repository.small(stored.index, LARGEST_INDEX)
            names = safetensors_files(repository.where, repository.files, index, stored)
        folder = entry.location.rpartition("/")[0] if entry.location.endswith(".gguf") else entry.location
        sizes = [(name, repository.files[name]) for name in sorted(names)]
        files = self._reading(entry.location).hashed(host, folder, sizes)
        content = "".join(f"{file.path} {file.size} {file.sha256}\n" for file in files)
        revision = hashlib.sha256(content.encode()).hexdigest()[:40]
        return self._pinned(entry, revision, files)

    def _reading(self, location: str) -> HostReader:
        """The reader. It is there if a service names a path: rigup prepares for SSH before it knows the catalogue."""
        if self._reader is None:
            raise InputError(f"its files lie on hosts, at {location}", f'name the path: "checkpoint": "{location}"')
        return self._reader

    def _locked_from_ollama(self, host: HostEntry, entry: CheckpointEntry) -> LockedCheckpoint:
        registry = self.ollama(host)
        self.log(f"querying {registry.name} for {entry.location}")
        repository, model = ollama_repository(registry, entry.location)
        ((path, size),) = repository.files.items()
        return self._pinned(entry, model.manifest[:40], (LockedFile(path=path, size=size, sha256=model.sha256),))

    def _listing(self, hub: Hub, repo: str, revision: str) -> tuple[str, dict[str, HubFile]]:
        """The commit of a revision, and its files; asks the hub once for all quantisations."""
        key = (hub.address, repo)
        if (*key, revision) not in self._listings:
            commit = hub.commit(repo, revision)
            found = self._listings.get((*key, commit)) or (commit, hub.files(repo, commit))
            self._listings[*key, revision] = self._listings[*key, commit] = found
        return self._listings[*key, revision]

    def _pinned(self, entry: CheckpointEntry, revision: str, files: tuple[LockedFile, ...]) -> LockedCheckpoint:
        """The checkpoint with these files. Warns if their size differs from the catalogue's; plans use the lock's."""
        locked = LockedCheckpoint(
            repo=entry.repo, quant=entry.quant, revision=revision, files=files, location=entry.location
        )
        found = sum(file.size for file in files if file.path.endswith(WEIGHTS))
        where = f"at {entry.location}" if entry.location else "on the hub"
        if abs(found - entry.bytes) > entry.bytes * (EXACT_TOLERANCE if entry.bytes_exact else TOLERANCE):
            self.warnings.append(
                f"{entry.label}: {bytes_text(found)} of weights {where}, {bytes_text(entry.bytes)} in the "
                f"catalogue; plans use the size {where}"
            )
        return locked

    def _release(self, name: Name | BuildName) -> EngineVersion:
        """A release that a plan has chosen, so the catalogue has it."""
        release = self.catalogue.engines_by_name[name[0]].version(name[1])
        assert release is not None
        return release

    def _entry(self, name: Name) -> CheckpointEntry:
        return next(entry for entry in self.catalogue.checkpoints if (entry.repo, entry.quant) == name)

    def ollama(self, host: HostEntry) -> OllamaRegistry:
        """Ollama's registry, for a host: its own setting, then the environment variable, then the public one."""
        settings = read_settings(host.data, (), self._project.root, host.origins)
        named = None if "ollama_registry" in host.data else os.environ.get(OLLAMA_VARIABLE)
        address = ollama_address(OLLAMA_VARIABLE, named) if named else settings.ollama_registry
        return OllamaRegistry(address, self._pause)

    def source_of(self, checkpoint: LockedCheckpoint, plan: Plan | None) -> Hub | OllamaRegistry:
        """Where a plan's host downloads a checkpoint from; without a plan, the first host."""
        host = self._hosts[plan.host] if plan else self._project.hosts[0]
        return self.ollama(host) if checkpoint.location else self.hub(host)

    def hub(self, host: HostEntry) -> Hub:
        """The hub of a host: its own `hub` setting, then the environment variable, then the public one."""
        settings = read_settings(host.data, (), self._project.root, host.origins)
        named = None if "hub" in host.data else os.environ.get(HUB_VARIABLE)
        address = hub_address(HUB_VARIABLE, named) if named else settings.hub
        key = (address, settings.hub_token)
        if key not in self._hubs:
            self._hubs[key] = Hub(address, settings.hub_token, self._pause)
        return self._hubs[key]


def _stored(entry: CheckpointEntry) -> SafetensorsFormat:
    return MISTRAL if entry.mistral_class else TRANSFORMERS
