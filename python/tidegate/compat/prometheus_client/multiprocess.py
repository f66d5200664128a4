# SPDX-License-Identifier: Apache-2.0
"""The metrics of all processes that share a directory, as one."""

from __future__ import annotations

import os
import warnings
from typing import Any, Iterable, Optional, Union

from tidegate._tidegate import Directory

from . import values
from .metrics_core import Metric
from .samples import Sample

_Path = Union[str, "os.PathLike[str]"]

#: Seconds that the file of a dead process stays after its counts were taken over: longer than any
#: reader takes that began before.
_GRACE = 60.0


class MultiProcessCollector:
    """Collects what all processes of a directory counted, dead ones as well.

    Each collection also takes over the counts of processes that have died, so that the directory
    does not grow with their number; it goes without where the directory can't be written.
    """

    def __init__(self, registry: Any, path: Optional[_Path] = None) -> None:
        place = values.directory() if path is None else os.fspath(path)
        if not place or not os.path.isdir(place):
            raise ValueError("env PROMETHEUS_MULTIPROC_DIR is not set or not a directory")
        self._path = place
        self._has_warned = False
        values.prepare(place)
        self._directory = Directory(place)
        if registry:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The merged metrics."""
        try:
            self._directory.fold(_GRACE)
        except OSError:
            pass  # Its counts are read where they are.
        self._warn_of_foreign_files()
        families, problems = self._directory.collect()
        for path, why in problems:
            warnings.warn(f"{path} is omitted: {why}", RuntimeWarning, stacklevel=2)
        for family in families:
            # Others than this library may write units that are not part of the name.
            unit = family.unit if family.name.endswith("_" + family.unit) else ""
            metric = Metric(family.name, family.help, family.kind, unit)
            metric.samples = [Sample(*sample) for sample in family.samples]
            yield metric

    def _warn_of_foreign_files(self) -> None:
        """Says once that some processes record with the real prometheus_client, whose counts are not collected."""
        foreign = [] if self._has_warned else values.foreign_files(self._path)
        if not foreign:
            return
        self._has_warned = True
        warnings.warn(
            f"{len(foreign)} files of the real prometheus_client are in {self._path} ({os.path.basename(foreign[0])}, ...): "
            "their counts are missing here. Set TIDEGATE_COMPAT=prometheus_client for all processes, or start the "
            "program with `python -m tidegate.compat`",
            RuntimeWarning,
            stacklevel=3,
        )


def mark_process_dead(pid: int, path: Optional[_Path] = None) -> None:
    """Takes over the counts of processes that have died.

    That a process is dead is seen without this call (its lock is free), and its `live*` gauges
    are gone at once; a process that lives is left alone, whatever `pid` says.
    """
    place = values.directory() if path is None else os.fspath(path)
    if place and os.path.isdir(place):
        Directory(place).fold(_GRACE)
