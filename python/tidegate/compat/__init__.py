# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for other metrics libraries, on tidegate's cells.

Code that can't be edited uses them in one of three ways:

- ``TIDEGATE_COMPAT=prometheus_client`` in the environment, where the package is installed with pip;
- ``python -m tidegate.compat PROGRAM [ARGUMENT...]``, which starts a program that way;
- `install()`, which must run before that code imports the library.

The first two hold for all child processes as well, however they are started.
"""

from __future__ import annotations

import importlib
import importlib.abc
import os
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional, Sequence

__all__ = ["VARIABLE", "activate", "install"]

#: The environment variable that names the library to stand in for, in this process and its children.
VARIABLE = "TIDEGATE_COMPAT"

_LIBRARY = "prometheus_client"

_SUBMODULES = (
    "asgi",
    "bridge",
    "bridge.graphite",
    "context_managers",
    "core",
    "decorator",
    "exposition",
    "gc_collector",
    "metrics",
    "metrics_core",
    "mmap_dict",
    "multiprocess",
    "openmetrics",
    "openmetrics.exposition",
    "openmetrics.parser",
    "parser",
    "platform_collector",
    "process_collector",
    "registry",
    "samples",
    "utils",
    "validation",
    "values",
)

#: They need a package of their own, so they are imported on first use.
_INTEGRATIONS = ("aiohttp", "aiohttp.exposition", "django", "django.exposition", "twisted")


def activate() -> None:
    """Does what the environment's `TIDEGATE_COMPAT` says: the interpreter calls it when it starts.

    Nothing is loaded before the program imports the library. An unknown name is a warning.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    if wanted != _LIBRARY:
        warnings.warn(f"{VARIABLE}={wanted!r} is unknown: the only value is {_LIBRARY}", RuntimeWarning, stacklevel=2)
        return
    if _LIBRARY not in sys.modules and not any(isinstance(finder, _OnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OnImport())


def install() -> None:
    """Makes ``import prometheus_client`` give `tidegate.compat.prometheus_client` in this process.

    Raises `RuntimeError` if the real one has been imported already: two libraries in one
    process would each serve half of the metrics.
    """
    ours = importlib.import_module("tidegate.compat.prometheus_client")
    present = sys.modules.get("prometheus_client")
    if present is ours:
        return
    if present is not None:
        raise RuntimeError("prometheus_client was imported before tidegate.compat.install()")
    sys.modules["prometheus_client"] = ours
    for name in _SUBMODULES:
        sys.modules[f"prometheus_client.{name}"] = importlib.import_module(f"{ours.__name__}.{name}")
    sys.meta_path.insert(0, _Integrations())


class _Integrations(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the same module under the other name, when it is imported."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        package, _, name = fullname.partition(".")
        if package != "prometheus_client" or name not in _INTEGRATIONS:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(f"tidegate.compat.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """The module has run under its own name."""


class _OnImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Installs the stand-in when the program imports the library for the first time."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if fullname != _LIBRARY:
            return None
        sys.meta_path.remove(self)
        install()
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"tidegate.compat.{spec.name}")
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run under its own name, and keeps its own specification."""
        module.__spec__ = self._own
