# SPDX-License-Identifier: Apache-2.0
"""Metrics as text, and the ways they leave the process: HTTP, files, a push gateway."""

from __future__ import annotations

from functools import partial
from typing import Callable

from .metrics_core import Metric
from .openmetrics import exposition as openmetrics
from .openmetrics.exposition import escape_metric_name, series
from .registry import REGISTRY, Collector
from .samples import Sample
from .utils import floatToGoString, parse_version

__all__ = (
    "CONTENT_TYPE_LATEST",
    "CONTENT_TYPE_PLAIN_0_0_4",
    "CONTENT_TYPE_PLAIN_1_0_0",
    "MetricsHandler",
    "basic_auth_handler",
    "choose_encoder",
    "default_handler",
    "delete_from_gateway",
    "generate_latest",
    "gzip_accepted",
    "instance_ip_grouping_key",
    "make_asgi_app",
    "make_wsgi_app",
    "passthrough_redirect_handler",
    "push_to_gateway",
    "pushadd_to_gateway",
    "start_http_server",
    "start_wsgi_server",
    "tls_auth_handler",
    "write_to_textfile",
)

CONTENT_TYPE_PLAIN_0_0_4 = "text/plain; version=0.0.4; charset=utf-8"
CONTENT_TYPE_PLAIN_1_0_0 = "text/plain; version=1.0.0; charset=utf-8"
CONTENT_TYPE_LATEST = CONTENT_TYPE_PLAIN_1_0_0

#: The names in Prometheus's format of the types that only OpenMetrics has, and the suffixes that their names get.
_PLAIN = {
    "counter": ("counter", "_total"),
    "info": ("gauge", "_info"),
    "stateset": ("gauge", ""),
    "gaugehistogram": ("histogram", ""),
    "unknown": ("untyped", ""),
}

#: Series that are families of their own in Prometheus's format; they follow the others.
_APART = ("_created", "_gcount", "_gsum")

_Encoder = Callable[[Collector], bytes]


def generate_latest(registry: Collector = REGISTRY, escaping: str = openmetrics.UNDERSCORES) -> bytes:
    """The registry's metrics in Prometheus's text format.

    An error names the metric it came from as the last of its arguments.
    """
    output: list[str] = []
    for metric in registry.collect():
        try:
            _write_metric(output, metric, escaping)
        except Exception as error:
            error.args = (error.args or ("",)) + (metric,)
            raise
    return "".join(output).encode("utf-8")


def _write_metric(output: list[str], metric: Metric, escaping: str) -> None:
    typ, suffix = _PLAIN.get(metric.type, (metric.type, ""))
    _write_head(output, metric, suffix, typ, escaping)
    apart: dict[str, list[str]] = {metric.name + suffix: [] for suffix in _APART}
    for sample in metric.samples:
        apart.get(sample.name, output).append(_line(sample, escaping))
    for suffix in _APART:
        lines = apart[metric.name + suffix]
        if lines:
            _write_head(output, metric, suffix, "gauge", escaping)
            output.extend(lines)


def _write_head(output: list[str], metric: Metric, suffix: str, typ: str, escaping: str) -> None:
    name = escape_metric_name(metric.name + suffix, escaping)
    documentation = metric.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    output.append(f"# HELP {name} {documentation}\n# TYPE {name} {typ}\n")


def _line(sample: Sample, escaping: str) -> str:
    # Milliseconds here, seconds in OpenMetrics.
    time = "" if sample.timestamp is None else f" {int(float(sample.timestamp) * 1000):d}"
    return f"{series(sample, escaping)} {floatToGoString(sample.value)}{time}\n"


def choose_encoder(accept_header: str) -> tuple[_Encoder, str]:
    """The encoder that an `Accept` header asks for, and its content type."""
    for accepted in (accept_header or "").split(","):
        media, *parameters = accepted.split(";")
        version = _parameter(parameters, "version")
        escaping = _escaping(parameters)
        is_modern = bool(version) and parse_version(version) >= (1, 0, 0)
        if media.strip() == "application/openmetrics-text":
            if not version:
                encoder = partial(openmetrics.generate_latest, escaping=openmetrics.UNDERSCORES, version="1.0.0")
                return encoder, openmetrics.CONTENT_TYPE_LATEST
            if is_modern:
                encoder = partial(openmetrics.generate_latest, escaping=escaping, version=version)
                content = f"application/openmetrics-text; version={version}; charset=utf-8; escaping={escaping}"
                return encoder, content
        elif media.strip() == "text/plain" and is_modern:
            return partial(generate_latest, escaping=escaping), f"{CONTENT_TYPE_LATEST}; escaping={escaping}"
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4


def _parameter(parameters: list[str], name: str) -> str:
    for parameter in parameters:
        key, equals, value = parameter.strip().partition("=")
        if equals and key == name:
            return value
    return ""


def _escaping(parameters: list[str]) -> str:
    asked = _parameter(parameters, openmetrics.ESCAPING_HEADER_TAG)
    known = (openmetrics.ALLOWUTF8, openmetrics.UNDERSCORES, openmetrics.DOTS, openmetrics.VALUES)
    return asked if asked in known else openmetrics.UNDERSCORES


def gzip_accepted(accept_encoding_header: str) -> bool:
    """Whether an `Accept-Encoding` header has gzip."""
    encodings = (accept_encoding_header or "").split(",")
    return any(encoding.split(";")[0].strip().lower() == "gzip" for encoding in encodings)


# They use what is above.
from ._push import (  # noqa: E402
    _make_handler as _make_handler,
    _PrometheusRedirectHandler as _PrometheusRedirectHandler,
    basic_auth_handler,
    default_handler,
    delete_from_gateway,
    instance_ip_grouping_key,
    passthrough_redirect_handler,
    push_to_gateway,
    pushadd_to_gateway,
    tls_auth_handler,
)
from ._serve import (  # noqa: E402
    MetricsHandler,
    ThreadingWSGIServer as ThreadingWSGIServer,
    _get_best_family as _get_best_family,
    _get_ssl_ctx as _get_ssl_ctx,
    _SilentHandler as _SilentHandler,
    _bake_output as _bake_output,
    make_wsgi_app,
    start_http_server,
    start_wsgi_server,
    write_to_textfile,
)
from .asgi import make_asgi_app  # noqa: E402
