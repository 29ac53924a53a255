/* Nesting of the events of lanes, which are sorted by lane, start and descending duration. */

#ifndef NBPROF_NESTING_H
#define NBPROF_NESTING_H

#include "api.h"

/* The nearest event before each in its lane that ends no earlier, -1 where there is none. An event
 * may run past it by `slack`, at most by half of its own duration. */
NBPROF_API void nbprof_nesting_parents(const int32_t *lane, const int64_t *start,
                                       const int64_t *duration, int64_t count, int64_t slack,
                                       int32_t *parent);

/* How many events are around each, at most UINT16_MAX. Parents come before what is in them. */
NBPROF_API void nbprof_nesting_depths(const int32_t *parent, int64_t count, uint16_t *depth);

/* The duration of each less that of the events directly in it. */
NBPROF_API void nbprof_nesting_self_times(const int32_t *parent, const int64_t *duration,
                                          int64_t count, int64_t *self);

/* Begins and ends of slices that are nested on each of `tracks` tracks: an end closes the begin
 * that was opened last. `places` are those of all begins and ends in their order. At the place of a
 * begin `other` gets that of its end, and the other way round; -1 for one that has no other.
 * `open` [tracks] is scratch. */
NBPROF_API void nbprof_nesting_pairs(const int32_t *track, const uint8_t *begins,
                                     const int64_t *places, int64_t count, int32_t *open,
                                     int64_t tracks, int32_t *other);

#endif
