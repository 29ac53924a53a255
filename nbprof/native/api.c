#include "api.h"

int32_t nbprof_abi_version(void) { return NBPROF_ABI_VERSION; }
