# SPDX-License-Identifier: Apache-2.0

from kit import clean_root

__all__ = ["clean_root"]
