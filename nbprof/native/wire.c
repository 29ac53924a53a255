#include "wire.h"

#include "memory.h"

enum { KIND_VARINT = 0, KIND_FIXED64 = 1, KIND_LENGTH = 2, KIND_FIXED32 = 5 };

enum { MOST_FIELDS = MOST_TAGS / 8 };

typedef struct {
    int64_t value;
    int64_t end;
    int32_t message;
    uint32_t slot;
} Row;

/* A field as it is in its message. */
typedef struct {
    uint64_t tag;
    int64_t value;
    int64_t end;
} Field;

struct Fields {
    const uint8_t *data;
    const WireRule *rules;
    const WireNumbers *out;
    int64_t message; /* the one that is read */
    int64_t slots;
    bool no_memory;
    ARRAY(Row) rows;
    int64_t unread[MOST_FIELDS];
    int64_t unread_in[MOST_FIELDS]; /* the last message that was counted there */
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

static int64_t read_tag(const uint8_t *data, int64_t pos, int64_t end, uint64_t *tag) {
    if (pos < end && data[pos] >= 8 && data[pos] < 0x80) {
        *tag = data[pos];
        return pos + 1;
    }
    int64_t behind = read_varint(data, pos, end, tag);
    if (behind < 0 || *tag < 8 || *tag > UINT32_MAX) return NOT_PLAIN;
    /* A tag that has a rule is not written with more bytes than it needs. */
    int64_t most = *tag < 0x80 ? 1 : *tag < MOST_TAGS ? 2 : 5;
    return behind - pos > most ? NOT_PLAIN : behind;
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
static int64_t read_field(const uint8_t *data, int64_t pos, int64_t end, Field *field) {
    pos = read_tag(data, pos, end, &field->tag);
    if (pos < 0) return NOT_PLAIN;
    switch (field->tag & 7) {
        case KIND_VARINT: pos = read_number(data, pos, end, &field->value); break;
        case KIND_FIXED64: pos = read_fixed(pos, end, 8, &field->value); break;
        case KIND_LENGTH: pos = read_content(data, pos, end, &field->value); break;
        case KIND_FIXED32: pos = read_fixed(pos, end, 4, &field->value); break;
        default: return NOT_PLAIN;
    }
    field->end = pos;
    return pos;
}

static int64_t read_message(Fields *fields, int64_t pos, int64_t end, unsigned level);

/* Of the functions that take a field: false where the message cannot be read on. */

static bool take_row(Fields *fields, const Field *field, uint16_t slot) {
    if (slot >= fields->slots) return false;
    if (!RESERVE_ONE(&fields->rows)) {
        fields->no_memory = true;
        return false;
    }
    Row row = {field->value, field->end, (int32_t)fields->message, slot};
    fields->rows.items[fields->rows.count++] = row;
    return true;
}

/* A message that has it twice counts once. */
static void take_unread(Fields *fields, uint64_t number) {
    if (fields->unread_in[number] == fields->message) return;
    fields->unread_in[number] = fields->message;
    fields->unread[number]++;
}

static bool take_field(Fields *fields, const Field *field, unsigned level) {
    const WireRule *rule = &fields->rules[level * MOST_TAGS + field->tag];
    const WireNumbers *out = fields->out;
    int64_t place = rule->slot * out->stride + fields->message;
    switch (rule->what) {
        case FIELD_UNREAD:
            if (level == 0) take_unread(fields, field->tag >> 3);
            return true;
        case FIELD_ROW: return take_row(fields, field, rule->slot);
        case FIELD_NUMBER: out->numbers[place] = field->value; break;
        case FIELD_SMALL: out->small[place] = (int32_t)(uint32_t)field->value; break;
        default:
            if (rule->level <= level) return false;
            if (read_message(fields, field->value, field->end, rule->level) < 0) return false;
            break;
    }
    out->marks[fields->message] |= (uint32_t)1 << (rule->bit & 31);
    return true;
}

static int64_t read_message(Fields *fields, int64_t pos, int64_t end, unsigned level) {
    while (pos < end) {
        Field field;
        pos = read_field(fields->data, pos, end, &field);
        if (pos < 0) return NOT_PLAIN;
        /* One without a rule counts among those of the outermost message only. */
        bool has_rule = field.tag < MOST_TAGS;
        if (has_rule ? !take_field(fields, &field, level) : level == 0) return NOT_PLAIN;
    }
    return pos;
}

/* Takes back what was read of a message. */
static void leave(Fields *fields, size_t rows) {
    const WireNumbers *out = fields->out;
    fields->rows.count = rows;
    for (size_t number = 0; number < MOST_FIELDS; number++) {
        if (fields->unread_in[number] != fields->message) continue;
        fields->unread_in[number] = -1;
        fields->unread[number]--;
    }
    out->marks[fields->message] = 0;
    out->left[fields->message] = 1;
}

/* Reads the tag and the length of the message at `pos`: where its content begins. */
static int64_t read_head(const uint8_t *data, int64_t pos, int64_t length, int64_t *end) {
    uint64_t tag;
    int64_t size;
    if (pos < 0 || pos >= length) return NOT_PLAIN;
    pos = read_varint(data, pos, length, &tag);
    if (pos >= 0) pos = read_length(data, pos, length, &size);
    if (pos >= 0) *end = pos + size;
    return pos;
}

static int read_messages(Fields *fields, int64_t length, const int64_t *starts, const int64_t *ends,
                         int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        size_t rows = fields->rows.count;
        int64_t pos = starts[i];
        int64_t end = ends == NULL ? length : ends[i];
        if (ends == NULL) pos = read_head(fields->data, pos, length, &end);
        fields->message = i;
        fields->out->marks[i] = 0;
        fields->out->left[i] = 0;
        bool is_inside = pos >= 0 && end <= length;
        if (!is_inside || read_message(fields, pos, end, 0) < 0) leave(fields, rows);
        if (fields->no_memory) return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

Fields *nbprof_wire_fields(const uint8_t *data, int64_t length, const int64_t *starts,
                           const int64_t *ends, int64_t count, const WireRule *rules, int64_t slots,
                           const WireNumbers *out, WireSizes *sizes) {
    *sizes = (WireSizes){.status = STATUS_NO_MEMORY};
    if (count > INT32_MAX) return NULL;
    Fields *fields = calloc(1, sizeof *fields);
    if (fields == NULL) return NULL;
    fields->data = data;
    fields->rules = rules;
    fields->out = out;
    fields->slots = slots;
    memset(fields->unread_in, 0xFF, sizeof fields->unread_in);
    sizes->status = read_messages(fields, length, starts, ends, count);
    sizes->rows = (int64_t)fields->rows.count;
    fields->data = NULL;
    fields->rules = NULL;
    fields->out = NULL;
    return fields;
}

/* Rows sorted by slot: counted, then put where each belongs. While they are, edges[s + 1] is where
 * the next row of slot s goes; in the end it is where those of s end. */
void nbprof_wire_columns(const Fields *fields, const WireColumns *out) {
    int64_t *edges = out->edges;
    size_t slots = (size_t)fields->slots;
    memset(edges, 0, (slots + 2) * sizeof *edges);
    for (size_t i = 0; i < fields->rows.count; i++) edges[fields->rows.items[i].slot + 2]++;
    for (size_t s = 2; s < slots + 2; s++) edges[s] += edges[s - 1];
    for (size_t i = 0; i < fields->rows.count; i++) {
        const Row *row = &fields->rows.items[i];
        int64_t index = edges[row->slot + 1]++;
        out->message[index] = row->message;
        out->value[index] = row->value;
        out->end[index] = row->end;
    }
    memcpy(out->unread, fields->unread, sizeof fields->unread);
}

void nbprof_wire_free(Fields *fields) {
    if (fields == NULL) return;
    free(fields->rows.items);
    free(fields);
}
