# SPDX-License-Identifier: Apache-2.0
"""Metrics as a handler of aiohttp's server."""

from .exposition import make_aiohttp_handler

__all__ = ["make_aiohttp_handler"]
