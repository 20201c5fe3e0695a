"""Flask extension: a knowledge base inside a Flask application.

>>> from flask import Flask
>>> from kbserver.flask import KBCore
>>> app = Flask("host")
>>> app.config["KBCORE_STORAGE_BACKEND"] = "memory"
>>> kb = KBCore(app)
>>> kb.open("visitors").tell("visited(ann)").asserted
1
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from flask import Flask, current_app, has_app_context
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from kbcore.config.settings import PREFIX, SETTINGS, Config, Setting
from kbcore.errors import ConfigError, KBError
from kbcore.state.catalog import DEFAULT
from kbserver.answers import JSON
from kbserver.app import create_app
from kbserver.errors import answer_of
from kbserver.http.request_id import identity_headers, request_id
from kbserver.process.shared_runtime import SharedRuntime

if TYPE_CHECKING:
    from kbcore.node.knowledge_base import KnowledgeBase
    from kbcore.node.runtime import Runtime

EXTENSION = "kbcore"
"""Key in `app.extensions` of the extension."""

OPTIONS: Mapping[str, str | None] = {"URL_PREFIX": None, "TENANT": DEFAULT, "DATABASE": DEFAULT}
"""Names of the extension in `app.config`, after the prefix, with defaults."""

WSGI = Callable[..., Iterable[bytes]]


class KBCore:
    """The extension: `KBCore(app)`, or `init_app` in an application factory.

    Settings come from `app.config`, with the prefix `KBCORE_`, and from environment variables with
    that prefix, which `app.config` overrides. `KBCORE_URL_PREFIX`, such as "/kb", serves the HTTP
    interface below that path; without it only the host application uses the knowledge base.
    `KBCORE_TENANT` and `KBCORE_DATABASE` are the defaults of `open`.

    The storage is opened on first use, once per process, and closed when the process ends; under
    gunicorn and uWSGI it is opened when the application is loaded. One process can have it open.
    `plugins` are plugin objects beside the installed ones.
    """

    def __init__(self, app: Flask | None = None, *, plugins: Iterable[object] = ()) -> None:
        self._plugins = tuple(plugins)
        self._hosted: WeakKeyDictionary[Flask, _Hosted] = WeakKeyDictionary()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Add the extension to an application.

        Raises ConfigError for an unknown or wrong setting, and for a second extension.
        """
        if EXTENSION in app.extensions:
            raise ConfigError("this application has a KBCore already")
        config, options = config_of(app.config), _options_of(app.config)
        shared = SharedRuntime(lambda: config, plugins=self._plugins)
        if (prefix := options["URL_PREFIX"]) is not None:
            app.wsgi_app = DispatcherMiddleware(  # type: ignore[method-assign]
                app.wsgi_app, {prefix: _routes(shared)}
            )
        app.extensions[EXTENSION] = self
        self._hosted[app] = _Hosted(shared, options)
        shared.open_in_worker()

    def open(self, tenant: str | None = None, *, database: str | None = None) -> KnowledgeBase:
        """Return the knowledge base of a tenant; the same object as `kbcore.open_kb` returns.

        Raises StorageBusy, LogCorrupted and ConfigError on first use, UnknownDatabase, and
        InvalidInput for a name that is not valid.
        """
        options = self._current().options
        return self.runtime.open(
            tenant or options["TENANT"], database=database or options["DATABASE"]
        )

    @property
    def runtime(self) -> Runtime:
        """The node that the application hosts; raises like `open`."""
        return self._current().shared.get()

    def close(self) -> None:
        """Close the storage before the process ends, for tests; the next use opens it again."""
        self._current().shared.close()

    def _current(self) -> _Hosted:
        """Return what belongs to the current application, or to the only one."""
        if has_app_context():
            app = current_app._get_current_object()  # type: ignore[attr-defined]
            if app in self._hosted:
                return self._hosted[app]
        if len(self._hosted) != 1:
            raise RuntimeError(
                "call init_app(app) first"
                if not self._hosted
                else "several applications have this KBCore: use it inside `with app.app_context()`"
            )
        return next(iter(self._hosted.values()))


@dataclass(frozen=True, slots=True)
class _Hosted:
    """The runtime of one application, and its options."""

    shared: SharedRuntime
    options: Mapping[str, Any]


def config_of(values: Mapping[str, Any]) -> Config:
    """Return the settings in the configuration of an application, over those of the environment.

    Values are texts as in the environment, or Python values such as `True`, 9300 or a list of
    names; None is the default. Raises ConfigError.
    """
    settings = {setting.name: setting for setting in SETTINGS}
    texts: dict[str, str] = {}
    for key, value in values.items():
        name = key.removeprefix(PREFIX)
        if name == key or name in OPTIONS or value is None:
            continue
        if name not in settings:
            similar = difflib.get_close_matches(name, (*settings, *OPTIONS), 1)
            hint = f"; did you mean {PREFIX}{similar[0]}?" if similar else ""
            raise ConfigError(f"{key} in the configuration of the application is unknown{hint}")
        texts[name] = _text(key, value, settings[name])
    return Config.from_env(prefixed=True).updated(texts)


def _text(key: str, value: Any, setting: Setting) -> str:
    """Return a value of the configuration as the text that an environment variable would have."""
    if isinstance(value, (str, os.PathLike)):
        return str(os.fspath(value))
    try:
        return setting.parser.format(value)
    except TypeError as error:
        raise ConfigError(f"{key} must be {setting.parser.permitted}") from error


def _options_of(values: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: values.get(PREFIX + name, default) for name, default in OPTIONS.items()}
    prefix = options["URL_PREFIX"]
    if prefix is not None and not (isinstance(prefix, str) and prefix.strip("/")):
        raise ConfigError(f'{PREFIX}URL_PREFIX must be a path below the application, such as "/kb"')
    if prefix is not None:
        options["URL_PREFIX"] = "/" + prefix.strip("/")
    return options


def _routes(shared: SharedRuntime) -> WSGI:
    """Return a WSGI application with the HTTP interface, made with the first request."""
    lock = threading.Lock()
    apps: list[Flask] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            if not apps:
                runtime = shared.get()
                with lock:
                    if not apps:
                        apps.append(create_app(runtime))
        except KBError as error:
            id = request_id(environ.get("HTTP_X_REQUEST_ID"))
            answer = answer_of(error, id)
            headers = [("Content-Type", JSON), *identity_headers(id), *answer.headers.items()]
            start_response(answer.line(), headers)
            return [answer.body()]
        return apps[0](environ, start_response)

    return application
