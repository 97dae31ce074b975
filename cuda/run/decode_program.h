// The fused program for decode rows.
#pragma once
#include "cuda/run/cuda_impl.h"

// Builds the program of the decode list; *out stays NULL when the list has a shape that no fused program takes.
enum infer_status decode_build(struct decode_program **out, cuda_backend *b);
// Queues the program for up to rows rows. shared: two rows may be of one sequence. The bits are the same.
enum infer_status decode_run(cuda_backend *b, struct decode_program *p, int rows, bool shared,
                             cudaStream_t s);
void decode_free(struct decode_program *p);
