# SPDX-License-Identifier: Apache-2.0
"""Metrics as a view of Django."""

from .exposition import PrometheusDjangoView

__all__ = ["PrometheusDjangoView"]
