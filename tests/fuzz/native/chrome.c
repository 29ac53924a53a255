/* The reader of Chrome traces: chrome.c of the package is compiled with this file. Input and
 * columns lie in blocks of exactly their size, so that a byte read or written beyond them is seen;
 * what comes out is checked as Python relies on it. */

#include "../../../nbprof/native/chrome.h"

#include "driver.h"

static const Token TOKENS[] = {
    TOKEN("\""),
    TOKEN("\\"),
    TOKEN("\\\""),
    TOKEN("{"),
    TOKEN("}"),
    TOKEN("["),
    TOKEN("]"),
    TOKEN(","),
    TOKEN(":"),
    TOKEN(" "),
    TOKEN("null"),
    TOKEN("None"),
    TOKEN("true"),
    TOKEN("false"),
    TOKEN("NaN"),
    TOKEN("-inf"),
    TOKEN("-"),
    TOKEN("."),
    TOKEN("e"),
    TOKEN("1e5"),
    TOKEN("1e-7"),
    TOKEN("0.1"),
    TOKEN("-0.0"),
    TOKEN("1e308"),
    TOKEN("1e-400"),
    TOKEN("2.5e+22"),
    TOKEN("1e99999"),
    TOKEN("\"\""),
    TOKEN("{}"),
    TOKEN("[]"),
    TOKEN("{},"),
    TOKEN("\"ts\":"),
    TOKEN("\"dur\":"),
    TOKEN("\"args\":{"),
    TOKEN("\"ph\":\"X\","),
    TOKEN("\"name\":"),
    TOKEN("\"pid\":"),
    TOKEN("\"a\":1,"),
    TOKEN("9223372036854775807"),
    TOKEN("18446744073709551616"),
    TOKEN("999999999999999999"),
    TOKEN("9199999999999999.9999999"),
    TOKEN("9200000000000000"),
    TOKEN("0.0000005"),
    TOKEN("123456789012345678.1234567890123456"),
    TOKEN("\"12.5\""),
    TOKEN("\xff\xfe"),
    TOKEN("\t\r\n"),
    TOKEN("}]}"),
    TOKEN("],\"x\":"),
};

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

int main(int count, char **words) {
    return fuzz(count, words, TOKENS, sizeof TOKENS / sizeof *TOKENS, read_text);
}
