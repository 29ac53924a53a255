/* What drivers of messages share: where they begin, and their fields by some rules. */

#ifndef NBPROF_FUZZ_MESSAGES_H
#define NBPROF_FUZZ_MESSAGES_H

#include "../../../nbprof/native/wire.h"
#include "driver.h"

enum { MOST_ROOM = 40 };

/* Rules, and how many slots, columns of numbers and of small ones they have. */
typedef struct {
    const WireRule *rules;
    size_t slots;
    size_t numbers;
    size_t small;
} Plan;

/* The starts of the messages of one field, and the byte to which they follow one another; found in
 * rooms of any size. */
static int64_t *follow(const uint8_t *data, int64_t size, uint8_t tag, int64_t *total,
                       int64_t *reached) {
    int64_t *starts = room((size_t)size * sizeof *starts);
    int64_t pos = 0;
    *total = 0;
    for (;;) {
        int64_t space = 1 + (int64_t)drawn(MOST_ROOM);
        int64_t *part = room((size_t)space * sizeof *part);
        int64_t count = (int64_t)drawn((uint64_t)space);
        int64_t first = count;
        int64_t behind = nbprof_wire_messages(data, pos, size, tag, part, space, &count);
        check(count >= first && count <= space, "more starts than room");
        check(behind >= pos && behind <= size, "it leads outside of the data");
        for (int64_t i = first; i < count; i++) {
            check(part[i] == pos || i > first, "the first one begins elsewhere");
            check(part[i] >= pos && part[i] < behind, "a start outside of what was read");
            check(data[part[i]] == tag, "a start without a tag");
            check(*total == 0 || starts[*total - 1] < part[i], "starts that fall");
            starts[(*total)++] = part[i];
        }
        free(part);
        pos = behind;
        if (count < space) break;
    }
    *reached = pos;
    return starts;
}

static void check_numbers(const WireNumbers *out, int64_t count, const Plan *plan) {
    for (int64_t i = 0; i < count; i++) {
        check(out->left[i] <= 1, "neither read nor left");
        check(!out->left[i] || out->marks[i] == 0, "marks of a message that is left");
    }
    if (plan->numbers + plan->small > 0) return;
    for (int64_t i = 0; i < count; i++) check(out->marks[i] == 0, "a mark without a number");
}

static void check_rows(const WireColumns *out, const WireNumbers *numbers, const int64_t *starts,
                       const int64_t *ends, int64_t count, size_t slots, int64_t rows) {
    check(out->edges[0] == 0 && out->edges[slots] == rows, "rows of no slot");
    for (size_t s = 0; s < slots; s++) {
        check(out->edges[s] <= out->edges[s + 1], "edges that fall");
        for (int64_t i = out->edges[s]; i < out->edges[s + 1]; i++) {
            int64_t message = out->message[i];
            check(message >= 0 && message < count, "a field of no message");
            check(!numbers->left[message], "a field of a message that is left");
            check(out->end[i] > starts[message] && out->end[i] <= ends[message], "an end outside");
            bool is_first = i == out->edges[s] || out->message[i - 1] < message;
            check(is_first || (out->message[i - 1] == message && out->end[i - 1] < out->end[i]),
                  "rows out of order");
        }
    }
    for (size_t n = 0; n < MOST_TAGS / 8; n++)
        check(out->unread[n] >= 0 && out->unread[n] <= count, "more fields than messages");
}

/* The ends of messages by the bytes of their tags: of those that nothing can be said of, the end of
 * the data. */
static void find_ends(const uint8_t *data, int64_t length, const int64_t *starts, int64_t count,
                      int64_t *ends) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t tag;
        int64_t size, pos = NOT_PLAIN;
        if (starts[i] >= 0 && starts[i] < length) pos = read_varint(data, starts[i], length, &tag);
        if (pos >= 0) pos = read_length(data, pos, length, &size);
        ends[i] = pos < 0 ? length : pos + size;
    }
}

/* The fields of messages; `ends` may be NULL. True if all of them were read. */
static bool read_fields(const uint8_t *data, int64_t length, const int64_t *starts,
                        const int64_t *ends, int64_t count, const Plan *plan) {
    size_t size = (size_t)count;
    WireNumbers numbers = {.stride = count,
                           .numbers = room(plan->numbers * size * sizeof(int64_t)),
                           .small = room(plan->small * size * sizeof(int32_t)),
                           .marks = room(size * sizeof(uint32_t)),
                           .left = room(size)};
    WireSizes sizes;
    Fields *fields = nbprof_wire_fields(data, length, starts, ends, count, plan->rules,
                                        (int64_t)plan->slots, &numbers, &sizes);
    check(fields != NULL && sizes.status == STATUS_OK, "no memory");
    size_t rows = (size_t)sizes.rows;
    WireColumns out = {.edges = room((plan->slots + 2) * sizeof(int64_t)),
                       .message = room(rows * sizeof(int32_t)),
                       .value = room(rows * sizeof(int64_t)),
                       .end = room(rows * sizeof(int64_t)),
                       .unread = room(MOST_TAGS / 8 * sizeof(int64_t))};
    nbprof_wire_columns(fields, &out);
    nbprof_wire_free(fields);
    int64_t *found = room(size * sizeof *found);
    if (ends == NULL)
        find_ends(data, length, starts, count, found);
    else
        memcpy(found, ends, size * sizeof *found);
    check_numbers(&numbers, count, plan);
    check_rows(&out, &numbers, starts, found, count, plan->slots, sizes.rows);
    bool all = true;
    for (int64_t i = 0; i < count; i++) all = all && !numbers.left[i];
    void *const blocks[] = {numbers.numbers, numbers.small, numbers.marks, numbers.left, out.edges,
                            out.message,     out.value,     out.end,       out.unread,   found};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
    return all;
}

/* Makes a message of a field, and those of it that are in it, end where the data does: nothing
 * would be read of one that is cut off otherwise, least of all up to the last byte. */
static void fit(uint8_t *data, int64_t pos, int64_t end, uint8_t tag) {
    while (end - pos >= 2) {
        int64_t length;
        uint64_t value;
        int64_t content = read_length(data, pos + 1, end, &length);
        if (data[pos] == tag && content >= 0) {
            pos = content + length;
        } else if (data[pos] == tag && end - pos - 2 < 0x80) {
            data[pos + 1] = (uint8_t)(end - pos - 2);
            pos += 2;
        } else {
            pos = read_varint(data, pos + 1, end, &value);
            if (pos < 0) return;
        }
    }
}

#endif
