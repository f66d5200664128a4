# SPDX-License-Identifier: Apache-2.0
"""Metrics pushed to Graphite."""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import Callable

from tidegate._report import LOGGER

from ..registry import REGISTRY, Collector
from ..samples import Sample

__all__ = ("GraphiteBridge",)

#: Dots are not among them: they part the labels.
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")


def _clean(text: str) -> str:
    return _NOT_ALLOWED.sub("_", text)


class GraphiteBridge:
    """Pushes a registry's metrics in Graphite's plaintext protocol; `tags` writes labels as Graphite's tags."""

    def __init__(
        self,
        address: tuple[str, int],
        registry: Collector = REGISTRY,
        timeout_seconds: float = 30,
        _timer: Callable[[], float] = time.time,
        tags: bool = False,
    ) -> None:
        self._address = address
        self._registry = registry
        self._timeout = timeout_seconds
        self._timer = _timer
        self._between = (";", "=") if tags else (".", ".")

    def push(self, prefix: str = "") -> None:
        """Pushes once; `OSError` if no server takes it."""
        now = int(self._timer())
        start = f"{prefix}." if prefix else ""
        lines = [
            f"{start}{self._series(sample)} {float(sample.value)} {now}\n"
            for metric in self._registry.collect()
            for sample in metric.samples
        ]
        with socket.create_connection(self._address, self._timeout) as connection:
            connection.sendall("".join(lines).encode("ascii"))

    def _series(self, sample: Sample) -> str:
        before, between = self._between
        labels = [f"{before}{_clean(name)}{between}{_clean(value)}" for name, value in sorted(sample.labels.items())]
        return _clean(sample.name) + "".join(labels)

    def start(self, interval: float = 60.0, prefix: str = "") -> None:
        """Pushes at once and then every `interval` seconds, from a daemon thread."""
        threading.Thread(target=self._run, args=(interval, prefix), daemon=True).start()

    def _run(self, interval: float, prefix: str) -> None:
        due = time.monotonic()
        while True:
            try:
                self.push(prefix)
            except OSError:
                LOGGER.exception("a push to Graphite failed")
            # A push that took too long takes the place of those that were due meanwhile.
            late = time.monotonic() - due
            due += interval * (late // interval + 1)
            time.sleep(max(0.0, due - time.monotonic()))
