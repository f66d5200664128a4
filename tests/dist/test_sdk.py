# SPDX-License-Identifier: Apache-2.0

"""The SDK for C and C++: a program built by CMake and by pkg-config, whose cells the gateway reads."""

import os
import re
from pathlib import Path

import kit
import pytest

NAME = "tidegate-sdk-*.tar.gz"


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Not where it was built: the directory may be moved.
    return kit.unpack(NAME, tmp_path_factory.mktemp("moved sdk"))


def documented_project() -> str:
    """The CMakeLists.txt of docs/install.md."""
    (project,) = kit.blocks("docs/install.md", "cmake")
    return project


def documented_project_in_cpp() -> str:
    """The same for C++, as docs/install.md says."""
    words = " ".join((kit.ROOT / "docs/install.md").read_text().split())
    change = re.search(r"For a program in C\+\+, write `(project.+?)`, `(.+?)`, and `(target_compile_features.+?)`", words)
    assert change
    project, source, standard = change.groups()
    return documented_project().replace("project(service C)", project).replace("service.c)", f"{source})") + standard


def cmake(*arguments: str | Path) -> None:
    result = kit.tool("packaging", "cmake", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("target", ["tidegate::tidegate", "tidegate::static"])
def test_a_project_of_cmake_finds_the_library(sdk: Path, tmp_path: Path, target: str) -> None:
    text = documented_project()
    assert target in text
    (tmp_path / "CMakeLists.txt").write_text(text.replace("tidegate::tidegate)", f"{target})"))
    # The first example of the guide.
    (tmp_path / "service.c").write_bytes((sdk / "share/doc/tidegate/examples/service.c").read_bytes())
    page = built_and_run(sdk, tmp_path)
    assert page.startswith("mean 0.8 s\n") and 'service_requests_total{model="llama",status="200"} 3\n' in page, page


def built_and_run(sdk: Path, project: Path) -> str:
    cmake("-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={sdk}", "-DCMAKE_MAKE_PROGRAM=make")
    cmake("--build", project / "build")
    return kit.output(project / "build/service")


@pytest.mark.parametrize("target", ["tidegate::tidegate", "tidegate::static"])
def test_a_project_in_cpp_finds_the_library(sdk: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "CMakeLists.txt").write_text(documented_project_in_cpp().replace("tidegate::tidegate)", f"{target})"))
    (tmp_path / "service.cpp").write_bytes((sdk / "share/doc/tidegate/examples/service.cpp").read_bytes())
    page = built_and_run(sdk, tmp_path)
    assert page.startswith("mean 0.8 s\n") and 'service_requests_total{model="llama",status="200"} 3\n' in page, page


def test_the_example_of_the_readme_counts(sdk: Path, tmp_path: Path) -> None:
    (program,) = kit.blocks("crates/tidegate-capi/README.md", "c")
    (tmp_path / "CMakeLists.txt").write_text(documented_project())
    (tmp_path / "service.c").write_text(program)
    assert built_and_run(sdk, tmp_path).endswith("\nrequests_total 1\n")


def test_another_minor_version_is_refused(sdk: Path, tmp_path: Path) -> None:
    major, minor = kit.VERSION.split(".")[:2]
    other = f"{major}.{int(minor) + 1}"
    (tmp_path / "CMakeLists.txt").write_text(documented_project().replace("tidegate 0.1 REQUIRED", f"tidegate {other} REQUIRED"))
    (tmp_path / "service.c").write_text("int main(void) { return 0; }\n")
    refused = kit.tool("packaging", "cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={sdk}")
    assert refused.returncode != 0 and kit.VERSION in refused.stderr, refused.stderr


def flags(sdk: Path, *arguments: str) -> list[str]:
    answer = kit.tool("packaging", "pkgconf", *arguments, "tidegate", PKG_CONFIG_PATH=str(sdk / "lib/pkgconfig"))
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


def test_the_gateway_reads_the_cells_of_a_program(sdk: Path, tmp_path: Path) -> None:
    # A path with a space is one word for pkg-config, and two for Python.
    plain = tmp_path / "sdk"
    plain.symlink_to(sdk)
    source = plain / "share/doc/tidegate/examples/switch.c"
    kit.output("cc", "-std=c11", source, *flags(plain, "--cflags", "--libs"), "-o", tmp_path / "switch")
    cells = tmp_path / "cells"
    cells.mkdir()
    kit.output(tmp_path / "switch", "shm", cells / "switch", env=os.environ | {"LD_LIBRARY_PATH": str(plain / "lib")})
    folder = kit.unpack("tidegate-[0-9]*-linux.tar.gz", tmp_path / "gateway")
    page = kit.free_port()
    variables = {
        "CELLS_DIR": str(cells),
        "PROMETHEUS_ENDPOINT": f"127.0.0.1:{page}",
        "OWN_METRICS_ENDPOINT": f"127.0.0.1:{kit.free_port()}",
    }
    command = (folder / "tidegate", "run", "--config", folder / "examples/cells-to-prometheus.yaml")
    with kit.running(*command, env=os.environ | variables) as gateway:
        shown = kit.wait_for(gateway, f"http://127.0.0.1:{page}/metrics", "\njobs_total{")
    (line,) = [line for line in shown.splitlines() if line.startswith("jobs_total{")]
    assert 'queue="a"' in line and line.endswith(" 2"), line


def test_the_version_is_that_of_the_release(sdk: Path) -> None:
    assert flags(sdk, "--modversion") == [kit.VERSION]
    assert (sdk / "share/doc/tidegate/LICENSE").is_file() and (sdk / "share/doc/tidegate/c.md").is_file()


def test_the_guide_links_only_to_files_of_the_tarball(sdk: Path) -> None:
    assert kit.broken_links(sdk / "share/doc/tidegate") == []
