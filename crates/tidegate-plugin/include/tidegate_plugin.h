/* SPDX-License-Identifier: Apache-2.0
 *
 * Exporter plugins of tidegate: a shared object that exports one function and gets batches of telemetry.
 * For C11 and C++11 and later. docs/plugins.md shows a whole plugin; this file is the contract.
 *
 * The gateway looks for `libtidegate_exporter_NAME.so`, calls `tidegate_exporter_plugin` in it, checks the
 * table that it gets, and makes an instance for every exporter that is configured with the plugin.
 *
 * Threads. An instance is created, called and destroyed on one thread of its own, one call at a time. Two
 * instances are called on two threads at once, so what they share in the plugin needs a lock.
 *
 * Time. Every call has a limit (the exporter's `timeout`). In the gateway's process a call can't be broken
 * off: one that overruns goes on, its batch counts as timed out, and the instance gets no other call until it
 * returns. In a process of its own (`isolation: process`) the process is killed and started again.
 *
 * Memory. The gateway owns the arguments of a call; they are valid until the call returns. A plugin
 * frees its own memory.
 *
 * Errors. Nothing may unwind out of a function: no C++ exception, no longjmp, no panic.
 *
 * Growth. `tidegate_exporter_table`, `tidegate_setup`, `tidegate_batch` and `tidegate_answer` may get new
 * members at their ends; each carries its size as its maker knew it, and no reader goes beyond it. The other structs
 * lie in arrays and don't grow. A change that breaks this raises TIDEGATE_PLUGIN_ABI_VERSION.
 */
#ifndef TIDEGATE_PLUGIN_H
#define TIDEGATE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
/* From C++17 on a function that is not noexcept does not fit into the table. */
#define TIDEGATE_NOEXCEPT noexcept
extern "C" {
#else
#define TIDEGATE_NOEXCEPT
#endif

#define TIDEGATE_PLUGIN_ABI_VERSION 1u

/* What a plugin takes: the sum of these. */
enum {
    /* Metrics as OTLP: the bytes of an ExportMetricsServiceRequest. */
    TIDEGATE_TAKES_METRICS = 1,
    /* Traces as OTLP: the bytes of an ExportTraceServiceRequest. */
    TIDEGATE_TAKES_TRACES = 2,
    /* Logs as OTLP: the bytes of an ExportLogsServiceRequest. */
    TIDEGATE_TAKES_LOGS = 4,
    /* Measurements before aggregation, as columns. Without TIDEGATE_TAKES_METRICS the points of gauges
     * and of delta sums come as events too, and other points are refused and counted. Without this bit events
     * come as OTLP: delta points of their batch. */
    TIDEGATE_TAKES_EVENTS = 8
};

/* Which telemetry a batch is. */
enum { TIDEGATE_METRICS = 0, TIDEGATE_TRACES = 1, TIDEGATE_LOGS = 2 };

/* How the values of a kind of event combine. */
enum {
    TIDEGATE_COUNTER = 0,
    TIDEGATE_UP_DOWN_COUNTER = 1,
    TIDEGATE_GAUGE = 2,
    TIDEGATE_HISTOGRAM = 3
};

/* What a call answers. */
typedef int32_t tidegate_status;
enum {
    /* All of it is where it belongs. The gateway forgets it. */
    TIDEGATE_OK = 0,
    /* All but `lost_items` items, which can't be taken; they are counted and not sent again. */
    TIDEGATE_PARTIAL = 1,
    /* Not now: the same batch comes again, after `retry_after_ns` if that is not 0. */
    TIDEGATE_RETRY = 2,
    /* Never. The batch is dropped and counted. */
    TIDEGATE_REFUSED = 3,
    /* Never, because of something in it: the gateway halves the batch to find what it is. */
    TIDEGATE_INVALID = 4,
    /* The gateway is to send smaller batches. */
    TIDEGATE_TOO_LARGE = 5
};

/* UTF-8 that is not terminated. `data` is not null where `length` is not 0. */
typedef struct tidegate_text {
    const char *data;
    size_t length;
} tidegate_text;

typedef struct tidegate_bytes {
    const uint8_t *data;
    size_t length;
} tidegate_bytes;

/* Values that are not strings are written as JSON. */
typedef struct tidegate_attribute {
    tidegate_text key;
    tidegate_text value;
} tidegate_attribute;

/* What an event measures. */
typedef struct tidegate_kind {
    tidegate_text name;
    /* The attribute `category`, empty without; NIXL's events have one. */
    tidegate_text category;
    /* UCUM. */
    tidegate_text unit;
    tidegate_text description;
    /* TIDEGATE_COUNTER and so on. */
    uint32_t instrument;
    uint32_t reserved;
    /* All attributes of the kind, `category` among them. */
    const tidegate_attribute *attributes;
    size_t attribute_count;
} tidegate_kind;

/* Events of one source, as columns of `count` elements. */
typedef struct tidegate_events {
    /* The name of the source: the attribute `agent_name`, else `service.instance.id`, else `service.name`, else empty. */
    tidegate_text source;
    /* Attributes of the resource, then those that the source adds to every event. */
    const tidegate_attribute *attributes;
    size_t attribute_count;
    /* What `kind` points into. */
    const tidegate_kind *kinds;
    size_t kind_count;
    size_t count;
    /* Index into `kinds`; always within. */
    const uint16_t *kind;
    /* The values are whole numbers or doubles: one of the two is null. */
    const uint64_t *values_u64;
    const double *values_f64;
    /* Nanoseconds since 1970, of the event or, where its producer does not say, of its arrival. */
    const uint64_t *times_ns;
    /* How many measurements an event stands for; null: one each. */
    const double *weights;
} tidegate_events;

/* What one call exports: OTLP, events of some sources, or both. */
typedef struct tidegate_batch {
    size_t struct_size;
    /* TIDEGATE_METRICS and so on. */
    uint32_t signal;
    uint32_t reserved;
    /* Points, spans or log records of the OTLP bytes, and events. */
    uint64_t items;
    /* Empty where there are only events. */
    tidegate_bytes otlp;
    const tidegate_events *events;
    size_t events_count;
} tidegate_batch;

/* What an instance is created with. */
typedef struct tidegate_setup {
    size_t struct_size;
    /* The exporter as configured: `plugin/csv`. */
    tidegate_text id;
    /* The exporter's `config`: a text as it is written there, a mapping or list as JSON. */
    tidegate_text config;
} tidegate_setup;

/* The gateway's, filled in by the plugin where it has something to say. */
typedef struct tidegate_answer {
    size_t struct_size;
    /* With TIDEGATE_RETRY: when to come again; 0: as the gateway thinks. */
    uint64_t retry_after_ns;
    /* With TIDEGATE_PARTIAL: how many items were not taken. */
    uint64_t lost_items;
    /* What went wrong, for the log: UTF-8, at most `message_capacity` bytes. See tidegate_say. */
    char *message;
    size_t message_capacity;
    size_t message_length;
} tidegate_answer;

typedef struct tidegate_exporter_table {
    /* TIDEGATE_PLUGIN_ABI_VERSION as the plugin was built with. */
    uint32_t abi_version;
    /* TIDEGATE_TAKES_METRICS and so on, added up. */
    uint32_t takes;
    /* sizeof(tidegate_exporter_table) */
    size_t struct_size;
    /* The NAME of the file's name; letters, digits, `_` and `-`. Terminated. */
    const char *name;
    /* The plugin's own version, as in Semantic Versioning: "1.0.0". Terminated. */
    const char *version;
    /* Makes an instance and stores it; TIDEGATE_OK, or anything else with a message. The start of the gateway
     * fails then, as with any configuration that can't be used. */
    tidegate_status (*create)(const tidegate_setup *setup, void **instance, tidegate_answer *answer)
        TIDEGATE_NOEXCEPT;
    tidegate_status (*export_batch)(void *instance, const tidegate_batch *batch, tidegate_answer *answer)
        TIDEGATE_NOEXCEPT;
    /* Brings what the plugin still holds where it belongs: now and then after exports, and before `destroy`.
     * Null: it never holds anything. */
    tidegate_status (*flush)(void *instance, tidegate_answer *answer) TIDEGATE_NOEXCEPT;
    void (*destroy)(void *instance) TIDEGATE_NOEXCEPT;
} tidegate_exporter_table;

/* What the gateway looks up and calls: gives a table that lives as long as the shared object. */
__attribute__((visibility("default"))) const tidegate_exporter_table *
tidegate_exporter_plugin(void) TIDEGATE_NOEXCEPT;

/* Says what went wrong; what does not fit is cut off. */
static inline void tidegate_say(tidegate_answer *answer, const char *text) {
    size_t length = strlen(text);
    if (length > answer->message_capacity) {
        length = answer->message_capacity;
    }
    memcpy(answer->message, text, length);
    answer->message_length = length;
}

#ifdef __cplusplus
}
#endif

#endif
