// The fused program for prompt rows: activations as half tiles, weights through tensor cores.
#pragma once
#include "cuda/run/cuda_impl.h"

struct prompt_program;
// Builds the program of the prompt list; *out stays NULL when the list, a format or the chip is one it does not take.
enum infer_status prompt_build(struct prompt_program **out, cuda_backend *b);
// Queues a step of n_row rows and n_out outputs.
enum infer_status prompt_run(cuda_backend *b, const struct prompt_program *p, int n_row, int n_out,
                             cudaStream_t s);
// Measures the entries of the table that a launch may choose between, for this model's matrices, and keeps the fastest.
enum infer_status prompt_tune(cuda_backend *b, struct prompt_program *p);
// Multiples of which prompts are cut at, for the same bits; 0: any.
int prompt_grid(const struct prompt_program *p);
void prompt_free(struct prompt_program *p);
