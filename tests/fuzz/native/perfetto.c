/* The reader of Perfetto traces: wire.c and nesting.c of the package are compiled with this file.
 * An input is some packets. Input and columns lie in blocks of exactly their size, so that a byte
 * read or written beyond them is seen; what comes out is checked as Python relies on it. */

#include "../../../nbprof/native/nesting.h"
#include "driver.h"
#include "messages.h"

enum { PACKET_TAG = 0x0A, LEVELS = 3, SLOTS = 24, NUMBERS = 4, SMALL = 4, STRANGE = 4 };

static const Token TOKENS[] = {
    TOKEN("\x0a"),
    TOKEN("\x0a\x00"),
    TOKEN("\x0a\x02\x40\x05"),
    TOKEN("\x40\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
    TOKEN("\x40\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"),
    TOKEN("\x40\xff\xff\xff\xff\xff\xff\xff\x7f"),
    TOKEN("\x50\x07"),
    TOKEN("\x5a\x04\x48\x01\x50\x02"),
    TOKEN("\x5a\x84\x80\x80\x00\x48\x01\x50\x02"),
    TOKEN("\x5a\x00"),
    TOKEN("\x5a\xff\xff\xff\xff\x07"),
    TOKEN("\x5a\x80\x80\x80\x80\x80\x00"),
    TOKEN("\x58\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    TOKEN("\xf9\x02"
          "abcdefgh"),
    TOKEN("\xfd\x02"
          "abcd"),
    TOKEN("\x22\x02\x08\x01"),
    TOKEN("\xaa\x03\x02\x08\x01"),
    TOKEN("\xd0\x00"),
    TOKEN("\xf8\x0f\x01"),
    TOKEN("\x80\x10\x01"),
    TOKEN("\xff\xff\xff\xff\x0f"),
    TOKEN("\x7b\x7c"),
    TOKEN("\xff"),
    TOKEN("\x80"),
};

static WireRule rules[LEVELS][MOST_TAGS];

/* Those that a trace is read by, and some others. */
static void make_rules(void) {
    for (uint16_t level = 0; level < LEVELS; level++)
        for (uint16_t t = 0; t < MOST_TAGS; t++)
            if (t % 3 > 0) rules[level][t] = (WireRule){FIELD_ROW, t % SLOTS, 0, 0};
    rules[0][0x40] = (WireRule){FIELD_NUMBER, 0, 0, 0};
    rules[0][0x50] = (WireRule){FIELD_SMALL, 0, 1, 0};
    rules[0][0x68] = (WireRule){FIELD_SMALL, 1, 2, 0};
    rules[0][0x5A] = (WireRule){FIELD_MESSAGE, 0, 3, 1};
    rules[1][0x50] = (WireRule){FIELD_NUMBER, 1, 4, 0};
    rules[1][0x58] = (WireRule){FIELD_NUMBER, 2, 5, 0};
    rules[1][0x48] = (WireRule){FIELD_SMALL, 2, 6, 0};
    rules[1][0x22] = (WireRule){FIELD_MESSAGE, 0, 7, 2};
    rules[2][0x08] = (WireRule){FIELD_NUMBER, 3, 30, 0};
    rules[2][0x20] = (WireRule){FIELD_SMALL, 3, 31, 0};
    /* Those of a message that is no further down are not followed. */
    rules[2][0x5A] = (WireRule){FIELD_MESSAGE, 0, 8, 1};
}

/* Begins and ends on four tracks. */
static void pair(const uint8_t *data, int64_t count) {
    enum { TRACKS = 4 };
    size_t size = (size_t)count;
    int32_t *track = room(size * sizeof *track), *other = room(size * sizeof *other);
    int32_t *open = room(TRACKS * sizeof *open);
    uint8_t *begins = room(size);
    int64_t *places = room(size * sizeof *places);
    for (int64_t i = 0; i < count; i++) {
        track[i] = data[i] % TRACKS;
        begins[i] = data[i] >> 7;
        places[i] = i;
    }
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t from = (int64_t)drawn(8), place = places[i];
        if (from > i) continue;
        places[i] = places[i - from];
        places[i - from] = place;
    }
    nbprof_nesting_pairs(track, begins, places, count, open, TRACKS, other);
    for (int64_t i = 0; i < count; i++) {
        check(other[i] >= -1 && other[i] < count, "a half outside of the data");
        if (other[i] < 0) continue;
        check(other[other[i]] == i, "a half of another one");
        check(begins[i] != begins[other[i]], "two begins or two ends");
        check(track[i] == track[other[i]], "a half on another track");
    }
    free(track);
    free(other);
    free(open);
    free(begins);
    free(places);
}

static bool read_packets(const Text *text) {
    uint8_t *data = room(text->size);
    memcpy(data, text->bytes, text->size);
    int64_t length = (int64_t)text->size, count, reached;
    if (drawn(2)) fit(data, 0, length, PACKET_TAG);
    const Plan plan = {rules[0], SLOTS, NUMBERS, SMALL};
    int64_t *starts = follow(data, length, PACKET_TAG, &count, &reached);
    bool even = read_fields(data, length, starts, NULL, count, &plan) && reached == length;
    /* Places that nothing leads to. */
    int64_t strange[STRANGE], ends[STRANGE];
    for (size_t i = 0; i < STRANGE; i++) {
        strange[i] = (int64_t)drawn(text->size + 8) - 4;
        ends[i] = (int64_t)drawn(text->size + 8) - 4;
    }
    read_fields(data, length, strange, NULL, STRANGE, &plan);
    read_fields(data, length, strange, ends, STRANGE, &plan);
    pair(data, length);
    free(starts);
    free(data);
    return even;
}

int main(int count, char **words) {
    make_rules();
    return fuzz(count, words, TOKENS, sizeof TOKENS / sizeof *TOKENS, read_packets);
}
