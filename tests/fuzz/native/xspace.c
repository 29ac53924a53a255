/* The reader of XSpaces: wire.c, xspace.c and nesting.c of the package are compiled with this file.
 * An input is the content of a line. Input and columns lie in blocks of exactly their size, so that
 * a byte read or written beyond them is seen; what comes out is checked as Python relies on it. */

#include "../../../nbprof/native/xspace.h"

#include "../../../nbprof/native/nesting.h"
#include "../../../nbprof/native/wire.h"
#include "driver.h"

enum { EVENT_TAG = 0x22, MOST_ROOM = 40, STRANGE = 4 };

static const Token TOKENS[] = {
    TOKEN("\x22"),
    TOKEN("\x22\x00"),
    TOKEN("\x08"),
    TOKEN("\x08\x01"),
    TOKEN("\x10\x80\x01"),
    TOKEN("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    TOKEN("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
    TOKEN("\x22\x04\x08\x01\x20\x05"),
    TOKEN("\x22\x06\x08\x01\x2a\x02"
          "ab"),
    TOKEN("\x22\x04\x08\x01\x2a\x00"),
    TOKEN("\x22\x05\x08\x80\x01\x38\x07"),
    TOKEN("\x22\x0b\x08\x01\x11"
          "abcdefgh"),
    TOKEN("\x22\x02\x08\x01"),
    TOKEN("\x22\x80\x80\x80\x80\x00"),
    TOKEN("\x28\x03"),
    TOKEN("\xff"),
    TOKEN("\x7f"),
    TOKEN("\x80"),
    TOKEN("\xff\xff\xff\xff\x07"),
    TOKEN("\xff\xff\xff\xff\x0f"),
    TOKEN("\x80\x80\x80\x80\x80\x00"),
    TOKEN("\xa2\x00"),
    TOKEN("\x2a"),
    TOKEN("\x32"),
    TOKEN("\x38"),
    TOKEN("\x20"),
    TOKEN("\x11"),
    TOKEN("\x7b\x7c"),
};

/* The starts of the events of the line, and the byte to which they follow one another; found in
 * rooms of any size. */
static int64_t *follow(const uint8_t *data, int64_t size, int64_t *total, int64_t *reached) {
    int64_t *starts = room((size_t)size * sizeof *starts);
    int64_t pos = 0;
    *total = 0;
    for (;;) {
        int64_t space = 1 + (int64_t)drawn(MOST_ROOM);
        int64_t *part = room((size_t)space * sizeof *part);
        int64_t count = (int64_t)drawn((uint64_t)space);
        int64_t first = count;
        int64_t behind = nbprof_wire_messages(data, pos, size, EVENT_TAG, part, space, &count);
        check(count >= first && count <= space, "more starts than room");
        check(behind >= pos && behind <= size, "it leads outside of the data");
        for (int64_t i = first; i < count; i++) {
            check(part[i] == pos || i > first, "the first one begins elsewhere");
            check(part[i] >= pos && part[i] < behind, "a start outside of what was read");
            check(data[part[i]] == EVENT_TAG, "a start without a tag");
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

static void check_events(const XspaceEvents *out, const XspaceSizes *sizes, int64_t count) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) {
        check(out->left[i] <= 1, "neither read nor left");
        left += out->left[i];
        bool is_empty = out->meta[i] == 0 && out->offset[i] == 0 && out->duration[i] == 0;
        check(!out->left[i] || is_empty, "something of an event that is left");
    }
    check(left == sizes->left, "another number of events is left");
}

static void check_stats(const XspaceEvents *events, const XspaceStats *out,
                        const XspaceSizes *sizes, int64_t count, int64_t length) {
    check(out->edges[0] == 0, "stats do not begin at 0");
    check(out->edges[sizes->groups] == sizes->stats, "stats of no group");
    for (int64_t g = 0; g < sizes->groups; g++) {
        check(out->edges[g] <= out->edges[g + 1], "edges that fall");
        bool is_text = out->tag[g] == 0x2A || out->tag[g] == 0x32;
        for (int64_t i = out->edges[g]; i < out->edges[g + 1]; i++) {
            check(out->row[i] < count, "a stat of no event");
            check(!events->left[out->row[i]], "a stat of an event that is left");
            check(i == out->edges[g] || out->row[i - 1] <= out->row[i], "rows that fall");
            check(!is_text || out->value[i] < (uint64_t)sizes->texts, "no such text");
        }
    }
    for (int64_t i = 0; i < sizes->texts; i++) {
        int64_t start = out->text[2 * i], end = out->text[2 * i + 1];
        check(0 <= start && start <= end && end <= length, "a text outside of the data");
    }
}

static void nest(const XspaceEvents *events, int64_t count) {
    size_t size = (size_t)count;
    int32_t *lane = room(size * sizeof *lane), *parent = room(size * sizeof *parent);
    uint16_t *depth = room(size * sizeof *depth);
    int64_t *self = room(size * sizeof *self);
    for (int64_t i = 0; i < count; i++) lane[i] = (int32_t)(i / 8);
    nbprof_nesting_parents(lane, events->offset, events->duration, count, (int64_t)drawn(1000),
                           parent);
    for (int64_t i = 0; i < count; i++)
        check(parent[i] >= -1 && parent[i] < i && (parent[i] < 0 || lane[parent[i]] == lane[i]),
              "a parent that is none");
    nbprof_nesting_depths(parent, count, depth);
    nbprof_nesting_self_times(parent, events->duration, count, self);
    for (int64_t i = 0; i < count; i++)
        check(depth[i] == (parent[i] < 0 ? 0 : depth[parent[i]] + 1), "a wrong depth");
    free(lane);
    free(parent);
    free(depth);
    free(self);
}

static bool read_events(const uint8_t *data, int64_t length, const int64_t *starts, int64_t count) {
    size_t size = (size_t)count;
    XspaceEvents events = {.meta = room(size * sizeof(int64_t)),
                           .offset = room(size * sizeof(int64_t)),
                           .duration = room(size * sizeof(int64_t)),
                           .left = room(size)};
    XspaceSizes sizes;
    Batch *batch = nbprof_xspace_events(data, length, starts, count, drawn(UINT64_MAX), state,
                                        &events, &sizes);
    check(batch != NULL && sizes.status == STATUS_OK, "no memory");
    XspaceStats stats = {.ident = room((size_t)sizes.groups * sizeof(int64_t)),
                         .tag = room((size_t)sizes.groups * sizeof(int32_t)),
                         .edges = room(((size_t)sizes.groups + 2) * sizeof(int64_t)),
                         .row = room((size_t)sizes.stats * sizeof(uint16_t)),
                         .value = room((size_t)sizes.stats * sizeof(uint64_t)),
                         .text = room((size_t)sizes.texts * 2 * sizeof(int64_t))};
    nbprof_xspace_stats(batch, &stats);
    check_events(&events, &sizes, count);
    check_stats(&events, &stats, &sizes, count, length);
    nest(&events, count);
    nbprof_xspace_free(batch);
    void *const blocks[] = {events.meta, events.offset, events.duration, events.left, stats.ident,
                            stats.tag,   stats.edges,   stats.row,       stats.value, stats.text};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
    return sizes.left == 0;
}

/* All fields of the messages that some places are said to begin and end at. */
static void read_fields(const uint8_t *data, int64_t length, const int64_t *starts,
                        const int64_t *ends, int64_t count) {
    WireSizes sizes;
    Fields *fields = nbprof_wire_fields(data, length, starts, ends, count, &sizes);
    check(fields != NULL && sizes.status != STATUS_NO_MEMORY, "no memory");
    size_t size = (size_t)sizes.rows * sizeof(int64_t);
    WireColumns out = {.edges = room((MOST_TAGS + 2) * sizeof(int64_t)),
                       .message = room(size),
                       .value = room(size),
                       .end = room(size)};
    nbprof_wire_columns(fields, &out);
    check(out.edges[8] == 0 && out.edges[MOST_TAGS] == sizes.rows, "rows of no tag");
    for (int64_t t = 8; t < MOST_TAGS; t++) {
        check(out.edges[t] <= out.edges[t + 1], "edges that fall");
        for (int64_t i = out.edges[t]; i < out.edges[t + 1]; i++) {
            int64_t message = out.message[i];
            check(message >= 0 && message < count, "a field of no message");
            check(out.end[i] > starts[message] && out.end[i] <= ends[message], "an end outside");
            bool is_place = (t & 7) != 0;
            check(!is_place || (out.value[i] > starts[message] && out.value[i] <= out.end[i]),
                  "a content outside of its message");
            bool is_first = i == out.edges[t] || out.message[i - 1] < message;
            check(is_first || (out.message[i - 1] == message && out.end[i - 1] < out.end[i]),
                  "rows out of order");
        }
    }
    nbprof_wire_free(fields);
    free(out.edges);
    free(out.message);
    free(out.value);
    free(out.end);
}

/* Makes a message, and those in it, end where the data does: nothing would be read of one that is
 * cut off otherwise, least of all up to the last byte. */
static void fit(uint8_t *data, int64_t pos, int64_t end) {
    while (end - pos >= 2) {
        int64_t length;
        uint64_t value;
        int64_t content = read_length(data, pos + 1, end, &length);
        if (data[pos] == EVENT_TAG && content >= 0) {
            pos = content + length;
        } else if (data[pos] == EVENT_TAG && end - pos - 2 < 0x80) {
            data[pos + 1] = (uint8_t)(end - pos - 2);
            pos += 2;
        } else {
            pos = read_varint(data, pos + 1, end, &value);
            if (pos < 0) return;
        }
    }
}

static bool read_line(const Text *text) {
    uint8_t *data = room(text->size);
    memcpy(data, text->bytes, text->size);
    int64_t length = (int64_t)text->size, count, reached;
    if (drawn(2)) fit(data, 0, length);
    int64_t *starts = follow(data, length, &count, &reached);
    bool even = read_events(data, length, starts, count) && reached == length;
    /* Places that nothing leads to. */
    int64_t strange[STRANGE];
    for (size_t i = 0; i < STRANGE; i++) strange[i] = (int64_t)drawn(text->size + 8) - 4;
    read_events(data, length, strange, STRANGE);
    int64_t ends[STRANGE] = {length, length + (int64_t)drawn(3) - 1, (int64_t)drawn(text->size + 1),
                             length};
    strange[0] = 0;
    read_fields(data, length, strange, ends, STRANGE);
    int64_t first = 0, end = length;
    read_fields(data, length, &first, &end, 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t content, size;
        content = read_length(data, starts[i] + 1, length, &size);
        end = content + size;
        read_fields(data, length, &content, &end, 1);
    }
    free(starts);
    free(data);
    return even;
}

int main(int count, char **words) {
    return fuzz(count, words, TOKENS, sizeof TOKENS / sizeof *TOKENS, read_line);
}
