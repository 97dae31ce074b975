// One weight of a unit as float, for the plain kernels.
#pragma once
#include "made/cuda_formats.cuh"

// row 0..15, k 0..255
DEV float unit_value(enum layout l, const uint8_t *u, int row, int k) {
    switch (l) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        return format<LAYOUT_##id>::value(u, row, k);
#include "cuda/plan/layouts.def"
    default:
        return 0.f;
    }
}

// What a lane of the plain kernel for few rows takes of a unit, where the format says nothing better: add(n, column, value) for its elements, n-th of its rows, in one order.
template <int L> struct few_lane {
    template <class F> static MEM void unit(const uint8_t *u, int lane, F add) {
        for (int i = 0; i < 128; i++) { // row lane / 2, every second group of four columns
            int k = (i >> 2) * 8 + (lane & 1) * 4 + (i & 3);
            add(0, k, unit_value((enum layout)L, u, lane >> 1, k));
        }
    }
    static MEM int row(int lane, int) { return lane >> 1; }
    static constexpr int n_row = 1, share = 2; // rows of a lane; neighbouring lanes that share one
};
