# SPDX-License-Identifier: Apache-2.0
#
# Before 1.0, versions are compatible if their minor numbers are equal. From 1.0 on, their major numbers must be.

set(PACKAGE_VERSION "@VERSION@")

if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_VERSION MATCHES "^(0\\.[0-9]+|[0-9]+)\\." AND "${PACKAGE_FIND_VERSION}." MATCHES "^${CMAKE_MATCH_1}\\.")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
else()
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()

if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
