/* Mutates traces and reads them, for a sanitizer to watch: chrome.c of the package is compiled with
 * this file. Input and columns lie in blocks of exactly their size, so that a byte read or written
 * beyond them is seen; what comes out is checked as Python relies on it.
 *
 *     driver SEED FIRST COUNT SECONDS FILE...
 *
 * An input follows from its seed and number: `driver SEED NUMBER 1 60 FILE...` reads it again. */

#include "../../../nbprof/native/chrome.h"

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

static Text seeds[MOST_SEEDS];
static size_t seed_count;
static uint64_t state;
static uint64_t input_number;

static const char *const TOKENS[] = {"\"",
                                     "\\",
                                     "\\\"",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     " ",
                                     "null",
                                     "None",
                                     "true",
                                     "false",
                                     "NaN",
                                     "-inf",
                                     "-",
                                     ".",
                                     "e",
                                     "1e5",
                                     "1e-7",
                                     "0.1",
                                     "-0.0",
                                     "1e308",
                                     "1e-400",
                                     "2.5e+22",
                                     "1e99999",
                                     "\"\"",
                                     "{}",
                                     "[]",
                                     "{},",
                                     "\"ts\":",
                                     "\"dur\":",
                                     "\"args\":{",
                                     "\"ph\":\"X\",",
                                     "\"name\":",
                                     "\"pid\":",
                                     "\"a\":1,",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "999999999999999999",
                                     "9199999999999999.9999999",
                                     "9200000000000000",
                                     "0.0000005",
                                     "123456789012345678.1234567890123456",
                                     "\"12.5\"",
                                     "\xff\xfe",
                                     "\t\r\n",
                                     "}]}",
                                     "],\"x\":"};

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

static void change(Text *text) {
    uint8_t piece[64];
    size_t from = drawn(text->size + 1);
    size_t rest = text->size - from;
    size_t length = drawn((rest < sizeof piece ? rest : sizeof piece) + 1);
    const char *token = TOKENS[drawn(sizeof TOKENS / sizeof *TOKENS)];
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
        case 5: replace(text, from, from, (const uint8_t *)token, strlen(token)); break;
        case 6: replace(text, from, from + length, (const uint8_t *)token, strlen(token)); break;
        default:
            if (drawn(4) == 0) text->size = from;
            break;
    }
}

/* ---- Reading -------------------------------------------------------------------------------- */

static void check_spans(const int64_t *span, int64_t count, int64_t step, int64_t length) {
    for (int64_t i = 0; i < count; i++) {
        int64_t start = span[step * i];
        int64_t end = span[step * i + 1];
        check(0 <= start && start <= end && end <= length, "a span outside of the data");
    }
}

static void check_rows(const ChromeColumns *out, const ChromeSizes *sizes) {
    check(out->edges[0] == 0, "rows do not begin at 0");
    for (int64_t k = 0; k < 2 * sizes->keys; k++) {
        int64_t from = out->edges[k];
        int64_t to = out->edges[k + 1];
        check(from <= to && to <= sizes->rows, "edges that fall");
        for (int64_t i = from; i < to; i++) {
            check(out->event[i] >= 0 && out->event[i] < sizes->events, "a row of no event");
            check(i == from || out->event[i - 1] < out->event[i], "rows out of order");
            check(
                out->kind[i] == 1 || out->kind[i] == 3 || out->kind[i] == 4 || out->kind[i] == 255,
                "an unknown kind");
            bool is_text = out->kind[i] == 4;
            check(!is_text || (out->value[i] >= 0 && out->value[i] < sizes->texts), "no such text");
            bool fits =
                out->kind[i] == 4 || (out->kind[i] == 1 && out->value[i] == (int32_t)out->value[i]);
            check(fits || out->wide[k], "a value that does not fit");
        }
    }
    check(out->edges[2 * sizes->keys] == sizes->rows, "rows of no key");
}

static void check_columns(const ChromeColumns *out, const ChromeSizes *sizes, int64_t length) {
    check_spans(out->span, sizes->events, 2, length);
    check_spans(out->text, sizes->texts, 3, length);
    check_spans(out->key, sizes->keys, 2, length);
    check_spans(out->hard, sizes->hard, 4, length);
    check_rows(out, sizes);
    for (int64_t i = 0; i < sizes->events; i++) {
        check(i == 0 || out->span[2 * i - 1] <= out->span[2 * i], "events that overlap");
        check(out->bad[i] <= 1, "neither good nor bad");
        check(out->phase[i] < 0x80, "a phase that is no letter");
    }
    for (int64_t i = 0; i < 4 * sizes->events; i++)
        check(out->fields[i] >= -1 && out->fields[i] < sizes->texts, "a field of no text");
    for (int64_t i = 0; i < 2 * sizes->events; i++) {
        check(out->ps[i] >= 0 && out->ps[i] < 1000, "ps out of range");
        check(out->state[i] <= 2, "an unknown state");
    }
    for (int64_t i = 0; i < sizes->hard; i++) {
        const int64_t *hard = out->hard + 4 * i;
        check(hard[2] >= 0 && hard[2] < sizes->events, "a hard value of no event");
        check(hard[3] >= -2 && hard[3] < sizes->rows, "a hard value of no row");
        check(hard[3] < 0 || out->kind[hard[3]] == 255, "a hard value at another row");
    }
    check(sizes->end >= 0 && sizes->end <= length, "an end outside of the data");
}

static bool read_text(const Text *text) {
    uint8_t *data = room(text->size);
    memcpy(data, text->bytes, text->size);
    ChromeSizes sizes;
    Scan *scan = nbprof_chrome_scan(data, (int64_t)text->size, drawn(UINT64_MAX), state, &sizes);
    check(scan != NULL && sizes.status != STATUS_NO_MEMORY, "no memory");
    bool even = sizes.status == STATUS_OK;
    if (even) {
        size_t events = (size_t)sizes.events, keys = (size_t)sizes.keys, rows = (size_t)sizes.rows;
        ChromeColumns out = {.span = room(events * 2 * sizeof(int64_t)),
                             .bad = room(events),
                             .phase = room(events),
                             .fields = room(events * 4 * sizeof(int32_t)),
                             .ns = room(events * 2 * sizeof(int64_t)),
                             .ps = room(events * 2 * sizeof(int16_t)),
                             .state = room(events * 2),
                             .rounded = room(events),
                             .text = room((size_t)sizes.texts * 3 * sizeof(int64_t)),
                             .key = room(keys * 2 * sizeof(int64_t)),
                             .wide = room(keys * 2),
                             .edges = room((keys * 2 + 2) * sizeof(int64_t)),
                             .event = room(rows * sizeof(int32_t)),
                             .kind = room(rows),
                             .value = room(rows * sizeof(int64_t)),
                             .hard = room((size_t)sizes.hard * 4 * sizeof(int64_t))};
        nbprof_chrome_columns(scan, &out);
        check_columns(&out, &sizes, (int64_t)text->size);
        void *const blocks[] = {out.span,  out.bad,     out.phase, out.fields, out.ns,   out.ps,
                                out.state, out.rounded, out.text,  out.key,    out.wide, out.edges,
                                out.event, out.kind,    out.value, out.hard};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
    }
    nbprof_chrome_free(scan);
    free(data);
    return even;
}

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || seed_count == MOST_SEEDS) fail(path);
    Text *text = &seeds[seed_count++];
    text->bytes = room(MOST_BYTES);
    text->size = fread(text->bytes, 1, MOST_BYTES, file);
    fclose(file);
}

int main(int count, char **words) {
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
        for (uint64_t changes = 1 + drawn(MOST_CHANGES); changes > 0; changes--) change(&text);
        even += read_text(&text);
        bytes += text.size;
    }
    printf("seed %" PRIu64 ", inputs %" PRIu64 " to %" PRIu64 ": %" PRIu64
           " read to the end, %" PRIu64 " bytes\n",
           seed, first, first + done, even, bytes);
    free(text.bytes);
    for (size_t i = 0; i < seed_count; i++) free(seeds[i].bytes);
    return 0;
}
