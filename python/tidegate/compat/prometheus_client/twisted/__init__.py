# SPDX-License-Identifier: Apache-2.0
"""Metrics as a resource of Twisted's web server."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor  # type: ignore[import-not-found]
from twisted.web.wsgi import WSGIResource  # type: ignore[import-not-found]

from ..exposition import make_wsgi_app
from ..registry import REGISTRY

__all__ = ["MetricsResource"]


def MetricsResource(registry: Any = REGISTRY) -> Any:
    """A resource that answers with the registry's metrics, on the reactor's threads."""
    return WSGIResource(reactor, reactor.getThreadPool(), make_wsgi_app(registry))
