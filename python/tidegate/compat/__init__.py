"""Stand-ins for other metrics libraries, on tidegate's cells.

`install()` lets code that can't be edited use them: it must run before that code imports
the library.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional, Sequence

__all__ = ["install"]

_SUBMODULES = (
    "asgi",
    "bridge",
    "bridge.graphite",
    "context_managers",
    "core",
    "exposition",
    "gc_collector",
    "metrics",
    "metrics_core",
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

#: They need a package of their own, so they are imported when somebody asks for them.
_INTEGRATIONS = ("aiohttp", "aiohttp.exposition", "django", "django.exposition", "twisted")


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
        """It is there already."""
