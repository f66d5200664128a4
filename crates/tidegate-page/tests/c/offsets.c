// SPDX-License-Identifier: Apache-2.0

/* Prints where the header has every field, for the Rust side to compare. */
#include "tidegate_page.h"

#include <stdio.h>

#define HEADER(field) printf("header.%s %zu\n", #field, offsetof(struct tidegate_page_header, field))
#define SLOT(field) printf("slot.%s %zu\n", #field, offsetof(struct tidegate_page_slot, values.field))
#define NUMBER(name, number) printf("%s %lu\n", name, (unsigned long)(number))

int main(void)
{
    HEADER(magic);
    HEADER(version);
    HEADER(header_size);
    HEADER(capacity);
    HEADER(slot_size);
    HEADER(boot);
    HEADER(heartbeat_ns);
    HEADER(layout_seq);
    HEADER(used);
    HEADER(high);
    SLOT(lock);
    SLOT(generation);
    SLOT(state);
    SLOT(quantiles);
    SLOT(flags);
    SLOT(name_len);
    SLOT(labels_len);
    SLOT(seq);
    SLOT(value);
    SLOT(min);
    SLOT(avg);
    SLOT(max);
    SLOT(sum);
    SLOT(count);
    SLOT(last);
    SLOT(window_ns);
    SLOT(as_of_ns);
    SLOT(newest_ns);
    SLOT(sources_expected);
    SLOT(sources_reporting);
    SLOT(quantile_q);
    SLOT(quantile_value);
    printf("slot.text %zu\n", offsetof(struct tidegate_page_slot, text));
    NUMBER("size.header", sizeof(struct tidegate_page_header));
    NUMBER("size.slot", sizeof(struct tidegate_page_slot));
    NUMBER("size.text", TIDEGATE_PAGE_TEXT_SIZE);
    NUMBER("max.quantiles", TIDEGATE_PAGE_MAX_QUANTILES);
    NUMBER("max.capacity", TIDEGATE_PAGE_MAX_CAPACITY);
    NUMBER("max.part_size", TIDEGATE_PAGE_MAX_PART_SIZE);
    NUMBER("version", TIDEGATE_PAGE_VERSION);
    NUMBER("flag.value", TIDEGATE_PAGE_HAS_VALUE);
    NUMBER("flag.min", TIDEGATE_PAGE_HAS_MIN);
    NUMBER("flag.avg", TIDEGATE_PAGE_HAS_AVG);
    NUMBER("flag.max", TIDEGATE_PAGE_HAS_MAX);
    NUMBER("flag.sum", TIDEGATE_PAGE_HAS_SUM);
    NUMBER("flag.count", TIDEGATE_PAGE_HAS_COUNT);
    NUMBER("flag.last", TIDEGATE_PAGE_HAS_LAST);
    NUMBER("flag.newest", TIDEGATE_PAGE_HAS_NEWEST);
    NUMBER("state.fresh", TIDEGATE_PAGE_FRESH);
    NUMBER("state.idle", TIDEGATE_PAGE_IDLE);
    NUMBER("state.stale", TIDEGATE_PAGE_STALE);
    NUMBER("state.partial", TIDEGATE_PAGE_PARTIAL);
    NUMBER("state.absent", TIDEGATE_PAGE_ABSENT);
    return 0;
}
