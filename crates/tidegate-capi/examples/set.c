// SPDX-License-Identifier: Apache-2.0

/* A service whose instruments are declared as a struct.
 *
 *   cc -std=c11 set.c $(pkg-config --cflags --libs tidegate) -o set
 */
#include <stdio.h>
#include <stdlib.h>
#include <tidegate.h>

struct service {
  tg_family *requests;
  tg_gauge *inflight;
  tg_histogram *ttft;
};

static const tg_field SERVICE[] = {
    TG_FAMILY_FIELD(struct service, requests, TG_COUNTER, TG_TEXTS("status"), .help = "Requests processed"),
    TG_FIELD(struct service, inflight, TG_GAUGE, .help = "Requests in flight"),
    TG_FIELD(struct service, ttft, TG_HISTOGRAM, .help = "Time to the first token", .unit = "s", .buckets = "latency"),
};

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

int main(void) {
  tg_registry *registry, *scope;
  check(tg_registry_prometheus(0, &registry));
  check(tg_registry_scope(registry,
                          TG_SCOPE(.prefix = "service", .labels = (const tg_label[]){{"model", "llama"}}, .label_count = 1),
                          &scope));
  struct service service;
  check(tg_set_register(scope, TG_FIELDS(SERVICE), &service));

  tg_counter *ok;
  check(tg_family_counter(service.requests, TG_TEXTS("200"), &ok));
  tg_counter_add(ok, 3);
  tg_gauge_set(service.inflight, 2);
  tg_histogram_observe(service.ttft, 0.4);

  char page[16384];
  check(tg_registry_expose(registry, TG_PROMETHEUS_TEXT, page, sizeof page, NULL));
  fputs(page, stdout);

  tg_counter_release(ok);
  check(tg_set_release(TG_FIELDS(SERVICE), &service));

  /* All or nothing: the second member's name is taken by another kind. */
  const tg_field wrong[] = {
      TG_FIELD(struct service, ttft, TG_HISTOGRAM, .help = "Time to the first token", .unit = "s", .buckets = "latency"),
      TG_FIELD(struct service, inflight, TG_COUNTER, .help = "Requests in flight"),
  };
  tg_status status = tg_set_register(scope, TG_FIELDS(wrong), &service);
  printf("%s, %s\n", tg_status_name(status), service.ttft || service.inflight ? "something" : "nothing");

  tg_registry_release(scope);
  tg_registry_release(registry);
  return 0;
}
