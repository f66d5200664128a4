"""A page over HTTP, from a thread of its own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def serve(expose: Callable[[bool], str], port: int, addr: str) -> tuple[ThreadingHTTPServer, threading.Thread]:
    """Answers every GET with what `expose` gives; its argument is whether OpenMetrics is wanted."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wants = "application/openmetrics-text" in (self.headers.get("Accept") or "")
            page = expose(wants).encode()
            self.send_response(200)
            self.send_header("Content-Type", _OPENMETRICS if wants else _PLAIN)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            """A scrape is no news."""

    server = ThreadingHTTPServer((addr, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread
