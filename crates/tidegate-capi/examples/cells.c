// SPDX-License-Identifier: Apache-2.0

#include <stdio.h>
#include <stdlib.h>
#include <tidegate.h>

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

int main(void) {
  tg_registry *registry;
  tg_counter *requests;
  tg_histogram *latency;
  check(tg_registry_shm("cells/demo", TG_LABELS({"service.name", "demo"}), &registry));
  check(tg_counter_new(registry, TG_DESCRIPTION(.name = "demo_requests", .help = "Requests answered"),
                       TG_LABELS({"language", "c"}), &requests));
  check(tg_histogram_new(
      registry, TG_DESCRIPTION(.name = "demo_latency", .help = "Time of a request", .unit = "s", .buckets = "latency"),
      TG_LABELS({"language", "c"}), &latency));
  for (int number = 1; number <= 100; number++) {
    tg_counter_inc(requests);
    tg_histogram_observe(latency, number * 0.001);
  }
  tg_histogram_release(latency);
  tg_counter_release(requests);
  tg_registry_release(registry);
  return 0;
}
