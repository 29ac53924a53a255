/* Growing arrays. Each has one owner, which frees `items`; a failed allocation leaves it as it was.
 */

#ifndef NBPROF_MEMORY_H
#define NBPROF_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY(type)      \
    struct {             \
        type *items;     \
        size_t count;    \
        size_t capacity; \
    }

/* Room for one more item of `size` bytes. `pointer` is the address of the pointer to the items: its
 * bytes are copied, for a pointer to another type may not be written as a `void *`. Doubles, so
 * that n items cost O(n). */
static inline bool reserve_one(void *pointer, size_t *capacity, size_t count, size_t size) {
    if (count < *capacity) return true;
    if (*capacity > SIZE_MAX / 2 / size) return false;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *items;
    memcpy(&items, pointer, sizeof items);
    void *grown = realloc(items, wanted * size);
    if (grown == NULL) return false;
    memcpy(pointer, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

#define RESERVE_ONE(array) \
    reserve_one(&(array)->items, &(array)->capacity, (array)->count, sizeof *(array)->items)

#endif
