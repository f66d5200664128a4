# SPDX-License-Identifier: Apache-2.0
"""Metrics over HTTP (WSGI, a thread of its own, a handler to build on) and into files."""

from __future__ import annotations

import gzip
import os
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn
from typing import Any, Callable, Iterable, Mapping, Optional
from urllib.parse import parse_qs, urlparse
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from . import exposition
from .openmetrics import exposition as openmetrics
from .registry import REGISTRY


def _bake_output(
    registry: Any,
    accept_header: Optional[str],
    accept_encoding_header: Optional[str],
    params: Mapping[str, list[str]],
    disable_compression: bool,
) -> tuple[str, list[tuple[str, str]], bytes]:
    """Status, headers and body of an answer; the query parameter `name[]` restricts the series."""
    encoder, content_type = exposition.choose_encoder(accept_header or "")
    if "name[]" in params:
        registry = registry.restricted_registry(params["name[]"])
    output = encoder(registry)
    headers = [("Content-Type", content_type)]
    if not disable_compression and exposition.gzip_accepted(accept_encoding_header or ""):
        output = gzip.compress(output)
        headers.append(("Content-Encoding", "gzip"))
    return "200 OK", headers, output


def make_wsgi_app(registry: Any = REGISTRY, disable_compression: bool = False) -> Callable[..., Iterable[bytes]]:
    """A WSGI application that answers GET on any path with the registry's metrics."""

    def answer(environ: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        method = environ["REQUEST_METHOD"]
        if method == "OPTIONS":
            return "200 OK", [("Allow", "OPTIONS,GET")], b""
        if method != "GET":
            status = "405 Method Not Allowed"
            return status, [("Allow", "OPTIONS,GET")], f"# HTTP {status}: {method}; use OPTIONS or GET\n".encode()
        if environ["PATH_INFO"] == "/favicon.ico":
            return "200 OK", [], b""
        params = parse_qs(environ.get("QUERY_STRING", ""))
        accept, encoding = environ.get("HTTP_ACCEPT"), environ.get("HTTP_ACCEPT_ENCODING")
        return exposition._bake_output(registry, accept, encoding, params, disable_compression)

    def prometheus_app(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, headers, output = answer(environ)
        start_response(status, headers)
        return [output]

    return prometheus_app


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Does not log scrapes."""


class ThreadingWSGIServer(ThreadingMixIn, WSGIServer):
    """A thread for each request, none of which keeps the process."""

    daemon_threads = True


def _get_best_family(address: str, port: int) -> tuple[socket.AddressFamily, str]:
    """The family of an address, and the address as that family writes it."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = found[0]
    return family, str(place[0])


def start_wsgi_server(
    port: int,
    addr: str = "0.0.0.0",
    registry: Any = REGISTRY,
    certfile: Optional[str] = None,
    keyfile: Optional[str] = None,
    client_cafile: Optional[str] = None,
    client_capath: Optional[str] = None,
    protocol: int = ssl.PROTOCOL_TLS_SERVER,
    client_auth_required: bool = False,
    tls_min_version: Optional[ssl.TLSVersion] = None,
    tls_max_version: Optional[ssl.TLSVersion] = None,
) -> tuple[WSGIServer, threading.Thread]:
    """Serves the registry's metrics from a daemon thread; gives the server and the thread."""
    family, addr = _get_best_family(addr, port)
    server_class = type("Server", (ThreadingWSGIServer,), {"address_family": family})
    server: WSGIServer = make_server(addr, port, make_wsgi_app(registry), server_class, handler_class=_SilentHandler)
    if certfile and keyfile:
        context = _get_ssl_ctx(certfile, keyfile, protocol, client_cafile, client_capath, client_auth_required)
        if tls_min_version is not None:
            context.minimum_version = tls_min_version
        if tls_max_version is not None:
            context.maximum_version = tls_max_version
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread


#: The name that most programs use.
start_http_server = start_wsgi_server


def _get_ssl_ctx(
    certfile: str,
    keyfile: str,
    protocol: int,
    cafile: Optional[str] = None,
    capath: Optional[str] = None,
    client_auth_required: bool = False,
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol=protocol)
    try:
        if cafile is not None or capath is not None:
            context.load_verify_locations(cafile, capath)
        else:
            context.load_default_certs(purpose=ssl.Purpose.CLIENT_AUTH)
    except OSError as error:
        place = "default CA certificate chain" if cafile is None and capath is None else (
            f"CA certificate chain from file {cafile!r} or directory {capath!r}"
        )
        raise type(error)(f"Cannot load {place}: {error}") from error
    if client_auth_required:
        context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    except OSError as error:
        pair = f"server certificate file {certfile!r} or its private key file {keyfile!r}"
        raise type(error)(f"Cannot load {pair}: {error}") from error
    return context


class MetricsHandler(BaseHTTPRequestHandler):
    """Answers GET with the metrics of `registry`."""

    registry: Any = REGISTRY

    def do_GET(self) -> None:
        """Answers a scrape."""
        params = parse_qs(urlparse(self.path).query)
        accept, encoding = self.headers.get("Accept"), self.headers.get("Accept-Encoding")
        status, headers, output = _bake_output(self.registry, accept, encoding, params, False)
        self.send_response(int(status.split(" ")[0]))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(output)

    def log_message(self, format: str, *args: Any) -> None:
        """Does not log scrapes."""

    @classmethod
    def factory(cls, registry: Any) -> type:
        """A handler class for this registry."""
        return type(cls.__name__, (cls,), {"registry": registry})


def write_to_textfile(
    path: str,
    registry: Any,
    escaping: str = openmetrics.ALLOWUTF8,
    tmpdir: Optional[str] = None,
) -> None:
    """Writes the metrics for node_exporter's textfile collector: whole or not at all.

    `path` must end in `.prom` for it; `tmpdir` must lie on the same file system.
    """
    base = path if tmpdir is None else os.path.join(tmpdir, os.path.basename(path))
    scratch = f"{base}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(scratch, "wb") as file:
            file.write(exposition.generate_latest(registry, escaping))
        os.replace(scratch, path)
    except Exception:
        if os.path.exists(scratch):
            os.remove(scratch)
        raise
