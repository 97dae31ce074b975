/* infer doctor: whether the devices of this machine compute what the reference does, on tiny models of random weights that are written for it. */
#pragma once
#include <jansson.h>
#include "base/status.h"

/* Of rows got[n_row][n_vocab] the greatest root mean square distance to ref's, in standard deviations of ref's row, *at: in which; INFINITY: a
 * number is not finite. */
double self_apart(const float *ref, const float *got, int n_row, int n_vocab, int *at);
/* errors: INFER_E_DEVICE: more than 0.05 apart */
enum infer_status self_compare(const float *ref, const float *got, int n_row, int n_vocab, const char *arch,
                               double *apart);
/* {device: {well, apart, seconds, problem}} of those in devices ({device: {usable}}) that can be used; well null: no file could be written. */
json_t *doctor_self(const json_t *devices);
void print_self(const json_t *self);
/* The devices that are not well; 0: all are. */
int doctor_self_failed(const json_t *self);
