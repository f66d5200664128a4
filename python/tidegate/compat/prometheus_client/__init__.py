# SPDX-License-Identifier: Apache-2.0
"""A drop-in for `prometheus_client` whose values live in tidegate's cells.

Change ``from prometheus_client import ...`` to ``from tidegate.compat.prometheus_client import ...``. With
``PROMETHEUS_MULTIPROC_DIR`` or ``TIDEGATE_CELLS_DIR`` set, each process keeps its values in one file
there: counts outlive the process that made them, forks start at zero on their own, and dead
processes' files are folded into one.
"""

from . import (
    exposition,
    gc_collector,
    metrics,
    metrics_core,
    platform_collector,
    process_collector,
    registry,
)
from .exposition import (
    CONTENT_TYPE_LATEST,
    CONTENT_TYPE_PLAIN_0_0_4,
    CONTENT_TYPE_PLAIN_1_0_0,
    MetricsHandler,
    delete_from_gateway,
    generate_latest,
    instance_ip_grouping_key,
    make_asgi_app,
    make_wsgi_app,
    push_to_gateway,
    pushadd_to_gateway,
    start_http_server,
    start_wsgi_server,
    write_to_textfile,
)
from .gc_collector import GC_COLLECTOR, GCCollector
from .metrics import (
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    Summary,
    disable_created_metrics,
    enable_created_metrics,
)
from .metrics_core import Metric
from .platform_collector import PLATFORM_COLLECTOR, PlatformCollector
from .process_collector import PROCESS_COLLECTOR, ProcessCollector
from .registry import REGISTRY, CollectorRegistry

__all__ = (
    "CONTENT_TYPE_LATEST",
    "CONTENT_TYPE_PLAIN_0_0_4",
    "CONTENT_TYPE_PLAIN_1_0_0",
    "CollectorRegistry",
    "Counter",
    "Enum",
    "GC_COLLECTOR",
    "GCCollector",
    "Gauge",
    "Histogram",
    "Info",
    "Metric",
    "MetricsHandler",
    "PLATFORM_COLLECTOR",
    "PROCESS_COLLECTOR",
    "PlatformCollector",
    "ProcessCollector",
    "REGISTRY",
    "Summary",
    "delete_from_gateway",
    "disable_created_metrics",
    "enable_created_metrics",
    "generate_latest",
    "instance_ip_grouping_key",
    "make_asgi_app",
    "make_wsgi_app",
    "push_to_gateway",
    "pushadd_to_gateway",
    "start_http_server",
    "start_wsgi_server",
    "write_to_textfile",
)
