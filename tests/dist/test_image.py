# SPDX-License-Identifier: Apache-2.0

"""The image: its root, its layout, its size, and a gateway that runs in it. No daemon builds or runs it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kit
import pytest

CONTAINER = kit.ROOT / "deploy/container"
TEXT = (CONTAINER / "Containerfile").read_text()

# What docs/deploy.md states.
MOST_BYTES = 15_000_000

CONFIG = """
receivers: {uds: {datagram: {path: /tmp/statsd.sock}}, otlp: {protocols: {http: {endpoint: "127.0.0.1:RECEIVER"}}}}
exporters: {prometheus: {endpoint: "127.0.0.1:PAGE"}}
extensions: {health_check: {endpoint: "127.0.0.1:HEALTH"}, admin: {endpoint: "127.0.0.1:ADMIN"}}
service:
  extensions: [health_check, admin]
  telemetry: {metrics: {address: "127.0.0.1:OWN"}}
  pipelines: {metrics: {receivers: [uds, otlp], exporters: [prometheus]}}
"""


@dataclass
class Image:
    """A layout, and its only layer unpacked."""

    layout: Path
    root: Path
    manifest: dict[str, Any]
    config: dict[str, Any]


def packed(folder: Path, program: Path | None = None, *options: str) -> Path:
    """Packs a program, or that of the tarball, on the root that `root.sh` has made."""
    root = folder / "rootfs"
    output("cp", "--archive", kit.directory("container_root"), root)
    # The test environment has written it.
    (root / ".stamp").unlink(missing_ok=True)
    (folder / "tarball").mkdir()
    package = kit.unpack("tidegate-[0-9]*-linux.tar.gz", folder / "tarball")
    if program is not None:
        shutil.copyfile(program, package / "tidegate")
    layout = folder / "layout"
    output(CONTAINER / "pack.py", "--root", root, "--package", package, "--output", layout, *options)
    return layout


def output(*command: str | Path) -> str:
    return kit.output(*command, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})


def blob(layout: Path, described: dict[str, Any]) -> Path:
    """A file of a layout, which is as its description says."""
    file = layout / "blobs" / described["digest"].replace(":", "/")
    content = file.read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == described["digest"] and len(content) == described["size"]
    return file


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    layout = packed(folder, None, "--level", "1", "TIDEGATE_COMMIT=abc")
    (described,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(layout, described).read_text())
    config = json.loads(blob(layout, manifest["config"]).read_text())
    (layer,) = manifest["layers"]
    archive, root = folder / "layer.tar", folder / "unpacked"
    kit.output("zstd", "--quiet", "--decompress", "-o", archive, blob(layout, layer))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"]
    with tarfile.open(archive) as entries:
        assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.getmembers()} == {(0, 0, 1700000000)}
    kit.extract(archive, root)
    return Image(layout, root, manifest, config["config"])


def test_its_configuration_is_that_of_the_containerfile(image: Image) -> None:
    final = TEXT.split("\nFROM scratch\n")[1]
    (user,) = re.findall("^USER (.+)$", final, re.MULTILINE)
    assert image.config["User"] == user == "10001:10001"
    for key in ("Entrypoint", "Cmd"):
        (words,) = re.findall(f"^{key.upper()} (.+)$", final, re.MULTILINE)
        assert image.config[key] == json.loads(words)
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.version"] == kit.VERSION and labels["org.opencontainers.image.revision"] == "abc"
    assert labels["org.opencontainers.image.description"] == "A telemetry gateway for AI-inference clusters"


def test_it_has_all_that_the_containerfile_copies(image: Image) -> None:
    copies = re.findall(r"^COPY --from=\w+ (.+) (\S+)$", TEXT, re.MULTILINE)
    assert len(copies) == 3
    for sources, to in copies:
        to = to.removeprefix("/rootfs")
        if to == "/":
            continue
        for source in sources.split():
            file = image.root / to.lstrip("/")
            assert (file / Path(source).name if to.endswith("/") else file).stat().st_size > 0, (source, to)
    assert "sh /root.sh /rootfs" in TEXT and "strip target/release/tidegate" in TEXT


def test_it_has_authorities_and_the_names_of_packages_but_no_shell(image: Image) -> None:
    authorities = (image.root / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert authorities.count("BEGIN CERTIFICATE") > 100
    (packages,) = re.findall('^packages="(.+)"$', (CONTAINER / "root.sh").read_text(), re.MULTILINE)
    found = {path.name: path.read_text() for path in (image.root / "var/lib/dpkg/status.d").iterdir()}
    assert set(found) == set(packages.split())
    assert all(f"Package: {name}\n" in text and "\nVersion: " in text for name, text in found.items())
    programs = [path for path in kit.files(image.root).values() if path.parent.name in ("bin", "sbin")]
    assert [path.name for path in programs] == ["tidegate"]


@kit.needs_root
def test_nothing_in_it_is_writable_for_its_user_or_gives_rights(image: Image) -> None:
    paths = list(image.root.rglob("*"))
    assert any(path.name == "tidegate" for path in paths)
    for path in paths:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        may_write = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        assert status.st_uid == 0 and not may_write and not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path


def in_image(image: Image, *command: str) -> list[str]:
    """The command as a runtime of containers starts it: the image's user, a root that is read-only, `/proc` and `/tmp`."""
    script = (
        'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"'
        ' && mount -o remount,bind,ro "$0" && exec chroot --userspec="$1" --groups="" "$0" "${@:2}"'
    )
    return ["unshare", "--mount", "bash", "-c", script, str(image.root), image.config["User"], *command]


def send(url: str, value: int) -> None:
    """Sends a value of `queue_depth` over OTLP."""
    gauge = {"name": "queue_depth", "gauge": {"dataPoints": [{"timeUnixNano": str(time.time_ns()), "asInt": str(value)}]}}
    body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [gauge]}]}]}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


@kit.needs_root
def test_a_gateway_runs_in_it_as_its_user_on_a_read_only_root(image: Image) -> None:
    if not kit.may_mount():
        kit.can_not_run("nobody may mount here")
    names = ("PAGE", "HEALTH", "ADMIN", "OWN", "RECEIVER")
    ports = dict(zip(names, kit.free_ports(len(names)), strict=True))
    # A runtime makes the place where it mounts the configuration.
    config = image.root / image.config["Cmd"][-1].lstrip("/")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(re.sub("|".join(ports), lambda match: str(ports[match[0]]), CONFIG))
    (program,) = image.config["Entrypoint"]
    with kit.running(*in_image(image, program, *image.config["Cmd"])) as gateway:
        kit.wait_for(gateway, f"http://127.0.0.1:{ports['HEALTH']}/", "")
        status = Path(f"/proc/{gateway.pid}/status").read_text()
        assert re.search("^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE)
        assert re.search("^CapEff:\t0+$", status, re.MULTILINE), status
        # The probe of Compose.
        probe = [program, "query", "vector(1)", "--endpoint"]
        kit.output(*in_image(image, *probe, f"127.0.0.1:{ports['ADMIN']}"))
        send(f"http://127.0.0.1:{ports['RECEIVER']}/v1/metrics", 42)
        page = kit.wait_for(gateway, f"http://127.0.0.1:{ports['PAGE']}/metrics", "queue_depth")
        assert re.search(r"^queue_depth(\{.*\})? 42$", page, re.MULTILINE), page
        query = [program, "query", "sum(queue_depth)", "--endpoint", f"127.0.0.1:{ports['ADMIN']}"]
        assert kit.output(*in_image(image, *query)) == "{}  42\n"
    failed = kit.run(*in_image(image, *probe, f"127.0.0.1:{ports['ADMIN']}"))
    assert failed.returncode != 0, "no gateway answers any more"
    # The root is read-only for root too.
    script = in_image(image)[4].split(" && exec ")[0] + ' && ! touch "$0/usr/new"'
    refused = kit.run("unshare", "--mount", "bash", "-c", script, image.root)
    assert refused.returncode == 0 and "Read-only file system" in refused.stderr, refused.stderr


def test_it_is_as_small_as_the_documents_say(tmp_path: Path) -> None:
    stated = f"at most {MOST_BYTES // 1_000_000} MB"
    assert stated in (kit.ROOT / "docs/deploy.md").read_text().replace("\n", " ")
    workflow = (kit.ROOT / ".github/workflows/release.yml").read_text()
    assert f"--limit {MOST_BYTES}" in workflow
    named = os.environ.get("TIDEGATE_RELEASE_BINARY")
    if named is None:
        pytest.skip("the packages have a debug build: name a release build in TIDEGATE_RELEASE_BINARY")
    layout = packed(tmp_path, Path(named))
    size = sum(file.stat().st_size for file in (layout / "blobs/sha256").iterdir())
    print(f"the image has {size} bytes compressed")
    assert size <= MOST_BYTES
