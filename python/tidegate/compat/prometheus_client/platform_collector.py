# SPDX-License-Identifier: Apache-2.0
"""Which Python this is."""

from __future__ import annotations

import platform as pf
from typing import Any, Iterable, Optional

from .metrics_core import GaugeMetricFamily, Metric
from .registry import REGISTRY, CollectorRegistry


class PlatformCollector:
    """`python_info`: version and implementation as labels."""

    def __init__(self, registry: Optional[CollectorRegistry] = REGISTRY, platform: Optional[Any] = None) -> None:
        self._platform = pf if platform is None else platform
        info = self._info()
        if self._platform.system() == "Java":
            info.update(self._java())
        family = GaugeMetricFamily("python_info", "Python platform information", labels=list(info))
        family.add_metric(list(info.values()), 1)
        self._metrics = [family]
        if registry:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """One gauge, always 1."""
        return self._metrics

    def _info(self) -> dict[str, str]:
        major, minor, patchlevel = self._platform.python_version_tuple()
        return {
            "version": self._platform.python_version(),
            "implementation": self._platform.python_implementation(),
            "major": major,
            "minor": minor,
            "patchlevel": patchlevel,
        }

    def _java(self) -> dict[str, str]:
        version, _, (name, release, vendor), _ = self._platform.java_ver()
        return {"jvm_version": version, "jvm_release": release, "jvm_vendor": vendor, "jvm_name": name}


#: The one of the default registry.
PLATFORM_COLLECTOR = PlatformCollector()
