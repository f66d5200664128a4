# SPDX-License-Identifier: Apache-2.0

"""The rpm, read and installed by RPM's own tools, and compared with the deb."""

import re
from pathlib import Path

import kit

# A release before this one, with another configuration.
OLDER = """
Name: tidegate
Version: 0.0.1
Release: 1
Summary: Older
License: Apache-2.0
BuildArch: noarch
%description
%install
mkdir -p %{buildroot}/etc/tidegate
echo '# older' > %{buildroot}/etc/tidegate/config.yaml
%files
%config(noreplace) /etc/tidegate/config.yaml
"""


def rpm(*arguments: str | Path, program: str = "rpm") -> str:
    configuration = str(kit.directory("packaging") / "usr/lib/rpm")
    result = kit.tool("packaging", program, *arguments, RPM_CONFIGDIR=configuration)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def query(tmp_path: Path, *arguments: str) -> str:
    return rpm(f"--dbpath={tmp_path}/db", "--query", "--package", *arguments, kit.package("*.rpm"))


def test_it_has_the_files_of_the_deb(tmp_path: Path) -> None:
    listed = {path.removeprefix("/") for path in query(tmp_path, "--list").splitlines()}
    deb = tmp_path / "deb"
    kit.output("dpkg-deb", "--extract", kit.package("*.deb"), deb)
    moved = "usr/share/zsh/vendor-completions"
    expected = {path.replace(moved, "usr/share/zsh/site-functions") for path in kit.files(deb)}
    expected.remove("usr/share/doc/tidegate/copyright")
    assert {path for path in listed if path in expected} == expected
    directories = listed - expected
    assert all((deb / path).is_dir() for path in directories), directories


def test_it_asks_for_libraries_and_marks_the_configuration(tmp_path: Path) -> None:
    requires = query(tmp_path, "--requires").splitlines()
    assert any(re.fullmatch(r"libc\.so\.6\(GLIBC_2\.\d+\)\(64bit\)", line) for line in requires), requires
    assert query(tmp_path, "--configfiles").split() == ["/etc/tidegate/config.yaml"]
    fields = query(tmp_path, "--queryformat", "%{NAME} %{VERSION} %{LICENSE} %{BUILDHOST}")
    assert fields == f"tidegate {kit.VERSION.replace('-', '~')} Apache-2.0 localhost"


@kit.needs_root
def test_it_installs_the_program_and_its_removal_keeps_state(clean_root: Path) -> None:
    # The root has no RPM distribution's packages.
    arguments = (f"--root={clean_root}", "--dbpath=/var/lib/rpm")
    rpm(*arguments, "--install", "--nodeps", kit.package("*.rpm"))
    deb = clean_root.parent / "deb"
    kit.output("dpkg-deb", "--extract", kit.package("*.deb"), deb)
    for path in ("usr/bin/tidegate", "usr/lib/systemd/system/tidegate.service", "etc/tidegate/config.yaml"):
        assert (clean_root / path).read_bytes() == (deb / path).read_bytes(), path
    assert "\ntidegate:" in (clean_root / "etc/passwd").read_text()
    state, config = clean_root / "var/lib/tidegate/queue", clean_root / "etc/tidegate/config.yaml"
    state.mkdir(parents=True)
    config.write_text("# changed\n")
    rpm(*arguments, "--erase", "--nodeps", "tidegate")
    assert state.exists() and not (clean_root / "usr/bin/tidegate").exists()
    assert config.with_name("config.yaml.rpmsave").read_text() == "# changed\n"


@kit.needs_root
def test_an_upgrade_keeps_a_changed_configuration_beside_the_new(clean_root: Path, tmp_path: Path) -> None:
    spec = tmp_path / "older.spec"
    spec.write_text(OLDER)
    rpm("-bb", "--define", f"_topdir {tmp_path}/build", "--define", f"_dbpath {tmp_path}/db", spec, program="rpmbuild")
    (older,) = (tmp_path / "build/RPMS/noarch").iterdir()
    arguments = (f"--root={clean_root}", "--dbpath=/var/lib/rpm")
    rpm(*arguments, "--install", "--nodeps", older)
    config = clean_root / "etc/tidegate/config.yaml"
    assert config.read_text() == "# older\n"
    config.write_text("# changed\n")
    rpm(*arguments, "--upgrade", "--nodeps", kit.package("*.rpm"))
    assert config.read_text() == "# changed\n" and (clean_root / "usr/bin/tidegate").exists()
    assert config.with_name("config.yaml.rpmnew").read_bytes() == (kit.SYSTEMD / "config.yaml").read_bytes()
