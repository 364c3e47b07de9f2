// C = A B of small matrices of floats in one thread: the linear layers of a chain, forward and backward, are this one operation.
//
// A tile of C, up to 6 rows and 4 vectors, stays in registers while all of B's rows are read. Sums are added in the order of the rows
// of B, so an element's bits do not depend on where its tile begins.

#pragma once

#include "vectors.h"

namespace {

constexpr int ROWS = 6, VECTORS = REGISTERS == 32 ? 4 : 2, AHEAD = 8;

struct Product {
    long rows, columns, depth;        // of C: [rows][columns], and how many products an element adds up
    const float *a;                   // A(m, k) = a[m * a_row + k * a_step]
    long a_row, a_step;
    const float *b;                   // B: [depth][columns], rows b_row floats apart
    long b_row;
    float *c;                         // rows c_row floats apart
    long c_row;
    const float *first = nullptr;     // [rows]: where the sums begin, or null for 0
};

template <int V, int NV, int M> void tile(const Product& p, long m, long j) {
    Float<V> acc[M][NV];
    UNROLL for (int i = 0; i < M * NV; i++) acc[i / NV][i % NV] = Float<V>{} + (p.first ? p.first[m + i / NV] : 0.0f);
    const float *a = p.a + m * p.a_row, *b = p.b + j;
    for (long k = 0; k < p.depth; k++, a += p.a_step, b += p.b_row) {
        __builtin_prefetch(b + AHEAD * p.b_row);  // B's rows may be a page apart, where no processor looks ahead
        Float<V> row[NV];
        UNROLL for (int v = 0; v < NV; v++) row[v] = load<V>(b + v * V);
        UNROLL for (int i = 0; i < M * NV; i++) acc[i / NV][i % NV] += a[(i / NV) * p.a_row] * row[i % NV];
    }
    UNROLL for (int i = 0; i < M * NV; i++) store<V>(p.c + (m + i / NV) * p.c_row + j + (i % NV) * V, acc[i / NV][i % NV]);
}

// `rows` rows from `m` on (at most ROWS), all columns from `j` to `end`
template <int V, int NV> long strip(const Product& p, long m, long rows, long j, long end) {
    static void (*const of[])(const Product&, long, long) = {
        tile<V, NV, 1>, tile<V, NV, 2>, tile<V, NV, 3>, tile<V, NV, 4>, tile<V, NV, 5>, tile<V, NV, 6>};
    for (; j + V * NV <= end; j += V * NV) of[rows - 1](p, m, j);
    return j;
}

inline void strips(const Product& p, long j, long end) {
    const long count = (p.rows + ROWS - 1) / ROWS;  // strips of equal height, as far as that goes: 20 rows are 5, 5, 5 and 5
    for (long s = 0; s < count; s++) {
        const long m = s * p.rows / count, rows = (s + 1) * p.rows / count - m;
        long at = strip<WIDE, VECTORS>(p, m, rows, j, end);
        at = strip<WIDE, 1>(p, m, rows, at, end);
        if (WIDE > 8) at = strip<8, 1>(p, m, rows, at, end);
        at = strip<4, 1>(p, m, rows, at, end);
        strip<1, 1>(p, m, rows, at, end);
    }
}

// With `by_columns` the rows of C are walked once for every few columns: for a large B, which is then read from memory once.
inline void multiply(const Product& p, bool by_columns = false) {
    const long most = by_columns ? WIDE * VECTORS : p.columns;
    for (long j = 0; j < p.columns; j += most) strips(p, j, j + most < p.columns ? j + most : p.columns);
}

}  // namespace
