// SPDX-License-Identifier: Apache-2.0

/* What tests in C expect. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidegate.h>

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tg_error_text());   \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#define ANSWERS(status, call)                                                                 \
  do {                                                                                        \
    tg_status got = (call);                                                                   \
    if (got != (status)) {                                                                    \
      fprintf(stderr, "%s:%d: %s: %s, not %s (%s)\n", __FILE__, __LINE__, #call,              \
              tg_status_name((int32_t)got), #status, tg_error_text());                        \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#define OK(call) ANSWERS(TG_OK, call)

#endif
