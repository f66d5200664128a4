// SPDX-License-Identifier: Apache-2.0

/* What a record costs from C: nanoseconds a call, the median of 21 samples. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tidegate.h>

enum { CALLS = 2000000, SAMPLES = 21 };

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s\n", tg_error_text());
    exit(1);
  }
}

static double now(void) {
  struct timespec time;
  timespec_get(&time, TIME_UTC);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

#define MEASURE(name, call)                                                    \
  do {                                                                         \
    double samples[SAMPLES];                                                   \
    for (int sample = 0; sample < SAMPLES; sample++) {                         \
      double start = now();                                                    \
      for (int i = 0; i < CALLS; i++) {                                        \
        call;                                                                  \
      }                                                                        \
      samples[sample] = (now() - start) / CALLS;                               \
    }                                                                          \
    qsort(samples, SAMPLES, sizeof *samples, order);                           \
    printf("  %-34s %6.2f (best %.2f)\n", name, samples[SAMPLES / 2], samples[0]); \
  } while (0)

int main(int argc, char **argv) {
  tg_registry *memory, *shared;
  check(tg_registry_prometheus(0, &memory));
  check(tg_registry_shm(argc > 1 ? argv[1] : "cells", TG_NOTHING, &shared));
  tg_counter *counter, *cell;
  tg_float_counter *fractional;
  tg_gauge *gauge;
  tg_histogram *classic, *exponential;
  tg_family *family;
  check(tg_counter_new(memory, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &counter));
  check(tg_counter_new(shared, TG_DESCRIPTION(.name = "a"), TG_NOTHING, &cell));
  check(tg_float_counter_new(memory, TG_DESCRIPTION(.name = "b"), TG_NOTHING, &fractional));
  check(tg_gauge_new(memory, TG_DESCRIPTION(.name = "c"), TG_NOTHING, &gauge));
  check(tg_histogram_new(memory, TG_DESCRIPTION(.name = "d"), TG_NOTHING, &classic));
  check(tg_exponential_histogram_new(memory, TG_DESCRIPTION(.name = "e"), TG_NOTHING, &exponential));
  check(tg_family_new(memory, TG_COUNTER, TG_DESCRIPTION(.name = "f"), TG_NOTHING, TG_TEXTS("model", "status"), &family));

  atomic_ullong bare = 0;
  MEASURE("bare atomic addition", atomic_fetch_add_explicit(&bare, 1, memory_order_relaxed));
  MEASURE("tg_counter_inc", tg_counter_inc(counter));
  MEASURE("tg_counter_add", tg_counter_add(counter, 2));
  MEASURE("tg_counter_add, shared memory", tg_counter_add(cell, 2));
  MEASURE("tg_float_counter_add", tg_float_counter_add(fractional, 0.5));
  MEASURE("tg_gauge_set", tg_gauge_set(gauge, i));
  MEASURE("tg_histogram_observe, 15 buckets", tg_histogram_observe(classic, (i & 1023) / 1000.0));
  MEASURE("tg_histogram_observe, exponential", tg_histogram_observe(exponential, (i & 1023) / 1000.0));
  MEASURE("tg_family_counter, add, release", {
    tg_counter *found;
    tg_family_counter(family, TG_TEXTS("llama", "200"), &found);
    tg_counter_inc(found);
    tg_counter_release(found);
  });
  return 0;
}
