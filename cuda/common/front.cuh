// The kernels' side of front.h.
#pragma once
#include "cuda/common/front.h"
#include "cuda/common/util.cuh"

// Mean and 1 / sqrt(var + eps) of a row of n by 256 threads; tmp[16]. The order of the sums is alike for every row.
DEV float2 front_moments(const front_job &j, const float *x, int n, float *tmp) {
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += __ldcg(x + i);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) tmp[threadIdx.x >> 5] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < 8; i++) sum += tmp[i];
    const float mean = sum / (float)n;
    for (int i = threadIdx.x; i < n; i += 256) {
        const float d = __ldcg(x + i) - mean;
        square += d * d;
    }
    square = warp_sum(square);
    if ((threadIdx.x & 31) == 0) tmp[8 + (threadIdx.x >> 5)] = square;
    __syncthreads();
    square = 0;
    for (int i = 0; i < 8; i++) square += tmp[8 + i];
    return make_float2(mean, 1.f / sqrtf(square / (float)n + j.eps));
}
// Column i, whose value is x.
DEV float front_value(const front_job &j, float2 moments, float x, int i) {
    if (j.norm) return (x - moments.x) * moments.y * (j.w ? j.w[i] : 1.f) + (j.bias ? j.bias[i] : 0.f);
    return j.act == 3 ? 0.5f * x * (1.f + erff(x * 0.7071067811865476f)) : act_apply(j.act, x);
}
