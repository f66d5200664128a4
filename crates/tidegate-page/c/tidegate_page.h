/* SPDX-License-Identifier: Apache-2.0
 *
 * Reader of a tidegate page in C11: the gateway's composites in shared memory, read without a system
 * call. Header-only; the layout is described in docs/page.md.
 *
 * Include this first, or define _POSIX_C_SOURCE as 200809L (or _GNU_SOURCE) before any header.
 *
 *   struct tidegate_page page;
 *   struct tidegate_page_handle handle;
 *   struct tidegate_page_values values;
 *   if (tidegate_page_open("/dev/shm/tidegate.page", &page) != TIDEGATE_PAGE_OK) ...
 *   if (tidegate_page_find(&page, "xfer_time_avg", "agent_name=\"rank_0\"", &handle) != TIDEGATE_PAGE_OK) ...
 *   switch (tidegate_page_read(&page, &handle, &values)) { ... }
 *
 * A page may be read by many threads at once. The owner of the file can truncate it, and a read beyond
 * its end is a SIGBUS; the writer never does that and is the only one who may write. Read pages only of an
 * owner whom you trust.
 */
#ifndef TIDEGATE_PAGE_H
#define TIDEGATE_PAGE_H

#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the page is little-endian"
#endif

#define TIDEGATE_PAGE_VERSION 1u
#define TIDEGATE_PAGE_TEXT_SIZE 512u
#define TIDEGATE_PAGE_MAX_QUANTILES 4u
#define TIDEGATE_PAGE_MAX_CAPACITY 65536u
#define TIDEGATE_PAGE_MAX_PART_SIZE 4096u
#define TIDEGATE_PAGE_LINE 64u
/* Tries of a read before it is BUSY: some microseconds. */
#define TIDEGATE_PAGE_ATTEMPTS 200
/* Searches that start again because the directory changed meanwhile. */
#define TIDEGATE_PAGE_SEARCHES 8

enum tidegate_page_result {
    TIDEGATE_PAGE_OK = 0,
    /* The slot was being written all the time: try later. If the heart has stopped too, the writer died. */
    TIDEGATE_PAGE_BUSY = 1,
    /* The slot was assigned to an entry again, or the handle is of another file: find the entry again. */
    TIDEGATE_PAGE_MOVED = 2,
    /* The entry was removed, or the page was closed. */
    TIDEGATE_PAGE_GONE = 3,
    /* The slot holds what no writer of this version writes. */
    TIDEGATE_PAGE_MALFORMED = 4,
    /* The page has no entry of this name and labels. */
    TIDEGATE_PAGE_NOT_FOUND = 5,
    /* A system call failed: errno says why. */
    TIDEGATE_PAGE_IO = 6,
    /* Not a regular file, or no page of this version, or its header does not fit its size. */
    TIDEGATE_PAGE_REJECTED = 7
};

enum tidegate_page_state {
    TIDEGATE_PAGE_EMPTY = 0,
    TIDEGATE_PAGE_FRESH = 1,
    TIDEGATE_PAGE_IDLE = 2,
    TIDEGATE_PAGE_STALE = 3,
    TIDEGATE_PAGE_PARTIAL = 4,
    TIDEGATE_PAGE_ABSENT = 5
};

/* Bits of `flags`: the number is there. */
enum tidegate_page_flag {
    TIDEGATE_PAGE_HAS_VALUE = 1,
    TIDEGATE_PAGE_HAS_MIN = 2,
    TIDEGATE_PAGE_HAS_AVG = 4,
    TIDEGATE_PAGE_HAS_MAX = 8,
    TIDEGATE_PAGE_HAS_SUM = 16,
    TIDEGATE_PAGE_HAS_COUNT = 32,
    TIDEGATE_PAGE_HAS_LAST = 64,
    TIDEGATE_PAGE_HAS_NEWEST = 128
};

struct tidegate_page_header {
    char magic[8]; /* TIDEPAGE */
    uint32_t version;
    uint32_t header_size;
    uint32_t capacity;
    uint32_t slot_size;
    uint64_t boot;
    uint8_t reserved0[32];
    uint64_t heartbeat_ns;
    uint8_t reserved1[56];
    uint64_t layout_seq;
    uint32_t used;
    uint32_t high;
    uint8_t reserved2[112];
};

/* What a read copies: a slot without its text. Times are ns since the epoch. */
struct tidegate_page_values {
    uint64_t lock;
    uint64_t generation;
    uint8_t state;
    uint8_t quantiles;
    uint16_t flags;
    uint16_t name_len;
    uint16_t labels_len;
    uint64_t seq;
    double value;
    double min;
    double avg;
    double max;
    double sum;
    double count;
    double last;
    uint64_t window_ns;
    uint64_t as_of_ns;
    uint64_t newest_ns;
    uint32_t sources_expected;
    uint32_t sources_reporting;
    uint64_t reserved;
    double quantile_q[TIDEGATE_PAGE_MAX_QUANTILES];
    double quantile_value[TIDEGATE_PAGE_MAX_QUANTILES];
};

struct tidegate_page_slot {
    struct tidegate_page_values values;
    char text[TIDEGATE_PAGE_TEXT_SIZE]; /* the name, the labels right behind it, zeros */
};

_Static_assert(sizeof(struct tidegate_page_header) == 256, "header");
_Static_assert(sizeof(struct tidegate_page_values) == 192, "values");
_Static_assert(sizeof(struct tidegate_page_slot) == 704, "slot");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "lock-free 64-bit atomics");

/* An open page. The members are for the functions below. */
struct tidegate_page {
    const unsigned char *base;
    size_t length;
    uint32_t header_size;
    uint32_t slot_size;
    uint32_t capacity;
    uint64_t boot;
    dev_t device;
    ino_t inode;
};

/* An entry that was found: which slot, and whose it was then. */
struct tidegate_page_handle {
    uint32_t slot;
    uint64_t generation;
    uint64_t boot;
};

/* Relaxed loads only, as the map is read-only; order comes from fences. */
static inline uint64_t tidegate_page_load(const unsigned char *at)
{
    return atomic_load_explicit((volatile _Atomic uint64_t *)(uintptr_t)at, memory_order_relaxed);
}

static inline void tidegate_page_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb");
#endif
}

static inline const unsigned char *tidegate_page_at(const struct tidegate_page *page, uint32_t slot)
{
    return page->base + page->header_size + (size_t)page->slot_size * slot;
}

static inline void tidegate_page_copy(const unsigned char *from, void *to, size_t bytes)
{
    unsigned char *target = to;
    for (size_t offset = 0; offset < bytes; offset += 8) {
        uint64_t word = tidegate_page_load(from + offset);
        memcpy(target + offset, &word, 8);
    }
}

/* Copies the first `bytes` of a slot, all of one moment. A reader that copied any word of a write sees, by
 * the fences of both sides, a lock word other than the first. */
static inline enum tidegate_page_result tidegate_page_consistent(const unsigned char *slot, void *to,
                                                                 size_t bytes)
{
    for (int attempt = 0; attempt < TIDEGATE_PAGE_ATTEMPTS; attempt++) {
        uint64_t before = tidegate_page_load(slot);
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0) {
            tidegate_page_copy(slot, to, bytes);
            atomic_thread_fence(memory_order_acquire);
            if (tidegate_page_load(slot) == before)
                return TIDEGATE_PAGE_OK;
        }
        tidegate_page_pause();
    }
    return TIDEGATE_PAGE_BUSY;
}

static inline int tidegate_page_fits(uint32_t size, size_t least)
{
    return size >= least && size <= TIDEGATE_PAGE_MAX_PART_SIZE && size % TIDEGATE_PAGE_LINE == 0;
}

static inline int tidegate_page_valid(const struct tidegate_page_header *header, uint64_t file_size)
{
    return memcmp(header->magic, "TIDEPAGE", 8) == 0 && header->version == TIDEGATE_PAGE_VERSION &&
           tidegate_page_fits(header->header_size, sizeof(struct tidegate_page_header)) &&
           tidegate_page_fits(header->slot_size, sizeof(struct tidegate_page_slot)) &&
           header->capacity >= 1 && header->capacity <= TIDEGATE_PAGE_MAX_CAPACITY &&
           file_size == header->header_size + (uint64_t)header->slot_size * header->capacity;
}

static inline enum tidegate_page_result tidegate_page_map(int fd, struct tidegate_page *page)
{
    struct stat stat;
    struct tidegate_page_header header;
    if (fstat(fd, &stat) != 0)
        return TIDEGATE_PAGE_IO;
    if (!S_ISREG(stat.st_mode) || stat.st_size < (off_t)sizeof header)
        return TIDEGATE_PAGE_REJECTED;
    ssize_t found = pread(fd, &header, sizeof header, 0);
    if (found < 0)
        return TIDEGATE_PAGE_IO;
    if ((size_t)found != sizeof header || !tidegate_page_valid(&header, (uint64_t)stat.st_size))
        return TIDEGATE_PAGE_REJECTED;
    void *base = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return TIDEGATE_PAGE_IO;
    /* Touched once, so that the first read of a slot does not enter the kernel. */
    for (size_t offset = 0; offset < (size_t)stat.st_size; offset += 4096)
        (void)tidegate_page_load((const unsigned char *)base + offset);
    page->base = base;
    page->length = (size_t)stat.st_size;
    page->header_size = header.header_size;
    page->slot_size = header.slot_size;
    page->capacity = header.capacity;
    page->boot = header.boot;
    page->device = stat.st_dev;
    page->inode = stat.st_ino;
    return TIDEGATE_PAGE_OK;
}

/* Opens a page, never through a symbolic link. OK, IO or REJECTED. */
static inline enum tidegate_page_result tidegate_page_open(const char *path, struct tidegate_page *page)
{
    memset(page, 0, sizeof *page);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return TIDEGATE_PAGE_IO;
    enum tidegate_page_result result = tidegate_page_map(fd, page);
    close(fd);
    return result;
}

/* Unmaps the page. Handles are no longer valid. */
static inline void tidegate_page_close(struct tidegate_page *page)
{
    if (page->base != NULL)
        munmap((void *)(uintptr_t)page->base, page->length);
    memset(page, 0, sizeof *page);
}

/* When the writer last said that it lives; 0: it has not begun, or it has closed the page. */
static inline uint64_t tidegate_page_heartbeat(const struct tidegate_page *page)
{
    return tidegate_page_load(page->base + offsetof(struct tidegate_page_header, heartbeat_ns));
}

/* Whether the heart beat at most within_ns before now_ns (or after it: the clock may step a little). */
static inline int tidegate_page_is_alive(const struct tidegate_page *page, uint64_t now_ns,
                                         uint64_t within_ns)
{
    uint64_t beat = tidegate_page_heartbeat(page);
    uint64_t distance = beat > now_ns ? beat - now_ns : now_ns - beat;
    return beat != 0 && distance <= within_ns;
}

/* Whether the file at the path is still the one that is open. One system call; ask when the heart stops,
 * then close and open again, and find every handle again. */
static inline int tidegate_page_is_current(const struct tidegate_page *page, const char *path)
{
    struct stat stat;
    return lstat(path, &stat) == 0 && stat.st_dev == page->device && stat.st_ino == page->inode;
}

/* Changes whenever an entry gets or loses a slot. */
static inline uint64_t tidegate_page_layout_seq(const struct tidegate_page *page)
{
    uint64_t seq = tidegate_page_load(page->base + offsetof(struct tidegate_page_header, layout_seq));
    atomic_thread_fence(memory_order_acquire);
    return seq;
}

/* Looks for an entry by its name and the text of its labels: key="value" sorted by key, joined by commas,
 * with \, " and line feeds in values written as \\, \" and \n. OK; NOT_FOUND: look again when the layout
 * sequence has changed; BUSY: no other slot has it, but one slot was being written all the time. Takes time
 * proportional to the slots in use: keep the handle. */
static inline enum tidegate_page_result tidegate_page_find(const struct tidegate_page *page,
                                                           const char *name, const char *labels,
                                                           struct tidegate_page_handle *handle)
{
    size_t name_len = strlen(name), labels_len = strlen(labels);
    if (name_len > TIDEGATE_PAGE_TEXT_SIZE || labels_len > TIDEGATE_PAGE_TEXT_SIZE - name_len)
        return TIDEGATE_PAGE_NOT_FOUND;
    for (int search = 0; search < TIDEGATE_PAGE_SEARCHES; search++) {
        uint64_t seq = tidegate_page_layout_seq(page);
        uint64_t directory =
            tidegate_page_load(page->base + offsetof(struct tidegate_page_header, used));
        uint64_t high = directory >> 32;
        int busy = 0;
        for (uint32_t index = 0; index < page->capacity && index < high; index++) {
            struct tidegate_page_slot slot;
            if (tidegate_page_consistent(tidegate_page_at(page, index), &slot, sizeof slot) !=
                TIDEGATE_PAGE_OK) {
                busy = 1;
                continue;
            }
            if (slot.values.state == TIDEGATE_PAGE_EMPTY || slot.values.name_len != name_len ||
                slot.values.labels_len != labels_len || memcmp(slot.text, name, name_len) != 0 ||
                memcmp(slot.text + name_len, labels, labels_len) != 0)
                continue;
            handle->slot = index;
            handle->generation = slot.values.generation;
            handle->boot = page->boot;
            return TIDEGATE_PAGE_OK;
        }
        if (busy)
            break;
        atomic_thread_fence(memory_order_acquire);
        if (tidegate_page_layout_seq(page) == seq)
            return TIDEGATE_PAGE_NOT_FOUND;
    }
    return TIDEGATE_PAGE_BUSY;
}

/* The entry as it is now, all of one moment: OK, BUSY, MOVED, GONE or MALFORMED. No system call. */
static inline enum tidegate_page_result tidegate_page_read(const struct tidegate_page *page,
                                                           const struct tidegate_page_handle *handle,
                                                           struct tidegate_page_values *values)
{
    if (handle->boot != page->boot || handle->slot >= page->capacity)
        return TIDEGATE_PAGE_MOVED;
    if (tidegate_page_consistent(tidegate_page_at(page, handle->slot), values, sizeof *values) !=
        TIDEGATE_PAGE_OK)
        return TIDEGATE_PAGE_BUSY;
    if (values->state == TIDEGATE_PAGE_EMPTY)
        return TIDEGATE_PAGE_GONE;
    if (values->generation != handle->generation)
        return TIDEGATE_PAGE_MOVED;
    if (values->state > TIDEGATE_PAGE_ABSENT || values->quantiles > TIDEGATE_PAGE_MAX_QUANTILES)
        return TIDEGATE_PAGE_MALFORMED;
    return TIDEGATE_PAGE_OK;
}

#endif
