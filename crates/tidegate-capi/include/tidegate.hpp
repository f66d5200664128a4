/* SPDX-License-Identifier: Apache-2.0
 *
 * tidegate.h for C++17: handles that own, exceptions instead of codes, std::function instead of pointers, durations
 * instead of nanoseconds. Everything is inline and calls the C library; docs/c.md is the guide.
 *
 * Recording never throws. Everything else throws tidegate::Error.
 */
#ifndef TIDEGATE_HPP
#define TIDEGATE_HPP

#include "tidegate/composite.hpp"
#include "tidegate/foreign.hpp"
#include "tidegate/handle.hpp"
#include "tidegate/instrument.hpp"
#include "tidegate/registry.hpp"
#include "tidegate/ring.hpp"
#include "tidegate/server.hpp"
#include "tidegate/trace.hpp"
#include "tidegate/watch.hpp"

#endif
