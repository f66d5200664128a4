# SPDX-License-Identifier: Apache-2.0
"""The package's own messages, through `logging`."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("tidegate")


def callback_failed(error: BaseException) -> None:
    """A callback raised; called once a process."""
    LOGGER.error("a callback raised; further ones are only counted (tidegate.callback_failures)", exc_info=error)


def warn(text: str) -> None:
    """Logs a message of the native part that has no caller."""
    LOGGER.warning(text)
