# SPDX-License-Identifier: Apache-2.0

"""The C library that programs and libraries of a release need, which docs/install.md promises."""

import re
from fnmatch import fnmatch
from pathlib import Path

import kit

TEXT = " ".join((kit.ROOT / "docs/install.md").read_text().split())


def promised(pattern: str) -> tuple[int, ...]:
    (found,) = re.findall(pattern, TEXT)
    return kit.version(found)


def test_the_gateway_needs_the_version_that_is_promised(tmp_path: Path) -> None:
    folder = kit.unpack("tidegate-[0-9]*-linux.tar.gz", tmp_path)
    assert kit.newest_glibc(folder / "tidegate") == promised(r"another Linux with glibc ([0-9.]+) or newer")


def test_the_library_of_the_sdk_needs_no_more_than_is_promised(tmp_path: Path) -> None:
    sdk = kit.unpack("tidegate-sdk-*.tar.gz", tmp_path)
    assert kit.newest_glibc(sdk / "lib/libtidegate.so") <= promised(r"The library needs glibc ([0-9.]+)")


def test_the_wheel_needs_no_more_than_its_name_says(tmp_path: Path) -> None:
    wheel = kit.package("*.whl")
    kit.output("python3", "-m", "zipfile", "--extract", wheel, tmp_path)
    (library,) = (tmp_path / "tidegate").glob("*.so")
    # A release has a wheel for old systems. A wheel that Zig did not link is for systems as this one.
    is_for_old_systems = "manylinux2014" in wheel.name
    pattern = r"for glibc ([0-9.]+) or newer" if is_for_old_systems else r"another Linux with glibc ([0-9.]+) or newer"
    assert kit.newest_glibc(library) <= promised(pattern), wheel.name


def test_the_documented_name_is_that_of_the_wheel() -> None:
    (pattern,) = re.findall(r"pip install \./(tidegate-\S+\.whl)", TEXT)
    assert fnmatch(kit.package("*.whl").name, pattern)
    # `manylinux2014` is the name for this version.
    assert promised(r"for glibc ([0-9.]+) or newer") == (2, 17)
