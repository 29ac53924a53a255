#include "chrome.h"

#include <float.h>

#include "names.h"

/* Kinds of values as nbprof.core.trace has them; `HARD` is for Python to read. */
enum { NO_VALUE = 0, KIND_INT = 1, KIND_DOUBLE = 3, KIND_TEXT = 4, KIND_HARD = 255 };
/* States of times as nbprof.formats.chrome.part has them; an absent one is 0. */
enum { TIME_GOOD = 1, TIME_BAD = 2 };
/* What a key of an event means; the first four are the columns of texts. */
enum { ROLE_NAME, ROLE_CAT, ROLE_PID, ROLE_TID, ROLE_TS, ROLE_DUR, ROLE_PH, ROLE_ARGS, ROLE_OTHER };

enum { TEXT_FIELDS = 4, MOST_DIGITS = 18, MOST_DECIMALS = 16, MOST_DEPTH = 512, BROKEN = -1 };

/* From here on ns would not fit into 64 bits. */
#define FARTHEST_US 9200000000000000

typedef struct {
    int64_t start;
    int64_t end;
    int64_t ns[2];
    int32_t text[TEXT_FIELDS];
    int16_t ps[2];
    uint8_t state[2];
    uint8_t phase;
    uint8_t rounded;
    uint8_t bad;
} Event;

/* What is known of a key, beside its name. The last event with it, as a field and as an arg, tells
 * keys that come twice. */
typedef struct {
    int32_t last[2];
    int32_t next; /* the key that followed it last; -1 where none has */
    uint8_t wide[2];
    uint8_t role;
} Key;

typedef struct {
    int64_t value;
    int32_t key; /* twice its number, and 1 more for args */
    int32_t event;
    uint8_t kind;
} Row;

typedef struct {
    int64_t start;
    int64_t end;
    int64_t row; /* or -1 for the ts, -2 for the dur of the event */
    int32_t event;
} Hard;

struct Scan {
    const uint8_t *data;
    int64_t length;
    Seed seed;
    int64_t pos; /* between events: how far they are read */
    int32_t previous_key;
    bool closed;
    bool no_memory;
    ARRAY(Event) events;
    ARRAY(Row) rows;
    ARRAY(Key) keys;
    ARRAY(Hard) hard;
    NameTable texts;
    NameTable key_names;
};

static const int64_t POWERS[] = {1,
                                 10,
                                 100,
                                 1000,
                                 10000,
                                 100000,
                                 1000000,
                                 10000000,
                                 100000000,
                                 1000000000,
                                 10000000000,
                                 100000000000,
                                 1000000000000,
                                 10000000000000,
                                 100000000000000,
                                 1000000000000000};

/* The powers of ten that are doubles exactly. */
static const double EXACT_POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { MOST_EXACT_POWER = 22, MOST_EXACT_DIGITS = 15 };

/* ---- Bytes -------------------------------------------------------------------------------- */

/* The byte at a place; behind the end one that nothing goes on with. */
static inline uint8_t at(const Scan *scan, int64_t pos) {
    return pos < scan->length ? scan->data[pos] : 0xFF;
}

static inline bool is_space(uint8_t byte) { return byte <= ' '; }

static inline bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') <= 9; }

/* Whether a number or another word goes on with a byte. */
static inline bool is_word(uint8_t byte) {
    switch (byte) {
        case ',':
        case ':':
        case '"':
        case '[':
        case ']':
        case '{':
        case '}': return false;
        default: return !is_space(byte);
    }
}

static inline int64_t after_spaces(const Scan *scan, int64_t pos) {
    while (pos < scan->length && is_space(scan->data[pos])) pos++;
    return pos;
}

/* Not zero where one of eight bytes equals `byte`. */
static inline uint64_t any_equal(uint64_t word, uint8_t byte) {
    uint64_t zero_there = word ^ (0x0101010101010101U * byte);
    return (zero_there - 0x0101010101010101U) & ~zero_there & 0x8080808080808080U;
}

/* The first place from `pos` on with a quote or a backslash, or the end. */
static int64_t quote_or_backslash(const Scan *scan, int64_t pos) {
    const uint8_t *data = scan->data;
    uint64_t word;
    for (; pos + (int64_t)sizeof word <= scan->length; pos += (int64_t)sizeof word) {
        memcpy(&word, data + pos, sizeof word);
        if (any_equal(word, '"') | any_equal(word, '\\')) break;
    }
    while (pos < scan->length && data[pos] != '"' && data[pos] != '\\') pos++;
    return pos;
}

/* The quote that closes a string whose content begins at `pos`. */
static int64_t closing_quote(const Scan *scan, int64_t pos, bool *escaped) {
    for (;;) {
        pos = quote_or_backslash(scan, pos);
        if (pos >= scan->length) return BROKEN;
        if (scan->data[pos] == '"') return pos;
        *escaped = true;
        pos += 2;
    }
}

/* The byte behind the list or object at `pos`: brackets and quotes pair up in it, no more is asked
 * of it. */
static int64_t after_container(const Scan *scan, int64_t pos) {
    uint8_t open[MOST_DEPTH]; /* the bracket that closes each */
    int depth = 0;
    for (; pos < scan->length; pos++) {
        uint8_t byte = scan->data[pos];
        if (byte == '"') {
            bool escaped = false;
            pos = closing_quote(scan, pos + 1, &escaped);
            if (pos < 0) return BROKEN;
        } else if (byte == '{' || byte == '[') {
            if (depth == MOST_DEPTH) return BROKEN;
            /* In ASCII both pairs are two apart. */
            open[depth++] = (uint8_t)(byte + 2);
        } else if (byte == '}' || byte == ']') {
            if (depth == 0 || open[--depth] != byte) return BROKEN;
            if (depth == 0) return pos + 1;
        }
    }
    return BROKEN;
}

/* The byte behind the word at `pos`. */
static int64_t after_word(const Scan *scan, int64_t pos) {
    int64_t end = pos;
    while (end < scan->length && is_word(scan->data[end])) end++;
    return end == pos || end == scan->length ? BROKEN : end;
}

static bool word_is(const Scan *scan, int64_t pos, int64_t end, const char *word) {
    size_t length = strlen(word);
    return (size_t)(end - pos) == length && memcmp(scan->data + pos, word, length) == 0;
}

static bool is_null(const Scan *scan, int64_t pos, int64_t end) {
    return word_is(scan, pos, end, "null") || word_is(scan, pos, end, "None");
}

/* ---- Texts and keys ----------------------------------------------------------------------- */

/* The number of a text; BROKEN, with `no_memory` set, where there is no room for it. */
static int32_t text_number(Scan *scan, int64_t start, int64_t end, bool quoted) {
    int32_t number = name_number(&scan->texts, scan->data, start, end, quoted, scan->seed);
    if (number < 0) scan->no_memory = true;
    return number;
}

static uint8_t role_of(const uint8_t *name, int64_t length) {
    static const struct {
        const char *name;
        uint8_t role;
    } ROLES[] = {{"name", ROLE_NAME}, {"cat", ROLE_CAT}, {"pid", ROLE_PID}, {"tid", ROLE_TID},
                 {"ts", ROLE_TS},     {"dur", ROLE_DUR}, {"ph", ROLE_PH},   {"args", ROLE_ARGS}};
    for (size_t i = 0; i < sizeof ROLES / sizeof *ROLES; i++) {
        size_t wanted = strlen(ROLES[i].name);
        if ((size_t)length == wanted && memcmp(name, ROLES[i].name, wanted) == 0)
            return ROLES[i].role;
    }
    return ROLE_OTHER;
}

/* The number of the key from `start` to `end`; BROKEN where there is no memory for it. */
static int32_t key_number(Scan *scan, int64_t start, int64_t end) {
    int32_t number = name_number(&scan->key_names, scan->data, start, end, true, scan->seed);
    if (number < 0 || !RESERVE_ONE(&scan->keys)) {
        scan->no_memory = true;
        return BROKEN;
    }
    if ((size_t)number == scan->keys.count)
        scan->keys.items[scan->keys.count++] =
            (Key){{-1, -1}, -1, {0, 0}, role_of(scan->data + start, end - start)};
    return number;
}

/* Whether the string whose content begins at `pos` is a key that is known. A key has neither quotes
 * nor backslashes in it, so that the quote behind it is the one that closes it. */
static bool is_key(const Scan *scan, int32_t number, int64_t pos) {
    const Name *name = &scan->key_names.names.items[number];
    return name->length < scan->length - pos && scan->data[pos + name->length] == '"' &&
           memcmp(scan->data + pos, scan->data + name->start, (size_t)name->length) == 0;
}

/* The number of the key whose opening quote is at `pos`, and the byte behind its closing one.
 * Events of a kind have the same keys in the same order: mostly it is the one that followed the key
 * before it the last time. */
static int32_t key_at(Scan *scan, int64_t pos, int64_t *behind) {
    int32_t previous = scan->previous_key;
    int32_t number = previous < 0 ? -1 : scan->keys.items[previous].next;
    if (number >= 0 && is_key(scan, number, pos + 1)) {
        *behind = pos + 2 + scan->key_names.names.items[number].length;
    } else {
        bool escaped = false;
        int64_t quote = closing_quote(scan, pos + 1, &escaped);
        if (quote < 0 || escaped) return BROKEN;
        number = key_number(scan, pos + 1, quote);
        if (number < 0) return BROKEN;
        if (previous >= 0) scan->keys.items[previous].next = number;
        *behind = quote + 1;
    }
    scan->previous_key = number;
    return number;
}

/* ---- Numbers ------------------------------------------------------------------------------ */

/* A run of digits: its value as far as `most` of them go. */
static int64_t digits_at(const Scan *scan, int64_t pos, int most, int64_t *value) {
    int64_t begin = pos;
    *value = 0;
    for (; is_digit(at(scan, pos)); pos++) {
        if (pos - begin < most) *value = *value * 10 + (scan->data[pos] - '0');
    }
    return pos;
}

typedef struct {
    int64_t whole;
    int64_t part; /* the digits behind the point */
    int64_t end;
    int digits; /* of `whole` */
    int decimals;
    bool negative;
    bool good; /* not where it has no digits, or more than the integers hold */
} Decimal;

static Decimal decimal_at(const Scan *scan, int64_t pos) {
    Decimal found = {.negative = at(scan, pos) == '-'};
    pos += found.negative;
    found.end = digits_at(scan, pos, MOST_DIGITS, &found.whole);
    int64_t digits = found.end - pos;
    found.good = digits > 0 && digits <= MOST_DIGITS;
    int64_t decimals = 0;
    if (at(scan, found.end) == '.') {
        pos = found.end + 1;
        found.end = digits_at(scan, pos, MOST_DECIMALS, &found.part);
        decimals = found.end - pos;
        found.good = found.good && decimals > 0 && decimals <= MOST_DECIMALS;
    }
    if (found.good) {
        found.digits = (int)digits;
        found.decimals = (int)decimals;
    }
    return found;
}

/* The exponent at `pos`, 0 where there is none; the byte behind it. Many digits are one too large
 * for any use. */
static int64_t exponent_at(const Scan *scan, int64_t pos, int *exponent) {
    *exponent = 0;
    if ((at(scan, pos) | 0x20) != 'e') return pos;
    bool negative = at(scan, pos + 1) == '-';
    int64_t begin = pos + 1 + (negative || at(scan, pos + 1) == '+');
    int64_t value;
    int64_t end = digits_at(scan, begin, 4, &value);
    if (end == begin) return pos; /* "1e": a word */
    *exponent = negative ? -(int)value : (int)value;
    if (end - begin > 4) *exponent = INT16_MAX;
    return end;
}

/* Whether a decimal is the nearest double after one exact step, which is then in `value`. */
static bool exact_double(const Decimal *decimal, int exponent, double *value) {
    /* Where doubles are computed with more bits they are rounded twice. */
    if (FLT_EVAL_METHOD != 0) return false;
    if (decimal->digits + decimal->decimals > MOST_EXACT_DIGITS) return false;
    exponent -= decimal->decimals;
    if (exponent < -MOST_EXACT_POWER || exponent > MOST_EXACT_POWER) return false;
    double result = (double)(decimal->whole * POWERS[decimal->decimals] + decimal->part);
    if (exponent < 0)
        result /= EXACT_POWERS[-exponent];
    else
        result *= EXACT_POWERS[exponent];
    *value = decimal->negative ? -result : result;
    return true;
}

/* Puts a decimal of microseconds into an event, rounded half up to picoseconds. */
static void put_time(Event *event, int which, const Decimal *decimal) {
    int64_t below = decimal->part; /* ps of what is below a microsecond */
    if (decimal->decimals <= 6) {
        below *= POWERS[6 - decimal->decimals];
    } else {
        int64_t scale = POWERS[decimal->decimals - 6];
        event->rounded = (uint8_t)(event->rounded + (below % scale != 0));
        below = (below + scale / 2) / scale;
    }
    int64_t ns = decimal->whole * 1000 + below / 1000;
    int64_t ps = below % 1000;
    if (decimal->negative) {
        ns = -ns - (ps > 0);
        ps = ps > 0 ? 1000 - ps : 0;
    }
    event->ns[which] = ns;
    event->ps[which] = (int16_t)ps;
    event->state[which] = TIME_GOOD;
}

/* ---- Values ------------------------------------------------------------------------------- */

typedef struct {
    int64_t value;
    int64_t start;
    int64_t end;
    uint8_t kind;
} Value;

/* A number, if a plain one is all that is at `pos`. */
static bool number_at(const Scan *scan, int64_t pos, Value *value) {
    Decimal decimal = decimal_at(scan, pos);
    if (!decimal.good) return false;
    int exponent;
    value->end = exponent_at(scan, decimal.end, &exponent);
    if (is_word(at(scan, value->end))) return false;
    if (decimal.decimals == 0 && value->end == decimal.end) {
        value->kind = KIND_INT;
        value->value = decimal.negative ? -decimal.whole : decimal.whole;
        return true;
    }
    double number;
    if (!exact_double(&decimal, exponent, &number)) return false;
    value->kind = KIND_DOUBLE;
    memcpy(&value->value, &number, sizeof number);
    return true;
}

static Value word_at(const Scan *scan, int64_t pos) {
    Value value = {0, pos, after_word(scan, pos), KIND_HARD};
    if (value.end < 0) return value;
    if (word_is(scan, pos, value.end, "true")) {
        value.kind = KIND_INT;
        value.value = 1;
    } else if (word_is(scan, pos, value.end, "false")) {
        value.kind = KIND_INT;
    } else if (is_null(scan, pos, value.end)) {
        value.kind = NO_VALUE;
    }
    return value;
}

/* The text that is at `pos` as a string, a list or an object; `end` is BROKEN where it is broken.
 */
static Value text_at(Scan *scan, int64_t pos) {
    Value value = {0, pos, BROKEN, KIND_TEXT};
    int32_t number;
    if (at(scan, pos) == '"') {
        bool escaped = false;
        int64_t quote = closing_quote(scan, pos + 1, &escaped);
        if (quote < 0) return value;
        number = text_number(scan, pos + 1, quote, true);
        value.end = quote + 1;
    } else {
        int64_t end = after_container(scan, pos);
        if (end < 0) return value;
        number = text_number(scan, pos, end, false);
        value.end = end;
    }
    if (number < 0) value.end = BROKEN;
    value.value = number;
    return value;
}

static inline bool begins_text(uint8_t byte) { return byte == '"' || byte == '{' || byte == '['; }

static Value value_at(Scan *scan, int64_t pos) {
    uint8_t first = at(scan, pos);
    if (begins_text(first)) return text_at(scan, pos);
    Value value = {0, pos, BROKEN, KIND_HARD};
    if ((is_digit(first) || first == '-') && number_at(scan, pos, &value)) return value;
    return word_at(scan, pos);
}

static bool add_hard(Scan *scan, int64_t start, int64_t end, int64_t row, int32_t event) {
    if (!RESERVE_ONE(&scan->hard)) {
        scan->no_memory = true;
        return false;
    }
    scan->hard.items[scan->hard.count++] = (Hard){start, end, row, event};
    return true;
}

/* A hard one may turn out to be anything. */
static bool needs_64_bits(const Value *value) {
    if (value->kind == KIND_TEXT) return false;
    return value->kind != KIND_INT || value->value < INT32_MIN || value->value > INT32_MAX;
}

static bool add_row(Scan *scan, int32_t key, int is_arg, int32_t event, const Value *value) {
    if (value->kind == NO_VALUE) return true;
    if (!RESERVE_ONE(&scan->rows)) {
        scan->no_memory = true;
        return false;
    }
    if (value->kind == KIND_HARD &&
        !add_hard(scan, value->start, value->end, (int64_t)scan->rows.count, event))
        return false;
    scan->rows.items[scan->rows.count++] =
        (Row){value->value, 2 * key + is_arg, event, value->kind};
    if (needs_64_bits(value)) scan->keys.items[key].wide[is_arg] = 1;
    return true;
}

/* ---- Events ------------------------------------------------------------------------------- */

/* Of each function here: the byte behind what it reads, BROKEN where that is not plain. */

/* A time that is written as a number, in quotes or without; every other one is hard. */
static int64_t read_time(Scan *scan, int64_t pos, int32_t number, int which) {
    Event *event = &scan->events.items[number];
    uint8_t first = at(scan, pos);
    bool quoted = first == '"';
    Decimal decimal = decimal_at(scan, pos + quoted);
    if (decimal.good && decimal.whole < FARTHEST_US) {
        uint8_t behind = at(scan, decimal.end);
        if (quoted ? behind == '"' : !is_word(behind)) {
            put_time(event, which, &decimal);
            return decimal.end + quoted;
        }
    }
    if (first == '{' || first == '[') {
        event->state[which] = TIME_BAD;
        return after_container(scan, pos);
    }
    int64_t end;
    if (quoted) {
        bool escaped = false;
        end = closing_quote(scan, pos + 1, &escaped);
    } else {
        end = after_word(scan, pos);
    }
    if (end < 0) return BROKEN;
    if (!quoted && is_null(scan, pos, end)) return end;
    return add_hard(scan, pos + quoted, end, -1 - which, number) ? end + quoted : BROKEN;
}

/* A phase is one letter. */
static int64_t read_phase(Scan *scan, int64_t pos, int32_t number) {
    uint8_t letter = at(scan, pos + 1);
    if (at(scan, pos) != '"' || at(scan, pos + 2) != '"') return BROKEN;
    if (letter >= 0x80 || letter == '\\' || letter == '"') return BROKEN;
    scan->events.items[number].phase = letter;
    return pos + 3;
}

/* Names, categories, pids and tids are texts also where a number or another word is written. */
static int64_t read_text_field(Scan *scan, int64_t pos, int32_t number, int role) {
    int32_t *field = &scan->events.items[number].text[role];
    if (begins_text(at(scan, pos))) {
        Value value = text_at(scan, pos);
        *field = (int32_t)value.value;
        return value.end;
    }
    int64_t end = after_word(scan, pos);
    if (end < 0 || is_null(scan, pos, end)) return end;
    *field = text_number(scan, pos, end, false);
    return *field < 0 ? BROKEN : end;
}

static int64_t read_object(Scan *scan, int64_t pos, int32_t event, int is_arg);

static int64_t read_value(Scan *scan, int64_t pos, int32_t event, int is_arg, int32_t key) {
    int role = is_arg ? ROLE_OTHER : scan->keys.items[key].role;
    switch (role) {
        case ROLE_NAME:
        case ROLE_CAT:
        case ROLE_PID:
        case ROLE_TID: return read_text_field(scan, pos, event, role);
        case ROLE_TS:
        case ROLE_DUR: return read_time(scan, pos, event, role - ROLE_TS);
        case ROLE_PH: return read_phase(scan, pos, event);
        case ROLE_ARGS:
            if (at(scan, pos) == '{') return read_object(scan, pos, event, 1);
            break;
        default: break;
    }
    Value value = value_at(scan, pos);
    if (value.end < 0 || !add_row(scan, key, is_arg, event, &value)) return BROKEN;
    return value.end;
}

/* A key, which may not come twice, and its value. */
static int64_t read_member(Scan *scan, int64_t pos, int32_t event, int is_arg) {
    int32_t number = key_at(scan, pos, &pos);
    if (number < 0) return BROKEN;
    Key *key = &scan->keys.items[number];
    if (key->last[is_arg] == event) return BROKEN;
    key->last[is_arg] = event;
    pos = after_spaces(scan, pos);
    if (at(scan, pos) != ':') return BROKEN;
    return read_value(scan, after_spaces(scan, pos + 1), event, is_arg, number);
}

/* An event, or its args. A comma behind the last member does no harm. */
static int64_t read_object(Scan *scan, int64_t pos, int32_t event, int is_arg) {
    pos = after_spaces(scan, pos + 1);
    while (at(scan, pos) == '"') {
        pos = read_member(scan, pos, event, is_arg);
        if (pos < 0) return BROKEN;
        pos = after_spaces(scan, pos);
        if (at(scan, pos) == '}') return pos + 1;
        if (at(scan, pos) != ',') return BROKEN;
        pos = after_spaces(scan, pos + 1);
    }
    return at(scan, pos) == '}' ? pos + 1 : BROKEN;
}

static bool is_empty(const Scan *scan, int64_t pos) {
    return at(scan, after_spaces(scan, pos + 1)) == '}';
}

/* Reads the event at `pos`, and goes on behind it. */
static int read_event(Scan *scan, int64_t pos) {
    if (scan->events.count >= INT32_MAX || !RESERVE_ONE(&scan->events)) return STATUS_NO_MEMORY;
    int32_t number = (int32_t)scan->events.count++;
    Event *event = &scan->events.items[number];
    *event = (Event){.start = pos, .text = {-1, -1, -1, -1}};
    size_t rows = scan->rows.count;
    size_t hard = scan->hard.count;
    int64_t end = read_object(scan, pos, number, 0);
    if (scan->no_memory) return STATUS_NO_MEMORY;
    if (end < 0) {
        scan->rows.count = rows;
        scan->hard.count = hard;
        event->bad = 1;
        end = after_container(scan, pos);
        if (end < 0) return STATUS_UNEVEN;
    }
    event->end = end;
    scan->pos = end;
    return STATUS_OK;
}

/* All events, to the end of the stretch or of the list. */
static int read_list(Scan *scan) {
    for (;;) {
        scan->pos = after_spaces(scan, scan->pos);
        switch (at(scan, scan->pos)) {
            case ',': scan->pos++; break;
            case ']':
                scan->pos++;
                scan->closed = true;
                return STATUS_OK;
            case '{': {
                /* XLA ends its lists with an empty event, which is none. */
                int status = STATUS_OK;
                if (is_empty(scan, scan->pos))
                    scan->pos = after_spaces(scan, scan->pos + 1) + 1;
                else
                    status = read_event(scan, scan->pos);
                if (status != STATUS_OK) return status;
                break;
            }
            default: return scan->pos == scan->length ? STATUS_OK : STATUS_UNEVEN;
        }
    }
}

/* ---- Columns ------------------------------------------------------------------------------ */

static void copy_events(const Scan *scan, const ChromeColumns *out) {
    size_t count = scan->events.count;
    for (size_t i = 0; i < count; i++) {
        const Event *event = &scan->events.items[i];
        out->span[2 * i] = event->start;
        out->span[2 * i + 1] = event->end;
        out->bad[i] = event->bad;
        out->phase[i] = event->phase;
        out->rounded[i] = event->rounded;
        for (size_t f = 0; f < TEXT_FIELDS; f++) out->fields[f * count + i] = event->text[f];
        for (size_t t = 0; t < 2; t++) {
            out->ns[t * count + i] = event->ns[t];
            out->ps[t * count + i] = event->ps[t];
            out->state[t * count + i] = event->state[t];
        }
    }
}

static void copy_names(const Scan *scan, const ChromeColumns *out) {
    for (size_t i = 0; i < scan->texts.names.count; i++) {
        const Name *text = &scan->texts.names.items[i];
        out->text[3 * i] = text->start;
        out->text[3 * i + 1] = text->start + text->length;
        out->text[3 * i + 2] = text->quoted;
    }
    for (size_t i = 0; i < scan->keys.count; i++) {
        const Name *name = &scan->key_names.names.items[i];
        out->key[2 * i] = name->start;
        out->key[2 * i + 1] = name->start + name->length;
        memcpy(out->wide + 2 * i, scan->keys.items[i].wide, 2);
    }
}

/* Rows sorted by key, in the order of events: counted, then put where each belongs. While they are,
 * edges[k + 1] is where the next row of key k goes; in the end it is where those of k end. */
static void sort_rows(const Scan *scan, const ChromeColumns *out) {
    size_t kinds = 2 * scan->keys.count;
    int64_t *edges = out->edges;
    memset(edges, 0, (kinds + 2) * sizeof *edges);
    for (size_t i = 0; i < scan->rows.count; i++) edges[scan->rows.items[i].key + 2]++;
    for (size_t k = 2; k < kinds + 2; k++) edges[k] += edges[k - 1];
    size_t hard = 0;
    for (size_t i = 0; i < scan->rows.count; i++) {
        const Row *row = &scan->rows.items[i];
        int64_t index = edges[row->key + 1]++;
        out->event[index] = row->event;
        out->kind[index] = row->kind;
        out->value[index] = row->value;
        if (row->kind != KIND_HARD) continue;
        while (scan->hard.items[hard].row != (int64_t)i) hard++;
        out->hard[4 * hard + 3] = index;
    }
}

static void copy_hard(const Scan *scan, const ChromeColumns *out) {
    for (size_t i = 0; i < scan->hard.count; i++) {
        const Hard *hard = &scan->hard.items[i];
        out->hard[4 * i] = hard->start;
        out->hard[4 * i + 1] = hard->end;
        out->hard[4 * i + 2] = hard->event;
        out->hard[4 * i + 3] = hard->row;
    }
}

/* ---- The interface ------------------------------------------------------------------------ */

Scan *nbprof_chrome_scan(const uint8_t *data, int64_t length, uint64_t seed_first,
                         uint64_t seed_second, ChromeSizes *sizes) {
    *sizes = (ChromeSizes){.status = STATUS_NO_MEMORY};
    Scan *scan = calloc(1, sizeof *scan);
    if (scan == NULL) return NULL;
    scan->data = data;
    scan->length = length;
    scan->seed = (Seed){seed_first | 1, seed_second | 1};
    scan->previous_key = -1;
    sizes->status = read_list(scan);
    sizes->events = (int64_t)scan->events.count;
    sizes->texts = (int64_t)scan->texts.names.count;
    sizes->keys = (int64_t)scan->keys.count;
    sizes->rows = (int64_t)scan->rows.count;
    sizes->hard = (int64_t)scan->hard.count;
    sizes->end = scan->pos;
    sizes->closed = scan->closed;
    scan->data = NULL;
    return scan;
}

void nbprof_chrome_columns(const Scan *scan, const ChromeColumns *out) {
    copy_events(scan, out);
    copy_names(scan, out);
    copy_hard(scan, out);
    sort_rows(scan, out);
}

void nbprof_chrome_free(Scan *scan) {
    if (scan == NULL) return;
    free(scan->events.items);
    free(scan->rows.items);
    free(scan->keys.items);
    free(scan->hard.items);
    free_names(&scan->texts);
    free_names(&scan->key_names);
    free(scan);
}
