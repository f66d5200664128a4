# SPDX-License-Identifier: Apache-2.0

"""The deb, installed by dpkg in a clean Debian: its service, its upgrade and its removal."""

import gzip
import re
import stat
import subprocess
from pathlib import Path

import kit
import pytest

UNIT = "usr/lib/systemd/system/tidegate.service"

# The exposure that docs/install.md states, in tenths of 10.
EXPOSURE = 21


def dpkg(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    result = kit.run("dpkg", f"--root={root}", "--force-confold", "--force-unsafe-io", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def install(root: Path) -> None:
    dpkg(root, "--install", kit.package("*.deb"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the package, for tests that only look at it."""
    root = kit.new_root(tmp_path_factory.mktemp("installed"))
    install(root)
    return root


def user(root: Path) -> list[str]:
    """The home directory and the shell of the user of the service."""
    (line,) = [line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("tidegate:")]
    return line.split(":")[5:]


def systemd(program: str, *arguments: str | Path) -> str:
    units = [str(kit.directory("systemd") / folder / "systemd/system") for folder in ("lib", "usr/lib")]
    result = kit.tool("systemd", program, *arguments, SYSTEMD_UNIT_PATH=":".join(units))
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def unit(root: Path) -> Path:
    """The unit of the package, with the program of the root."""
    file = root.parent / "tidegate.service"
    file.write_text((root / UNIT).read_text().replace("/usr/bin/tidegate", f"{root}/usr/bin/tidegate"))
    return file


@kit.needs_root
def test_it_installs_a_service_with_a_user_of_its_own(installed: Path) -> None:
    assert user(installed) == ["/", "/usr/sbin/nologin"]
    enabled = installed / "etc/systemd/system/multi-user.target.wants/tidegate.service"
    assert enabled.is_symlink()
    for path, mode in (("usr/bin/tidegate", 0o755), ("etc/tidegate/config.yaml", 0o644), ("etc/tidegate", 0o755)):
        found = (installed / path).stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, mode), path
    assert (installed / "etc/tidegate/config.yaml").read_bytes() == (kit.SYSTEMD / "config.yaml").read_bytes()
    status = kit.output("dpkg", f"--root={installed}", "--verify", "tidegate")
    assert not status, status


@kit.needs_root
def test_its_service_starts_as_its_user_with_its_configuration(installed: Path) -> None:
    text = (installed / UNIT).read_text()
    (check,) = re.findall("^ExecStartPre=(.+)$", text, re.MULTILINE)
    (start,) = re.findall("^ExecStart=(.+)$", text, re.MULTILINE)
    kit.output(*kit.as_service(installed, check))
    options = {
        "exporters.prometheus.endpoint": (page := kit.free_port()),
        "extensions.health_check.endpoint": (health := kit.free_port()),
        "extensions.admin.endpoint": kit.free_port(),
        "service.telemetry.metrics.address": (own := kit.free_port()),
    }
    moved = " ".join(f"--set {key}=127.0.0.1:{port}" for key, port in options.items())
    with kit.running(*kit.as_service(installed, f"{start} {moved}")) as process:
        kit.wait_for(process, f"http://127.0.0.1:{health}/", "")
        assert kit.get(f"http://127.0.0.1:{page}/metrics") is not None
        metrics = kit.wait_for(process, f"http://127.0.0.1:{own}/metrics", "tidegate_build_info")
        assert f'version="{kit.VERSION}"' in metrics


@kit.needs_root
def test_systemd_accepts_the_unit_the_user_and_the_directories(installed: Path) -> None:
    verified = systemd("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit(installed))
    assert "tidegate.service" not in verified, verified
    score = systemd("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", unit(installed))
    stated = f"{EXPOSURE / 10} of 10"
    assert f": {EXPOSURE / 10} " in score and stated in (kit.ROOT / "docs/install.md").read_text().replace("\n  ", " "), score
    systemd("systemd-tmpfiles", f"--root={installed}", "--create", "tidegate.conf")
    for path, mode in (("run/nixl", 0o1777), ("run/tidegate", 0o755), ("run/tidegate/cells", 0o1777)):
        assert stat.S_IMODE((installed / path).stat().st_mode) == mode, path


@kit.needs_root
def test_the_user_is_the_same_with_and_without_systemd(installed: Path, clean_root: Path) -> None:
    to = clean_root / "usr/lib/sysusers.d"
    to.mkdir(parents=True, exist_ok=True)
    (to / "tidegate.conf").write_bytes((installed / "usr/lib/sysusers.d/tidegate.conf").read_bytes())
    systemd("systemd-sysusers", f"--root={clean_root}", "tidegate.conf")
    assert user(clean_root) == user(installed)


@kit.needs_root
def test_an_upgrade_keeps_a_changed_configuration(clean_root: Path) -> None:
    install(clean_root)
    config = clean_root / "etc/tidegate/config.yaml"
    config.write_text("# changed\n")
    install(clean_root)
    assert config.read_text() == "# changed\n"


@kit.needs_root
def test_removal_keeps_state_and_purge_does_not(clean_root: Path) -> None:
    install(clean_root)
    state, secrets, own = (clean_root / path for path in ("var/lib/tidegate/queue", "etc/tidegate/environment", "etc/tidegate/own.pem"))
    state.mkdir(parents=True)
    secrets.write_text("KEY=1\n")
    own.write_text("")
    dpkg(clean_root, "--remove", "tidegate")
    assert not (clean_root / "usr/bin/tidegate").exists()
    assert state.exists() and secrets.exists() and (clean_root / "etc/tidegate/config.yaml").exists()
    dpkg(clean_root, "--purge", "tidegate")
    assert not state.parent.exists() and not secrets.exists()
    assert not (clean_root / "etc/systemd/system/multi-user.target.wants/tidegate.service").exists()
    # What the package does not know of stays.
    assert [path.name for path in own.parent.iterdir()] == ["own.pem"]


def test_it_needs_the_c_library_that_the_documents_name() -> None:
    needs = kit.output("dpkg-deb", "--field", kit.package("*.deb"), "Depends")
    (needed,) = re.findall(r"libc6 \(>= ([0-9.]+)\)", needs)
    (stated,) = re.findall(r"another Linux with glibc ([0-9.]+)", (kit.ROOT / "docs/install.md").read_text())
    assert needed == stated, needs


def test_it_has_the_manual_the_completions_and_the_documents(tmp_path: Path) -> None:
    kit.output("dpkg-deb", "--extract", kit.package("*.deb"), tmp_path)
    share = tmp_path / "usr/share"
    manual = gzip.decompress((share / "man/man1/tidegate.1.gz").read_bytes()).decode()
    assert manual.startswith(".TH TIDEGATE 1 ") and '.SS "tidegate run"' in manual
    kit.output("bash", "-n", share / "bash-completion/completions/tidegate")
    assert (share / "zsh/vendor-completions/_tidegate").read_text().startswith("#compdef tidegate")
    assert "complete -c tidegate" in (share / "fish/vendor_completions.d/tidegate.fish").read_text()
    (document,) = re.findall(r"file://(\S+)", (tmp_path / UNIT).read_text())
    assert (tmp_path / document.removeprefix("/")).is_file()
    assert (share / "doc/tidegate/THIRD-PARTY-NOTICES.txt").is_file() and (share / "doc/tidegate/copyright").is_file()


def test_the_documents_link_only_to_files_of_the_package(tmp_path: Path) -> None:
    kit.output("dpkg-deb", "--extract", kit.package("*.deb"), tmp_path)
    assert kit.broken_links(tmp_path / "usr/share/doc/tidegate") == []
