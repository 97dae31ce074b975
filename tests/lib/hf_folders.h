/* The folders of tests/golden/hf: each one that is there is tested. */
#pragma once
#include "tests/lib/test.h"
#include <dirent.h>

enum { HF_FOLDERS_MAX = 512 };

static inline int hf_folder_is(const struct dirent *d) { return !strchr(d->d_name, '.'); /* no file */ }
/* Their names, in the order of the alphabet: name[returned]. */
static inline int hf_folders(const char *name[HF_FOLDERS_MAX]) {
    static struct dirent **list; /* for as long as the program runs */
    char path[512];
    const int n = scandir(test_path(path, sizeof path, "golden/hf"), &list, hf_folder_is, alphasort);
    if (n < 1 || n > HF_FOLDERS_MAX) {
        print_error("%s has %d folders, must have 1 to %d\n", path, n, HF_FOLDERS_MAX);
        exit(1);
    }
    for (int i = 0; i < n; i++) name[i] = list[i]->d_name;
    return n;
}
