// SPDX-License-Identifier: Apache-2.0

/* One component against any registry: switch KIND [WHERE], where KIND is prometheus, shm DIRECTORY, otel URL, null, fanout
 * or foreign. The component does not know which.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidegate.h>

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

/* The component. */
static void work(const tg_registry *registry) {
  tg_counter *jobs;
  tg_histogram *sizes;
  check(tg_counter_new(registry, TG_DESCRIPTION(.name = "jobs", .help = "Jobs done"), TG_LABELS({"queue", "a"}), &jobs));
  check(tg_exponential_histogram_new(registry, TG_DESCRIPTION(.name = "size", .help = "Size of a job", .unit = "By"),
                                     TG_NOTHING, &sizes));
  tg_counter_add(jobs, 2);
  tg_histogram_observe(sizes, 1000);
  tg_histogram_release(sizes);
  tg_counter_release(jobs);
}

/* A registry of one's own: it prints. A series has the number of its family, which is enough for this component. */
static int32_t print_family(void *context, const tg_foreign_spec *spec, uint64_t *family) {
  uint64_t *families = context;
  *family = ++*families;
  printf("family %" PRIu64 " is %.*s\n", *family, (int)spec->name.length, spec->name.bytes);
  return 0;
}

static uint64_t same_number(void *context, uint64_t family, const tg_foreign_text *values, size_t count) {
  (void)context, (void)values, (void)count;
  return family;
}

static void print_add(void *context, uint64_t series, uint64_t amount) {
  (void)context;
  printf("%" PRIu64 " grows by %" PRIu64 "\n", series, amount);
}

static void print_observe(void *context, uint64_t series, double value) {
  (void)context;
  printf("%" PRIu64 " observes %g\n", series, value);
}

static void print_end(void *context) {
  (void)context;
  printf("released\n");
}

static tg_registry *foreign(void) {
  static uint64_t families;
  const tg_foreign_table table = {
      .size = sizeof table,
      .context = &families,
      .register_ = print_family,
      .series = same_number,
      .add_u64 = print_add,
      .observe = print_observe,
      .release = print_end,
  };
  tg_registry *registry;
  check(tg_registry_foreign(&table, &registry));
  return registry;
}

static tg_registry *chosen(const char *kind, const char *where) {
  tg_registry *registry = NULL;
  if (strcmp(kind, "prometheus") == 0) {
    check(tg_registry_prometheus(0, &registry));
  } else if (strcmp(kind, "shm") == 0) {
    check(tg_registry_shm(where, TG_LABELS({"service.name", "switch"}), &registry));
  } else if (strcmp(kind, "otel") == 0) {
    check(tg_registry_otel(TG_OTEL(.endpoint = where, .protocol = TG_OTEL_HTTP), &registry));
  } else if (strcmp(kind, "null") == 0) {
    check(tg_registry_null(&registry));
  } else if (strcmp(kind, "foreign") == 0) {
    registry = foreign();
  } else if (strcmp(kind, "fanout") == 0) {
    tg_registry *both[2] = {chosen("prometheus", ""), foreign()};
    check(tg_registry_fanout((const tg_registry *const *)both, 2, &registry));
    tg_registry_release(both[0]);
    tg_registry_release(both[1]);
  } else {
    fprintf(stderr, "there is no registry of the kind %s\n", kind);
    exit(2);
  }
  return registry;
}

int main(int argc, char **argv) {
  tg_registry *registry = chosen(argc > 1 ? argv[1] : "prometheus", argc > 2 ? argv[2] : "");
  work(registry);
  char page[16384];
  check(tg_registry_expose(registry, TG_PROMETHEUS_TEXT, page, sizeof page, NULL));
  fputs(page, stdout);
  check(tg_registry_shutdown(registry, 5000000000));
  tg_registry_release(registry);
  return 0;
}
