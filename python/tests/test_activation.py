# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs get the drop-in, with all their child processes: by an environment variable or a launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tidegate

#: A server like those that spawn their workers: nothing in it knows of tidegate.
PROGRAM = """
import multiprocessing, subprocess, sys
from prometheus_client import CollectorRegistry, Counter, generate_latest, multiprocess

REQUESTS = Counter("requests", "Requests served")

def work(count):
    REQUESTS.inc(count)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(10,)) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    code = "import program; program.work(5)"
    subprocess.run([sys.executable, "-c", code], check=True)
    REQUESTS.inc()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    print(generate_latest(registry).decode())
    print("module", Counter.__module__)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    (tmp_path / "cells").mkdir()
    return path


def environment(program: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(program.parent), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "PROMETHEUS_MULTIPROC_DIR": str(program.parent / "cells"), **more}


def run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_launched_program_and_all_its_children(program: Path) -> None:
    page = run([sys.executable, "-m", "tidegate.compat", sys.executable, str(program)], environment(program))
    assert "requests_total 26.0" in page and "module tidegate.compat" in page
    assert not list((program.parent / "cells").glob("counter_*.db"))


def test_the_launcher_runs_scripts_and_reports_what_it_cannot_run(program: Path) -> None:
    launcher = [sys.executable, "-m", "tidegate.compat"]
    assert "requests_total 26.0" in run([*launcher, str(program)], environment(program))
    for command, status, text in (([], 2, "usage"), (["/no/such/program"], 127, "No such file")):
        done = subprocess.run([*launcher, *command], env=environment(program), capture_output=True, text=True, timeout=300)
        assert done.returncode == status and text in done.stderr


def test_an_installed_package_listens_to_the_variable(program: Path, tmp_path: Path) -> None:
    """The file that pip puts beside the package works: the interpreter reads `.pth` files of its site directories only."""
    site = Path(tidegate.__file__).parents[1]
    (pth,) = [*site.glob("*.data/purelib/*.pth"), *site.glob("*.pth")]
    start = tmp_path / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text(f"import site; exec(open({str(pth)!r}).read())")
    env = environment(program)
    env["PYTHONPATH"] = os.pathsep.join([str(start), env["PYTHONPATH"]])
    assert "module prometheus_client" in run([sys.executable, str(program)], env)
    for path in (program.parent / "cells").glob("*"):
        path.unlink()
    page = run([sys.executable, str(program)], {**env, "TIDEGATE_COMPAT": "prometheus_client"})
    assert "requests_total 26.0" in page and "module tidegate.compat" in page
    unknown = run([sys.executable, "-c", "pass"], {**env, "TIDEGATE_COMPAT": "statsd"})
    assert "TIDEGATE_COMPAT='statsd' is unknown" in unknown


def test_another_sitecustomize_still_runs(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the other one ran')")
    env = environment(program)
    env["PYTHONPATH"] = os.pathsep.join([str(other), env["PYTHONPATH"]])
    code = "import prometheus_client; print(prometheus_client.__name__)"
    output = run([sys.executable, "-m", "tidegate.compat", sys.executable, "-c", code], env)
    assert "the other one ran" in output and "tidegate.compat.prometheus_client" in output


def test_activation_loads_nothing_before_the_import(program: Path) -> None:
    code = "import sys; print('tidegate.compat.prometheus_client' in sys.modules)"
    assert run([sys.executable, "-m", "tidegate.compat", sys.executable, "-c", code], environment(program)) == "False\n"


def test_modules_are_the_same_under_both_names(program: Path) -> None:
    code = textwrap.dedent(
        """
        from prometheus_client.exposition import ThreadingWSGIServer
        import prometheus_client.mmap_dict, prometheus_client, tidegate.compat.prometheus_client as ours
        assert prometheus_client is ours and prometheus_client.exposition is ours.exposition
        assert ours.exposition.ThreadingWSGIServer is ThreadingWSGIServer
        assert ours.__spec__.name == "tidegate.compat.prometheus_client"
        """
    )
    run([sys.executable, "-W", "error", "-m", "tidegate.compat", sys.executable, "-c", code], environment(program))


def test_the_collector_warns_of_processes_with_the_real_library(program: Path) -> None:
    """A server whose main module alone installs the drop-in: its spawned children import the real library."""
    source = program.read_text().replace(
        'if __name__ == "__main__":', 'if __name__ == "__main__":\n    pass\n\nif __name__ == "__main__":', 1
    )
    source = f"if __name__ == '__main__':\n    import tidegate.compat; tidegate.compat.install()\n{source}"
    program.write_text(source)
    page = run([sys.executable, str(program)], environment(program))
    assert "requests_total 1.0" in page
    assert "files of the real prometheus_client" in page and "TIDEGATE_COMPAT=prometheus_client" in page


def test_a_cleaning_hook_finds_the_counts_of_the_last_run(program: Path) -> None:
    cells = program.parent / "cells"
    command = [sys.executable, "-m", "tidegate.compat", sys.executable, str(program)]
    assert "requests_total 26.0" in run(command, environment(program))
    assert "requests_total 52.0" in run(command, environment(program)), "without a hook counts go on"
    for path in cells.glob("*.db"):
        path.unlink()
    assert "requests_total 26.0" in run(command, environment(program)), "rm *.db begins at zero"


def test_a_directory_of_an_older_version_keeps_its_counts(program: Path) -> None:
    cells = program.parent / "cells"
    command = [sys.executable, "-m", "tidegate.compat", sys.executable, str(program)]
    run(command, environment(program))
    # Older versions had no marker.
    (cells / "tidegate.db").unlink()
    (cells / ".tidegate-marked").unlink()
    assert "requests_total 52.0" in run(command, environment(program))


def test_the_real_library_reads_the_marker_as_an_empty_file(program: Path) -> None:
    run([sys.executable, "-m", "tidegate.compat", sys.executable, str(program)], environment(program))
    code = textwrap.dedent(
        """
        from prometheus_client import CollectorRegistry, generate_latest, multiprocess
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        print(len(generate_latest(registry)))
        """
    )
    assert run([sys.executable, "-c", code], environment(program)) == "0\n"
