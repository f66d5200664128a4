// SPDX-License-Identifier: Apache-2.0

/* Takes what waits in NIXL's rings of a directory: ring DIRECTORY. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tidegate.h>

static void check(tg_status status) {
  if (status != TG_OK) {
    fprintf(stderr, "%s: %s\n", tg_status_name(status), tg_error_text());
    exit(1);
  }
}

static void drain(const char *path, const tg_ring_info *info, void *context) {
  (void)context;
  printf("version %s, %" PRIu64 " events\n", info->version, info->readable);
  tg_ring *ring;
  check(tg_ring_open(path, true, 0, &ring));
  for (;;) {
    tg_ring_batch batch;
    check(tg_ring_read(ring, &batch));
    if (batch.status != TG_RING_EVENTS) break; /* a program that goes on would look again later */
    for (size_t i = 0; i < batch.count; i++) {
      tg_ring_kind kind;
      check(tg_ring_kind_of(ring, batch.kinds[i], &kind));
      printf("%s %" PRIu64 " %s\n", kind.name, batch.values[i], kind.unit);
    }
    check(tg_ring_commit(ring)); /* only now they leave the ring */
  }
  tg_ring_stats stats;
  check(tg_ring_get_stats(ring, &stats));
  printf("%" PRIu64 " taken, %" PRIu64 " lost\n", stats.events, stats.lost);
  tg_ring_release(ring);
}

int main(int argc, char **argv) {
  check(tg_ring_find(argc > 1 ? argv[1] : "/tmp", drain, NULL));
  return 0;
}
