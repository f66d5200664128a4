/* SPDX-License-Identifier: Apache-2.0
 *
 * W3C trace context, in and out. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_TRACE_HPP
#define TIDEGATE_TRACE_HPP

#include <optional>

#include "handle.hpp"

namespace tidegate {

/** The context of a request by its headers; nothing: it has none. */
inline std::optional<tg_trace_context> parse_trace_context(const std::string &traceparent,
                                                           const std::string &tracestate = "") {
  tg_trace_context context;
  if (!is_there(tg_trace_context_parse(traceparent.c_str(), tracestate.c_str(), &context))) return std::nullopt;
  return context;
}

/** The traceparent of a request that belongs to a span. */
inline std::string traceparent(const tg_trace_context &context) {
  char text[TG_TRACEPARENT_SIZE];
  check(tg_trace_context_format(&context, text, sizeof text));
  return text;
}

} // namespace tidegate

#endif
