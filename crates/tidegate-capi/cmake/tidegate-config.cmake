# SPDX-License-Identifier: Apache-2.0
#
# find_package(tidegate) gives two targets: tidegate::tidegate is the shared library, tidegate::static the static one.
# The directory may be moved: all paths are relative to this file.

if(NOT TARGET tidegate::tidegate)
  get_filename_component(_tidegate_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

  add_library(tidegate::tidegate SHARED IMPORTED)
  set_target_properties(tidegate::tidegate PROPERTIES
    IMPORTED_LOCATION "${_tidegate_prefix}/lib/libtidegate.so.@ABI@"
    IMPORTED_SONAME "libtidegate.so.@ABI@"
    INTERFACE_INCLUDE_DIRECTORIES "${_tidegate_prefix}/include")

  add_library(tidegate::static STATIC IMPORTED)
  set_target_properties(tidegate::static PROPERTIES
    IMPORTED_LOCATION "${_tidegate_prefix}/lib/libtidegate.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "${_tidegate_prefix}/include"
    INTERFACE_LINK_LIBRARIES "@STATIC_LIBRARIES@")

  unset(_tidegate_prefix)
endif()
