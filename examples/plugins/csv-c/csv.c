/* SPDX-License-Identifier: Apache-2.0
 *
 * An exporter plugin of tidegate: events as CSV, in C11. Its configuration is the path of the file.
 *
 *   cc -std=c11 -O2 -shared -fPIC -I crates/tidegate-plugin/include -o libtidegate_exporter_csv_c.so csv.c
 */
#include "tidegate_plugin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static tidegate_status create(const tidegate_setup *setup, void **instance, tidegate_answer *answer) {
    char *path = calloc(setup->config.length + 1, 1);
    if (path == NULL) {
        tidegate_say(answer, strerror(ENOMEM));
        return TIDEGATE_REFUSED;
    }
    memcpy(path, setup->config.data, setup->config.length);
    FILE *file = fopen(path, "a");
    free(path);
    if (file == NULL) {
        tidegate_say(answer, strerror(errno));
        return TIDEGATE_REFUSED;
    }
    fseek(file, 0, SEEK_END);
    if (ftell(file) == 0) {
        fputs("timestamp_us,category,event_name,value\n", file);
    }
    *instance = file;
    return TIDEGATE_OK;
}

/* RFC 4180: quoted where it has to be. */
static void put_field(tidegate_text text, FILE *file) {
    int quoted = 0;
    for (size_t i = 0; i < text.length; i++) {
        quoted |= strchr(",\"\r\n", text.data[i]) != NULL && text.data[i] != '\0';
    }
    if (!quoted) {
        fwrite(text.data, 1, text.length, file);
        return;
    }
    fputc('"', file);
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] == '"') {
            fputc('"', file);
        }
        fputc(text.data[i], file);
    }
    fputc('"', file);
}

/* The shortest digits that give the same number. */
static void put_double(double value, FILE *file) {
    char digits[32];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    fputs(digits, file);
}

static void put_events(const tidegate_events *events, FILE *file) {
    for (size_t i = 0; i < events->count; i++) {
        const tidegate_kind *kind = &events->kinds[events->kind[i]];
        fprintf(file, "%" PRIu64 ",", events->times_ns[i] / 1000);
        put_field(kind->category, file);
        fputc(',', file);
        put_field(kind->name, file);
        fputc(',', file);
        if (events->values_u64 != NULL) {
            fprintf(file, "%" PRIu64, events->values_u64[i]);
        } else {
            put_double(events->values_f64[i], file);
        }
        fputc('\n', file);
    }
}

static tidegate_status flush(void *instance, tidegate_answer *answer) {
    if (fflush(instance) != 0) {
        tidegate_say(answer, strerror(errno));
        clearerr(instance);
        return TIDEGATE_RETRY;
    }
    return TIDEGATE_OK;
}

/* TIDEGATE_OK means that the gateway may forget the batch, so the lines must have left this process by then. */
static tidegate_status export_batch(void *instance, const tidegate_batch *batch, tidegate_answer *answer) {
    for (size_t i = 0; i < batch->events_count; i++) {
        put_events(&batch->events[i], instance);
    }
    return flush(instance, answer);
}

static void destroy(void *instance) { fclose(instance); }

static const tidegate_exporter_table table = {
    .abi_version = TIDEGATE_PLUGIN_ABI_VERSION,
    .takes = TIDEGATE_TAKES_EVENTS,
    .struct_size = sizeof(tidegate_exporter_table),
    .name = "csv_c",
    .version = "1.0.0",
    .create = create,
    .export_batch = export_batch,
    .flush = flush,
    .destroy = destroy,
};

const tidegate_exporter_table *tidegate_exporter_plugin(void) { return &table; }
