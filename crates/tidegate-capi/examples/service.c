// SPDX-License-Identifier: Apache-2.0

/* A service with a counter, a gauge, a histogram and a value derived from it, and an alarm when that gets too high.
 *
 *   cc -std=c11 service.c $(pkg-config --cflags --libs tidegate) -o service
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <tidegate.h>

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

/* Runs on the thread that all callbacks share. */
static void tell(const tg_change *change, void *context) {
  atomic_bool *is_slow = context;
  atomic_store(is_slow, change->is_crossed);
}

int main(void) {
  /* The one line that knows where values go. */
  tg_registry *registry;
  check(tg_registry_prometheus(0, &registry));

  tg_server *server;
  char address[64];
  check(tg_serve_http(registry, "127.0.0.1:0", &server));
  check(tg_server_address(server, address, sizeof address));
  fprintf(stderr, "http://%s/metrics\n", address);

  /* Everything below is called service_... and has a label. */
  tg_registry *service;
  check(tg_registry_scope(registry,
                          TG_SCOPE(.prefix = "service", .labels = (const tg_label[]){{"model", "llama"}}, .label_count = 1),
                          &service));

  tg_family *requests;
  tg_counter *ok;
  tg_gauge *inflight;
  tg_histogram *ttft;
  check(tg_family_new(service, TG_COUNTER, TG_DESCRIPTION(.name = "requests", .help = "Requests processed"), TG_NOTHING,
                      TG_TEXTS("status"), &requests));
  check(tg_family_counter(requests, TG_TEXTS("200"), &ok));
  check(tg_gauge_new(service, TG_DESCRIPTION(.name = "inflight", .help = "Requests in flight"), TG_NOTHING, &inflight));
  check(tg_histogram_new(
      service, TG_DESCRIPTION(.name = "ttft", .help = "Time to the first token", .unit = "s", .buckets = "latency"),
      TG_NOTHING, &ttft));

  /* The mean of the last ten seconds, with a quantile beside it, and an alarm. */
  tg_composite *recent;
  tg_subscription *alarm;
  atomic_bool is_slow = false;
  check(tg_composite_new("recent_ttft", TG_SOURCES(TG_ANY(ttft)),
                         TG_COMPOSITE(.window_ns = 10000000000, .quantiles = (const double[]){0.5}, .quantile_count = 1),
                         &recent));
  check(tg_on_change(TG_ANY(recent), TG_TRIGGER(.when = TG_ABOVE, .at = 0.5, .hysteresis = 0.1), tell, &is_slow, NULL,
                     &alarm));

  /* Recording never fails for a handle that is one. */
  for (int i = 1; i <= 3; i++) {
    tg_gauge_add(inflight, 1);
    tg_histogram_observe(ttft, 0.4 * i);
    tg_counter_inc(ok);
  }
  tg_gauge_add(inflight, -1);

  double mean;
  check(tg_composite_value(recent, TG_NOTHING, &mean));
  printf("mean %.1f s\n", mean);
  while (!atomic_load(&is_slow)) thrd_yield(); /* some milliseconds */
  printf("slow\n");

  char page[16384];
  check(tg_registry_expose(registry, TG_PROMETHEUS_TEXT, page, sizeof page, NULL));
  fputs(page, stdout);

  tg_subscription_release(alarm);
  tg_composite_release(recent);
  tg_histogram_release(ttft);
  tg_gauge_release(inflight);
  tg_counter_release(ok);
  tg_family_release(requests);
  tg_registry_release(service);
  tg_server_release(server);
  tg_registry_release(registry);
  return 0;
}
