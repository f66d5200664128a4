# SPDX-License-Identifier: Apache-2.0
"""The resources that the process uses: processor time, memory, file descriptors."""

from __future__ import annotations

import os
import resource
from typing import Callable, Iterable, Optional, Union

from .metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from .registry import REGISTRY, CollectorRegistry

#: Fields of /proc/PID/stat, counted from the one after the name.
_UTIME, _STIME, _START, _VIRTUAL, _RESIDENT = 11, 12, 19, 20, 21


class ProcessCollector:
    """The process metrics that Prometheus has standard names for, read from /proc.

    `pid` gives the process. On a system without /proc there are no metrics.
    """

    def __init__(
        self,
        namespace: str = "",
        pid: Callable[[], Union[int, str]] = lambda: "self",
        proc: str = "/proc",
        registry: Optional[CollectorRegistry] = REGISTRY,
    ) -> None:
        self._prefix = f"{namespace}_process_" if namespace else "process_"
        self._pid = pid
        self._proc = proc
        self._ticks = float(os.sysconf("SC_CLK_TCK"))
        self._pagesize = resource.getpagesize()
        self._btime = self._boot_time()
        if registry:
            registry.register(self)

    def _boot_time(self) -> float:
        try:
            with open(os.path.join(self._proc, "stat"), "rb") as stat:
                return next((float(line.split()[1]) for line in stat if line.startswith(b"btime ")), 0.0)
        except OSError:
            return 0.0

    def collect(self) -> Iterable[Metric]:
        """The families, less those that can't be read."""
        if not self._btime:
            return []
        place = os.path.join(self._proc, str(self._pid()).strip())
        result: list[Metric] = []
        for read in (self._usage, self._files):
            try:
                result += read(place)
            except OSError:
                pass
        return result

    def _usage(self, place: str) -> list[Metric]:
        with open(os.path.join(place, "stat"), "rb") as stat:
            # The name may hold anything, a bracket as well.
            fields = [float(field) for field in stat.read().rpartition(b")")[2].split()[1:]]
        field = {name: fields[name - 1] for name in (_UTIME, _STIME, _START, _VIRTUAL, _RESIDENT)}
        started = self._btime + field[_START] / self._ticks
        cpu = (field[_UTIME] + field[_STIME]) / self._ticks
        return [
            self._gauge("virtual_memory_bytes", "Virtual memory size in bytes.", field[_VIRTUAL]),
            self._gauge(
                "resident_memory_bytes", "Resident memory size in bytes.", field[_RESIDENT] * self._pagesize
            ),
            self._gauge(
                "start_time_seconds", "Start time of the process since unix epoch in seconds.", started
            ),
            CounterMetricFamily(
                self._prefix + "cpu_seconds_total", "Total user and system CPU time spent in seconds.", value=cpu
            ),
        ]

    def _files(self, place: str) -> list[Metric]:
        result: list[Metric] = [
            self._gauge(
                "open_fds", "Number of open file descriptors.", len(os.listdir(os.path.join(place, "fd")))
            )
        ]
        with open(os.path.join(place, "limits"), "rb") as limits:
            for line in limits:
                if line.startswith(b"Max open file"):
                    limit = float(line.split()[3].replace(b"unlimited", b"inf"))
                    result.append(self._gauge("max_fds", "Maximum number of open file descriptors.", limit))
        return result

    def _gauge(self, name: str, documentation: str, value: float) -> Metric:
        return GaugeMetricFamily(self._prefix + name, documentation, value=value)


#: The one of the default registry.
PROCESS_COLLECTOR = ProcessCollector()
