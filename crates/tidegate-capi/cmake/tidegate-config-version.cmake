# SPDX-License-Identifier: Apache-2.0
#
# Before 1.0, versions are compatible if their minor numbers are equal. From 1.0 on, their major numbers must be.

set(PACKAGE_VERSION "@VERSION@")

# What compatible versions begin with: `0.1.` or `1.`.
string(REGEX MATCH "^(0\\.[0-9]+|[0-9]+)\\." _tidegate_begin "${PACKAGE_VERSION}")
string(FIND "${PACKAGE_FIND_VERSION}." "${_tidegate_begin}" _tidegate_at)

if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION OR NOT _tidegate_at EQUAL 0)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()

if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()

unset(_tidegate_begin)
unset(_tidegate_at)
