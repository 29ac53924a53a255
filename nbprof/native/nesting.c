#include "nesting.h"

/* Sums and differences go round as NumPy's do. */
static inline int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline int64_t less(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* The time that what includes an event has to last to. */
static inline int64_t reach_of(int64_t start, int64_t duration, int64_t slack) {
    int64_t most = duration / 2;
    return less(sum(start, duration), slack < most ? slack : most);
}

/* What is between an event and its parent ends before the event does. Where an event ends too early
 * for the next one, so does all of that: its own parent is tried next. */
void nbprof_nesting_parents(const int32_t *lane, const int64_t *start, const int64_t *duration,
                            int64_t count, int64_t slack, int32_t *parent) {
    for (int64_t i = 0; i < count; i++) {
        int64_t reach = reach_of(start[i], duration[i], slack);
        int64_t outer = i > 0 && lane[i - 1] == lane[i] ? i - 1 : -1;
        while (outer >= 0 && sum(start[outer], duration[outer]) < reach) outer = parent[outer];
        parent[i] = (int32_t)outer;
    }
}

void nbprof_nesting_depths(const int32_t *parent, int64_t count, uint16_t *depth) {
    for (int64_t i = 0; i < count; i++) {
        if (parent[i] < 0 || parent[i] >= i)
            depth[i] = 0;
        else
            depth[i] = (uint16_t)(depth[parent[i]] + (depth[parent[i]] < UINT16_MAX));
    }
}

void nbprof_nesting_self_times(const int32_t *parent, const int64_t *duration, int64_t count,
                               int64_t *self) {
    for (int64_t i = 0; i < count; i++) self[i] = duration[i];
    for (int64_t i = 0; i < count; i++) {
        if (parent[i] >= 0 && parent[i] < count)
            self[parent[i]] = less(self[parent[i]], duration[i]);
    }
}

/* The open begins of a track are a chain: `other` of each is the one around it. */
void nbprof_nesting_pairs(const int32_t *track, const uint8_t *begins, const int64_t *places,
                          int64_t count, int32_t *open, int64_t tracks, int32_t *other) {
    for (int64_t t = 0; t < tracks; t++) open[t] = -1;
    for (int64_t i = 0; i < count; i++) {
        int32_t place = (int32_t)places[i];
        int32_t *innermost = &open[track[place]];
        int32_t begin = *innermost;
        other[place] = begin;
        if (begins[place]) {
            *innermost = place;
        } else if (begin >= 0) {
            *innermost = other[begin];
            other[begin] = place;
        }
    }
    for (int64_t t = 0; t < tracks; t++) {
        for (int32_t begin = open[t]; begin >= 0;) {
            int32_t around = other[begin];
            other[begin] = -1;
            begin = around;
        }
    }
}
