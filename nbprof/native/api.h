/* What the library shows to its caller; everything else stays inside. */

#ifndef NBPROF_API_H
#define NBPROF_API_H

#include <stdint.h>

#if defined(_WIN32)
#define NBPROF_API __declspec(dllexport)
#elif defined(__GNUC__)
#define NBPROF_API __attribute__((visibility("default")))
#else
#define NBPROF_API
#endif

/* Raise it with every change of a function or structure that Python calls or fills: library.py
 * refuses a library of another version. */
#define NBPROF_ABI_VERSION 3

enum { STATUS_OK = 0, STATUS_UNEVEN = 1, STATUS_NO_MEMORY = 2 };

NBPROF_API int32_t nbprof_abi_version(void);

#endif
