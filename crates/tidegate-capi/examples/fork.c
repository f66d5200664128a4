// SPDX-License-Identifier: Apache-2.0

/* Processes that count together: fork DIRECTORY. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tidegate.h>
#include <unistd.h>

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

int main(int argc, char **argv) {
  tg_registry *registry;
  tg_counter *jobs;
  check(tg_registry_shm(argc > 1 ? argv[1] : "cells", TG_NOTHING, &registry));
  check(tg_counter_new(registry, TG_DESCRIPTION(.name = "jobs", .help = "Jobs done"), TG_NOTHING, &jobs));
  tg_counter_inc(jobs);
  for (int worker = 0; worker < 3; worker++) {
    if (fork() == 0) {
      tg_counter_add(jobs, 10); /* the child's own file, from here on */
      _exit(0);
    }
  }
  while (wait(NULL) > 0) {
  }
  char page[4096];
  check(tg_registry_expose(registry, TG_PROMETHEUS_TEXT, page, sizeof page, NULL));
  fputs(page, stdout);
  tg_counter_release(jobs);
  tg_registry_release(registry);
  return 0;
}
