# SPDX-License-Identifier: Apache-2.0

"""The guide of the SDK, with the files of a release: programs in three languages, their cells, and the gateway."""

import sys
from pathlib import Path

import kit
from test_python import installed

sys.path.append(str(kit.ROOT / "tests/docs"))
from guides import Guide


def example() -> Path:
    """The program in Rust, with the dependencies of all other tests. A test of tidegate-metrics says that the guide shows it."""
    target = kit.directory("dist").parents[1]
    kit.output("cargo", "build", "--quiet", "--workspace", "--example", "cells", "--target-dir", target, cwd=kit.ROOT)
    return target / "debug/examples/cells"


def pkg_config(directory: Path) -> None:
    """The machine may have no `pkg-config`."""
    packaging = kit.directory("packaging")
    program = directory / "pkg-config"
    program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{kit.libraries(packaging)}" exec "{packaging}/usr/bin/pkgconf" "$@"\n')
    program.chmod(0o755)


def test_three_languages_count_in_one_gateway(tmp_path: Path) -> None:
    gateway = kit.unpack("tidegate-[0-9]*-linux.tar.gz", tmp_path / "gateway")
    sdk = kit.unpack("tidegate-sdk-*.tar.gz", tmp_path / "sdk")
    guide = Guide("guides/sdk.md", tmp_path, str(gateway / "tidegate"))
    pkg_config(tmp_path / "bin")
    guide.examples["cells"] = example()
    guide.environment |= {
        "PYTHONPATH": str(installed(tmp_path / "site")),
        "PKG_CONFIG_PATH": str(sdk / "lib/pkgconfig"),
        "LD_LIBRARY_PATH": str(sdk / "lib"),
    }
    guide.run()
