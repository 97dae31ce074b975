/* infer doctor: what to do about what it found. */
#pragma once
#include <jansson.h>

/* A text for each thing that is not as it should be, in the order of the report, which j is (infer doctor --json); []: there is nothing to do.
 * NULL: out of memory. */
json_t *doctor_advice(const json_t *j);
