/* Numbers for texts: equal texts get the same one, counted from 0 in the order of their first
 * places. */

#ifndef NBPROF_NAMES_H
#define NBPROF_NAMES_H

#include "memory.h"

/* Where a text is first, in bytes of the data; `quoted` tells the content of a string from bytes
 * that are a text as they stand. */
typedef struct {
    int64_t start;
    int64_t length;
    uint64_t hash;
    int32_t quoted;
} Name;

/* Open addressing: `slots` holds numbers, -1 where it is free, and is at most half full. */
typedef struct {
    ARRAY(Name) names;
    int32_t *slots;
    size_t mask;
} NameTable;

/* Two odd secrets, so that no file can be made whose texts collide. */
typedef struct {
    uint64_t first;
    uint64_t second;
} Seed;

/* The number of the text from `start` to `end`; -1 where there is no memory for it. */
int32_t name_number(NameTable *table, const uint8_t *data, int64_t start, int64_t end, bool quoted,
                    Seed seed);

void free_names(NameTable *table);

#endif
