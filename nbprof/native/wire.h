/* The wire format of protocol buffers.
 *
 * Only what nearly every field is written like is read: a tag of one byte, lengths and numbers as
 * short as the format asks for. Anything else, and what is broken, is for Python: it reads it, or
 * says what is wrong and at which byte.
 */

#ifndef NBPROF_WIRE_H
#define NBPROF_WIRE_H

#include <stddef.h>

#include "api.h"

enum { NOT_PLAIN = -1, VARINT_BITS = 64, LENGTH_BITS = 35 };

/* Reads a varint of up to `bits`, in whole bytes of seven: the byte behind it. */
static inline int64_t read_bits(const uint8_t *data, int64_t pos, int64_t end, unsigned bits,
                                uint64_t *value) {
    uint64_t result = 0;
    for (unsigned shift = 0; shift < bits && pos < end; shift += 7) {
        uint8_t byte = data[pos++];
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte >= 0x80) continue;
        /* Of a tenth byte one bit is left. */
        if (shift == 63 && byte > 1) return NOT_PLAIN;
        *value = result;
        return pos;
    }
    return NOT_PLAIN;
}

/* Reads a number: the byte behind it. */
static inline int64_t read_varint(const uint8_t *data, int64_t pos, int64_t end, uint64_t *value) {
    if (pos < end && data[pos] < 0x80) {
        *value = data[pos];
        return pos + 1;
    }
    return read_bits(data, pos, end, VARINT_BITS, value);
}

/* Reads a length: the byte behind it. So many bytes follow before `end`. */
static inline int64_t read_length(const uint8_t *data, int64_t pos, int64_t end, int64_t *length) {
    uint64_t value = 0;
    if (pos < end && data[pos] < 0x80)
        value = data[pos++];
    else
        pos = read_bits(data, pos, end, LENGTH_BITS, &value);
    if (pos < 0 || value > INT32_MAX || value > (uint64_t)(end - pos)) return NOT_PLAIN;
    *length = (int64_t)value;
    return pos;
}

/* Follows messages of one field, tag behind tag, as long as one follows the other: puts the bytes
 * of their tags behind the `count` that `starts` holds already, which has room for `room`. Returns
 * the byte behind the last one, where another field, the end, or no room is. */
NBPROF_API int64_t nbprof_wire_messages(const uint8_t *data, int64_t pos, int64_t end, uint8_t tag,
                                        int64_t *starts, int64_t room, int64_t *count);

/* Tags below this one are plain: those of fields with numbers below 128. */
enum { MOST_TAGS = 1 << 10 };

typedef struct Fields Fields;

typedef struct {
    int64_t rows;
    int32_t status; /* STATUS_UNEVEN where a field is not plain */
} WireSizes;

/* The caller's arrays. Rows are sorted by tag: those of tag t are edges[t] to edges[t + 1], message
 * by message and in the order of their bytes. */
typedef struct {
    int64_t *edges;   /* [MOST_TAGS + 2]; the last one is not used */
    int64_t *message; /* [rows] */
    int64_t *value;   /* [rows]: a number, or where the content begins */
    int64_t *end;     /* [rows]: the byte behind the field */
} WireColumns;

/* Reads all fields of messages by where their contents begin and end. NULL where there is no memory
 * for it. The data is not kept; the result is to be freed. */
NBPROF_API Fields *nbprof_wire_fields(const uint8_t *data, int64_t length, const int64_t *starts,
                                      const int64_t *ends, int64_t count, WireSizes *sizes);

NBPROF_API void nbprof_wire_columns(const Fields *fields, const WireColumns *out);

NBPROF_API void nbprof_wire_free(Fields *fields);

#endif
