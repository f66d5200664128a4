"""Instruments around code: as context managers and as decorators of functions, sync or async."""

from tidegate._around import ExceptionCounter, InprogressTracker, Timer

__all__ = ["ExceptionCounter", "InprogressTracker", "Timer"]
