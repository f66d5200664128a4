# SPDX-License-Identifier: Apache-2.0
"""Metrics as a view of Django."""

from __future__ import annotations

from typing import Any, Optional

from django.http import HttpResponse  # type: ignore[import-not-found]
from django.views import View  # type: ignore[import-not-found]

from .. import values
from .._serve import _bake_output
from ..multiprocess import MultiProcessCollector
from ..registry import REGISTRY, CollectorRegistry

__all__ = ["PrometheusDjangoView"]


class PrometheusDjangoView(View):  # type: ignore[misc]
    """Answers GET with the metrics of `registry`; without one, of all processes if they share a directory."""

    multiprocess_mode: bool = values.directory() is not None
    registry: Optional[CollectorRegistry] = None

    def get(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Answers a scrape."""
        accept, encoding = request.headers.get("Accept"), request.headers.get("Accept-Encoding")
        names = request.GET.getlist("name[]")
        params = {"name[]": names} if names else {}
        status, headers, output = _bake_output(self._registry(), accept, encoding, params, False)
        return HttpResponse(output, status=int(status.split(" ")[0]), headers=dict(headers))

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Says what is allowed."""
        return HttpResponse(status=200, headers={"Allow": "OPTIONS,GET"})

    def _registry(self) -> CollectorRegistry:
        if self.registry is None:
            self.registry = CollectorRegistry() if self.multiprocess_mode else REGISTRY
            if self.multiprocess_mode:
                MultiProcessCollector(self.registry)
        return self.registry
