#include "wire.h"

#include "memory.h"

enum { KIND_VARINT = 0, KIND_FIXED64 = 1, KIND_LENGTH = 2, KIND_FIXED32 = 5 };

typedef struct {
    int64_t message;
    int64_t value;
    int64_t end;
    int64_t tag;
} Row;

struct Fields {
    ARRAY(Row) rows;
};

int64_t nbprof_wire_messages(const uint8_t *data, int64_t pos, int64_t end, uint8_t tag,
                             int64_t *starts, int64_t room, int64_t *count) {
    int64_t found = *count;
    while (pos < end && found < room && data[pos] == tag) {
        int64_t length;
        int64_t content = read_length(data, pos + 1, end, &length);
        if (content < 0) break;
        starts[found++] = pos;
        pos = content + length;
    }
    *count = found;
    return pos;
}

/* ---- Fields ------------------------------------------------------------------------------- */

/* Of each function here: the byte behind what it reads, NOT_PLAIN where that is not plain. */

static int64_t read_tag(const uint8_t *data, int64_t pos, int64_t end, int64_t *tag) {
    uint64_t value;
    int64_t behind = read_varint(data, pos, end, &value);
    /* A tag of a field below 16 has one byte, and is not written with more. */
    if (behind < 0 || value < 8 || value >= MOST_TAGS || behind - pos != 1 + (value >= 0x80))
        return NOT_PLAIN;
    *tag = (int64_t)value;
    return behind;
}

static int64_t read_fixed(int64_t pos, int64_t end, int64_t size, int64_t *value) {
    if (end - pos < size) return NOT_PLAIN;
    *value = pos;
    return pos + size;
}

static int64_t read_content(const uint8_t *data, int64_t pos, int64_t end, int64_t *value) {
    int64_t length;
    pos = read_length(data, pos, end, &length);
    if (pos < 0) return NOT_PLAIN;
    *value = pos;
    return pos + length;
}

static int64_t read_number(const uint8_t *data, int64_t pos, int64_t end, int64_t *value) {
    uint64_t number;
    pos = read_varint(data, pos, end, &number);
    if (pos >= 0) *value = (int64_t)number;
    return pos;
}

/* Reads a field: its tag, its value and where it ends. */
static int64_t read_row(const uint8_t *data, int64_t pos, int64_t end, Row *row) {
    pos = read_tag(data, pos, end, &row->tag);
    if (pos < 0) return NOT_PLAIN;
    switch (row->tag & 7) {
        case KIND_VARINT: return read_number(data, pos, end, &row->value);
        case KIND_FIXED64: return read_fixed(pos, end, 8, &row->value);
        case KIND_LENGTH: return read_content(data, pos, end, &row->value);
        case KIND_FIXED32: return read_fixed(pos, end, 4, &row->value);
        default: return NOT_PLAIN;
    }
}

static int read_message(Fields *fields, const uint8_t *data, int64_t pos, int64_t end,
                        int64_t message) {
    while (pos < end) {
        Row row = {.message = message};
        pos = read_row(data, pos, end, &row);
        if (pos < 0) return STATUS_UNEVEN;
        row.end = pos;
        if (!RESERVE_ONE(&fields->rows)) return STATUS_NO_MEMORY;
        fields->rows.items[fields->rows.count++] = row;
    }
    return STATUS_OK;
}

Fields *nbprof_wire_fields(const uint8_t *data, int64_t length, const int64_t *starts,
                           const int64_t *ends, int64_t count, WireSizes *sizes) {
    *sizes = (WireSizes){.status = STATUS_NO_MEMORY};
    Fields *fields = calloc(1, sizeof *fields);
    if (fields == NULL) return NULL;
    sizes->status = STATUS_OK;
    for (int64_t i = 0; i < count && sizes->status == STATUS_OK; i++) {
        bool is_inside = starts[i] >= 0 && ends[i] <= length;
        sizes->status =
            is_inside ? read_message(fields, data, starts[i], ends[i], i) : STATUS_UNEVEN;
    }
    sizes->rows = (int64_t)fields->rows.count;
    return fields;
}

/* Rows sorted by tag: counted, then put where each belongs. While they are, edges[t + 1] is where
 * the next row of tag t goes; in the end it is where those of t end. */
void nbprof_wire_columns(const Fields *fields, const WireColumns *out) {
    int64_t *edges = out->edges;
    memset(edges, 0, (MOST_TAGS + 2) * sizeof *edges);
    for (size_t i = 0; i < fields->rows.count; i++) edges[fields->rows.items[i].tag + 2]++;
    for (size_t t = 2; t < MOST_TAGS + 2; t++) edges[t] += edges[t - 1];
    for (size_t i = 0; i < fields->rows.count; i++) {
        const Row *row = &fields->rows.items[i];
        int64_t index = edges[row->tag + 1]++;
        out->message[index] = row->message;
        out->value[index] = row->value;
        out->end[index] = row->end;
    }
}

void nbprof_wire_free(Fields *fields) {
    if (fields == NULL) return;
    free(fields->rows.items);
    free(fields);
}
