/* The reader of XSpaces: wire.c, xspace.c and nesting.c of the package are compiled with this file.
 * An input is the content of a line. Input and columns lie in blocks of exactly their size, so that
 * a byte read or written beyond them is seen; what comes out is checked as Python relies on it. */

#include "../../../nbprof/native/xspace.h"

#include "../../../nbprof/native/nesting.h"
#include "../../../nbprof/native/wire.h"
#include "driver.h"
#include "messages.h"

enum { EVENT_TAG = 0x22, STRANGE = 4 };

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

/* By which all fields of a message are rows, those of a tag in the slot of its number. */
static WireRule all_rows[MOST_TAGS];

static bool read_line(const Text *text) {
    uint8_t *data = room(text->size);
    memcpy(data, text->bytes, text->size);
    int64_t length = (int64_t)text->size, count, reached;
    if (drawn(2)) fit(data, 0, length, EVENT_TAG);
    int64_t *starts = follow(data, length, EVENT_TAG, &count, &reached);
    bool even = read_events(data, length, starts, count) && reached == length;
    /* Places that nothing leads to. */
    int64_t strange[STRANGE];
    for (size_t i = 0; i < STRANGE; i++) strange[i] = (int64_t)drawn(text->size + 8) - 4;
    read_events(data, length, strange, STRANGE);
    int64_t ends[STRANGE] = {length, length + (int64_t)drawn(3) - 1, (int64_t)drawn(text->size + 1),
                             length};
    strange[0] = 0;
    const Plan plan = {all_rows, MOST_TAGS, 0, 0};
    read_fields(data, length, strange, ends, STRANGE, &plan);
    int64_t first = 0, end = length;
    read_fields(data, length, &first, &end, 1, &plan);
    for (int64_t i = 0; i < count; i++) {
        int64_t content, size;
        content = read_length(data, starts[i] + 1, length, &size);
        end = content + size;
        read_fields(data, length, &content, &end, 1, &plan);
    }
    free(starts);
    free(data);
    return even;
}

int main(int count, char **words) {
    for (uint16_t t = 0; t < MOST_TAGS; t++) all_rows[t] = (WireRule){FIELD_ROW, t, 0, 0};
    return fuzz(count, words, TOKENS, sizeof TOKENS / sizeof *TOKENS, read_line);
}
