# SPDX-License-Identifier: Apache-2.0
"""Ways to other systems."""
