// The fused program for decode rows.
#pragma once
#include "cuda_impl.h"

// Builds the program of the decode list; *out stays NULL when the list has a shape that no fused program takes.
enum infer_status decode_build(struct decode_program **out, cuda_backend *b);
// Queues the program for up to rows rows. deep: many blocks for attention, for long contexts; shared: two rows
// may be of one sequence. The bits are the same.
enum infer_status decode_run(cuda_backend *b, struct decode_program *p, int rows, bool deep, bool shared,
                             cudaStream_t s);
void decode_free(struct decode_program *p);
// Times the parts of the program on the step that ran last: line(name, microseconds alone, microseconds that the
// whole loses without it, launches).
extern "C" enum infer_status decode_profile(struct backend *b, int rows, bool deep,
                                            void (*line)(const char *name, float alone, float without,
                                                         int n));
