# SPDX-License-Identifier: Apache-2.0
"""Metrics to a push gateway."""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
from typing import Any, Callable, Literal, Mapping, Optional, Sequence, Union
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlparse
from urllib.request import BaseHandler, HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from . import exposition
from .registry import REGISTRY

CompressionType = Optional[Literal["gzip", "snappy"]]

_Header = tuple[str, Union[str, bytes]]
_Send = Callable[[], None]


class _PrometheusRedirectHandler(HTTPRedirectHandler):
    """Follows redirects with the method and the body of the request, PUT among them."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request:
        method = req.get_method()
        reads = code in (301, 302, 303, 307) and method in ("GET", "HEAD")
        writes = code in (301, 302, 303) and method in ("POST", "PUT")
        if not reads and not writes:
            raise HTTPError(req.full_url, code, msg, headers, fp)
        url = newurl.replace(" ", "%20")
        return Request(url, req.data, req.headers, req.origin_req_host, unverifiable=True, method=method)


def _make_handler(
    url: str,
    method: str,
    timeout: Optional[float],
    headers: Sequence[_Header],
    data: bytes,
    base_handler: Union[BaseHandler, type],
) -> _Send:
    def send() -> None:
        request = Request(url, data=data, method=method)
        for name, value in headers:
            request.add_header(name, value)  # type: ignore[arg-type]
        answer = build_opener(base_handler).open(request, timeout=timeout)
        if answer.code >= 400:
            raise OSError(f"error talking to pushgateway: {answer.code} {answer.msg}")

    return send


def default_handler(url: str, method: str, timeout: Optional[float], headers: list[_Header], data: bytes) -> _Send:
    """Sends by HTTP or HTTPS."""
    return _make_handler(url, method, timeout, headers, data, HTTPHandler)


def passthrough_redirect_handler(
    url: str, method: str, timeout: Optional[float], headers: list[_Header], data: bytes
) -> _Send:
    """Sends and follows any redirect with the same request: for gateways that are trusted."""
    return _make_handler(url, method, timeout, headers, data, _PrometheusRedirectHandler)


def basic_auth_handler(
    url: str,
    method: str,
    timeout: Optional[float],
    headers: list[_Header],
    data: bytes,
    username: Optional[str] = None,
    password: Optional[str] = None,
) -> _Send:
    """Sends with Basic authentication."""

    def send() -> None:
        if username is not None and password is not None:
            token = base64.b64encode(f"{username}:{password}".encode())
            headers.append(("Authorization", b"Basic " + token))
        default_handler(url, method, timeout, headers, data)()

    return send


def tls_auth_handler(
    url: str,
    method: str,
    timeout: Optional[float],
    headers: list[_Header],
    data: bytes,
    certfile: str,
    keyfile: str,
    cafile: Optional[str] = None,
    protocol: int = ssl.PROTOCOL_TLS_CLIENT,
    insecure_skip_verify: bool = False,
) -> _Send:
    """Sends by HTTPS with a client certificate."""
    context = ssl.SSLContext(protocol=protocol)
    if cafile is not None:
        context.load_verify_locations(cafile)
    else:
        context.load_default_certs()
    if insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return _make_handler(url, method, timeout, headers, data, HTTPSHandler(context=context))


def push_to_gateway(
    gateway: str,
    job: str,
    registry: Any,
    grouping_key: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = 30,
    handler: Callable[..., _Send] = default_handler,
    compression: CompressionType = None,
) -> None:
    """Replaces all metrics of the job and grouping key (PUT). `timeout` in seconds."""
    _use_gateway("PUT", gateway, job, registry, grouping_key, timeout, handler, compression)


def pushadd_to_gateway(
    gateway: str,
    job: str,
    registry: Any,
    grouping_key: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = 30,
    handler: Callable[..., _Send] = default_handler,
    compression: CompressionType = None,
) -> None:
    """Replaces the metrics of the same names in the job and grouping key (POST)."""
    _use_gateway("POST", gateway, job, registry, grouping_key, timeout, handler, compression)


def delete_from_gateway(
    gateway: str,
    job: str,
    grouping_key: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = 30,
    handler: Callable[..., _Send] = default_handler,
) -> None:
    """Deletes the metrics of the job and grouping key (DELETE)."""
    _use_gateway("DELETE", gateway, job, None, grouping_key, timeout, handler)


def _use_gateway(
    method: str,
    gateway: str,
    job: str,
    registry: Any,
    grouping_key: Optional[Mapping[str, Any]],
    timeout: Optional[float],
    handler: Callable[..., _Send],
    compression: CompressionType = None,
) -> None:
    if urlparse(gateway).scheme not in ("http", "https"):
        gateway = f"http://{gateway}"
    group = [("job", job), *sorted((grouping_key or {}).items())]
    path = "".join("/{}/{}".format(*_escape_grouping_key(str(name), str(value))) for name, value in group)
    headers: list[_Header] = [("Content-Type", exposition.CONTENT_TYPE_PLAIN_0_0_4)]
    data = b""
    if method != "DELETE":
        data = exposition.generate_latest(REGISTRY if registry is None else registry)
        data, encoding = _compress(data, compression)
        headers += encoding
    url = f"{gateway.rstrip('/')}/metrics{path}"
    handler(url=url, method=method, timeout=timeout, headers=headers, data=data)()


def _compress(data: bytes, compression: CompressionType) -> tuple[bytes, list[_Header]]:
    if compression is None:
        return data, []
    encoding = compression.lower()
    if encoding == "gzip":
        return gzip.compress(data), [("Content-Encoding", "gzip")]
    if encoding == "snappy":
        return _snappy(data), [("Content-Encoding", "snappy")]
    raise ValueError(f"Unsupported compression type: {compression}")


def _snappy(data: bytes) -> bytes:
    try:
        import snappy  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise RuntimeError("Snappy compression requires the python-snappy package to be installed.") from error
    compressor = snappy.StreamCompressor()
    compressed: bytes = compressor.compress(data)
    flush = getattr(compressor, "flush", None)
    return compressed + (flush() if callable(flush) else b"")


def _escape_grouping_key(k: str, v: str) -> tuple[str, str]:
    """Name and value as parts of a path; values that can't be one go as base64."""
    if v == "":
        return k + "@base64", "="
    if "/" in v or " " in v:
        return k + "@base64", base64.urlsafe_b64encode(v.encode("utf-8")).decode("ascii")
    return k, quote_plus(v)


def instance_ip_grouping_key() -> dict[str, Any]:
    """A grouping key `instance`: the address of this host. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("localhost", 0))
        return {"instance": probe.getsockname()[0]}
