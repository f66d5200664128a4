#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Packs the image of a release in OCI layout. It needs no daemon: Python, strip, and zstd for the only layer.

    pack.py --root DIRECTORY --package DIRECTORY --output NEW-DIRECTORY [--architecture amd64] [--level 22] [--limit BYTES]
            [NAME=VALUE ...]

`root.sh` has made the root. The program and its licences come from an unpacked tarball of the release. The last stage of the
Containerfile says which user, command and labels the image has; `NAME=VALUE` sets its arguments. The same inputs give the same
bytes: entries are sorted, belong to root, and have the time SOURCE_DATE_EPOCH.

Docker and Podman build the same image from the Containerfile. Their compressors have no level as high as 22 of zstd, so it is
larger there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, BinaryIO

CONTAINERFILE = Path(__file__).with_name("Containerfile")


def last_stage(text: str, arguments: dict[str, str]) -> list[tuple[str, str]]:
    """The instructions after the last FROM, with the values of its arguments."""
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    instructions = [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]
    begin = max(number for number, (word, _) in enumerate(instructions) if word == "FROM")
    known: dict[str, str] = {}
    found = []
    for word, rest in instructions[begin + 1 :]:
        if word == "ARG":
            name, _, default = rest.partition("=")
            known[name] = arguments.get(name, default.strip('"'))
        else:
            found.append((word, re.sub(r"\$\{(\w+)\}", lambda match: known[match[1]], rest)))
    return found


def image_config(text: str, architecture: str, arguments: dict[str, str]) -> dict[str, Any]:
    """The configuration of the image, without its layers."""
    config: dict[str, Any] = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    for word, rest in last_stage(text, arguments):
        match word:
            case "LABEL":
                config["Labels"] = dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "USER":
                config["User"] = rest
            case "ENTRYPOINT" | "CMD":
                config[word.title()] = json.loads(rest)
            case "COPY":
                # The caller has done it: the root has the files.
                pass
            case _:
                raise SystemExit(f"pack.py: {word} is unknown: {rest}")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    return {"created": created, "architecture": architecture, "os": "linux", "config": config}


def install(package: Path, root: Path) -> None:
    """Does what the COPY instructions do. The program loses the names of its functions: the tarball has them."""
    program, documents = root / "usr/bin/tidegate", root / "usr/share/doc/tidegate"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", program, package / "tidegate"], check=True)
    program.chmod(0o755)
    documents.mkdir(parents=True, exist_ok=True)
    for name in ("THIRD-PARTY-NOTICES.txt", "LICENSE"):
        shutil.copyfile(package / name, documents / name)


def write_tar(root: Path, to: BinaryIO) -> None:
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

    def clean(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        return entry

    with tarfile.open(fileobj=to, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=clean)


class Tee:
    """Sends bytes to a compressor, and keeps their digest."""

    def __init__(self, to: BinaryIO) -> None:
        self._to, self._digest = to, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._to.write(data)

    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


class Layout:
    """A directory in OCI layout."""

    def __init__(self, directory: Path) -> None:
        self._blobs = directory / "blobs/sha256"
        self._blobs.mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self._index = directory / "index.json"

    def add(self, file: Path, media_type: str) -> dict[str, Any]:
        """Moves a file to its place, and describes it."""
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = file.stat().st_size
        file.rename(self._blobs / digest)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}

    def add_json(self, value: Any, media_type: str) -> dict[str, Any]:
        file = self._blobs / "new"
        file.write_text(json.dumps(value, sort_keys=True))
        return self.add(file, media_type)

    def add_layer(self, root: Path, level: int) -> tuple[dict[str, Any], str]:
        """The layer with all files of a root, and the digest of its bytes before compression."""
        file = self._blobs / "layer"
        with file.open("wb") as output:
            # A node needs as much memory as the window to unpack it: level 22 alone would take 128 MiB.
            command = ["zstd", "--quiet", "--ultra", f"-{level}", "--zstd=wlog=26", "--single-thread", "--stdout"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output) as compressor:
                assert compressor.stdin is not None
                tee = Tee(compressor.stdin)
                write_tar(root, tee)  # type: ignore[arg-type]
                compressor.stdin.close()
            if compressor.returncode != 0:
                raise SystemExit(f"pack.py: zstd ended with {compressor.returncode}")
        return self.add(file, "application/vnd.oci.image.layer.v1.tar+zstd"), tee.digest()

    def finish(self, manifest: dict[str, Any], platform: dict[str, str]) -> None:
        self._index.write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest | {"platform": platform}]}))


def pack(root: Path, output: Path, architecture: str, level: int, arguments: dict[str, str]) -> int:
    """Writes the layout. Returns the bytes that a node downloads."""
    layout = Layout(output)
    layer, diff_id = layout.add_layer(root, level)
    config = image_config(CONTAINERFILE.read_text(), architecture, arguments)
    config["rootfs"] = {"type": "layers", "diff_ids": [diff_id]}
    described = layout.add_json(config, "application/vnd.oci.image.config.v1+json")
    media_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = layout.add_json({"schemaVersion": 2, "mediaType": media_type, "config": described, "layers": [layer]}, media_type)
    layout.finish(manifest, {"architecture": architecture, "os": "linux"})
    return int(layer["size"] + described["size"] + manifest["size"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--architecture", default="amd64")
    parser.add_argument("--level", type=int, default=22)
    parser.add_argument("--limit", type=int, default=sys.maxsize)
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    arguments = dict(pair.split("=", 1) for pair in options.arguments)
    install(options.package, options.root)
    size = pack(options.root, options.output, options.architecture, options.level, arguments)
    print(f"{options.output}: {size} bytes compressed")
    if size > options.limit:
        raise SystemExit(f"pack.py: the limit is {options.limit} bytes")


if __name__ == "__main__":
    main()
