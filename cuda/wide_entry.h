#pragma once
#include "wide.h"

struct wide_entry {
    enum layout l, l2;
    int ga, nt; // groups of 8 rows that a block does at once
    void (*run)(const wide_job);
};
