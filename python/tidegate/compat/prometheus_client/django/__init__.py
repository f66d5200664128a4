"""Metrics as a view of Django."""

from .exposition import PrometheusDjangoView

__all__ = ["PrometheusDjangoView"]
