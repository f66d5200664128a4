/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics, composites, callbacks, spans and NIXL rings for C11 and C++. docs/c.md is the guide; tidegate.hpp wraps this
 * for C++17. Made by cbindgen from the source of tidegate-capi: change it there.
 *
 * Answers. A function returns a tg_status. It writes its result to a pointer at its end, which is NULL if it fails.
 * tg_error_text() then gives the reason, to the thread that called. Nothing aborts or unwinds: NULL where there must be
 * a value, and text that is not UTF-8, give an error like any other mistake.
 *
 * Handles are opaque and counted. The call that makes one makes its caller the owner; ..._retain() is an owner more,
 * ..._release() one less, with NULL allowed. A handle owns all that it needs: an instrument works on when its registry
 * was released, and a registry behind a scope or a fan-out stays. A handle that has no owner any more must not be used.
 *
 * Threads. All functions may be called from any thread, also with the same handle.
 *
 * Memory. A call copies its arguments. Its results (structs and texts) belong to the handle that they came from, and
 * live as long, unless the function says less.
 *
 * Forks. docs/c.md says what a child inherits: recording goes on, threads do not.
 *
 * Growth. Structs with a member `size` may get members at their end; the macros set it. A change that breaks
 * this raises TG_ABI_VERSION and the number in the library's name.
 */

#ifndef TIDEGATE_H
#define TIDEGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Handles of any type that has a value, for functions that take a tg_any. tidegate.hpp has its own. */
#ifndef __cplusplus
#define TG_TYPE_OF(handle) \
  _Generic((handle), \
    tg_counter *: TG_TYPE_COUNTER, const tg_counter *: TG_TYPE_COUNTER, \
    tg_float_counter *: TG_TYPE_FLOAT_COUNTER, const tg_float_counter *: TG_TYPE_FLOAT_COUNTER, \
    tg_up_down_counter *: TG_TYPE_UP_DOWN_COUNTER, const tg_up_down_counter *: TG_TYPE_UP_DOWN_COUNTER, \
    tg_gauge *: TG_TYPE_GAUGE, const tg_gauge *: TG_TYPE_GAUGE, \
    tg_histogram *: TG_TYPE_HISTOGRAM, const tg_histogram *: TG_TYPE_HISTOGRAM, \
    tg_family *: TG_TYPE_FAMILY, const tg_family *: TG_TYPE_FAMILY, \
    tg_composite *: TG_TYPE_COMPOSITE, const tg_composite *: TG_TYPE_COMPOSITE)
#define TG_ANY(handle_) ((tg_any){.type_ = TG_TYPE_OF(handle_), .handle = (handle_)})

/* Structs for one call: TG_DESCRIPTION(.name = "requests", .help = "Requests processed"). */
#define TG_DESCRIPTION(...) (&(const tg_description){.size = sizeof(tg_description), __VA_ARGS__})
#define TG_OTEL(...) (&(const tg_otel_options){.size = sizeof(tg_otel_options), __VA_ARGS__})
#define TG_SCOPE(...) (&(const tg_scope){.size = sizeof(tg_scope), __VA_ARGS__})
#define TG_COMPOSITE(...) (&(const tg_composite_options){.size = sizeof(tg_composite_options), __VA_ARGS__})
#define TG_TRIGGER(...) (&(const tg_trigger){.size = sizeof(tg_trigger), __VA_ARGS__})
#define TG_TRACER(...) (&(const tg_tracer_options){.size = sizeof(tg_tracer_options), __VA_ARGS__})

/* Members of a struct of instruments, for a table of tg_field. Members and metrics have the same names:
 *   static const tg_field FIELDS[] = {
 *     TG_FIELD(struct service, inflight, TG_GAUGE, .help = "Requests in flight"),
 *     TG_FAMILY_FIELD(struct service, requests, TG_COUNTER, TG_TEXTS("status"), .help = "Requests processed"),
 *   };
 *   check(tg_set_register(registry, TG_FIELDS(FIELDS), &service)); */
#define TG_FIELD(struct_, member_, kind_, ...) \
  {offsetof(struct_, member_), (kind_), TG_DESCRIPTION(.name = #member_, __VA_ARGS__), NULL, 0}
#define TG_FAMILY_FIELD(struct_, member_, kind_, texts_, ...) \
  {offsetof(struct_, member_), (kind_), TG_DESCRIPTION(.name = #member_, __VA_ARGS__), texts_}
#define TG_FIELDS(fields_) (fields_), sizeof(fields_) / sizeof(tg_field)

/* An array and its length, for the two arguments that take them: TG_LABELS({"model", "llama"}), TG_TEXTS("llama", "200"),
 * TG_SOURCES(TG_ANY(histogram)). TG_NOTHING is one of nothing. */
#define TG_LABELS(...) (const tg_label[]){__VA_ARGS__}, sizeof((const tg_label[]){__VA_ARGS__}) / sizeof(tg_label)
#define TG_TEXTS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)
#define TG_SOURCES(...) (const tg_any[]){__VA_ARGS__}, sizeof((const tg_any[]){__VA_ARGS__}) / sizeof(tg_any)
#define TG_NOTHING NULL, 0
#endif


// Raised when a program that was compiled against an older header would break.
#define TG_ABI_VERSION 1

// Bytes of a traceparent with its NUL.
#define TG_TRACEPARENT_SIZE 56

// Room for a tracestate with its NUL: a longer one is omitted, as the specification allows.
#define TG_TRACESTATE_SIZE 513

// The result of a call. tg_error_text() describes an error in words.
typedef enum tg_status {
  // Done.
  TG_OK = 0,
  // A pointer that must not be NULL is.
  TG_NULL_POINTER = 1,
  // A text is not UTF-8.
  TG_BAD_TEXT = 2,
  // An argument makes no sense: a name, bounds, a number, an address.
  TG_INVALID = 3,
  // Something else has this name.
  TG_CONFLICT = 4,
  // There is nothing to give: no value, no such group, no registry that keeps values.
  TG_NONE = 5,
  // The buffer is too small; the call says how large it must be.
  TG_TOO_SMALL = 6,
  // It took longer than it may.
  TG_TIMEOUT = 7,
  // The system refused.
  TG_IO = 8,
  // This process may not.
  TG_PERMISSION = 9,
  // The peer, or a foreign registry, refused.
  TG_REFUSED = 10,
  // A fault of the library itself; nothing of it reaches the program but this.
  TG_INTERNAL = 11,
} tg_status;

// How pushes travel.
typedef enum tg_otel_protocol {
  // As the environment says, or gRPC.
  TG_OTEL_PROTOCOL_DEFAULT = 0,
  // gRPC.
  TG_OTEL_GRPC = 1,
  // HTTP with protobuf, to /v1/metrics below the endpoint.
  TG_OTEL_HTTP = 2,
} tg_otel_protocol;

// The range of values that a pushed point covers.
typedef enum tg_otel_temporality {
  // As the environment says, or cumulative.
  TG_OTEL_TEMPORALITY_DEFAULT = 0,
  // Everything since the registry was made.
  TG_OTEL_CUMULATIVE = 1,
  // The increase since the last accepted push. Up-down counters stay cumulative.
  TG_OTEL_DELTA = 2,
} tg_otel_temporality;

// A format of pages.
typedef enum tg_format {
  // Prometheus' own text, version 0.0.4.
  TG_PROMETHEUS_TEXT = 0,
  // OpenMetrics 1.0.0.
  TG_OPENMETRICS = 1,
} tg_format;

// How the values of a gauge in several processes become one.
typedef enum tg_gauge_mode {
  // TG_LIVE_SUM.
  TG_MODE_DEFAULT = 0,
  // Each process keeps its own series, with a label pid.
  TG_ALL = 1,
  // The same, of the processes that live.
  TG_LIVE_ALL = 2,
  // The sum.
  TG_SUM = 3,
  // The sum over the processes that live.
  TG_LIVE_SUM = 4,
  // The largest.
  TG_MAX = 5,
  // The largest of the processes that live.
  TG_LIVE_MAX = 6,
  // The smallest.
  TG_MIN = 7,
  // The smallest of the processes that live.
  TG_LIVE_MIN = 8,
  // The one set last.
  TG_MOST_RECENT = 9,
  // The one set last by a process that lives.
  TG_LIVE_MOST_RECENT = 10,
} tg_gauge_mode;

// Kinds of instruments.
typedef enum tg_kind {
  // Whole numbers that only grow.
  TG_COUNTER = 0,
  // Numbers that only grow.
  TG_FLOAT_COUNTER = 1,
  // A whole number that grows and falls by what is added.
  TG_UP_DOWN_COUNTER = 2,
  // A number that is set.
  TG_GAUGE = 3,
  // Values counted by fixed buckets.
  TG_HISTOGRAM = 4,
  // Values counted by buckets whose bounds are powers of a base that fits the values.
  TG_EXPONENTIAL_HISTOGRAM = 5,
} tg_kind;

// The type of the handle that a tg_any holds.
typedef enum tg_type {
  // tg_counter.
  TG_TYPE_COUNTER = 1,
  // tg_float_counter.
  TG_TYPE_FLOAT_COUNTER = 2,
  // tg_up_down_counter.
  TG_TYPE_UP_DOWN_COUNTER = 3,
  // tg_gauge.
  TG_TYPE_GAUGE = 4,
  // tg_histogram.
  TG_TYPE_HISTOGRAM = 5,
  // tg_family.
  TG_TYPE_FAMILY = 6,
  // tg_composite.
  TG_TYPE_COMPOSITE = 7,
} tg_type;

// The function that gives the value of a composite.
typedef enum tg_function {
  // The mean; of counters the rate.
  TG_FUNCTION_DEFAULT = 0,
  // The smallest value.
  TG_FUNCTION_MIN = 1,
  // The mean of all values; of gauges over time.
  TG_FUNCTION_AVG = 2,
  // The largest value.
  TG_FUNCTION_MAX = 3,
  // The sum of all values; of counters their increase.
  TG_FUNCTION_SUM = 4,
  // How many values.
  TG_FUNCTION_COUNT = 5,
  // The sum of all values, per second.
  TG_FUNCTION_RATE = 6,
  // The newest value.
  TG_FUNCTION_LAST = 7,
  // The value of a rank.
  TG_FUNCTION_QUANTILE = 8,
} tg_function;

// How the series of a group become one value, after the function has reduced each series over the window.
typedef enum tg_across {
  // Observed values are pooled. A group with several gauges has no value.
  TG_ACROSS_DEFAULT = 0,
  // Their sum.
  TG_ACROSS_SUM = 1,
  // Their mean.
  TG_ACROSS_AVG = 2,
  // The smallest.
  TG_ACROSS_MIN = 3,
  // The largest.
  TG_ACROSS_MAX = 4,
  // How many series have a value.
  TG_ACROSS_COUNT = 5,
  // The value of a rank among them.
  TG_ACROSS_QUANTILE = 6,
  // The function sees the values of all series in one window; not of gauges.
  TG_ACROSS_POOL = 7,
} tg_across;

// How far what a composite says can be trusted.
typedef enum tg_state {
  // Every source is alive. Without observations in the window the value is 0 (sum, count, rate) or NaN; gauges keep
  // their level.
  TG_FRESH = 1,
  // Only of events: every source is alive, and no observation is in the window.
  TG_IDLE = 2,
  // No source is alive.
  TG_STALE = 3,
  // A source is not alive, a loss is known within the window, or a rate does not cover its window yet. The value is
  // that of what is there.
  TG_PARTIAL = 4,
  // Never seen, or every source has left.
  TG_ABSENT = 5,
} tg_state;

// The condition that makes a callback due.
typedef enum tg_when {
  // Any change of the value.
  TG_CHANGED = 0,
  // The value gets greater than `at`, and that is over.
  TG_ABOVE = 1,
  // The value gets less than `at`, and that is over.
  TG_BELOW = 2,
  // The value differs from the last reported one by `at` or more.
  TG_MOVED = 3,
} tg_when;

// The status of a read.
typedef enum tg_ring_status {
  // Nothing new.
  TG_RING_IDLE = 0,
  // Events.
  TG_RING_EVENTS = 1,
  // The ring is just being made; read again later.
  TG_RING_SETTLING = 2,
  // It is not what it was: see `reason` and `lost`. Reading goes on with what is there now.
  TG_RING_RESET = 3,
  // After a reset: still no ring that can be read.
  TG_RING_UNREADABLE = 4,
  // The file was replaced or removed, and everything in this one was read: release the ring.
  TG_RING_GONE = 5,
} tg_ring_status;

// How a ring is read.
typedef enum tg_ring_mode {
  // As its one consumer: commits free slots.
  TG_RING_CONSUME = 0,
  // Beside others: nothing is handed back.
  TG_RING_PEEK = 1,
  // It asked to consume, but another consumer holds the ring: nothing is handed back.
  TG_RING_PEEK_LOCKED = 2,
} tg_ring_mode;

// A value derived from instruments over a window. Several threads may use one at once.
typedef struct tg_composite tg_composite;

// A whole number that only grows. Several threads may use one at once, as all instruments.
typedef struct tg_counter tg_counter;

// The instruments of one name, distinguished by the values of their labels. Several threads may use one at once.
typedef struct tg_family tg_family;

// A number that only grows.
typedef struct tg_float_counter tg_float_counter;

// A number that is set.
typedef struct tg_gauge tg_gauge;

// Values counted by buckets.
typedef struct tg_histogram tg_histogram;

// Metrics with their values at one instant.
typedef struct tg_metrics tg_metrics;

// Where instruments are registered. Several threads may use one at once.
typedef struct tg_registry tg_registry;

// A ring, open for reading. Any thread may use it; one reads at a time.
typedef struct tg_ring tg_ring;

// A server for the pages of a registry.
typedef struct tg_server tg_server;

// Snapshots of the groups of a composite.
typedef struct tg_snapshots tg_snapshots;

// Something that takes time. Any thread may use it.
typedef struct tg_span tg_span;

// Keeps a callback in place.
typedef struct tg_subscription tg_subscription;

// Exports spans. Several threads may use one at once.
typedef struct tg_tracer tg_tracer;

// A whole number that grows and falls by what is added.
typedef struct tg_up_down_counter tg_up_down_counter;

// Waits for what a composite says next.
typedef struct tg_watcher tg_watcher;

// A label: its name and its value.
typedef struct tg_label {
  // Its name.
  const char *key;
  // Its value; empty stands for no label.
  const char *value;
} tg_label;

// Text for C: UTF-8, not terminated; valid during the call.
typedef struct tg_foreign_text {
  // First byte.
  const char *bytes;
  // How many bytes.
  size_t length;
} tg_foreign_text;

// A family for C; valid during the call.
typedef struct tg_foreign_spec {
  // Bytes of this struct: later versions are longer.
  size_t size;
  // 0 counter, 1 fractional counter, 2 up-down counter, 3 gauge, 4 histogram, 5 exponential histogram.
  uint32_t kind;
  // Name, with prefixes.
  struct tg_foreign_text name;
  // Its description.
  struct tg_foreign_text help;
  // UCUM unit.
  struct tg_foreign_text unit;
  // Names of all labels.
  const struct tg_foreign_text *labels;
  // How many labels.
  size_t label_count;
  // Upper bounds of a histogram.
  const double *bounds;
  // How many bounds.
  size_t bound_count;
} tg_foreign_spec;

// The functions of a foreign registry. All of them may be called from several threads at once, must not unwind and
// should not block: they run where the program records.
typedef struct tg_foreign_table {
  // Bytes of this struct as its maker knows it; functions beyond are not called.
  size_t size;
  // Given to every function.
  void *context;
  // Makes a family and writes its number to `family`; anything but 0 refuses.
  int32_t (*register_)(void*, const struct tg_foreign_spec*, uint64_t *family);
  // The series of a family with these values, in the order of its labels; the same number for the same values.
  uint64_t (*series)(void*, uint64_t, const struct tg_foreign_text*, size_t);
  // Adds to a counter.
  void (*add_u64)(void*, uint64_t, uint64_t);
  // Adds to a fractional counter or a gauge.
  void (*add_f64)(void*, uint64_t, double);
  // Adds to an up-down counter.
  void (*add_i64)(void*, uint64_t, int64_t);
  // Sets a gauge.
  void (*set)(void*, uint64_t, double);
  // A histogram counts a value.
  void (*observe)(void*, uint64_t, double);
  // This series has ended.
  void (*remove)(void*, uint64_t);
  // The registry and all its handles are gone: the last call.
  void (*release)(void*);
} tg_foreign_table;

// The prefixes and labels that a scope adds. Zero is the default of every field; TG_SCOPE() makes one.
typedef struct tg_scope {
  // sizeof(tg_scope).
  size_t size;
  // Before all names, joined by "_"; NULL: none.
  const char *prefix;
  // Labels of all series.
  const struct tg_label *labels;
  // How many labels.
  size_t label_count;
  // The label dynamo_namespace; NULL: as it is.
  const char *level_namespace;
  // The label dynamo_component; NULL: as it is.
  const char *level_component;
  // The label dynamo_endpoint; NULL: as it is.
  const char *level_endpoint;
} tg_scope;

// How a tg_registry_otel pushes. Zero is the default of every field; TG_OTEL() makes one.
typedef struct tg_otel_options {
  // sizeof(tg_otel_options).
  size_t size;
  // http://host:port or https://host:port. NULL: what the environment variables of OpenTelemetry say, or
  // http://127.0.0.1:4317. Those variables hold for whatever is not said here.
  const char *endpoint;
  // A tg_otel_protocol.
  uint32_t protocol;
  // A tg_otel_temporality.
  uint32_t temporality;
  // Between two pushes; 0: a minute.
  uint64_t interval_ns;
  // A push may take so long; 0: ten seconds.
  uint64_t timeout_ns;
  // Headers of each push.
  const struct tg_label *headers;
  // How many headers.
  size_t header_count;
  // Attributes of the resource: "service.name" and the like.
  const struct tg_label *resource;
  // How many attributes.
  size_t resource_count;
} tg_otel_options;

// The name and the meaning of an instrument. Zero is the default of every field but the name; TG_DESCRIPTION() makes
// one.
typedef struct tg_description {
  // sizeof(tg_description).
  size_t size;
  // Name without unit and type: those are added where a reader wants them ("_seconds", "_total").
  const char *name;
  // One sentence for people.
  const char *help;
  // UCUM unit: "s", "By", "1", "{requests}".
  const char *unit;
  // Name of a histogram's buckets: "latency" (the default), "fast", "bytes", "tokens", "ratio".
  const char *buckets;
  // Upper bounds of a histogram's buckets, rising, instead of a name.
  const double *bounds;
  // How many bounds.
  size_t bound_count;
  // How the values of a gauge in several processes become one: a tg_gauge_mode.
  uint32_t mode;
  // Whether observations remember the span that they were made in.
  bool exemplars;
} tg_description;

// Which span a request belongs to (W3C Trace Context, level 1).
typedef struct tg_trace_context {
  // The trace; not all zero.
  uint8_t trace[16];
  // The span; not all zero.
  uint8_t span[8];
  // Whether it is recorded.
  bool is_sampled;
  // The data of vendors; passed on as it is.
  char state[TG_TRACESTATE_SIZE];
} tg_trace_context;

// A member of a struct of instruments: TG_FIELD() and TG_FAMILY_FIELD() make one.
typedef struct tg_field {
  // Where in the struct the member is: offsetof.
  size_t offset;
  // A tg_kind: the member is a tg_counter * for TG_COUNTER, and so on; a tg_histogram * for both kinds of histograms.
  uint32_t kind;
  // The name and the meaning of the instrument.
  const struct tg_description *description;
  // Names of labels: the member is a tg_family * then. NULL: it is an instrument.
  const char *const *labels;
  // How many labels.
  size_t label_count;
} tg_field;

// Any handle that has a value. TG_ANY(handle) makes one with the right type.
typedef struct tg_any {
  // A tg_type.
  uint32_t type_;
  // A handle of this type.
  const void *handle;
} tg_any;

// The statistic that a composite computes. Zero is the default of every field; TG_COMPOSITE() makes one.
typedef struct tg_composite_options {
  // sizeof(tg_composite_options).
  size_t size;
  // Over this time; 0: ten seconds.
  uint64_t window_ns;
  // One group for each combination of values of these labels; none: one for everything.
  const char *const *by;
  // How many labels.
  size_t by_count;
  // The function that gives its value: a tg_function.
  uint32_t function;
  // With TG_QUANTILE: which, 0 to 1.
  double rank;
  // Ranks, 0 to 1, to report beside the value.
  const double *quantiles;
  // How many ranks.
  size_t quantile_count;
  // How the series of a group become one value: a tg_across.
  uint32_t across;
  // With TG_ACROSS_QUANTILE: which, 0 to 1.
  double across_rank;
} tg_composite_options;

// The value of a rank.
typedef struct tg_quantile {
  // The rank, 0 to 1.
  double rank;
  // Its value.
  double value;
} tg_quantile;

// The state of one group of a composite at an instant. A missing number is NaN.
typedef struct tg_snapshot {
  // The labels that make the group.
  const struct tg_label *labels;
  // How many labels.
  size_t label_count;
  // The value of the composite.
  double value;
  // Smallest value in the window. Of counters: no extremes, no mean.
  double min;
  // Mean of the values in the window.
  double avg;
  // Largest value in the window.
  double max;
  // Sum of the values in the window; of counters their increase.
  double sum;
  // How many values the window holds; of gauges how often one was looked at.
  double count;
  // Newest value in the window.
  double last;
  // The ranks that were asked for, with their values.
  const struct tg_quantile *quantiles;
  // How many ranks.
  size_t quantile_count;
  // How long the window is.
  uint64_t window_ns;
  // The time since the newest value; UINT64_MAX if there never was one.
  uint64_t age_ns;
  // How far it can be trusted: a tg_state.
  uint32_t state;
  // Why the composite has no value: its declaration does not suit its instruments. NULL: it suits them.
  const char *error;
} tg_snapshot;

// When a callback is due. Zero is the default of every field; TG_TRIGGER() makes one.
typedef struct tg_trigger {
  // sizeof(tg_trigger).
  size_t size;
  // A tg_when.
  uint32_t when;
  // The threshold of TG_ABOVE and TG_BELOW, the distance of TG_MOVED.
  double at;
  // A crossing is over only when the value is back by more than this.
  double hysteresis;
  // At least so long between two calls. A change that comes sooner is reported when the time is over, if it still holds.
  uint64_t min_interval_ns;
} tg_trigger;

// The argument of a callback; valid during the call.
typedef struct tg_change {
  // Everything about the value.
  const struct tg_snapshot *snapshot;
  // The value that made it due.
  double value;
  // Whether the threshold is crossed now. (Without a threshold: yes.)
  bool is_crossed;
} tg_change;

// A callback. It runs on a thread of the library's that all callbacks of the process share, one at a time; nothing may
// unwind out of it.
typedef void (*tg_on_change_fn)(const struct tg_change *change, void *context);

// Called when a context is no longer used.
typedef void (*tg_done_fn)(void *context);

// Buckets of an exponential histogram. Bucket i of a side holds sizes in (base^(offset+i), base^(offset+i+1)].
typedef struct tg_exponential {
  // The base is 2^(2^-scale).
  int32_t scale;
  // How many values are too near to zero for a bucket.
  uint64_t zero_count;
  // Index of the first bucket of positive values.
  int32_t positive_offset;
  // How many values each of these buckets holds.
  const uint64_t *positive;
  // How many of these buckets.
  size_t positive_count;
  // Index of the first bucket of negative values.
  int32_t negative_offset;
  // How many values each of these buckets holds.
  const uint64_t *negative;
  // How many of these buckets.
  size_t negative_count;
} tg_exponential;

// A series, as long as the tg_metrics it is of.
typedef struct tg_series {
  // Its labels.
  const struct tg_label *labels;
  // How many labels.
  size_t label_count;
  // Its value as a number; of histograms the sum of the values.
  double value;
  // The value of a counter, exact; of an up-down counter its two's complement; of histograms the number of values.
  uint64_t count;
  // Of a histogram with fixed buckets: how many values each holds, one more than bounds.
  const uint64_t *counts;
  // Its upper bounds, rising.
  const double *bounds;
  // How many bounds.
  size_t bound_count;
  // Of an exponential histogram; else NULL.
  const struct tg_exponential *exponential;
} tg_series;

// A metric, as long as the tg_metrics it is of.
typedef struct tg_metric {
  // Its name with all prefixes.
  const char *name;
  // Its description.
  const char *help;
  // Its UCUM unit.
  const char *unit;
  // A tg_kind.
  uint32_t kind;
  // Its series.
  const struct tg_series *series;
  // How many series.
  size_t series_count;
} tg_metric;

// Where spans go. Zero is the default of every field; TG_TRACER() makes one.
typedef struct tg_tracer_options {
  // sizeof(tg_tracer_options).
  size_t size;
  // Over gRPC to this collector, http://host:port; NULL: what the environment variables of OpenTelemetry say, or
  // http://127.0.0.1:4317.
  const char *endpoint;
  // Attributes of the resource: "service.name" and the like.
  const struct tg_label *resource;
  // How many attributes.
  size_t resource_count;
} tg_tracer_options;

// The description of a file that is a ring.
typedef struct tg_ring_info {
  // The layout: "1", "2a", "2b", "3", "4" or "5".
  char version[4];
  // Slots; one event less fits.
  uint64_t capacity;
  // Events that wait.
  uint64_t readable;
  // A tg_ring_mode; of a file that is not open TG_RING_PEEK.
  uint32_t mode;
  // The user that the producer runs as.
  uint32_t owner_uid;
} tg_ring_info;

// Called for a ring of a directory, with its path and what it is, valid during the call.
typedef void (*tg_ring_found_fn)(const char *path, const struct tg_ring_info *info, void *context);

// The result of a read. Columns and texts are valid until the next read of the ring or its release.
typedef struct tg_ring_batch {
  // A tg_ring_status.
  uint32_t status;
  // Why, in a word; empty where there is nothing to say.
  const char *reason;
  // How many events there are in the columns.
  size_t count;
  // The kind of each event: see tg_ring_kind_of().
  const uint16_t *kinds;
  // The value of each event, in the unit of its kind.
  const uint64_t *values;
  // Microseconds since the epoch of each event; NULL but for version 1.
  const uint64_t *timestamps_us;
  // Events that waited when the read began.
  uint64_t readable;
  // Events that were seen but not committed, and that a reset lost.
  uint64_t lost;
  // No slot was free: the producer may have dropped events, which the ring does not count.
  bool full;
} tg_ring_batch;

// The description of a kind of events; valid until the release of the ring.
typedef struct tg_ring_kind {
  // NIXL's name.
  const char *name;
  // Unit in UCUM: "By", "us", "1".
  const char *unit;
  // "MEMORY", "TRANSFER", "ERROR" and so on.
  const char *category;
  // Of errors: which; else NULL.
  const char *status;
} tg_ring_kind;

// Totals since the ring was opened.
typedef struct tg_ring_stats {
  // Events committed.
  uint64_t events;
  // Reads that found the ring full: each may stand for events that the producer dropped.
  uint64_t suspected_loss;
  // Resets.
  uint64_t resets;
  // Events that were seen but gone before they were committed.
  uint64_t lost;
  // Committed events of a type that is not known.
  uint64_t unknown;
  // Committed events whose name came after the table of names was full.
  uint64_t overflow;
} tg_ring_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last call of this thread that failed did so, for people: UTF-8, empty when none has failed. Valid until the
// next call of this thread that fails.
const char *tg_error_text(void);

// The name of a status, such as "TG_INVALID"; "TG_UNKNOWN" for a number that is none.
const char *tg_status_name(int32_t status);

// The version of the ABI of the library that runs. A program that needs what TG_ABI_VERSION said when it was compiled
// compares the two.
uint32_t tg_abi_version(void);

// The version of the library that runs, such as "0.1.0".
const char *tg_version(void);

// How often this process used an instrument in a way that has no meaning: a counter that would fall, an observed value that
// is not finite, a NaN added to a gauge. Each time nothing was recorded.
uint64_t tg_misused(void);

// Keeps values in memory, for pages. Of a family `max_series` are kept apart, further ones share one that says
// otel_metric_overflow="true"; 0: 2000.
enum tg_status tg_registry_prometheus(size_t max_series, struct tg_registry **registry);

// Keeps values in a new file of `directory`, which is made if it is not there: any process of the node that uses the
// directory sees what all of them recorded, and it outlives the process. `resource` says what the process is.
enum tg_status tg_registry_shm(const char *directory,
                               const struct tg_label *resource,
                               size_t resource_count,
                               struct tg_registry **registry);

// Keeps nothing: its instruments do nothing.
enum tg_status tg_registry_null(struct tg_registry **registry);

// Passes everything on to several registries, of which it becomes an owner. Reads return the values of the first
// registry that keeps values.
enum tg_status tg_registry_fanout(const struct tg_registry *const *registries,
                                  size_t count,
                                  struct tg_registry **registry);

// Passes everything on to a table of functions. Values are kept here as well: they can be read back, and composites and
// callbacks work. The table is copied; its `release` is called when the registry and all its instruments are gone.
enum tg_status tg_registry_foreign(const struct tg_foreign_table *table,
                                   struct tg_registry **registry);

// The same registry with a prefix before all names and labels on all series, on top of those of `parent`. A level of
// the hierarchy (namespace, component, endpoint) that is set leaves those below it open.
enum tg_status tg_registry_scope(const struct tg_registry *parent,
                                 const struct tg_scope *scope,
                                 struct tg_registry **registry);

// One owner more.
enum tg_status tg_registry_retain(const struct tg_registry *registry);

// One owner less. Instruments that were made with it stay usable; once the last owner is gone, nothing shows their
// values any more (in shared memory, other processes do).
enum tg_status tg_registry_release(const struct tg_registry *registry);

// Writes all values as a page to `buffer`, with a NUL. `needed` (may be NULL) receives how many bytes that takes; with
// less room the answer is TG_TOO_SMALL. `format` is a tg_format. A page may grow between two calls.
enum tg_status tg_registry_expose(const struct tg_registry *registry,
                                  uint32_t format,
                                  char *buffer,
                                  size_t capacity,
                                  size_t *needed);

// Gets out what was recorded until now, within so much time. Only registries that push have to do anything.
enum tg_status tg_registry_flush(const struct tg_registry *registry, uint64_t within_ns);

// Pushes the values that were recorded until now, and stops. Later values go nowhere.
enum tg_status tg_registry_shutdown(const struct tg_registry *registry, uint64_t within_ns);

// Puts the values of dead processes of a shared directory into one file, and removes their files `grace_ns` after
// they died. TG_INVALID: it is not a registry of a directory.
enum tg_status tg_registry_fold(const struct tg_registry *registry, uint64_t grace_ns);

// The registry of a place: "prometheus", or "prometheus://host:port", which serves its page there until it is released;
// "shm:/dev/shm/metrics", or "shm" for the directory in TIDEGATE_CELLS_DIR; "otlp" by the environment variables of
// OpenTelemetry, "otlp://host:port" and "otlps://..." over gRPC, "otlp+http://..." and "otlp+https://..." over HTTP;
// "null"; several of them with commas. NULL or empty: what TIDEGATE_REGISTRY says, else "prometheus".
enum tg_status tg_registry_at(const char *place,
                              struct tg_registry **registry);

// Keeps values in memory and pushes them to an OpenTelemetry collector, on a thread of its own. `options` may be NULL.
enum tg_status tg_registry_otel(const struct tg_otel_options *options,
                                struct tg_registry **registry);

// How many pushes failed so far (the next successful push carries their values), and how many points the collector
// received and refused. TG_INVALID: it is not a registry that pushes.
enum tg_status tg_registry_push_failures(const struct tg_registry *registry,
                                         uint64_t *failed_pushes,
                                         uint64_t *rejected_points);

// A family of instruments of this tg_kind with these constant labels, distinguished by the labels of these names. To
// register the same again gives the same series.
enum tg_status tg_family_new(const struct tg_registry *registry,
                             uint32_t kind,
                             const struct tg_description *description,
                             const struct tg_label *labels,
                             size_t label_count,
                             const char *const *names,
                             size_t name_count,
                             struct tg_family **family);

// The counter with these values of the family's labels, in the order of their names; made if it is not there. Keep it
// where the values stay the same: the look-up costs far more than recording.
enum tg_status tg_family_counter(const struct tg_family *family,
                                 const char *const *values,
                                 size_t value_count,
                                 struct tg_counter **counter);

// As tg_family_counter.
enum tg_status tg_family_float_counter(const struct tg_family *family,
                                       const char *const *values,
                                       size_t value_count,
                                       struct tg_float_counter **counter);

// As tg_family_counter.
enum tg_status tg_family_up_down_counter(const struct tg_family *family,
                                         const char *const *values,
                                         size_t value_count,
                                         struct tg_up_down_counter **counter);

// As tg_family_counter.
enum tg_status tg_family_gauge(const struct tg_family *family,
                               const char *const *values,
                               size_t value_count,
                               struct tg_gauge **gauge);

// As tg_family_counter.
enum tg_status tg_family_histogram(const struct tg_family *family,
                                   const char *const *values,
                                   size_t value_count,
                                   struct tg_histogram **histogram);

// Ends the series with these values: pages do not show it any more. TG_NONE: there is none.
enum tg_status tg_family_remove(const struct tg_family *family, const char *const *values, size_t value_count);

// One owner more.
enum tg_status tg_family_retain(const struct tg_family *family);

// One owner less. Its series stay.
enum tg_status tg_family_release(const struct tg_family *family);

// A counter with these constant labels. To register the same again gives the same counter.
enum tg_status tg_counter_new(const struct tg_registry *registry,
                              const struct tg_description *description,
                              const struct tg_label *labels,
                              size_t label_count,
                              struct tg_counter **counter);

// Adds one.
enum tg_status tg_counter_inc(const struct tg_counter *counter);

// Adds.
enum tg_status tg_counter_add(const struct tg_counter *counter, uint64_t amount);

// Adds, and remembers that it happened in this span, where the description said `exemplars`.
enum tg_status tg_counter_add_in(const struct tg_counter *counter,
                                 uint64_t amount,
                                 const struct tg_trace_context *span);

// The total; 0 of a registry that keeps nothing.
enum tg_status tg_counter_get(const struct tg_counter *counter, uint64_t *value);

// One owner more.
enum tg_status tg_counter_retain(const struct tg_counter *counter);

// One owner less. The series stays.
enum tg_status tg_counter_release(const struct tg_counter *counter);

// A fractional counter with these constant labels.
enum tg_status tg_float_counter_new(const struct tg_registry *registry,
                                    const struct tg_description *description,
                                    const struct tg_label *labels,
                                    size_t label_count,
                                    struct tg_float_counter **counter);

// Adds an amount. It does not add a negative or non-finite number; tg_misused() counts it.
enum tg_status tg_float_counter_add(const struct tg_float_counter *counter, double amount);

// The total; 0 of a registry that keeps nothing.
enum tg_status tg_float_counter_get(const struct tg_float_counter *counter, double *value);

// One owner more.
enum tg_status tg_float_counter_retain(const struct tg_float_counter *counter);

// One owner less. The series stays.
enum tg_status tg_float_counter_release(const struct tg_float_counter *counter);

// An up-down counter with these constant labels.
enum tg_status tg_up_down_counter_new(const struct tg_registry *registry,
                                      const struct tg_description *description,
                                      const struct tg_label *labels,
                                      size_t label_count,
                                      struct tg_up_down_counter **counter);

// Adds; less than nothing takes away.
enum tg_status tg_up_down_counter_add(const struct tg_up_down_counter *counter, int64_t amount);

// The value; 0 of a registry that keeps nothing.
enum tg_status tg_up_down_counter_get(const struct tg_up_down_counter *counter, int64_t *value);

// One owner more.
enum tg_status tg_up_down_counter_retain(const struct tg_up_down_counter *counter);

// One owner less. The series stays.
enum tg_status tg_up_down_counter_release(const struct tg_up_down_counter *counter);

// A gauge with these constant labels.
enum tg_status tg_gauge_new(const struct tg_registry *registry,
                            const struct tg_description *description,
                            const struct tg_label *labels,
                            size_t label_count,
                            struct tg_gauge **gauge);

// Sets. NaN says that the value is not known.
enum tg_status tg_gauge_set(const struct tg_gauge *gauge, double value);

// Adds; less than nothing takes away. NaN is not added, and counted by tg_misused().
enum tg_status tg_gauge_add(const struct tg_gauge *gauge, double amount);

// The value; 0 of a registry that keeps nothing.
enum tg_status tg_gauge_get(const struct tg_gauge *gauge, double *value);

// One owner more.
enum tg_status tg_gauge_retain(const struct tg_gauge *gauge);

// One owner less. The series stays.
enum tg_status tg_gauge_release(const struct tg_gauge *gauge);

// A histogram with fixed buckets and these constant labels.
enum tg_status tg_histogram_new(const struct tg_registry *registry,
                                const struct tg_description *description,
                                const struct tg_label *labels,
                                size_t label_count,
                                struct tg_histogram **histogram);

// A histogram with exponential buckets and these constant labels.
enum tg_status tg_exponential_histogram_new(const struct tg_registry *registry,
                                            const struct tg_description *description,
                                            const struct tg_label *labels,
                                            size_t label_count,
                                            struct tg_histogram **histogram);

// Counts a value. It does not count a non-finite number; tg_misused() counts it instead.
enum tg_status tg_histogram_observe(const struct tg_histogram *histogram, double value);

// Counts a value, and remembers that it was made in this span, where the description said `exemplars`.
enum tg_status tg_histogram_observe_in(const struct tg_histogram *histogram,
                                       double value,
                                       const struct tg_trace_context *span);

// How many values, and their sum; 0 of a registry that keeps nothing.
enum tg_status tg_histogram_get(const struct tg_histogram *histogram, uint64_t *count, double *sum);

// One owner more.
enum tg_status tg_histogram_retain(const struct tg_histogram *histogram);

// One owner less. The series stays.
enum tg_status tg_histogram_release(const struct tg_histogram *histogram);

// Registers all instruments of a struct. `fields` says which member is which; a scope of the registry gives them a prefix
// and labels. If one fails, all members are NULL.
enum tg_status tg_set_register(const struct tg_registry *registry,
                               const struct tg_field *fields,
                               size_t field_count,
                               void *set);

// One owner less of each instrument of a struct, whose members are NULL then.
enum tg_status tg_set_release(const struct tg_field *fields, size_t field_count, void *set);

// A composite of these instruments and families, which sees what is recorded from now on. `options` may be NULL.
enum tg_status tg_composite_new(const char *name,
                                const struct tg_any *of,
                                size_t of_count,
                                const struct tg_composite_options *options,
                                struct tg_composite **composite);

// The value of the group with these labels, now, of everything that was recorded before this call; without labels, of
// the first group. TG_NONE: no group has these labels, or no value in its window.
enum tg_status tg_composite_value(const struct tg_composite *composite,
                                  const struct tg_label *labels,
                                  size_t label_count,
                                  double *value);

// Gives the current state of the group with these labels; without labels, of the first group.
enum tg_status tg_composite_get(const struct tg_composite *composite,
                                const struct tg_label *labels,
                                size_t label_count,
                                struct tg_snapshots **snapshots);

// Gives the current state of every group. If there are no groups yet, it gives one snapshot that says so.
enum tg_status tg_composite_all(const struct tg_composite *composite, struct tg_snapshots **snapshots);

// Makes a watcher that waits for the next answers of the composite, until it is released.
enum tg_status tg_composite_watch(const struct tg_composite *composite, struct tg_watcher **watcher);

// One owner more.
enum tg_status tg_composite_retain(const struct tg_composite *composite);

// One owner less. Subscriptions and watchers keep it at work.
enum tg_status tg_composite_release(const struct tg_composite *composite);

// How many snapshots there are: at least one.
enum tg_status tg_snapshots_count(const struct tg_snapshots *snapshots, size_t *count);

// One of the snapshots, from 0 on; it lives as long as they. TG_NONE: the index is beyond the last.
enum tg_status tg_snapshots_at(const struct tg_snapshots *snapshots, size_t at, const struct tg_snapshot **snapshot);

// One owner more.
enum tg_status tg_snapshots_retain(const struct tg_snapshots *snapshots);

// One owner less.
enum tg_status tg_snapshots_release(const struct tg_snapshots *snapshots);

// Calls `callback` with `context` when a counter, an up-down counter, a gauge or a group of a composite makes the trigger
// due, a few milliseconds later, until the subscription is released. `trigger` may be NULL: any change. `done` (may be
// NULL) is called with the context once, when the callback won't be called any more; also when this call fails, unless
// `callback` is NULL.
enum tg_status tg_on_change(struct tg_any of,
                            const struct tg_trigger *trigger,
                            tg_on_change_fn callback,
                            void *context,
                            tg_done_fn done,
                            struct tg_subscription **subscription);

// One owner more.
enum tg_status tg_subscription_retain(const struct tg_subscription *subscription);

// One owner less. In a child of the process that made it nothing happens, and `done` is not called. Else, with the last
// one, the calls end: this waits for one that runs, unless it is called from within a
// callback. So don't hold a lock that the callback takes.
enum tg_status tg_subscription_release(const struct tg_subscription *subscription);

// Waits until the composite says something that was not taken yet, which is all groups as they are then; at most so
// long (TG_TIMEOUT).
enum tg_status tg_watcher_wait(const struct tg_watcher *watcher,
                               uint64_t at_most_ns,
                               struct tg_snapshots **snapshots);

// One owner more.
enum tg_status tg_watcher_retain(const struct tg_watcher *watcher);

// One owner less.
enum tg_status tg_watcher_release(const struct tg_watcher *watcher);

// Everything that a registry has, with its values, as a reader of it sees them.
enum tg_status tg_registry_gather(const struct tg_registry *registry, struct tg_metrics **metrics);

// Gives the description and the value of one instrument, as a metric with one series; of a family all its series.
// TG_NONE: its registry keeps nothing.
enum tg_status tg_describe(struct tg_any of, struct tg_metrics **metrics);

// How many metrics there are.
enum tg_status tg_metrics_count(const struct tg_metrics *metrics, size_t *count);

// One of the metrics, from 0 on. TG_NONE: the index is beyond the last.
enum tg_status tg_metrics_at(const struct tg_metrics *metrics, size_t at, const struct tg_metric **metric);

// One owner more.
enum tg_status tg_metrics_retain(const struct tg_metrics *metrics);

// One owner less.
enum tg_status tg_metrics_release(const struct tg_metrics *metrics);

// Serves /metrics, /health and /live at "host:port" ("0.0.0.0:9090"; port 0: any that is free), on a thread of its own,
// until it is stopped. It owns the registry as well.
enum tg_status tg_serve_http(const struct tg_registry *registry,
                             const char *address,
                             struct tg_server **server);

// Writes where it listens ("127.0.0.1:9090") to `buffer`, with a NUL; 64 bytes are enough. TG_NONE: it has stopped.
enum tg_status tg_server_address(const struct tg_server *server, char *buffer, size_t capacity);

// Sets the answer of /health for the program as a whole. TG_NONE: the server has stopped.
enum tg_status tg_server_set_ready(const struct tg_server *server, bool is_ready);

// Sets the answer of /health for an endpoint of the program. TG_NONE: the server has stopped.
enum tg_status tg_server_set_endpoint(const struct tg_server *server, const char *name, bool is_ready);

// Stops it, even where others own it: the port is free when this returns. To stop it twice does nothing.
enum tg_status tg_server_stop(const struct tg_server *server);

// One owner more.
enum tg_status tg_server_retain(const struct tg_server *server);

// One owner less. With the last one it stops.
enum tg_status tg_server_release(const struct tg_server *server);

// Reads the headers of a request. `tracestate` may be NULL. TG_NONE: the first is not a traceparent; ignore it.
enum tg_status tg_trace_context_parse(const char *traceparent,
                                      const char *tracestate,
                                      struct tg_trace_context *context);

// Writes the traceparent of a request that belongs to a span: TG_TRACEPARENT_SIZE bytes. Its tracestate, where there
// is one, is the context's `state`.
enum tg_status tg_trace_context_format(const struct tg_trace_context *context, char *buffer, size_t capacity);

// Exports spans in batches, on threads of its own. `options` may be NULL.
enum tg_status tg_tracer_new(const struct tg_tracer_options *options, struct tg_tracer **tracer);

// Begins a span. `parent` is what caused it, here or in another process; NULL: nothing, it begins a trace.
enum tg_status tg_span_start(const struct tg_tracer *tracer,
                             const char *name,
                             const struct tg_trace_context *parent,
                             struct tg_span **span);

// Says something about it.
enum tg_status tg_span_set(const struct tg_span *span, const char *key, const char *value);

// It failed, for this reason.
enum tg_status tg_span_fail(const struct tg_span *span, const char *reason);

// Its context: the parent of spans within, here or in another process, and what exemplars remember. TG_NONE: it has
// none.
enum tg_status tg_span_context(const struct tg_span *span, struct tg_trace_context *context);

// One owner more.
enum tg_status tg_span_retain(const struct tg_span *span);

// One owner less. With the last one the span ends.
enum tg_status tg_span_release(const struct tg_span *span);

// Gets out the spans that have ended. TG_NONE: it was shut down.
enum tg_status tg_tracer_flush(const struct tg_tracer *tracer);

// Gets out the spans that have ended, within so much time, and stops: those that end later go nowhere.
enum tg_status tg_tracer_shutdown(const struct tg_tracer *tracer, uint64_t within_ns);

// One owner more.
enum tg_status tg_tracer_retain(const struct tg_tracer *tracer);

// One owner less. With the last one it is shut down, within five seconds.
enum tg_status tg_tracer_release(const struct tg_tracer *tracer);

// Opens a ring. With `consume` it takes the place of the ring's consumer, of which there is one; a ring that has one
// is only peeked into until tg_ring_try_consume() succeeds. A read takes at most `max_events`; 0: 65536. TG_INVALID:
// the file is not a ring; it is unchanged.
enum tg_status tg_ring_open(const char *path, bool consume, size_t max_events, struct tg_ring **ring);

// Tells `found` every ring in a directory, by name (agents name their files); it skips other files. Nothing is locked
// or moved.
enum tg_status tg_ring_find(const char *directory, tg_ring_found_fn found, void *context);

// Copies out the events that wait. Without tg_ring_commit() the next read begins with the same events.
enum tg_status tg_ring_read(const struct tg_ring *ring, struct tg_ring_batch *batch);

// Moves past the events of the last read, and hands their slots back to the producer. TG_NONE: the ring was restarted
// meanwhile, so that there is nothing to hand back; the events count as accepted either way.
enum tg_status tg_ring_commit(const struct tg_ring *ring);

// Tries again to become the consumer; TG_NONE: another one still is, or it was opened to peek.
enum tg_status tg_ring_try_consume(const struct tg_ring *ring);

// Gives the meaning of a number in `kinds`, which stays the same as long as the ring. TG_NONE: the ring did not give
// out this number.
enum tg_status tg_ring_kind_of(const struct tg_ring *ring, uint16_t number, struct tg_ring_kind *kind);

// Totals since it was opened.
enum tg_status tg_ring_get_stats(const struct tg_ring *ring, struct tg_ring_stats *stats);

// Gives the description of the ring. (Reads report `readable`.)
enum tg_status tg_ring_get_info(const struct tg_ring *ring, struct tg_ring_info *info);

// One owner more.
enum tg_status tg_ring_retain(const struct tg_ring *ring);

// One owner less. With the last one its place as the consumer is free.
enum tg_status tg_ring_release(const struct tg_ring *ring);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TIDEGATE_H */
