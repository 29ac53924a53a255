/* The wire format of protocol buffers.
 *
 * Only what nearly every field is written like is read: a tag of one byte, lengths and numbers as
 * short as the format asks for. Anything else, and what is broken, is for Python: it reads it, or
 * says what is wrong and at which byte.
 */

#ifndef NBPROF_WIRE_H
#define NBPROF_WIRE_H

#include <stddef.h>
#include <string.h>

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
        *value = result;
        return pos;
    }
    return NOT_PLAIN;
}

/* The eight bytes at a place, the first one lowest. */
static inline uint64_t word_at(const uint8_t *place) {
    uint64_t word;
    memcpy(&word, place, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Joins the lower seven bits of each byte. */
static inline uint64_t joined(uint64_t word) {
    word = (word & 0x007F007F007F007F) | (word & 0x7F007F007F007F00) >> 1;
    word = (word & 0x00003FFF00003FFF) | (word & 0x3FFF00003FFF0000) >> 2;
    return (word & 0x000000000FFFFFFF) | (word & 0x0FFFFFFF00000000) >> 4;
}

/* Reads a number whose first eight bytes are none of them the last one. */
static inline int64_t read_long(const uint8_t *data, int64_t pos, int64_t end, uint64_t word,
                                uint64_t *value) {
    pos += (int64_t)sizeof word;
    *value = joined(word);
    for (unsigned shift = 56; shift < VARINT_BITS && pos < end; shift += 7) {
        uint8_t byte = data[pos++];
        *value |= (uint64_t)(byte & 0x7F) << shift;
        /* Of a tenth byte one bit is left. */
        if (byte < 0x80) return shift == 63 && byte > 1 ? NOT_PLAIN : pos;
    }
    return NOT_PLAIN;
}

/* Reads a number: the byte behind it. Eight bytes are looked at in one go. */
static inline int64_t read_varint(const uint8_t *data, int64_t pos, int64_t end, uint64_t *value) {
    if (pos < end && data[pos] < 0x80) {
        *value = data[pos];
        return pos + 1;
    }
    if (end - pos < (int64_t)sizeof(uint64_t)) return read_bits(data, pos, end, VARINT_BITS, value);
    uint64_t word = word_at(data + pos);
    uint64_t ends = ~word & 0x8080808080808080;
    if (ends == 0) return read_long(data, pos, end, word, value);
    /* The lowest of these bits, and all below it, are those of the number. */
    *value = joined(word & (ends ^ (ends - 1)));
    return pos + (__builtin_ctzll(ends) >> 3) + 1;
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

/* Tags below this one have rules: those of fields with numbers below 256. */
enum { MOST_TAGS = 1 << 11 };

/* What is done with a field. */
enum { FIELD_UNREAD = 0, FIELD_ROW = 1, FIELD_NUMBER = 2, FIELD_SMALL = 3, FIELD_MESSAGE = 4 };

typedef struct {
    uint16_t what;
    uint16_t slot;  /* of rows; the column of a number */
    uint16_t bit;   /* of the marks, which tell what a message has; all but rows have one */
    uint16_t level; /* FIELD_MESSAGE: where the rules of the fields in it are, further down */
} WireRule;

typedef struct Fields Fields;

typedef struct {
    int64_t rows;
    int32_t status;
} WireSizes;

/* The caller's arrays, of `count` messages of its `stride`. A message with a field that is not
 * plain is marked as left: it has no marks and no rows, and its numbers mean nothing. Columns of
 * numbers begin as zeros: only what a message states is written, of several the last. Of a small
 * number the lower 32 bits count. */
typedef struct {
    int64_t stride;
    int64_t *numbers; /* [columns, stride] */
    int32_t *small;   /* [columns, stride] */
    uint32_t *marks;  /* [count] */
    uint8_t *left;    /* [count] */
} WireNumbers;

/* The caller's arrays. Rows are sorted by slot: those of slot s are edges[s] to edges[s + 1],
 * message by message and in the order of their bytes. */
typedef struct {
    int64_t *edges;   /* [slots + 2]; the last one is not used */
    int32_t *message; /* [rows] */
    int64_t *value;   /* [rows]: a number, or where the content begins */
    int64_t *end;     /* [rows]: the byte behind the field */
    int64_t *unread; /* [MOST_TAGS / 8]: how many messages have a field without a rule, by number */
} WireColumns;

/* Reads the fields of messages by rules [levels, MOST_TAGS]; slots are below `slots`. Messages are
 * given by where their contents begin and end, or, where `ends` is NULL, by the bytes of their
 * tags. NULL where there is no memory for it. Nothing of the caller is kept; the result is to be
 * freed. */
NBPROF_API Fields *nbprof_wire_fields(const uint8_t *data, int64_t length, const int64_t *starts,
                                      const int64_t *ends, int64_t count, const WireRule *rules,
                                      int64_t slots, const WireNumbers *out, WireSizes *sizes);

NBPROF_API void nbprof_wire_columns(const Fields *fields, const WireColumns *out);

NBPROF_API void nbprof_wire_free(Fields *fields);

#endif
