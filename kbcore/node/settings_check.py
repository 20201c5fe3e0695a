"""Check of all settings before a start: every unusable value, and the source of each value."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from kbcore.clock import SystemClock
from kbcore.config.settings import PREFIX, SETTINGS, Config
from kbcore.encryption.master_key import key_warnings
from kbcore.errors import ConfigError, KBError
from kbcore.operations.decision_targets import FILE, DecisionTarget, decision_target
from kbcore.plug.manager import Plugins
from kbcore.reason.external.predicates import search_predicates
from kbcore.receipts.signing import configured_key
from kbcore.replication.role import check_settings
from kbcore.scheduling import Scheduling

DEFAULT = "default"


@dataclass(slots=True)
class Effective:
    """Settings as a server would use them, the source of each by its name, and the problems found.

    `variables` are the environment variables that were used, by the name of the setting. A setting
    that cannot be used has its default in `config`.
    """

    config: Config
    sources: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def effective(environ: Mapping[str, str], flags: Mapping[str, str], source: str) -> Effective:
    """Read settings from `environ`, which `source` describes, and from flags, which win over it.

    Every setting that cannot be read is in `problems`; nothing is raised.
    """
    usable: dict[str, str] = {}
    result = Effective(Config())
    for setting in SETTINGS:
        values = {name: environ[name] for name in setting.variables if environ.get(name)}
        try:
            Config.from_env(values)
        except ConfigError as error:
            result.problems.append(error.message)
            continue
        usable.update(values)
        variable = setting.variable_in(values)
        if variable is not None:
            is_file = variable.removeprefix(PREFIX) != setting.name
            result.sources[setting.name] = f"{variable} ({source})" if is_file else source
            result.variables[setting.name] = variable.removesuffix("_FILE") if is_file else variable
    chosen: dict[str, str] = {}
    for name, text in flags.items():
        try:
            Config().updated({name: text})
        except ConfigError as error:
            result.problems.append(error.message)
            continue
        chosen[name] = text
        result.variables.pop(name, None)
        result.sources[name] = f"--{name.lower().replace('_', '-')}"
    result.config = Config.from_env(usable).updated(chosen)
    if "STORAGE_URL" in result.sources and (
        "STORAGE_BACKEND" not in result.sources
        or ("STORAGE_URL" in chosen and "STORAGE_BACKEND" not in chosen)
    ):
        result.sources["STORAGE_BACKEND"] = "STORAGE_URL"
    return result


def plugin_problems(config: Config, specs: ModuleType) -> list[str]:
    """Open the plugins that settings choose, as a start does, and close them.

    Return what a start would refuse.

    `specs` are the hooks of the server. The storage itself is not opened: a running server may hold
    it.
    """
    problems: list[str] = []
    with _collected(problems):
        check_settings(config)
    plugins: Plugins | None = None
    with _collected(problems):
        plugins = Plugins(config)
        plugins.specify(specs)
    if plugins is None:
        return problems
    sinks = (replace(config, metrics_sinks=(name,)) for name in dict.fromkeys(config.metrics_sinks))
    with _collected(problems):
        plugins.check_storage()
    checks: list[Callable[[], object]] = [
        plugins.encryption.check_settings,
        partial(configured_key, config),
        plugins.salience_scorer,
        plugins.llm_provider,
        plugins.embedder,
        plugins.tokenizer,
        plugins.predicates,
        plugins.webhook_sender,
        partial(search_predicates, config),
        partial(_decision_target, config, plugins),
        *(Plugins(sink).metrics_sinks for sink in sinks),
    ]
    for check in checks:
        with _collected(problems):
            opened = check()
            for each in opened if isinstance(opened, list) else [opened]:
                if callable(close := getattr(each, "close", None)):
                    close()
    return list(dict.fromkeys(problems))


def _decision_target(config: Config, plugins: Plugins) -> DecisionTarget | None:
    """Return the target of decisions if it is no file, which would be created."""
    if not config.decision_log or config.decision_log.startswith(FILE):
        return None
    scheduling = Scheduling()
    return decision_target(
        config.decision_log,
        SystemClock(),
        scheduling.offload_disk,
        scheduling.offload_wait,
        plugins.webhook_sender,
    )


FOLDER_BACKENDS = ("wal", "sqlite")
"""Storages whose data is in STORAGE_DIR."""


def machine_problems(config: Config) -> list[str]:
    """Return why a server with these settings could not start on this machine.

    STORAGE_DIR must be a folder that can be written or created, HOST an address or a known name,
    and the file of DECISION_LOG one that can be written or created. Nothing is created.
    """
    problems = []
    if config.storage_backend in FOLDER_BACKENDS and (problem := _folder_problem(config)):
        problems.append(f"STORAGE_DIR={config.storage_dir}: {problem}")
    try:
        socket.getaddrinfo(config.host or None, config.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        problems.append(f"HOST={config.host}: is not an address or a known host name")
    file = config.decision_log.removeprefix(FILE)
    if file != config.decision_log and (problem := _file_problem(Path(file))):
        problems.append(f"DECISION_LOG={config.decision_log}: {problem}")
    return problems


def machine_warnings(config: Config) -> list[str]:
    """Return the settings that name a host which this machine cannot resolve, or a key that other
    users can read.
    """
    warnings = [*key_warnings(config)]
    for name, url in (
        ("STORAGE_URL", config.storage_url),
        ("LEADER_URL", config.leader_url),
        ("OAUTH_ISSUER", config.oauth_issuer),
        ("CLUSTER_URL", config.cluster_url),
        ("COORDINATOR_URL", config.coordinator_url),
        ("LLM_BASE_URL", config.llm_base_url),
    ):
        try:
            host = urlsplit(url or "").hostname
            if host:
                socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError):
            warnings.append(f"{name}: the host {host} is not known on this machine")
        except ValueError:  # no address: the setting itself is checked elsewhere
            continue
    return warnings


def _folder_problem(config: Config) -> str | None:
    folder = Path(config.storage_dir).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        return "is not a folder" if existing == folder else f"{existing} is not a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return "no permission to write there" if existing == folder else "cannot be created"
    return None


def _file_problem(file: Path) -> str | None:
    """Return why a file cannot be appended to; None if it can."""
    folder = file.absolute().parent
    if file.is_dir():
        return "is a folder"
    if file.exists():
        return None if os.access(file, os.W_OK) else "no permission to write to the file"
    if not folder.is_dir():
        return f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to create a file in {folder}"
    return None


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Add the error of the block to `problems`.

    Of a foreign error only the type, since its text may be secret.
    """
    try:
        yield
    except KBError as error:
        problems.append(error.message)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and a start would fail with it
        problems.append(f"a plugin failed with {type(error).__name__} while it was opened")
