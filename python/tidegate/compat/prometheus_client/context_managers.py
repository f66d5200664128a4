# SPDX-License-Identifier: Apache-2.0
"""Instruments around code: as context managers and as decorators of functions, sync or async."""

from tidegate._around import ExceptionCounter, InprogressTracker, Timer

from .decorator import decorate as decorate

__all__ = ["ExceptionCounter", "InprogressTracker", "Timer"]
