// Operations on caches whose rows are turned (kv_low.h of the seam), beside those of plain_ops.cu. turn_k, turn_v: kv_turn_of.
#pragma once
#include "cuda/common/dev.h"

// As op_kv_put_run.
cudaError_t kv_low_put_run(dev_tables t, dev_kv kv, int turn_k, int turn_v, rows k, rows v, int n,
                           op_queue s);
// As kv_page_run: what lies in k and v is not turned. A write leaves k and v turned.
cudaError_t kv_low_page_run(dev_kv kv, int turn_k, int turn_v, int page, float *k, float *v, bool write,
                            cudaStream_t s);
// Turns the step's rows where they are, in blocks of `turn` numbers, 64 at most: queries in front of attention and its sums behind it.
cudaError_t kv_turn_rows_run(dev_tables t, rows x, int turn, int n, bool overlap, cudaStream_t s);
