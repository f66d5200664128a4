# SPDX-License-Identifier: Apache-2.0
"""TLS in front of the page, and pushes to a real Pushgateway: with TLS, client certificates, passwords."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator, NamedTuple, Optional

import pytest
from kit import environment_part, free_port

#: Of `secret`, as the Pushgateway wants it.
PASSWORD = "$2b$04$LjeW7y1ROrWE0sXDZ9FWh.UsqUoQZNq09Yfkr0a4IjHhoCgP809Yi"


class Files(NamedTuple):
    """Paths of certificates and their keys."""

    authority: str
    certificate: str
    key: str
    client: str
    client_key: str

    def context(self, as_client: bool) -> ssl.SSLContext:
        """For a client of what has the server's certificate."""
        context = ssl.create_default_context(cafile=self.authority)
        if as_client:
            context.load_cert_chain(self.client, self.client_key)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    place = tmp_path_factory.mktemp("certificates")
    paths = Files(*(str(place / f"{name}.pem") for name in Files._fields))
    use = "keyUsage=critical,keyCertSign"
    authority = ["-x509", "-subj", "/CN=tests", "-addext", use, "-keyout", str(place / "authority.key"), "-out", paths.authority]
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *authority)
    for certificate, key, name in ((paths.certificate, paths.key, "IP:127.0.0.1"), (paths.client, paths.client_key, "DNS:client")):
        signed = ["-CA", paths.authority, "-CAkey", str(place / "authority.key"), "-x509", "-addext", f"subjectAltName={name}"]
        own = ["-addext", "basicConstraints=critical,CA:FALSE", "-subj", "/CN=one", "-keyout", key, "-out", certificate]
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", *signed, *own)
    return paths


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture
def registry(client: ModuleType) -> Any:
    registry = client.CollectorRegistry()
    client.Counter("c", "help", registry=registry).inc(3)
    return registry


def get(url: str, context: Optional[ssl.SSLContext] = None, headers: Any = None) -> str:
    request = urllib.request.Request(url, headers=headers or {})
    return str(urllib.request.urlopen(request, timeout=60, context=context).read().decode())


def test_a_page_over_tls(client: ModuleType, registry: Any, files: Files) -> None:
    server, thread = client.start_http_server(
        0, "127.0.0.1", registry, files.certificate, files.key, tls_min_version=ssl.TLSVersion.TLSv1_3
    )
    url = f"127.0.0.1:{server.server_port}/metrics"
    assert "c_total 3.0\n" in get(f"https://{url}", files.context(as_client=False))
    with pytest.raises((http.client.HTTPException, OSError)):
        get(f"http://{url}")
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        get(f"https://{url}", ssl.create_default_context())
    old = files.context(as_client=False)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        get(f"https://{url}", old)
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_clients_with_a_certificate(client: ModuleType, registry: Any, files: Files) -> None:
    server, thread = client.start_http_server(
        0, "127.0.0.1", registry, files.certificate, files.key, client_cafile=files.authority, client_auth_required=True
    )
    url = f"https://127.0.0.1:{server.server_port}/metrics"
    assert "c_total 3.0\n" in get(url, files.context(as_client=True))
    with pytest.raises(OSError):
        get(url, files.context(as_client=False))
    server.shutdown()
    server.server_close()
    thread.join()


def test_files_that_are_none(client: ModuleType, registry: Any, files: Files, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    with pytest.raises(OSError):
        client.start_http_server(0, "127.0.0.1", registry, nothing, files.key)
    with pytest.raises(OSError):
        client.start_http_server(0, "127.0.0.1", registry, files.certificate, files.key, client_cafile=nothing)


class Pushgateway:
    """A real one."""

    def __init__(self, place: Path, web: str) -> None:
        (place / "web.yml").write_text(web)
        self.address = f"127.0.0.1:{free_port()}"
        program = environment_part("debian-unstable") / "usr/bin/prometheus-pushgateway"
        command = [program, f"--web.config.file={place / 'web.yml'}", f"--web.listen-address={self.address}", "--persistence.file="]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        host, port = self.address.split(":")
        until = time.monotonic() + 120
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except OSError:
                assert time.monotonic() < until and self._process.poll() is None
                time.sleep(0.02)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Pushgateway]:
    gateway = Pushgateway(tmp_path, "")
    yield gateway
    gateway.close()


def push_and_delete(client: ModuleType, registry: Any, gateway: str, read: Any, **options: Any) -> None:
    """All that can be done to a gateway; `read` gives its page."""
    key = {"instance": "a b/c"}
    client.push_to_gateway(gateway, "batch", registry, key, **options)
    mine = 'c_total{instance="a b/c",job="batch"} '
    assert mine + "3\n" in read()
    other = client.CollectorRegistry()
    client.Gauge("g", "help", registry=other).set(7)
    client.pushadd_to_gateway(gateway, "batch", other, key, **options)
    assert mine + "3\n" in read() and 'g{instance="a b/c",job="batch"} 7\n' in read()
    client.push_to_gateway(gateway, "batch", other, key, **options)
    assert mine not in read() and 'g{instance="a b/c",job="batch"} 7\n' in read()
    client.delete_from_gateway(gateway, "batch", key, **options)
    until = time.monotonic() + 120
    while 'job="batch"' in read():  # It says that it has accepted this, and does it then.
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_pushgateway(client: ModuleType, registry: Any, plain: Pushgateway) -> None:
    push_and_delete(client, registry, plain.address, lambda: get(f"http://{plain.address}/metrics"))
    for compression in (None, "gzip"):
        client.push_to_gateway(plain.address, f"by {compression}", registry, compression=compression)
        assert f'job="by {compression}"' in get(f"http://{plain.address}/metrics")
    text = 'help "quoted" \\ and\nbroken'
    client.Gauge("odd", text, ["l"], registry=registry).labels('v"\\\n').set(1)
    client.push_to_gateway(plain.address, "odd", registry)
    assert 'l="v\\"\\\\\\n"} 1\n' in get(f"http://{plain.address}/metrics")


def test_a_pushgateway_that_wants_certificates(
    client: ModuleType, part: Any, registry: Any, files: Files, tmp_path: Path
) -> None:
    gateway = Pushgateway(
        tmp_path,
        f"tls_server_config: {{cert_file: {files.certificate}, key_file: {files.key}, "
        f"client_auth_type: RequireAndVerifyClientCert, client_ca_file: {files.authority}}}",
    )
    url = f"https://{gateway.address}"

    def handler(url: str, method: str, timeout: Any, headers: Any, data: bytes, **more: Any) -> Any:
        own = {"certfile": files.client, "keyfile": files.client_key, "cafile": files.authority, **more}
        return part("exposition").tls_auth_handler(url, method, timeout, headers, data, **own)

    def careless(*arguments: Any, **named: Any) -> Any:
        return handler(*arguments, **named, cafile=None, insecure_skip_verify=True)

    def read() -> str:
        return get(f"{url}/metrics", files.context(as_client=True))

    try:
        push_and_delete(client, registry, url, read, handler=handler)
        push_and_delete(client, registry, url, read, handler=careless)
        with pytest.raises(OSError):
            client.push_to_gateway(url, "batch", registry)
        assert 'job="batch"' not in read()
    finally:
        gateway.close()


def test_a_pushgateway_that_wants_a_password(
    client: ModuleType, part: Any, registry: Any, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Pushgateway(
        tmp_path,
        f"tls_server_config: {{cert_file: {files.certificate}, key_file: {files.key}}}\n"
        f"basic_auth_users: {{user: '{PASSWORD}'}}",
    )
    url = f"https://{gateway.address}"
    monkeypatch.setenv("SSL_CERT_FILE", files.authority)

    def signed(password: str) -> Any:
        def handler(url: str, method: str, timeout: Any, headers: Any, data: bytes) -> Any:
            return part("exposition").basic_auth_handler(url, method, timeout, headers, data, "user", password)

        return handler

    def read() -> str:
        context = files.context(as_client=False)
        return get(f"{url}/metrics", context, {"Authorization": "Basic dXNlcjpzZWNyZXQ="})

    try:
        push_and_delete(client, registry, url, read, handler=signed("secret"))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            client.push_to_gateway(url, "batch", registry, handler=signed("wrong"))
        assert 'job="batch"' not in read()
    finally:
        gateway.close()
