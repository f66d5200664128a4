// SPDX-License-Identifier: Apache-2.0

/* What handles, callbacks, watchers and lists promise: behaviour DIRECTORY. */
#define _DEFAULT_SOURCE
#include "heard.h"

#include <math.h>
#include <threads.h>

static tg_registry *prometheus(void) {
  tg_registry *registry;
  OK(tg_registry_prometheus(0, &registry));
  return registry;
}

static void an_instrument_outlives_its_registry(void) {
  tg_registry *registry = prometheus();
  tg_counter *counter;
  OK(tg_counter_new(registry, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &counter));
  OK(tg_registry_retain(registry));
  OK(tg_registry_release(registry));
  OK(tg_registry_flush(registry, SECOND)); /* the owner that was added */
  OK(tg_registry_release(registry));
  OK(tg_counter_retain(counter));
  OK(tg_counter_release(counter));
  OK(tg_counter_add(counter, 5));
  uint64_t total;
  OK(tg_counter_get(counter, &total));
  EXPECT(total == 5);
  OK(tg_counter_release(counter));
}

static void a_word_says_where(const char *directory) {
  char place[4096];
  snprintf(place, sizeof place, " null, shm:%s, prometheus://127.0.0.1:0/", directory);
  tg_registry *registry, *other;
  tg_counter *counter;
  OK(tg_registry_at(place, &registry));
  OK(tg_counter_new(registry, TG_DESCRIPTION(.name = "word"), TG_NOTHING, &counter));
  OK(tg_counter_add(counter, 3));
  snprintf(place, sizeof place, "shm://%s", directory);
  EXPECT(setenv("TIDEGATE_REGISTRY", place, 1) == 0);
  OK(tg_registry_at(NULL, &other)); /* another that sees the same directory */
  char page[16384];
  OK(tg_registry_expose(other, TG_PROMETHEUS_TEXT, page, sizeof page, NULL));
  EXPECT(strstr(page, "word_total 3\n") != NULL);
  OK(tg_registry_release(other));
  EXPECT(unsetenv("TIDEGATE_REGISTRY") == 0);
  OK(tg_registry_at("", &other));
  OK(tg_registry_expose(other, TG_PROMETHEUS_TEXT, page, sizeof page, NULL));
  EXPECT(strcmp(page, "") == 0);
  OK(tg_registry_release(other));
  OK(tg_counter_release(counter));
  OK(tg_registry_release(registry));

  uint64_t failed, rejected;
  OK(tg_registry_at("otlp+http://127.0.0.1:1", &registry));
  OK(tg_counter_new(registry, TG_DESCRIPTION(.name = "word"), TG_NOTHING, &counter));
  ANSWERS(TG_REFUSED, tg_registry_flush(registry, SECOND)); /* no server listens there */
  OK(tg_registry_push_failures(registry, &failed, &rejected));
  EXPECT(failed == 1 && rejected == 0);
  OK(tg_counter_release(counter));
  OK(tg_registry_release(registry));
}

static void nothing_is_kept_where_nothing_is(void) {
  tg_registry *registry;
  tg_gauge *gauge;
  tg_histogram *histogram;
  tg_composite *composite;
  tg_subscription *subscription;
  tg_metrics *metrics;
  double value = 1;
  uint64_t count = 1;
  OK(tg_registry_null(&registry));
  OK(tg_gauge_new(registry, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &gauge));
  OK(tg_histogram_new(registry, TG_DESCRIPTION(.name = "b"), TG_NOTHING, &histogram));
  OK(tg_gauge_set(gauge, 5));
  OK(tg_gauge_get(gauge, &value));
  EXPECT(value == 0);
  OK(tg_histogram_observe(histogram, 5));
  OK(tg_histogram_get(histogram, &count, &value));
  EXPECT(count == 0 && value == 0);
  ANSWERS(TG_NONE, tg_describe(TG_ANY(gauge), &metrics));
  OK(tg_composite_new("a", TG_SOURCES(TG_ANY(gauge), TG_ANY(histogram)), NULL, &composite));
  ANSWERS(TG_NONE, tg_composite_value(composite, TG_NOTHING, &value));
  struct heard heard = {0};
  OK(tg_on_change(TG_ANY(gauge), NULL, hear, &heard, end, &subscription));
  OK(tg_subscription_release(subscription));
  EXPECT(heard.done == 1 && heard.calls == 0);
  OK(tg_gauge_release(gauge));
  ANSWERS(TG_INVALID, tg_gauge_new(registry, TG_DESCRIPTION(.name = "no name"), TG_NOTHING, &gauge));
  OK(tg_composite_release(composite));
  OK(tg_histogram_release(histogram));
  OK(tg_registry_release(registry));
}

static void everything_can_be_looked_up(void) {
  tg_registry *registry = prometheus(), *worker, *endpoint;
  OK(tg_registry_scope(registry, TG_SCOPE(.prefix = "demo", .level_namespace = "n"), &worker));
  OK(tg_registry_scope(worker, TG_SCOPE(.prefix = "x", .level_component = "c", .level_endpoint = "e"), &endpoint));
  tg_family *family;
  tg_histogram *fixed, *exponential;
  tg_up_down_counter *level;
  tg_float_counter *seconds;
  OK(tg_family_new(endpoint, TG_HISTOGRAM,
                   TG_DESCRIPTION(.name = "size", .help = "Sizes", .unit = "By", .bounds = (const double[]){1, 2},
                                  .bound_count = 2),
                   TG_LABELS({"k", "v"}), TG_TEXTS("model"), &family));
  OK(tg_family_histogram(family, TG_TEXTS("m"), &fixed));
  OK(tg_histogram_observe(fixed, 1.5));
  OK(tg_histogram_observe(fixed, 99));
  OK(tg_histogram_observe(fixed, NAN));
  EXPECT(tg_misused() == 1);

  tg_metrics *metrics;
  const tg_metric *metric;
  OK(tg_describe(TG_ANY(fixed), &metrics));
  OK(tg_metrics_at(metrics, 0, &metric));
  EXPECT(strcmp(metric->name, "demo_x_size") == 0 && strcmp(metric->help, "Sizes") == 0);
  EXPECT(strcmp(metric->unit, "By") == 0 && metric->kind == TG_HISTOGRAM && metric->series_count == 1);
  const tg_series *series = metric->series;
  const char *expected[][2] = {
      {"dynamo_namespace", "n"}, {"dynamo_component", "c"}, {"dynamo_endpoint", "e"}, {"k", "v"}, {"model", "m"}};
  EXPECT(series->label_count == 5);
  for (int i = 0; i < 5; i++) {
    EXPECT(strcmp(series->labels[i].key, expected[i][0]) == 0 && strcmp(series->labels[i].value, expected[i][1]) == 0);
  }
  EXPECT(series->count == 2 && series->value == 100.5 && series->bound_count == 2 && series->bounds[1] == 2);
  EXPECT(series->counts[0] == 0 && series->counts[1] == 1 && series->counts[2] == 1 && series->exponential == NULL);
  ANSWERS(TG_NONE, tg_metrics_at(metrics, 1, &metric));
  OK(tg_metrics_release(metrics));

  OK(tg_exponential_histogram_new(registry, TG_DESCRIPTION(.name = "e"), TG_NOTHING, &exponential));
  OK(tg_up_down_counter_new(registry, TG_DESCRIPTION(.name = "l"), TG_NOTHING, &level));
  OK(tg_float_counter_new(registry, TG_DESCRIPTION(.name = "s"), TG_NOTHING, &seconds));
  OK(tg_histogram_observe(exponential, 3));
  OK(tg_up_down_counter_add(level, -4));
  OK(tg_float_counter_add(seconds, 0.5));
  OK(tg_registry_gather(registry, &metrics));
  size_t count;
  OK(tg_metrics_count(metrics, &count));
  EXPECT(count == 4);
  OK(tg_metrics_at(metrics, 1, &metric));
  EXPECT(metric->kind == TG_EXPONENTIAL_HISTOGRAM && metric->series[0].exponential->positive_count == 1);
  OK(tg_metrics_at(metrics, 2, &metric));
  EXPECT(metric->kind == TG_UP_DOWN_COUNTER && (int64_t)metric->series[0].count == -4 && metric->series[0].value == -4);
  OK(tg_metrics_at(metrics, 3, &metric));
  EXPECT(metric->kind == TG_FLOAT_COUNTER && metric->series[0].value == 0.5);
  OK(tg_metrics_release(metrics));

  OK(tg_family_remove(family, TG_TEXTS("m")));
  OK(tg_describe(TG_ANY(family), &metrics));
  OK(tg_metrics_at(metrics, 0, &metric));
  EXPECT(metric->series_count == 0);
  OK(tg_metrics_release(metrics));
  OK(tg_histogram_release(fixed));
  OK(tg_histogram_release(exponential));
  OK(tg_up_down_counter_release(level));
  OK(tg_float_counter_release(seconds));
  OK(tg_family_release(family));
  OK(tg_registry_release(endpoint));
  OK(tg_registry_release(worker));
  OK(tg_registry_release(registry));
}

static void a_composite_says_what_was_recorded_before(void) {
  tg_registry *registry = prometheus();
  tg_family *family;
  OK(tg_family_new(registry, TG_HISTOGRAM, TG_DESCRIPTION(.name = "a"), TG_NOTHING, TG_TEXTS("model"), &family));
  tg_composite *composite;
  const char *by[] = {"model"};
  const double ranks[] = {0.5};
  OK(tg_composite_new("recent", TG_SOURCES(TG_ANY(family)),
                      TG_COMPOSITE(.by = by, .by_count = 1, .function = TG_FUNCTION_MAX, .quantiles = ranks,
                                   .quantile_count = 1),
                      &composite));
  tg_snapshots *snapshots;
  const tg_snapshot *one;
  OK(tg_composite_all(composite, &snapshots));
  OK(tg_snapshots_at(snapshots, 0, &one));
  EXPECT(one->state == TG_ABSENT && isnan(one->value));
  OK(tg_snapshots_release(snapshots));
  double value;
  ANSWERS(TG_NONE, tg_composite_value(composite, TG_NOTHING, &value));

  for (int i = 0; i < 2; i++) {
    tg_histogram *histogram;
    OK(tg_family_histogram(family, TG_TEXTS(i ? "b" : "a"), &histogram));
    OK(tg_histogram_observe(histogram, 0.2 + i));
    OK(tg_histogram_observe(histogram, 0.4 + i));
    OK(tg_histogram_release(histogram));
  }
  OK(tg_composite_value(composite, TG_LABELS({"model", "b"}), &value));
  EXPECT(value == 1.4);
  OK(tg_composite_get(composite, TG_LABELS({"model", "a"}), &snapshots));
  OK(tg_snapshots_at(snapshots, 0, &one));
  EXPECT(one->value == 0.4 && one->min == 0.2 && one->count == 2 && one->state == TG_FRESH);
  EXPECT(one->label_count == 1 && strcmp(one->labels[0].value, "a") == 0);
  EXPECT(one->window_ns == 10 * SECOND && one->age_ns < 10 * SECOND);
  EXPECT(one->quantile_count == 1 && one->quantiles[0].rank == 0.5 && one->quantiles[0].value > 0.1);
  ANSWERS(TG_NONE, tg_snapshots_at(snapshots, 1, &one));
  OK(tg_snapshots_release(snapshots));
  size_t count;
  OK(tg_composite_all(composite, &snapshots));
  OK(tg_snapshots_count(snapshots, &count));
  EXPECT(count == 2);
  OK(tg_snapshots_release(snapshots));
  OK(tg_composite_release(composite));
  OK(tg_family_release(family));
  OK(tg_registry_release(registry));
}

static void hear_slowly(const tg_change *change, void *context) {
  struct heard *heard = context;
  heard->is_in = true;
  usleep(100000);
  heard->is_in = false;
  hear(change, context);
}

static void hear_once(const tg_change *change, void *context) {
  struct heard *heard = context;
  hear(change, context);
  while (!heard->is_free) thrd_yield();
  OK(tg_subscription_release(heard->subscription)); /* from within */
}

static void callbacks_come_and_end(void) {
  tg_registry *registry = prometheus();
  tg_gauge *gauge;
  OK(tg_gauge_new(registry, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &gauge));

  struct heard heard = {0};
  const tg_trigger *trigger = TG_TRIGGER(.when = TG_ABOVE, .at = 10, .hysteresis = 2);
  OK(tg_on_change(TG_ANY(gauge), trigger, hear, &heard, end, &heard.subscription));
  OK(tg_gauge_set(gauge, 11));
  WAIT(heard.calls == 1);
  EXPECT(heard.is_crossed);
  OK(tg_gauge_set(gauge, 9)); /* within the hysteresis */
  usleep(50000);
  EXPECT(heard.calls == 1);
  OK(tg_gauge_set(gauge, 7));
  WAIT(heard.calls == 2);
  EXPECT(!heard.is_crossed);
  OK(tg_subscription_release(heard.subscription));
  WAIT(heard.done == 1);
  OK(tg_gauge_set(gauge, 11));
  usleep(50000);
  EXPECT(heard.calls == 2 && heard.done == 1);
  OK(tg_gauge_set(gauge, 0));

  struct heard slow = {0};
  OK(tg_on_change(TG_ANY(gauge), TG_TRIGGER(.when = TG_BELOW, .at = -1), hear_slowly, &slow, end, &slow.subscription));
  OK(tg_gauge_set(gauge, -2));
  WAIT(slow.is_in);
  OK(tg_subscription_release(slow.subscription));
  EXPECT(!slow.is_in && slow.calls == 1); /* it was waited for */
  WAIT(slow.done == 1);

  struct heard once = {0};
  OK(tg_on_change(TG_ANY(gauge), NULL, hear_once, &once, end, &once.subscription));
  once.is_free = true;
  WAIT((tg_gauge_add(gauge, 1), once.done == 1));
  EXPECT(once.calls == 1);
  OK(tg_gauge_release(gauge));
  OK(tg_registry_release(registry));
}

static void calls_keep_their_distance(void) {
  tg_registry *registry = prometheus();
  tg_gauge *gauge;
  OK(tg_gauge_new(registry, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &gauge));
  struct heard heard = {0};
  const tg_trigger *trigger = TG_TRIGGER(.when = TG_MOVED, .at = 1, .min_interval_ns = 3600 * SECOND);
  OK(tg_on_change(TG_ANY(gauge), trigger, hear, &heard, end, &heard.subscription));
  WAIT((tg_gauge_add(gauge, 5), heard.calls == 1));
  for (int i = 0; i < 20; i++) {
    OK(tg_gauge_add(gauge, 5));
    usleep(10000);
  }
  EXPECT(heard.calls == 1);
  OK(tg_subscription_release(heard.subscription));
  OK(tg_gauge_release(gauge));
  OK(tg_registry_release(registry));
}

static void the_series_of_a_group_become_one_value(void) {
  tg_registry *registry = prometheus();
  tg_family *family;
  OK(tg_family_new(registry, TG_GAUGE, TG_DESCRIPTION(.name = "queue"), TG_NOTHING, TG_TEXTS("pod"), &family));
  for (int i = 0; i < 2; i++) {
    tg_gauge *gauge;
    OK(tg_family_gauge(family, TG_TEXTS(i ? "b" : "a"), &gauge));
    OK(tg_gauge_set(gauge, i ? 0 : 100));
    OK(tg_gauge_release(gauge));
  }
  const struct {
    uint32_t across;
    double value;
  } cases[] = {{TG_ACROSS_SUM, 100}, {TG_ACROSS_AVG, 50},  {TG_ACROSS_MIN, 0},
               {TG_ACROSS_MAX, 100}, {TG_ACROSS_COUNT, 2}, {TG_ACROSS_QUANTILE, 75}};
  tg_composite *composite;
  double value;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    OK(tg_composite_new("depth", TG_SOURCES(TG_ANY(family)),
                        TG_COMPOSITE(.function = TG_FUNCTION_LAST, .across = cases[i].across, .across_rank = 0.75),
                        &composite));
    OK(tg_composite_value(composite, TG_NOTHING, &value));
    EXPECT(value == cases[i].value);
    OK(tg_composite_release(composite));
  }
  tg_snapshots *snapshots;
  const tg_snapshot *one;
  OK(tg_composite_new("depth", TG_SOURCES(TG_ANY(family)), NULL, &composite));
  OK(tg_composite_get(composite, TG_NOTHING, &snapshots));
  OK(tg_snapshots_at(snapshots, 0, &one));
  EXPECT(isnan(one->value) && one->error && strstr(one->error, "set `across` to sum"));
  OK(tg_snapshots_release(snapshots));
  OK(tg_composite_release(composite));
  OK(tg_family_release(family));
  OK(tg_registry_release(registry));
}

static void a_watcher_takes_what_is_new(void) {
  tg_registry *registry = prometheus();
  tg_gauge *gauge;
  tg_composite *composite;
  tg_watcher *watcher;
  tg_snapshots *news;
  const tg_snapshot *one;
  OK(tg_gauge_new(registry, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &gauge));
  OK(tg_composite_new("a", TG_SOURCES(TG_ANY(gauge)), TG_COMPOSITE(.function = TG_FUNCTION_LAST), &composite));
  OK(tg_composite_watch(composite, &watcher));
  OK(tg_gauge_set(gauge, 42));
  double last = 0;
  for (int tries = 0; last != 42 && tries < 1000; tries++) {
    OK(tg_watcher_wait(watcher, 10 * SECOND, &news));
    OK(tg_snapshots_at(news, 0, &one));
    last = one->last;
    OK(tg_snapshots_release(news));
  }
  EXPECT(last == 42);
  OK(tg_watcher_retain(watcher));
  OK(tg_watcher_release(watcher));
  OK(tg_watcher_release(watcher));
  OK(tg_composite_watch(composite, &watcher));
  OK(tg_watcher_wait(watcher, 10 * SECOND, &news)); /* what there is is new to a new one */
  OK(tg_snapshots_release(news));
  OK(tg_watcher_release(watcher));
  OK(tg_composite_release(composite));
  OK(tg_gauge_release(gauge));
  OK(tg_registry_release(registry));
}

static void a_context_goes_in_and_out(void) {
  const char *parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  tg_trace_context context, child;
  char text[TG_TRACEPARENT_SIZE];
  OK(tg_trace_context_parse(parent, "a=1", &context));
  EXPECT(context.is_sampled && context.trace[0] == 0x0a && context.span[7] == 0x31);
  EXPECT(strcmp(context.state, "a=1") == 0);
  OK(tg_trace_context_format(&context, text, sizeof text));
  EXPECT(strcmp(text, parent) == 0);

  tg_tracer *tracer;
  tg_span *span;
  OK(tg_tracer_new(TG_TRACER(.endpoint = "http://127.0.0.1:1"), &tracer));
  OK(tg_span_start(tracer, "work", &context, &span));
  OK(tg_span_context(span, &child));
  EXPECT(memcmp(child.trace, context.trace, 16) == 0 && memcmp(child.span, context.span, 8) != 0 && child.is_sampled);

  tg_registry *registry = prometheus();
  tg_counter *counter;
  OK(tg_counter_new(registry, TG_DESCRIPTION(.name = "a", .exemplars = true), TG_NOTHING, &counter));
  OK(tg_counter_add_in(counter, 1, &child));
  char page[4096];
  OK(tg_registry_expose(registry, TG_OPENMETRICS, page, sizeof page, NULL));
  EXPECT(strstr(page, ",trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 1") != NULL);
  OK(tg_counter_release(counter));
  OK(tg_registry_release(registry));
  OK(tg_span_fail(span, "no peer"));
  OK(tg_tracer_shutdown(tracer, SECOND)); /* the span has not ended: it goes nowhere */
  OK(tg_span_release(span));
  OK(tg_tracer_release(tracer));
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  an_instrument_outlives_its_registry();
  a_word_says_where(argv[1]);
  nothing_is_kept_where_nothing_is();
  everything_can_be_looked_up();
  a_composite_says_what_was_recorded_before();
  the_series_of_a_group_become_one_value();
  callbacks_come_and_end();
  calls_keep_their_distance();
  a_watcher_takes_what_is_new();
  a_context_goes_in_and_out();
  return 0;
}
