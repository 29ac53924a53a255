#include "xspace.h"

#include "names.h"
#include "wire.h"

/* Fields of an event and of a stat: number and wire type as they are in a tag. */
enum { EVENT_META = 0x08, EVENT_OFFSET = 0x10, EVENT_DURATION = 0x18, EVENT_STAT = 0x22 };
enum {
    STAT_IDENT = 0x08,
    STAT_DOUBLE = 0x11,
    STAT_UINT = 0x18,
    STAT_INT = 0x20,
    STAT_TEXT = 0x2A,
    STAT_BYTES = 0x32,
    STAT_REF = 0x38
};

typedef struct {
    uint64_t value;
    int32_t group;
    uint16_t row;
} Stat;

/* The stats that begin with the same bytes: an id, and the tag of a value. */
typedef struct {
    uint64_t ident;
    uint64_t head; /* the first eight of these bytes; `mask` is without those behind them */
    uint64_t mask;
    int64_t length;
    int32_t tag;
    int32_t next; /* the group of the stat that followed one of this the last time; -1: none has */
} Group;

struct Batch {
    const uint8_t *data;
    int64_t length;
    Seed seed;
    int32_t previous_group;
    bool no_memory;
    ARRAY(Stat) stats;
    ARRAY(Group) groups;
    NameTable heads; /* the bytes that groups begin with, by their numbers */
    NameTable texts;
};

/* ---- Stats -------------------------------------------------------------------------------- */

/* Of each function here: the byte behind what it reads, NOT_PLAIN where that is not plain. */

static bool is_value(uint8_t tag) {
    switch (tag) {
        case STAT_DOUBLE:
        case STAT_UINT:
        case STAT_INT:
        case STAT_TEXT:
        case STAT_BYTES:
        case STAT_REF: return true;
        default: return false;
    }
}

/* The number of the name from `start` to `end`; NOT_PLAIN, with `no_memory` set, where there is no
 * room for it. */
static int32_t number_of(Batch *batch, NameTable *table, int64_t start, int64_t end) {
    int32_t number = name_number(table, batch->data, start, end, false, batch->seed);
    if (number < 0) batch->no_memory = true;
    return number;
}

/* Whether a stat's id and tag, the bytes from `pos` on, are those of a group. */
static inline bool is_group(const Batch *batch, int32_t number, int64_t pos, int64_t end) {
    const Group *group = &batch->groups.items[number];
    if (group->length > end - pos) return false;
    if (group->length <= (int64_t)sizeof group->head &&
        batch->length - pos >= (int64_t)sizeof group->head) {
        /* Nearly always. One comparison, where a call would take most of the time. */
        uint64_t head;
        memcpy(&head, batch->data + pos, sizeof head);
        return ((head ^ group->head) & group->mask) == 0;
    }
    const Name *name = &batch->heads.names.items[number];
    return memcmp(batch->data + pos, batch->data + name->start, (size_t)group->length) == 0;
}

/* A group, by where the bytes that it begins with are. */
static Group group_of(const Batch *batch, uint64_t ident, int64_t start, int64_t end) {
    Group group = {.ident = ident, .length = end - start, .tag = batch->data[end - 1], .next = -1};
    size_t size = (size_t)group.length;
    if (size > sizeof group.head) size = sizeof group.head;
    memcpy(&group.head, batch->data + start, size);
    memset(&group.mask, 0xFF, size);
    return group;
}

static int64_t find_group(Batch *batch, int64_t pos, int64_t end, int32_t *number) {
    uint64_t ident;
    int64_t tag = read_varint(batch->data, pos, end, &ident);
    if (tag < 0 || tag >= end || !is_value(batch->data[tag])) return NOT_PLAIN;
    *number = number_of(batch, &batch->heads, pos, tag + 1);
    if (*number < 0) return NOT_PLAIN;
    if ((size_t)*number == batch->groups.count) {
        if (!RESERVE_ONE(&batch->groups)) {
            batch->no_memory = true;
            return NOT_PLAIN;
        }
        batch->groups.items[batch->groups.count++] = group_of(batch, ident, pos, tag + 1);
    }
    return tag + 1;
}

/* Reads the id of a stat and the tag of its value. Events of a kind have the same stats in the same
 * order: mostly it is of the group that followed the one before it the last time. */
static int64_t read_group(Batch *batch, int64_t pos, int64_t end, int32_t *number) {
    int32_t previous = batch->previous_group;
    *number = previous < 0 ? -1 : batch->groups.items[previous].next;
    if (*number >= 0 && is_group(batch, *number, pos, end)) {
        pos += batch->groups.items[*number].length;
    } else {
        pos = find_group(batch, pos, end, number);
        if (pos < 0) return NOT_PLAIN;
        if (previous >= 0) batch->groups.items[previous].next = *number;
    }
    batch->previous_group = *number;
    return pos;
}

static int64_t read_double(const Batch *batch, int64_t pos, int64_t end, uint64_t *value) {
    if (end - pos < 8) return NOT_PLAIN;
    *value = 0;
    for (unsigned i = 0; i < 8; i++) *value |= (uint64_t)batch->data[pos + i] << (8 * i);
    return pos + 8;
}

static int64_t read_text(Batch *batch, int64_t pos, int64_t end, uint64_t *value) {
    int64_t length;
    pos = read_length(batch->data, pos, end, &length);
    if (pos < 0) return NOT_PLAIN;
    int32_t number = number_of(batch, &batch->texts, pos, pos + length);
    if (number < 0) return NOT_PLAIN;
    *value = (uint64_t)number;
    return pos + length;
}

static int64_t read_value(Batch *batch, int32_t tag, int64_t pos, int64_t end, uint64_t *value) {
    switch (tag) {
        case STAT_DOUBLE: return read_double(batch, pos, end, value);
        case STAT_TEXT:
        case STAT_BYTES: return read_text(batch, pos, end, value);
        default: return read_varint(batch->data, pos, end, value);
    }
}

/* Reads a stat: an id, a value, and nothing behind it. */
static int64_t read_stat(Batch *batch, int64_t pos, int64_t end, uint16_t row) {
    if (pos >= end || batch->data[pos] != STAT_IDENT) return NOT_PLAIN;
    Stat stat = {.row = row};
    pos = read_group(batch, pos + 1, end, &stat.group);
    if (pos < 0) return NOT_PLAIN;
    pos = read_value(batch, batch->groups.items[stat.group].tag, pos, end, &stat.value);
    if (pos != end) return NOT_PLAIN;
    if (!RESERVE_ONE(&batch->stats)) {
        batch->no_memory = true;
        return NOT_PLAIN;
    }
    batch->stats.items[batch->stats.count++] = stat;
    return pos;
}

/* ---- Events ------------------------------------------------------------------------------- */

/* The column and row of the number in a field; NULL for any other field. */
static int64_t *column_of(const XspaceEvents *out, uint8_t tag, uint16_t row) {
    switch (tag) {
        case EVENT_META: return out->meta + row;
        case EVENT_OFFSET: return out->offset + row;
        case EVENT_DURATION: return out->duration + row;
        default: return NULL;
    }
}

/* Of a number that comes twice the last one counts. */
static int64_t read_field(Batch *batch, int64_t pos, int64_t end, const XspaceEvents *out,
                          uint16_t row) {
    uint8_t tag = batch->data[pos];
    if (tag == EVENT_STAT) {
        int64_t length;
        pos = read_length(batch->data, pos + 1, end, &length);
        return pos < 0 ? NOT_PLAIN : read_stat(batch, pos, pos + length, row);
    }
    int64_t *number = column_of(out, tag, row);
    if (number == NULL) return NOT_PLAIN;
    uint64_t value;
    pos = read_varint(batch->data, pos + 1, end, &value);
    if (pos >= 0) *number = (int64_t)value;
    return pos;
}

/* Reads the event whose tag is at `pos`. */
static bool read_event(Batch *batch, int64_t pos, const XspaceEvents *out, uint16_t row) {
    if (pos < 0 || pos >= batch->length) return false;
    uint64_t tag;
    int64_t length;
    pos = read_varint(batch->data, pos, batch->length, &tag);
    if (pos >= 0) pos = read_length(batch->data, pos, batch->length, &length);
    if (pos < 0) return false;
    int64_t end = pos + length;
    while (pos >= 0 && pos < end) pos = read_field(batch, pos, end, out, row);
    return pos == end;
}

static int read_events(Batch *batch, const int64_t *starts, int64_t count, const XspaceEvents *out,
                       int64_t *left) {
    for (int64_t i = 0; i < count; i++) {
        size_t stats = batch->stats.count;
        out->meta[i] = out->offset[i] = out->duration[i] = 0;
        bool is_read = read_event(batch, starts[i], out, (uint16_t)i);
        if (batch->no_memory) return STATUS_NO_MEMORY;
        out->left[i] = !is_read;
        if (is_read) continue;
        out->meta[i] = out->offset[i] = out->duration[i] = 0;
        batch->stats.count = stats;
        *left += 1;
    }
    return STATUS_OK;
}

/* ---- The interface ------------------------------------------------------------------------ */

Batch *nbprof_xspace_events(const uint8_t *data, int64_t length, const int64_t *starts,
                            int64_t count, uint64_t seed_first, uint64_t seed_second,
                            const XspaceEvents *out, XspaceSizes *sizes) {
    *sizes = (XspaceSizes){.status = STATUS_NO_MEMORY};
    if (count > MOST_EVENTS) return NULL;
    Batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) return NULL;
    batch->data = data;
    batch->length = length;
    batch->seed = (Seed){seed_first | 1, seed_second | 1};
    batch->previous_group = -1;
    sizes->status = read_events(batch, starts, count, out, &sizes->left);
    sizes->stats = (int64_t)batch->stats.count;
    sizes->groups = (int64_t)batch->groups.count;
    sizes->texts = (int64_t)batch->texts.names.count;
    batch->data = NULL;
    return batch;
}

/* Rows sorted by group: counted, then put where each belongs. While they are, edges[g + 1] is where
 * the next row of group g goes; in the end it is where those of g end. */
static void sort_stats(const Batch *batch, const XspaceStats *out) {
    int64_t *edges = out->edges;
    memset(edges, 0, (batch->groups.count + 2) * sizeof *edges);
    for (size_t i = 0; i < batch->stats.count; i++) edges[batch->stats.items[i].group + 2]++;
    for (size_t g = 2; g < batch->groups.count + 2; g++) edges[g] += edges[g - 1];
    for (size_t i = 0; i < batch->stats.count; i++) {
        const Stat *stat = &batch->stats.items[i];
        int64_t index = edges[stat->group + 1]++;
        out->row[index] = stat->row;
        out->value[index] = stat->value;
    }
}

void nbprof_xspace_stats(const Batch *batch, const XspaceStats *out) {
    for (size_t g = 0; g < batch->groups.count; g++) {
        out->ident[g] = (int64_t)batch->groups.items[g].ident;
        out->tag[g] = batch->groups.items[g].tag;
    }
    for (size_t i = 0; i < batch->texts.names.count; i++) {
        const Name *text = &batch->texts.names.items[i];
        out->text[2 * i] = text->start;
        out->text[2 * i + 1] = text->start + text->length;
    }
    sort_stats(batch, out);
}

void nbprof_xspace_free(Batch *batch) {
    if (batch == NULL) return;
    free(batch->stats.items);
    free(batch->groups.items);
    free_names(&batch->heads);
    free_names(&batch->texts);
    free(batch);
}
