# SPDX-License-Identifier: Apache-2.0
"""Python runs this at its start when ``python -m tidegate.compat`` has put its folder on `PYTHONPATH`.

Another `sitecustomize` further down the path runs after it, as it would without this one.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _run_next() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    from tidegate.compat import activate
except ImportError:
    # A child of another interpreter, which does not have the package.
    pass
else:
    activate()
_run_next()
