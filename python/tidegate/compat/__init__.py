"""Stand-ins for other metrics libraries, on tidegate's cells.

`install()` lets code that can't be edited use them: it must run before that code imports
the library.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["install"]

_SUBMODULES = (
    "asgi",
    "context_managers",
    "core",
    "exposition",
    "gc_collector",
    "metrics",
    "metrics_core",
    "multiprocess",
    "openmetrics",
    "openmetrics.exposition",
    "platform_collector",
    "process_collector",
    "registry",
    "samples",
    "utils",
    "validation",
    "values",
)


def install() -> None:
    """Makes ``import prometheus_client`` give `tidegate.compat.prometheus_client` in this process.

    Raises `RuntimeError` if the real one has been imported already: two libraries in one
    process would each serve half of the metrics.
    """
    ours = importlib.import_module("tidegate.compat.prometheus_client")
    present = sys.modules.get("prometheus_client")
    if present is not None and present is not ours:
        raise RuntimeError("prometheus_client was imported before tidegate.compat.install()")
    sys.modules["prometheus_client"] = ours
    for name in _SUBMODULES:
        module = importlib.import_module(f"{ours.__name__}.{name}")
        sys.modules[f"prometheus_client.{name}"] = module
