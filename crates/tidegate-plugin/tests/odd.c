// SPDX-License-Identifier: Apache-2.0

/* A plugin that does what its configuration says: one word, perhaps with a file behind it.
 * Options -D make it invalid in one way each. */
#include "tidegate_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef NAME
#define NAME "odd"
#endif
#ifndef VERSION
#define VERSION "1.2.3"
#endif
#ifndef ABI
#define ABI TIDEGATE_PLUGIN_ABI_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(tidegate_exporter_table)
#endif
#ifndef TAKES
#define TAKES (TIDEGATE_TAKES_METRICS | TIDEGATE_TAKES_TRACES | TIDEGATE_TAKES_LOGS | TIDEGATE_TAKES_EVENTS)
#endif
#ifndef EXPORT
#define EXPORT export_batch
#endif

struct odd {
    char does[256];
    char path[1024];
    int calls;
};

static void note(const struct odd *odd, const char *what, unsigned long long number) {
    FILE *file = odd->path[0] ? fopen(odd->path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %llu\n", what, number);
        fclose(file);
    }
}

static int does(const struct odd *odd, const char *what) { return strcmp(odd->does, what) == 0; }

static void crash(void) { *(volatile int *)NULL = 1; }

static tidegate_status create(const tidegate_setup *setup, void **instance, tidegate_answer *answer) {
    struct odd *odd = calloc(1, sizeof *odd);
    char config[1280] = {0};
    memcpy(config, setup->config.data, setup->config.length < 1279 ? setup->config.length : 1279);
    sscanf(config, "%255s %1023s", odd->does, odd->path);
    if (does(odd, "refuse")) {
        tidegate_say(answer, "no such table: t1");
        free(odd);
        return TIDEGATE_REFUSED;
    }
    if (does(odd, "crash-create")) {
        crash();
    }
    while (does(odd, "hang-create")) {
        pause();
    }
    *instance = odd;
    return TIDEGATE_OK;
}

/* Until a file of this name plus ".go" is there. */
static void wait_for_go(const struct odd *odd) {
    char path[1100];
    snprintf(path, sizeof path, "%s.go", odd->path);
    while (access(path, F_OK) != 0) {
        usleep(1000);
    }
}

static tidegate_status export_batch(void *instance, const tidegate_batch *batch, tidegate_answer *answer) {
    struct odd *odd = instance;
    odd->calls++;
    note(odd, "export", batch->items);
    if (does(odd, "crash")) {
        crash();
    }
    if (does(odd, "crash-until-go")) {
        char path[1100];
        snprintf(path, sizeof path, "%s.go", odd->path);
        if (access(path, F_OK) != 0) {
            abort();
        }
    }
    if (does(odd, "exit")) {
        _exit(3);
    }
    if (does(odd, "wait")) {
        wait_for_go(odd);
    }
    while (does(odd, "hang")) {
        pause();
    }
    if (does(odd, "partial")) {
        answer->lost_items = 2;
        tidegate_say(answer, "two are odd");
        return TIDEGATE_PARTIAL;
    }
    if (does(odd, "retry") || (does(odd, "retry-once") && odd->calls == 1)) {
        answer->retry_after_ns = 7000000;
        tidegate_say(answer, "busy");
        return TIDEGATE_RETRY;
    }
    if (does(odd, "deny")) {
        tidegate_say(answer, "not for me");
        return TIDEGATE_REFUSED;
    }
    if (does(odd, "invalid")) {
        return TIDEGATE_INVALID;
    }
    if (does(odd, "small") && batch->items > 1) {
        return TIDEGATE_TOO_LARGE;
    }
    if (does(odd, "unknown")) {
        return 77;
    }
    if (does(odd, "long-message")) {
        /* What no plugin should do. */
        memset(answer->message, 'x', answer->message_capacity);
        answer->message_length = (size_t)-1;
        return TIDEGATE_REFUSED;
    }
    if (does(odd, "escapes")) {
        tidegate_say(answer, "\033[31mred\nand more");
        return TIDEGATE_REFUSED;
    }
    if (does(odd, "silent-length")) {
        /* A length without a text. */
        answer->message_length = 1000;
        return TIDEGATE_REFUSED;
    }
    if (does(odd, "leak")) {
        /* Written to, as memory that is only asked for costs nothing. */
        char *leak = malloc(64 << 20);
        if (!leak) {
            abort();
        }
        memset(leak, 1, 64 << 20);
    }
    if (does(odd, "close-all")) {
        for (int file = 3; file < 1024; file++) {
            close(file);
        }
    }
    if (does(odd, "stdin")) {
        tidegate_say(answer, getchar() == EOF ? "nothing" : "something");
        return TIDEGATE_REFUSED;
    }
    if (does(odd, "otlp")) {
        note(odd, "bytes", batch->otlp.length);
        note(odd, "events", batch->events_count);
    }
    return TIDEGATE_OK;
}

static tidegate_status flush(void *instance, tidegate_answer *answer) {
    (void)answer;
    note(instance, "flush", ((struct odd *)instance)->calls);
    return TIDEGATE_OK;
}

static void destroy(void *instance) {
    note(instance, "destroy", ((struct odd *)instance)->calls);
    free(instance);
}

static const tidegate_exporter_table table = {
    .abi_version = ABI,
    .takes = TAKES,
    .struct_size = SIZE,
    .name = NAME,
    .version = VERSION,
    .create = create,
    .export_batch = EXPORT,
    .flush = flush,
    .destroy = destroy,
};

#ifndef NO_ENTRY
const tidegate_exporter_table *tidegate_exporter_plugin(void) { return &table; }
#else
const tidegate_exporter_table *something_else(void);
const tidegate_exporter_table *something_else(void) { return &table; }
#endif
