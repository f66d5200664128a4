# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: prometheus_client's own tests import the drop-in, and those that ask for something else must fail.

They are not part of this repository: `test_upstream.py` runs them where they were unpacked.
"""

from __future__ import annotations

from typing import Any

import pytest

import tidegate.compat

_ONE_PROCESS = "plays several processes within one; here the kernel tells them apart (test_multiprocess.py has real ones)"
_FILES = "is about the files of prometheus_client"

#: Tests that must fail, and why: the deliberate differences that docs/python.md lists.
DIFFERENCES = {
    **dict.fromkeys(
        [f"test_core.py::Test{name}::test_repr" for name in ("Counter", "Gauge", "Summary", "Histogram", "Info")],
        "repr says the module that the class is of",
    ),
    **dict.fromkeys(
        [
            f"test_multiprocess.py::TestMultiProcess::test_{name}"
            for name in (
                "collect",
                "counter_across_forks",
                "gauge_all",
                "gauge_liveall",
                "gauge_livemax",
                "gauge_livemin",
                "gauge_livemostrecent",
                "gauge_livesum",
                "gauge_min",
                "gauge_sum",
            )
        ],
        _ONE_PROCESS,
    ),
    "test_multiprocess.py::TestMultiProcess::test_remove_clear_warning": "labels can be removed with several processes",
    **dict.fromkeys(
        [
            f"test_multiprocess.py::{name}"
            for name in (
                "TestMultiProcess::test_initialization_detects_pid_change",
                "TestMultiProcess::test_merge_no_accumulate",
                "TestMultiProcess::test_missing_gauge_file_during_merge",
            )
        ],
        _FILES,
    ),
}

#: How a refused certificate shows depends on the machine's OpenSSL, for prometheus_client itself as well.
UNSTEADY = "test_exposition.py::TestWsgiTLS::test_mtls_untrusted_client_cert_raises"


def pytest_configure(config: pytest.Config) -> None:
    tidegate.compat.install()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    names = {item.nodeid.split("/")[-1]: item for item in items}
    unknown = DIFFERENCES.keys() - names.keys()
    if unknown:
        raise pytest.UsageError(f"there are no such tests: {unknown}")
    for name, why in DIFFERENCES.items():
        names[name].add_marker(pytest.mark.xfail(reason=why, strict=True))
    names[UNSTEADY].add_marker(pytest.mark.xfail(reason="depends on OpenSSL", strict=False))
