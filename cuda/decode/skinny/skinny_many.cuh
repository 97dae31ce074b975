// What follows the sums of a tile of 128 rows that one block has alone: four groups of 8 rows at a time, so that what each of them
// waits for passes together. One group at a time this took a third of the warps' time (gate and up of an 8B, 512 rows, H100). The
// same operations in the same order as skinny_finish has them.
#pragma once
#include "cuda/decode/skinny/skinny_epilogue.cuh"

enum { MANY_GROUPS = 4 }; // n, n + NT / 4, ..: each a choice of NT / 4 registers
template <int NT> struct skinny_many {
    static constexpr int U = MANY_GROUPS, TURNS = NT / U;
    const skinny_job &k;
    const half_rows &f;
    int tile, row0, n_row;
    float down;
    const skinny_shared &at;
    MEM int row(int turn, int u) const { return row0 + (turn + u * TURNS) * 8; }
    // Sums of a turn's groups, times what they count.
    MEM void take(float (&v)[U][4], const float (&sum)[NT][4], int turn) const {
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                v[u][o] = sum[u * TURNS][o];
#pragma unroll
                for (int q = 1; q < TURNS; q++) v[u][o] = q == turn ? sum[u * TURNS + q][o] : v[u][o];
                v[u][o] *= down;
            }
    }
    MEM float2 factor(int turn, int u) const {
        return *(const float2 *)(at.factor + row(turn, u) + 2 * (threadIdx.x & 3));
    }
    MEM void scale(float (&v)[U][4], int turn) const {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const float2 s = factor(turn, u);
#pragma unroll
            for (int o = 0; o < 4; o++) v[u][o] = __fmul_rn(v[u][o], o & 1 ? s.y : s.x);
        }
    }
    MEM void residual(float (&res)[U][4], int turn) const {
#pragma unroll
        for (int u = 0; u < U; u++) half_residual(k, f, row(turn, u), turn < TURNS ? n_row : 0, res[u]);
    }
    MEM void gate(float (&v)[U][4], int turn) const {
        const int lane = threadIdx.x & 31;
        scale(v, turn);
        if (k.j.act == 0) // the usual one has no others beside it
#pragma unroll
            for (int u = 0; u < U; u++) v[u][0] = act_apply(0, v[u][0]), v[u][1] = act_apply(0, v[u][1]);
        else
#pragma unroll
            for (int u = 0; u < U; u++)
                v[u][0] = act_apply(k.j.act, v[u][0]), v[u][1] = act_apply(k.j.act, v[u][1]);
#pragma unroll
        for (int u = 0; u < U; u++)
            half_give(k, tile * 8 + (lane >> 2), k.j.n_out, row(turn, u) + 2 * (lane & 3), n_row,
                      v[u][0] * v[u][2], v[u][1] * v[u][3]);
    }
    MEM void add(float (&v)[U][4], const float (&res)[U][4], int turn) const {
#pragma unroll
        for (int u = 0; u < U; u++) half_add(k, f, tile, row(turn, u), n_row, v[u], res[u], factor(turn, u));
        if (gives_columns(k))
#pragma unroll
            for (int u = 0; u < U; u++) half_give_columns(k, f, row(turn, u), n_row, v[u]);
        else
#pragma unroll
            for (int u = 0; u < U; u++) half_give_tiles(k, f, row(turn, u), n_row, v[u]);
    }
    // sums(v, turn): a turn's
    template <class S> MEM void finish_of(S sums) const {
        float v[U][4], res[U][4] = {}, next[U][4] = {};
        const bool adds = k.epilogue == EPI_ADD;
        if (adds) residual(next, 0);
#pragma unroll 1
        for (int turn = 0; turn < TURNS && row(turn, 0) < n_row; turn++) {
            sums(v, turn);
            if (adds) {
#pragma unroll
                for (int i = 0; i < U * 4; i++) res[i >> 2][i & 3] = next[i >> 2][i & 3];
                residual(next, turn + 1);
                add(v, res, turn);
            } else if (k.epilogue == EPI_GLU)
                gate(v, turn);
            else {
                scale(v, turn);
#pragma unroll
                for (int u = 0; u < U; u++) half_store(k, f, row(turn, u), n_row, v[u], at);
            }
        }
    }
    MEM void finish(const float (&sum)[NT][4]) const {
        finish_of([&](float(&v)[U][4], int turn) { take(v, sum, turn); });
    }
    // Of sums in shared memory, a float4 a lane for each group.
    MEM void finish_from(const float4 *sum) const {
        finish_of([&](float(&v)[U][4], int turn) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                const float4 a = sum[(turn + u * TURNS) * 32];
                v[u][0] = a.x * down, v[u][1] = a.y * down, v[u][2] = a.z * down, v[u][3] = a.w * down;
            }
        });
    }
};
