/* Reads a stretch of the list of events of a Chrome trace: JSON to columns, in one pass.
 *
 * The stretch begins in the list, outside of events. What is plain JSON is read here. An event with
 * anything else in it (a key twice or with an escape, a quote in a name) is marked as bad, and a
 * word that is no plain number is listed as hard: Python reads those by themselves, with repairs.
 * Where not even the end of an event is certain the stretch is refused.
 *
 * No figure is rounded that the file has exactly: times are integers, and a decimal becomes a
 * double here only where one division or multiplication of exact doubles gives the nearest one.
 */

#ifndef NBPROF_CHROME_H
#define NBPROF_CHROME_H

#include "api.h"

typedef struct Scan Scan;

/* How many there are of each, which is what the caller makes room for; `end` is the byte behind the
 * last event, or behind the bracket that closes the list if `closed`. */
typedef struct {
    int64_t events;
    int64_t texts;
    int64_t keys;
    int64_t rows;
    int64_t hard;
    int64_t end;
    int32_t closed;
    int32_t status;
} ChromeSizes;

/* The caller's arrays. Rows are sorted by key: those of key k are edges[2 k] .. edges[2 k + 1]
 * where it is a field of events, and to edges[2 k + 2] where it is one of their args. */
typedef struct {
    int64_t *span;    /* [events, 2]: the first byte, and the one behind the last */
    uint8_t *bad;     /* [events] */
    uint8_t *phase;   /* [events]: 0 where there is none */
    int32_t *fields;  /* [4, events]: numbers of texts, -1 where there is none */
    int64_t *ns;      /* [2, events]: of ts and dur */
    int16_t *ps;      /* [2, events]: beyond ns, 0 to 999 */
    uint8_t *state;   /* [2, events] */
    uint8_t *rounded; /* [events]: how many of the times */
    int64_t *text;    /* [texts, 3]: start, end, whether it is the content of a string */
    int64_t *key;     /* [keys, 2]: start, end */
    uint8_t *wide;    /* [2 keys]: whether a value needs 64 bits */
    int64_t *edges;   /* [2 keys + 2] */
    int32_t *event;   /* [rows] */
    uint8_t *kind;    /* [rows] */
    int64_t *value;   /* [rows] */
    int64_t *hard;    /* [hard, 4]: start, end, event, and the row, or -1 for ts, -2 for dur */
} ChromeColumns;

/* NULL where there is no memory for it. The data is not kept; the result is to be freed. */
NBPROF_API Scan *nbprof_chrome_scan(const uint8_t *data, int64_t length, uint64_t seed_first,
                                    uint64_t seed_second, ChromeSizes *sizes);

NBPROF_API void nbprof_chrome_columns(const Scan *scan, const ChromeColumns *out);

NBPROF_API void nbprof_chrome_free(Scan *scan);

#endif
