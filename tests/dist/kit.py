# SPDX-License-Identifier: Apache-2.0

"""What the tests of packages share: the packages, roots to install them in, and gateways."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from ports import free_port, free_ports

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "deploy/systemd"
(VERSION,) = re.findall(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)

# Without the heading, and without addresses of the web.
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages in a root directory")


def directory(name: str) -> Path:
    """A directory that `cargo xtask packages` names in a variable."""
    variable = f"TIDEGATE_{name.upper()}"
    assert variable in os.environ, f"{variable} is not set: run `cargo xtask packages`"
    return Path(os.environ[variable])


def package(pattern: str) -> Path:
    (found,) = directory("dist").glob(pattern)
    return found


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def output(*command: str | Path, **options: Any) -> str:
    """What a command prints, which must succeed."""
    result = run(*command, **options)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def blocks(document: str, language: str, heading: str = "") -> list[str]:
    """The blocks of code in a language in a document of the repository, or in one section of it."""
    text = (ROOT / document).read_text()
    section = re.split(r"(?m)^##+ ", text.split(f"\n{heading}\n", 1)[1])[0] if heading else text
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", section)


def links(document: Path) -> list[str]:
    """The files that a document links to, as it writes them. Code has no links."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", document.read_text())
    found = [(line, link) for line in text.splitlines() for link in LINK.finditer(line)]
    return [link[1] for line, link in found if line[: link.start()].count("`") % 2 == 0]


def broken_links(folder: Path) -> list[str]:
    """The links of all documents of a folder that lead to none of its files."""
    documents = sorted(folder.rglob("*.md"))
    named = [(document, link) for document in documents for link in links(document)]
    assert named, f"no links in {folder}"

    def leads_inside(file: Path) -> bool:
        return file.exists() and file.resolve().is_relative_to(folder.resolve())

    return [f"{document.relative_to(folder)}: {link}" for document, link in named if not leads_inside(document.parent / link)]


def newest_glibc(path: Path) -> tuple[int, ...]:
    """The oldest version of glibc that has all symbols that a program or a library needs."""
    shown = output("readelf", "--version-info", "--wide", path, env=os.environ | {"LC_ALL": "C"})
    return max(version(found) for found in re.findall(r"\bGLIBC_([0-9.]+)", shown))


def version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))


def unpack(pattern: str, to: Path) -> Path:
    """Unpacks a tarball. It has all in one directory."""
    extract(package(pattern), to)
    (only,) = to.iterdir()
    return only


def extract(archive: Path, to: Path) -> None:
    """Unpacks an archive as users do. Debian's Python 3.11 has no filters for `extractall`, and they change modes."""
    to.mkdir(parents=True, exist_ok=True)
    output("tar", "--extract", "--file", archive, "--directory", to)


def libraries(root: Path) -> str:
    """LD_LIBRARY_PATH for programs of unpacked Debian packages."""
    patterns = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/systemd")
    return ":".join(str(found) for pattern in patterns for found in root.glob(pattern))


def tool(part: str, program: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of a part of the test environment."""
    root = directory(part)
    environment = os.environ | {"LD_LIBRARY_PATH": libraries(root)} | variables
    (found,) = [path for path in (root / "usr/bin" / program, root / "bin" / program) if path.exists()][:1]
    return run(found, *arguments, env=environment)


def new_root(parent: Path) -> Path:
    """A Debian without systemd, in which packages may be installed."""
    root = parent / "root"
    output("cp", "--archive", directory("debian_root"), root)
    return root


@pytest.fixture
def clean_root(tmp_path: Path) -> Path:
    return new_root(tmp_path)


def files(root: Path) -> dict[str, Path]:
    """All files below a directory, by their paths in it."""
    return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


def get(url: str) -> str | None:
    """The page, or nothing if none is there with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return None


def wait_for(process: subprocess.Popen[str], url: str, part: str) -> str:
    """The page, as soon as it has the part. The process must not end before."""
    for _ in range(3000):
        page = get(url)
        if page is not None and part in page:
            return page
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"it ended: {process.communicate()}")
    process.kill()
    raise AssertionError(f"{url} has no {part!r}: {page}, {process.communicate()}")


@contextmanager
def running(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that must end well after SIGTERM."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        yield process
        process.terminate()
        said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def can_not_run(reason: str) -> NoReturn:
    """Skips a test that needs more rights. Where `CI` is set, the test fails: nobody would see the skip."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI is set: give the container the options of .github/workflows/ci.yml, or unset CI")
    pytest.skip(reason)


def may_mount() -> bool:
    return shutil.which("unshare") is not None and run("unshare", "--mount", "true").returncode == 0


def as_service(root: Path, command: str) -> list[str]:
    """A command of the unit, run in a root as the user of the service, with `/proc`.

    Where nobody may mount, the program of the root runs outside of it.
    """
    if not may_mount():
        return [word if not word.startswith("/") else f"{root}{word}" for word in command.split()]
    script = 'mount -t proc proc "$0/proc" && exec chroot --userspec=tidegate:tidegate "$0" "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(root), *command.split()]
