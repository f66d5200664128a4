// SPDX-License-Identifier: Apache-2.0

/* hammer PAGE NAME LABELS SNAPSHOTS DISTINCT: reads until it has SNAPSHOTS snapshots, DISTINCT of them
 * different, and checks that each is of one moment: the same rule as in common/mod.rs. Prints the counts. */
#include "tidegate_page.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static int number(const struct tidegate_page_values *v, unsigned flag, int there, double found, double wanted)
{
    if (!there)
        return (v->flags & flag) == 0;
    return (v->flags & flag) != 0 && found == wanted;
}

static int consistent(const struct tidegate_page_values *v)
{
    uint64_t n = v->seq;
    double x = (double)n;
    int good = number(v, TIDEGATE_PAGE_HAS_VALUE, 1, v->value, x) &&
               number(v, TIDEGATE_PAGE_HAS_MIN, n % 3 != 0, v->min, x - 1) &&
               number(v, TIDEGATE_PAGE_HAS_AVG, 1, v->avg, x + 0.5) &&
               number(v, TIDEGATE_PAGE_HAS_MAX, 1, v->max, x + 1) &&
               number(v, TIDEGATE_PAGE_HAS_SUM, 1, v->sum, 2 * x) &&
               number(v, TIDEGATE_PAGE_HAS_COUNT, 1, v->count, x) &&
               number(v, TIDEGATE_PAGE_HAS_LAST, n % 7 != 0, v->last, x) &&
               number(v, TIDEGATE_PAGE_HAS_NEWEST, n % 11 != 0, (double)v->newest_ns, x + 7);
    good = good && v->state == n % 5 + 1 && v->quantiles == n % 3 && v->window_ns == n + 3 &&
           v->as_of_ns == n + 5 && v->sources_expected == (uint32_t)n &&
           v->sources_reporting == (uint32_t)n + 1;
    if (v->quantiles > 0)
        good = good && v->quantile_q[0] == 0.5 && v->quantile_value[0] == x;
    if (v->quantiles > 1)
        good = good && v->quantile_q[1] == 0.99 && v->quantile_value[1] == x + 2;
    return good;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    struct tidegate_page page;
    struct tidegate_page_handle handle;
    struct tidegate_page_values values;
    enum tidegate_page_result result = tidegate_page_open(argv[1], &page);
    if (result != TIDEGATE_PAGE_OK) {
        printf("open %d\n", (int)result);
        return 1;
    }
    while ((result = tidegate_page_find(&page, "no such name", "", &handle)) == TIDEGATE_PAGE_BUSY)
        sched_yield();
    if (result != TIDEGATE_PAGE_NOT_FOUND)
        return 3;
    while ((result = tidegate_page_find(&page, argv[2], argv[3], &handle)) == TIDEGATE_PAGE_BUSY)
        sched_yield();
    if (result != TIDEGATE_PAGE_OK)
        return 4;
    unsigned long wanted = strtoul(argv[4], NULL, 10), wanted_distinct = strtoul(argv[5], NULL, 10);
    unsigned long good = 0, torn = 0, backwards = 0, busy = 0, distinct = 0, other = 0;
    uint64_t newest = 0;
    while ((good < wanted || distinct < wanted_distinct) && torn == 0 && other == 0) {
        result = tidegate_page_read(&page, &handle, &values);
        if (result == TIDEGATE_PAGE_BUSY) {
            busy++;
            sched_yield();
        } else if (result != TIDEGATE_PAGE_OK) {
            other++;
        } else {
            good++;
            torn += !consistent(&values);
            backwards += values.seq < newest;
            distinct += values.seq > newest;
            newest = values.seq;
            /* The writer may be waiting for this processor. */
            if (good % 1024 == 0)
                sched_yield();
        }
    }
    uint64_t beat = tidegate_page_heartbeat(&page);
    int alive = tidegate_page_is_alive(&page, beat, UINT64_MAX) && !tidegate_page_is_alive(&page, 0, 0);
    int current = tidegate_page_is_current(&page, argv[1]);
    handle.generation++;
    do
        result = tidegate_page_read(&page, &handle, &values);
    while (result == TIDEGATE_PAGE_BUSY);
    tidegate_page_close(&page);
    printf("good %lu\ntorn %lu\nbackwards %lu\nother %lu\nbusy %lu\ndistinct %lu\n", good, torn, backwards,
           other, busy, distinct);
    printf("alive %d\ncurrent %d\nmoved %d\n", alive, current, result == TIDEGATE_PAGE_MOVED);
    return 0;
}
