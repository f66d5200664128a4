// SPDX-License-Identifier: Apache-2.0

/* Every function with NULL, with text that is not UTF-8, and with other mistakes: answers, no crash. */
#include "expect.h"

#define BAD "\xff\xfe"
#define NULLED(call) ANSWERS(TG_NULL_POINTER, call)

static void ignore_change(const tg_change *change, void *context) { (void)change, (void)context; }
static void ignore_ring(const char *path, const tg_ring_info *info, void *context) {
  (void)path, (void)info, (void)context;
}
static void count_done(void *context) { ++*(int *)context; }

static void registries(tg_registry *good) {
  tg_registry *r = good;
  NULLED(tg_registry_prometheus(0, NULL));
  NULLED(tg_registry_null(NULL));
  NULLED(tg_registry_otel(NULL, NULL));
  NULLED(tg_registry_shm(NULL, TG_NOTHING, &r));
  EXPECT(r == NULL);
  NULLED(tg_registry_shm("a", NULL, 1, &r));
  NULLED(tg_registry_shm("a", TG_LABELS({NULL, ""}), &r));
  ANSWERS(TG_BAD_TEXT, tg_registry_shm(BAD, TG_NOTHING, &r));
  ANSWERS(TG_IO, tg_registry_shm("/proc/no such place", TG_NOTHING, &r));
  ANSWERS(TG_BAD_TEXT, tg_registry_otel(TG_OTEL(.endpoint = BAD), &r));
  ANSWERS(TG_INVALID, tg_registry_otel(TG_OTEL(.endpoint = "no url"), &r));
  ANSWERS(TG_INVALID, tg_registry_otel(TG_OTEL(.protocol = 9), &r));
  ANSWERS(TG_INVALID, tg_registry_otel(TG_OTEL(.temporality = 9), &r));
  ANSWERS(TG_INVALID, tg_registry_otel(TG_OTEL(.headers = (const tg_label[]){{"a b", "c"}}, .header_count = 1), &r));
  NULLED(tg_registry_at("null", NULL));
  ANSWERS(TG_BAD_TEXT, tg_registry_at(BAD, &r));
  const char *places[] = {"nowhere", "nowhere:x", "null:x", "prometheus:x", "prometheus://x", "otlp:x y", "null,", "shm"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) ANSWERS(TG_INVALID, tg_registry_at(places[i], &r));
  NULLED(tg_registry_push_failures(NULL, &(uint64_t){0}, &(uint64_t){0}));
  ANSWERS(TG_INVALID, tg_registry_push_failures(good, &(uint64_t){0}, &(uint64_t){0}));
  NULLED(tg_registry_fanout(NULL, 1, &r));
  NULLED(tg_registry_fanout((const tg_registry *[]){NULL}, 1, &r));
  NULLED(tg_registry_foreign(NULL, &r));
  ANSWERS(TG_INVALID, tg_registry_foreign(&(tg_foreign_table){.size = 0}, &r));
  NULLED(tg_registry_scope(NULL, TG_SCOPE(.prefix = "a"), &r));
  ANSWERS(TG_BAD_TEXT, tg_registry_scope(good, TG_SCOPE(.prefix = BAD), &r));
  ANSWERS(TG_INVALID, tg_registry_scope(good, &(tg_scope){.prefix = "a"}, &r)); /* no size */
  NULLED(tg_registry_retain(NULL));
  OK(tg_registry_release(NULL));
  size_t needed;
  NULLED(tg_registry_expose(NULL, TG_PROMETHEUS_TEXT, NULL, 0, &needed));
  ANSWERS(TG_INVALID, tg_registry_expose(good, 9, NULL, 0, &needed));
  ANSWERS(TG_TOO_SMALL, tg_registry_expose(good, TG_PROMETHEUS_TEXT, NULL, 100, &needed));
  EXPECT(needed == 1);
  NULLED(tg_registry_flush(NULL, 0));
  NULLED(tg_registry_shutdown(NULL, 0));
  NULLED(tg_registry_fold(NULL, 0));
  ANSWERS(TG_INVALID, tg_registry_fold(good, 0));
  tg_metrics *metrics;
  NULLED(tg_registry_gather(NULL, &metrics));
  NULLED(tg_registry_gather(good, NULL));
  NULLED(tg_metrics_count(NULL, &needed));
  NULLED(tg_metrics_at(NULL, 0, &(const tg_metric *){NULL}));
  NULLED(tg_metrics_retain(NULL));
  OK(tg_metrics_release(NULL));
}

static void instruments(const tg_registry *r) {
  const tg_description *d = TG_DESCRIPTION(.name = "a");
  tg_counter *counter;
  tg_float_counter *floating;
  tg_up_down_counter *up_down;
  tg_gauge *gauge;
  tg_histogram *histogram;
  NULLED(tg_counter_new(NULL, d, TG_NOTHING, &counter));
  NULLED(tg_counter_new(r, NULL, TG_NOTHING, &counter));
  NULLED(tg_counter_new(r, d, TG_NOTHING, NULL));
  NULLED(tg_counter_new(r, TG_DESCRIPTION(.help = "no name"), TG_NOTHING, &counter));
  ANSWERS(TG_BAD_TEXT, tg_counter_new(r, TG_DESCRIPTION(.name = BAD), TG_NOTHING, &counter));
  ANSWERS(TG_BAD_TEXT, tg_counter_new(r, d, TG_LABELS({"a", BAD}), &counter));
  ANSWERS(TG_INVALID, tg_counter_new(r, TG_DESCRIPTION(.name = "a b"), TG_NOTHING, &counter));
  ANSWERS(TG_INVALID, tg_counter_new(r, d, TG_LABELS({"a b", "c"}), &counter));
  ANSWERS(TG_INVALID, tg_counter_new(r, d, TG_LABELS({"x", "1"}, {"x", "2"}), &counter));
  ANSWERS(TG_INVALID, tg_counter_new(r, &(tg_description){.name = "a"}, TG_NOTHING, &counter)); /* no size */
  ANSWERS(TG_INVALID, tg_counter_new(r, d, (const tg_label *)8, (size_t)-1, &counter));
  ANSWERS(TG_INVALID, tg_histogram_new(r, TG_DESCRIPTION(.name = "a", .buckets = "furlongs"), TG_NOTHING, &histogram));
  ANSWERS(TG_INVALID, tg_histogram_new(r, TG_DESCRIPTION(.name = "a", .bounds = (const double[]){2, 1}, .bound_count = 2),
                                       TG_NOTHING, &histogram));
  ANSWERS(TG_INVALID, tg_gauge_new(r, TG_DESCRIPTION(.name = "a", .mode = 99), TG_NOTHING, &gauge));
  EXPECT(counter == NULL && histogram == NULL && gauge == NULL);
  NULLED(tg_float_counter_new(NULL, d, TG_NOTHING, &floating));
  NULLED(tg_up_down_counter_new(NULL, d, TG_NOTHING, &up_down));
  NULLED(tg_gauge_new(NULL, d, TG_NOTHING, &gauge));
  NULLED(tg_histogram_new(NULL, d, TG_NOTHING, &histogram));
  NULLED(tg_exponential_histogram_new(NULL, d, TG_NOTHING, &histogram));

  NULLED(tg_counter_inc(NULL));
  NULLED(tg_counter_add(NULL, 1));
  NULLED(tg_counter_add_in(NULL, 1, NULL));
  NULLED(tg_counter_get(NULL, &(uint64_t){0}));
  NULLED(tg_counter_retain(NULL));
  OK(tg_counter_release(NULL));
  NULLED(tg_float_counter_add(NULL, 1));
  NULLED(tg_float_counter_get(NULL, &(double){0}));
  NULLED(tg_float_counter_retain(NULL));
  OK(tg_float_counter_release(NULL));
  NULLED(tg_up_down_counter_add(NULL, 1));
  NULLED(tg_up_down_counter_get(NULL, &(int64_t){0}));
  NULLED(tg_up_down_counter_retain(NULL));
  OK(tg_up_down_counter_release(NULL));
  NULLED(tg_gauge_set(NULL, 1));
  NULLED(tg_gauge_add(NULL, 1));
  NULLED(tg_gauge_get(NULL, &(double){0}));
  NULLED(tg_gauge_retain(NULL));
  OK(tg_gauge_release(NULL));
  NULLED(tg_histogram_observe(NULL, 1));
  NULLED(tg_histogram_observe_in(NULL, 1, NULL));
  NULLED(tg_histogram_get(NULL, &(uint64_t){0}, &(double){0}));
  NULLED(tg_histogram_retain(NULL));
  OK(tg_histogram_release(NULL));

  OK(tg_counter_new(r, TG_DESCRIPTION(.name = "taken"), TG_NOTHING, &counter));
  ANSWERS(TG_CONFLICT, tg_gauge_new(r, TG_DESCRIPTION(.name = "taken"), TG_NOTHING, &gauge));
  EXPECT(strstr(tg_error_text(), "taken") != NULL);
  NULLED(tg_counter_get(counter, NULL));
  NULLED(tg_counter_add_in(counter, 1, NULL));
  ANSWERS(TG_INVALID, tg_counter_add_in(counter, 1, &(tg_trace_context){0}));
  uint64_t total = 9;
  OK(tg_counter_get(counter, &total));
  EXPECT(total == 0);
  OK(tg_counter_release(counter));
}

static void families(const tg_registry *r) {
  const tg_description *d = TG_DESCRIPTION(.name = "family");
  tg_family *family;
  tg_counter *counter;
  NULLED(tg_family_new(NULL, TG_COUNTER, d, TG_NOTHING, TG_TEXTS("a"), &family));
  NULLED(tg_family_new(r, TG_COUNTER, d, TG_NOTHING, TG_TEXTS(NULL), &family));
  ANSWERS(TG_INVALID, tg_family_new(r, 9, d, TG_NOTHING, TG_TEXTS("a"), &family));
  ANSWERS(TG_BAD_TEXT, tg_family_new(r, TG_COUNTER, d, TG_NOTHING, TG_TEXTS(BAD), &family));
  OK(tg_family_new(r, TG_COUNTER, d, TG_NOTHING, TG_TEXTS("a"), &family));
  NULLED(tg_family_counter(NULL, TG_TEXTS("1"), &counter));
  NULLED(tg_family_counter(family, TG_TEXTS("1"), NULL));
  NULLED(tg_family_counter(family, TG_TEXTS(NULL), &counter));
  ANSWERS(TG_BAD_TEXT, tg_family_counter(family, TG_TEXTS(BAD), &counter));
  ANSWERS(TG_INVALID, tg_family_counter(family, TG_NOTHING, &counter));
  ANSWERS(TG_INVALID, tg_family_counter(family, TG_TEXTS("1", "2"), &counter));
  ANSWERS(TG_INVALID, tg_family_float_counter(family, TG_TEXTS("1"), &(tg_float_counter *){NULL}));
  ANSWERS(TG_INVALID, tg_family_up_down_counter(family, TG_TEXTS("1"), &(tg_up_down_counter *){NULL}));
  ANSWERS(TG_INVALID, tg_family_gauge(family, TG_TEXTS("1"), &(tg_gauge *){NULL}));
  ANSWERS(TG_INVALID, tg_family_histogram(family, TG_TEXTS("1"), &(tg_histogram *){NULL}));
  NULLED(tg_family_remove(NULL, TG_TEXTS("1")));
  ANSWERS(TG_NONE, tg_family_remove(family, TG_TEXTS("1")));
  NULLED(tg_family_retain(NULL));
  OK(tg_family_release(NULL));
  OK(tg_family_release(family));
}

static void composites(const tg_registry *r) {
  tg_gauge *gauge;
  tg_counter *counter;
  tg_composite *composite;
  tg_snapshots *snapshots;
  tg_subscription *subscription;
  OK(tg_gauge_new(r, TG_DESCRIPTION(.name = "gauge"), TG_NOTHING, &gauge));
  OK(tg_counter_new(r, TG_DESCRIPTION(.name = "count"), TG_NOTHING, &counter));
  NULLED(tg_composite_new(NULL, TG_SOURCES(TG_ANY(gauge)), NULL, &composite));
  NULLED(tg_composite_new("a", NULL, 1, NULL, &composite));
  NULLED(tg_composite_new("a", &(tg_any){.type_ = TG_TYPE_GAUGE}, 1, NULL, &composite));
  NULLED(tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), NULL, NULL));
  ANSWERS(TG_BAD_TEXT, tg_composite_new(BAD, TG_SOURCES(TG_ANY(gauge)), NULL, &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_NOTHING, NULL, &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", &(tg_any){.type_ = 99, .handle = gauge}, 1, NULL, &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(gauge), TG_ANY(counter)), NULL, &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), TG_COMPOSITE(.function = 99), &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)),
                                       TG_COMPOSITE(.function = TG_FUNCTION_QUANTILE, .rank = 2), &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(counter)), TG_COMPOSITE(.function = TG_FUNCTION_MAX),
                                       &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), TG_COMPOSITE(.across = 99), &composite));
  ANSWERS(TG_INVALID,
          tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), TG_COMPOSITE(.across = TG_ACROSS_POOL), &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)),
                                       TG_COMPOSITE(.across = TG_ACROSS_QUANTILE, .across_rank = 2), &composite));
  ANSWERS(TG_INVALID, tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)),
                                       TG_COMPOSITE(.function = TG_FUNCTION_SUM, .across = TG_ACROSS_SUM), &composite));
  OK(tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), NULL, &composite));
  NULLED(tg_composite_value(NULL, TG_NOTHING, &(double){0}));
  NULLED(tg_composite_value(composite, TG_NOTHING, NULL));
  NULLED(tg_composite_get(NULL, TG_NOTHING, &snapshots));
  ANSWERS(TG_NONE, tg_composite_get(composite, TG_LABELS({"no", "group"}), &snapshots));
  ANSWERS(TG_INVALID, tg_composite_new("b", TG_SOURCES(TG_ANY(composite)), NULL, &(tg_composite *){NULL}));
  NULLED(tg_composite_all(NULL, &snapshots));
  NULLED(tg_composite_watch(NULL, &(tg_watcher *){NULL}));
  NULLED(tg_watcher_wait(NULL, 0, &snapshots));
  NULLED(tg_watcher_retain(NULL));
  OK(tg_watcher_release(NULL));
  NULLED(tg_composite_retain(NULL));
  NULLED(tg_snapshots_count(NULL, &(size_t){0}));
  NULLED(tg_snapshots_at(NULL, 0, &(const tg_snapshot *){NULL}));
  NULLED(tg_snapshots_retain(NULL));
  OK(tg_snapshots_release(NULL));
  NULLED(tg_describe((tg_any){.type_ = TG_TYPE_GAUGE}, &(tg_metrics *){NULL}));
  ANSWERS(TG_INVALID, tg_describe(TG_ANY(composite), &(tg_metrics *){NULL}));

  int done = 0;
  NULLED(tg_on_change(TG_ANY(gauge), NULL, NULL, &done, count_done, &subscription));
  EXPECT(done == 0);
  NULLED(tg_on_change(TG_ANY(gauge), NULL, ignore_change, &done, count_done, NULL));
  EXPECT(done == 1);
  NULLED(tg_on_change((tg_any){.type_ = TG_TYPE_GAUGE}, NULL, ignore_change, &done, count_done, &subscription));
  ANSWERS(TG_INVALID, tg_on_change(TG_ANY(gauge), TG_TRIGGER(.when = 9), ignore_change, &done, count_done, &subscription));
  EXPECT(done == 3);
  NULLED(tg_subscription_retain(NULL));
  OK(tg_subscription_release(NULL));
  OK(tg_composite_release(composite));
  OK(tg_gauge_release(gauge));
  OK(tg_counter_release(counter));
}

static void servers_and_spans(const tg_registry *r) {
  tg_server *server;
  char address[64];
  NULLED(tg_serve_http(NULL, "127.0.0.1:0", &server));
  NULLED(tg_serve_http(r, NULL, &server));
  ANSWERS(TG_BAD_TEXT, tg_serve_http(r, BAD, &server));
  ANSWERS(TG_INVALID, tg_serve_http(r, "nowhere", &server));
  OK(tg_serve_http(r, "127.0.0.1:0", &server));
  ANSWERS(TG_TOO_SMALL, tg_server_address(server, address, 3));
  OK(tg_server_address(server, address, sizeof address));
  ANSWERS(TG_IO, tg_serve_http(r, address, &(tg_server *){NULL})); /* taken */
  NULLED(tg_server_address(NULL, address, sizeof address));
  NULLED(tg_server_set_ready(NULL, true));
  NULLED(tg_server_set_endpoint(server, NULL, true));
  NULLED(tg_server_stop(NULL));
  OK(tg_server_stop(server));
  OK(tg_server_stop(server));
  ANSWERS(TG_NONE, tg_server_set_ready(server, true));
  NULLED(tg_server_retain(NULL));
  OK(tg_server_release(server));

  tg_tracer *tracer;
  tg_span *span;
  tg_trace_context context;
  NULLED(tg_tracer_new(NULL, NULL));
  ANSWERS(TG_BAD_TEXT, tg_tracer_new(TG_TRACER(.endpoint = BAD), &tracer));
  ANSWERS(TG_INVALID, tg_tracer_new(TG_TRACER(.endpoint = "no url"), &tracer));
  OK(tg_tracer_new(TG_TRACER(.endpoint = "http://127.0.0.1:1"), &tracer));
  NULLED(tg_span_start(NULL, "a", NULL, &span));
  NULLED(tg_span_start(tracer, NULL, NULL, &span));
  ANSWERS(TG_INVALID, tg_span_start(tracer, "a", &(tg_trace_context){0}, &span));
  OK(tg_span_start(tracer, "a", NULL, &span));
  NULLED(tg_span_set(NULL, "a", "b"));
  NULLED(tg_span_set(span, "a", NULL));
  ANSWERS(TG_BAD_TEXT, tg_span_set(span, "a", BAD));
  NULLED(tg_span_fail(NULL, "a"));
  NULLED(tg_span_context(NULL, &context));
  NULLED(tg_span_retain(NULL));
  NULLED(tg_tracer_flush(NULL));
  NULLED(tg_tracer_shutdown(NULL, 0));
  NULLED(tg_tracer_retain(NULL));
  OK(tg_tracer_shutdown(tracer, 1000000000)); /* nothing has ended */
  ANSWERS(TG_NONE, tg_tracer_flush(tracer));
  OK(tg_span_release(span));
  OK(tg_tracer_release(tracer));

  ANSWERS(TG_NONE, tg_trace_context_parse("nonsense", NULL, &context));
  NULLED(tg_trace_context_parse(NULL, NULL, &context));
  ANSWERS(TG_BAD_TEXT, tg_trace_context_parse(BAD, NULL, &context));
  NULLED(tg_trace_context_format(NULL, address, sizeof address));
  ANSWERS(TG_INVALID, tg_trace_context_format(&(tg_trace_context){0}, address, sizeof address));
}

typedef struct { tg_counter *requests; } service;

static void sets(tg_registry *registry) {
  const tg_field fields[] = {TG_FIELD(service, requests, TG_COUNTER, .help = "Requests")};
  service made;
  NULLED(tg_set_register(NULL, TG_FIELDS(fields), &made));
  EXPECT(made.requests == NULL);
  NULLED(tg_set_register(registry, NULL, 1, &made));
  NULLED(tg_set_register(registry, TG_FIELDS(fields), NULL));
  NULLED(tg_set_release(NULL, 1, &made));
  NULLED(tg_set_release(TG_FIELDS(fields), NULL));
}

static void rings(void) {
  tg_ring *ring;
  NULLED(tg_ring_open(NULL, true, 0, &ring));
  ANSWERS(TG_BAD_TEXT, tg_ring_open(BAD, true, 0, &ring));
  ANSWERS(TG_IO, tg_ring_open("/no such file", true, 0, &ring));
  ANSWERS(TG_INVALID, tg_ring_open(__FILE__, false, 0, &ring));
  NULLED(tg_ring_find(NULL, ignore_ring, NULL));
  NULLED(tg_ring_find("/", NULL, NULL));
  ANSWERS(TG_IO, tg_ring_find("/no such directory", ignore_ring, NULL));
  NULLED(tg_ring_read(NULL, &(tg_ring_batch){0}));
  NULLED(tg_ring_commit(NULL));
  NULLED(tg_ring_try_consume(NULL));
  NULLED(tg_ring_kind_of(NULL, 0, &(tg_ring_kind){0}));
  NULLED(tg_ring_get_stats(NULL, &(tg_ring_stats){0}));
  NULLED(tg_ring_get_info(NULL, &(tg_ring_info){0}));
  NULLED(tg_ring_retain(NULL));
  OK(tg_ring_release(NULL));
}

int main(void) {
  EXPECT(strcmp(tg_error_text(), "") == 0);
  EXPECT(tg_abi_version() == TG_ABI_VERSION && strlen(tg_version()) > 0);
  EXPECT(strcmp(tg_status_name(TG_CONFLICT), "TG_CONFLICT") == 0 && strcmp(tg_status_name(-1), "TG_UNKNOWN") == 0);
  tg_registry *registry;
  OK(tg_registry_prometheus(0, &registry));
  registries(registry);
  instruments(registry);
  families(registry);
  composites(registry);
  servers_and_spans(registry);
  sets(registry);
  rings();
  EXPECT(tg_misused() == 0);
  OK(tg_registry_release(registry));
  return 0;
}
