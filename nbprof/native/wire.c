#include "wire.h"

int64_t nbprof_wire_messages(const uint8_t *data, int64_t pos, int64_t end, uint8_t tag,
                             int64_t *starts, int64_t room, int64_t *count) {
    int64_t found = *count;
    while (pos < end && found < room && data[pos] == tag) {
        int64_t length;
        int64_t content = read_length(data, pos + 1, end, &length);
        if (content < 0) break;
        starts[found++] = pos;
        pos = content + length;
    }
    *count = found;
    return pos;
}
