# SPDX-License-Identifier: Apache-2.0

"""The files of a release: names, checksums, and the same bytes from a second run."""

import kit

MACHINE = kit.output("uname", "-m").strip()


def test_a_release_has_a_package_for_each_way_to_install() -> None:
    names = {path.name for path in kit.directory("dist").iterdir()}
    linux = f"{kit.VERSION}-{MACHINE}-linux.tar.gz"
    for name in (f"tidegate-{linux}", f"tidegate-sdk-{linux}", f"tidegate-{kit.VERSION}-1.{MACHINE}.rpm", "SHA256SUMS"):
        assert name in names, names
    assert sum(name.endswith(".deb") for name in names) == 1
    assert sum(name.endswith(".whl") for name in names) == 1
    assert f"tidegate-{kit.VERSION}.tar.gz" in names and f"tidegate-{kit.VERSION}-deploy.tar.gz" in names


def test_the_checksums_are_those_of_all_files() -> None:
    sums = kit.directory("dist") / "SHA256SUMS"
    checked = kit.output("sha256sum", "--check", "--strict", sums.name, cwd=sums.parent)
    listed = {line.split("  ")[1] for line in sums.read_text().splitlines()}
    assert listed == {path.name for path in sums.parent.iterdir()} - {sums.name}, checked


def test_a_second_run_with_another_mask_gives_the_same_bytes() -> None:
    first, again = ((kit.directory(name) / "SHA256SUMS").read_text().splitlines() for name in ("dist", "dist_again"))
    # The second run leaves the Python package out, which maturin packs.
    of_maturin = [line for line in first if line.endswith((".whl", f"  tidegate-{kit.VERSION}.tar.gz"))]
    assert len(of_maturin) == 2 and len(again) == 5, (first, again)
    assert [line for line in first if line not in of_maturin] == again
