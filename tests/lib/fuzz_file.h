/* Bytes of a fuzz target as a file in memory. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The path of a file that has these bytes until the next call; NULL: the system would not. */
static inline const char *fuzz_file(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    return ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size ? path : NULL;
}
