// SPDX-License-Identifier: Apache-2.0

/* answers PAGE NAME LABELS: finds the entry once, then answers each line of its input with what a read, the
 * heart and the path say now. */
#include "tidegate_page.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct tidegate_page page;
    struct tidegate_page_handle handle;
    struct tidegate_page_values values;
    char line[16];
    if (argc != 4 || tidegate_page_open(argv[1], &page) != TIDEGATE_PAGE_OK)
        return 2;
    if (tidegate_page_find(&page, argv[2], argv[3], &handle) != TIDEGATE_PAGE_OK)
        return 3;
    while (fgets(line, sizeof line, stdin) != NULL) {
        int result = (int)tidegate_page_read(&page, &handle, &values);
        int alive = tidegate_page_is_alive(&page, 1000, 10);
        printf("%d %d %d\n", result, alive, tidegate_page_is_current(&page, argv[1]));
        fflush(stdout);
    }
    tidegate_page_close(&page);
    return 0;
}
