// SPDX-License-Identifier: Apache-2.0

/* A callback that notes that it was called. */
#ifndef HEARD_H
#define HEARD_H

#include "expect.h"

#include <stdatomic.h>
#include <unistd.h>

static const uint64_t SECOND = 1000000000;

/* Until it holds, ten seconds at most. */
#define WAIT(condition)                                                                       \
  do {                                                                                        \
    for (int tries = 0; !(condition) && tries < 10000; tries++) usleep(1000);                 \
    EXPECT(condition);                                                                        \
  } while (0)

struct heard {
  atomic_int calls, done;
  atomic_bool is_crossed, is_in, is_free;
  tg_subscription *subscription;
};

static void hear(const tg_change *change, void *context) {
  struct heard *heard = context;
  EXPECT(change->snapshot->value == change->value);
  heard->is_crossed = change->is_crossed;
  heard->calls++;
}

static void end(void *context) { ((struct heard *)context)->done++; }

#endif
