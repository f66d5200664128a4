# SPDX-License-Identifier: Apache-2.0
"""``python -m tidegate.compat PROGRAM [ARGUMENT...]``: runs a program with the stand-in for prometheus_client.

The program and all its child processes import it, however they are started (fork, spawn, subprocess, Ray workers).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.compat import VARIABLE

#: Holds a `sitecustomize.py`, which Python runs at its start.
_START = Path(__file__).parent / "_start"


def main(command: list[str]) -> int:
    """Replaces this process by the program; gives the exit status where that fails."""
    if not command or command[0].startswith("-"):
        print("usage: python -m tidegate.compat PROGRAM [ARGUMENT...]", file=sys.stderr)
        return 2
    os.environ.setdefault(VARIABLE, "prometheus_client")
    package = str(Path(__file__).parents[2])
    path = [str(_START), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if package not in path and not _is_installed(package):
        path.append(package)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    program = [sys.executable, *command] if command[0].endswith(".py") else command
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"tidegate.compat: {program[0]}: {error.strerror}", file=sys.stderr)
        return 127


def _is_installed(package: str) -> bool:
    """Whether an interpreter finds the package without help."""
    import site

    return package in (*site.getsitepackages(), site.getusersitepackages())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
