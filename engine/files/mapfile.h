/* Read-only maps of files. The map is the weights: shared with other processes, never written.
 * A file that shrinks while it is mapped ends the program with one line that names it and exit code 1. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

/* Bytes begin .. end that no disk has and that read as zeros: a download that sets a file's length first, or reserves its room, leaves them
 * where it breaks off. */
struct hole {
    size_t begin, end;
};
enum { MAPFILE_HOLES = 8 };

struct mapfile {
    const unsigned char *data; /* data[size]; NULL for an empty file */
    size_t size;
    char *path;
    /* hole[n_hole]: the first ones; none where the file system does not say */
    struct hole hole[MAPFILE_HOLES];
    int n_hole;
    bool mapped; /* false: read into memory (--no-mmap) */
};

/* Opens path. no_mmap reads the file into memory instead. errors: INFER_E_IO (missing, directory,
 * unreadable). */
enum infer_status mapfile_open(struct mapfile *out, const char *path, bool no_mmap);
/* Whether nothing has that name. What is there and cannot be opened is not absent, nor is a link to nowhere (a download that
 * was not finished). */
bool mapfile_absent(const char *path);
void mapfile_close(struct mapfile *f);
/* Asks for the whole file to be read ahead, unless it is larger than three quarters of the memory. */
void mapfile_will_read(const struct mapfile *f);
/* Locks the pages in memory (--mlock); INFER_E_MEMORY names the limit that refuses. */
enum infer_status mapfile_lock(const struct mapfile *f);
