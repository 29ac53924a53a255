/* Reads events of an XSpace (xplane.proto of the OpenXLA project): their ids, times and stats.
 *
 * Where an event begins is known (`nbprof_wire_messages`). What profilers write is read here. An
 * event with any other field, or one that does not fit its length to the byte, is marked as left,
 * and nothing of it is among the columns: Python reads it, in all that the format allows, or says
 * what is wrong with it.
 */

#ifndef NBPROF_XSPACE_H
#define NBPROF_XSPACE_H

#include "api.h"

enum { MOST_EVENTS = 1 << 16 };

typedef struct Batch Batch;

/* How many there are of each, which is what the caller makes room for. */
typedef struct {
    int64_t stats;
    int64_t groups;
    int64_t texts;
    int64_t left;
    int32_t status;
} XspaceSizes;

/* The caller's arrays of the events, which are [events] each; 0 where an event states nothing. */
typedef struct {
    int64_t *meta;
    int64_t *offset;
    int64_t *duration;
    uint8_t *left;
} XspaceEvents;

/* The caller's arrays of the stats. Those of one id and type are a group: rows edges[g] to
 * edges[g + 1] are those of group g, in the order of their events. Values are as the file has them,
 * a double by its bits; for texts and bytes, the number of the text. */
typedef struct {
    int64_t *ident;  /* [groups] */
    int32_t *tag;    /* [groups] */
    int64_t *edges;  /* [groups + 2]; the last one is not used */
    uint16_t *row;   /* [stats] */
    uint64_t *value; /* [stats] */
    int64_t *text;   /* [texts, 2]: start and end of each one's first place */
} XspaceStats;

/* Reads up to `MOST_EVENTS` events by the bytes of their tags. NULL where there is no memory for
 * it. The data is not kept; the result is to be freed. */
NBPROF_API Batch *nbprof_xspace_events(const uint8_t *data, int64_t length, const int64_t *starts,
                                       int64_t count, uint64_t seed_first, uint64_t seed_second,
                                       const XspaceEvents *out, XspaceSizes *sizes);

NBPROF_API void nbprof_xspace_stats(const Batch *batch, const XspaceStats *out);

NBPROF_API void nbprof_xspace_free(Batch *batch);

#endif
