/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans, and W3C trace context in and out. Part of tidegate.hpp.
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

/** Something that takes time: it ends when its last owner goes. */
class Span : public detail::Handle<tg_span, tg_span_retain, tg_span_release> {
public:
  using Handle::Handle;
  void set(const std::string &key, const std::string &value) const {
    check(tg_span_set(raw_, key.c_str(), value.c_str()));
  }
  void fail(const std::string &reason) const { check(tg_span_fail(raw_, reason.c_str())); }
  /** The parent of spans within, and what a request to elsewhere carries; nothing: it is of no trace. */
  std::optional<tg_trace_context> context() const {
    tg_trace_context context;
    if (!is_there(tg_span_context(raw_, &context))) return std::nullopt;
    return context;
  }
};

/** Exports spans over gRPC to an OpenTelemetry collector. */
class Tracer : public detail::Handle<tg_tracer, tg_tracer_retain, tg_tracer_release> {
public:
  using Handle::Handle;
  /** Without an endpoint as the environment says. */
  explicit Tracer(const std::string &endpoint, const Labels &resource = {}) {
    auto own = detail::c(resource);
    auto options = detail::sized<tg_tracer_options>();
    options.endpoint = detail::c(endpoint);
    options.resource = own.data();
    options.resource_count = own.size();
    check(tg_tracer_new(&options, &raw_));
  }
  Span start(const std::string &name, const std::optional<tg_trace_context> &parent = std::nullopt) const {
    tg_span *span = nullptr;
    check(tg_span_start(raw_, name.c_str(), parent ? &*parent : nullptr, &span));
    return Span(span);
  }
  void flush() const { check(tg_tracer_flush(raw_)); }
  void shutdown(nanoseconds within) const { check(tg_tracer_shutdown(raw_, detail::ns(within))); }
};

} // namespace tidegate

#endif
