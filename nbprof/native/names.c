#include "names.h"

enum { FIRST_SLOTS = 256, MOST_NAMES = INT32_MAX / 4 };

/* A bijection that leaves no trace of the order of its input. */
static inline uint64_t mixed(uint64_t word, Seed seed) {
    word ^= word >> 32;
    word *= seed.first;
    word ^= word >> 29;
    word *= seed.second;
    return word ^ (word >> 32);
}

static uint64_t hash_of(const uint8_t *bytes, size_t length, Seed seed) {
    uint64_t hash = seed.first ^ length;
    uint64_t word = 0;
    for (; length >= sizeof word; length -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mixed(hash ^ word, seed);
    }
    word = 0;
    memcpy(&word, bytes, length);
    return mixed(hash ^ word, seed);
}

static size_t free_slot(const NameTable *table, uint64_t hash) {
    size_t slot = (size_t)hash & table->mask;
    while (table->slots[slot] >= 0) slot = (slot + 1) & table->mask;
    return slot;
}

/* Twice as many slots, with the names in them. */
static bool grow(NameTable *table) {
    size_t size = table->slots == NULL ? FIRST_SLOTS : (table->mask + 1) * 2;
    int32_t *slots = malloc(size * sizeof *slots);
    if (slots == NULL) return false;
    memset(slots, 0xFF, size * sizeof *slots);
    free(table->slots);
    table->slots = slots;
    table->mask = size - 1;
    for (size_t i = 0; i < table->names.count; i++)
        slots[free_slot(table, table->names.items[i].hash)] = (int32_t)i;
    return true;
}

static bool is_name(const Name *name, const uint8_t *data, const Name *wanted) {
    return name->hash == wanted->hash && name->length == wanted->length &&
           name->quoted == wanted->quoted &&
           memcmp(data + name->start, data + wanted->start, (size_t)wanted->length) == 0;
}

int32_t name_number(NameTable *table, const uint8_t *data, int64_t start, int64_t end, bool quoted,
                    Seed seed) {
    if (table->slots == NULL || table->names.count * 2 > table->mask) {
        if (table->names.count >= MOST_NAMES || !grow(table)) return -1;
    }
    uint64_t hash = hash_of(data + start, (size_t)(end - start), seed);
    Name wanted = {start, end - start, hash, quoted};
    size_t slot = (size_t)hash & table->mask;
    for (; table->slots[slot] >= 0; slot = (slot + 1) & table->mask) {
        int32_t number = table->slots[slot];
        if (is_name(&table->names.items[number], data, &wanted)) return number;
    }
    if (!RESERVE_ONE(&table->names)) return -1;
    int32_t number = (int32_t)table->names.count;
    table->names.items[table->names.count++] = wanted;
    table->slots[slot] = number;
    return number;
}

void free_names(NameTable *table) {
    free(table->names.items);
    free(table->slots);
}
