/* What drivers share: seeds are mutated and read, for a sanitizer to watch.
 *
 *     driver SEED FIRST COUNT SECONDS FILE...
 *
 * An input follows from its seed and number: `driver SEED NUMBER 1 60 FILE...` reads it again. */

#ifndef NBPROF_FUZZ_DRIVER_H
#define NBPROF_FUZZ_DRIVER_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 1 << 14, MOST_SEEDS = 256, MOST_CHANGES = 6 };

typedef struct {
    uint8_t *bytes;
    size_t size;
} Text;

/* What is put into an input, beside its own bytes. */
typedef struct {
    const char *bytes;
    size_t size;
} Token;

#define TOKEN(text) {text, sizeof text - 1}

static Text seeds[MOST_SEEDS];
static size_t seed_count;
static uint64_t state;
static uint64_t input_number;

/* xorshift64*; the state is never 0. */
static uint64_t drawn(uint64_t below) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545F4914F6CDD1DU >> 11) % below;
}

static void fail(const char *what) {
    fprintf(stderr, "input %" PRIu64 ": %s\n", input_number, what);
    abort();
}

static void check(bool holds, const char *what) {
    if (!holds) fail(what);
}

static void *room(size_t size) {
    void *block = malloc(size ? size : 1);
    if (block == NULL) fail("no memory");
    return block;
}

/* ---- Mutation ------------------------------------------------------------------------------- */

/* Puts `size` bytes in place of those from `from` to `to`. */
static void replace(Text *text, size_t from, size_t to, const uint8_t *bytes, size_t size) {
    if (text->size - (to - from) + size > MOST_BYTES) return;
    memmove(text->bytes + from + size, text->bytes + to, text->size - to);
    memcpy(text->bytes + from, bytes, size);
    text->size += size - (to - from);
}

static void change(Text *text, const Token *tokens, size_t token_count) {
    uint8_t piece[64];
    size_t from = drawn(text->size + 1);
    size_t rest = text->size - from;
    size_t length = drawn((rest < sizeof piece ? rest : sizeof piece) + 1);
    const Token *token = &tokens[drawn(token_count)];
    const uint8_t *bytes = (const uint8_t *)token->bytes;
    memcpy(piece, text->bytes + from, length);
    switch (drawn(8)) {
        case 0:
            if (rest) text->bytes[from] ^= (uint8_t)(1U << drawn(8));
            break;
        case 1:
            if (rest) text->bytes[from] = (uint8_t)drawn(256);
            break;
        case 2: replace(text, from, from + length, piece, 0); break;
        case 3: replace(text, from, from, piece, length); break;
        case 4: {
            size_t place = drawn(text->size + 1);
            replace(text, place, place, piece, length);
            break;
        }
        case 5: replace(text, from, from, bytes, token->size); break;
        case 6: replace(text, from, from + length, bytes, token->size); break;
        default:
            if (drawn(4) == 0) text->size = from;
            break;
    }
}

/* ---- The loop ------------------------------------------------------------------------------- */

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || seed_count == MOST_SEEDS) fail(path);
    Text *text = &seeds[seed_count++];
    text->bytes = room(MOST_BYTES);
    text->size = fread(text->bytes, 1, MOST_BYTES, file);
    fclose(file);
}

/* Reads mutated seeds by `read`, which tells whether an input could be read to its end. */
static int fuzz(int count, char **words, const Token *tokens, size_t token_count,
                bool (*read)(const Text *)) {
    if (count < 6) fail("SEED FIRST COUNT SECONDS FILE...");
    uint64_t seed = strtoull(words[1], NULL, 10);
    uint64_t first = strtoull(words[2], NULL, 10);
    uint64_t wanted = strtoull(words[3], NULL, 10);
    time_t until = time(NULL) + (time_t)strtoll(words[4], NULL, 10);
    for (int i = 5; i < count; i++) load(words[i]);
    Text text = {room(MOST_BYTES), 0};
    uint64_t done = 0, even = 0, bytes = 0;
    for (; done < wanted && (done % 256 != 0 || time(NULL) < until); done++) {
        input_number = first + done;
        state = (seed * 0x9E3779B97F4A7C15U ^ input_number * 0xD1B54A32D192ED03U) | 1;
        for (int i = 0; i < 4; i++) drawn(2);
        const Text *from = &seeds[drawn(seed_count)];
        memcpy(text.bytes, from->bytes, from->size);
        text.size = from->size;
        for (uint64_t changes = 1 + drawn(MOST_CHANGES); changes > 0; changes--)
            change(&text, tokens, token_count);
        even += read(&text);
        bytes += text.size;
    }
    printf("seed %" PRIu64 ", inputs %" PRIu64 " to %" PRIu64 ": %" PRIu64
           " read to the end, %" PRIu64 " bytes\n",
           seed, first, first + done, even, bytes);
    free(text.bytes);
    for (size_t i = 0; i < seed_count; i++) free(seeds[i].bytes);
    return 0;
}

#endif
