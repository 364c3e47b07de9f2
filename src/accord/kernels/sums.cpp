// Sums over clients in one pass over their updates. A coordinate's additions come in the order of the clients, each one a fused
// multiply-add, as torch's addcmul does them: the results have the same bits (sums.py makes sure of it).

#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr long BLOCK = 4096;  // coordinates at a time: both sums of a block stay in the first-level cache, rows are read in runs of 16 KB

// Where the processor has no such instruction torch does without it, too.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// Of NaN it is 0, as in torch.
inline float sign(float x) { return __builtin_islessgreater(x, 0.0f) ? __builtin_copysignf(1.0f, x) : 0.0f; }

// Adds ROWS rows to a block of both sums; `tally` may be null.
template <int ROWS, bool VOTES>
void add(const float* x, int64_t stride, const float* weight, long n, float* __restrict__ sum, float* __restrict__ tally) {
    for (long i = 0; i < n; i++) {
        float s = sum[i], t = VOTES ? tally[i] : 0.0f;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            const float v = x[r * stride + i];
            s = multiply_add(v, weight[r], s);
            if (VOTES) t += sign(v);
        }
        sum[i] = s;
        if (VOTES) tally[i] = t;
    }
}

template <bool VOTES>
void add_all(const float* x, int64_t rows, int64_t n, int64_t stride, const float* weight, float* sum, float* tally) {
    for (long start = 0; start < n; start += BLOCK) {
        const long size = n - start < BLOCK ? n - start : BLOCK;
        float *s = sum + start, *t = VOTES ? tally + start : nullptr;
        long k = 0;
        for (; k + 8 <= rows; k += 8) add<8, VOTES>(x + k * stride + start, stride, weight + k, size, s, t);
        for (; k < rows; k++) add<1, VOTES>(x + k * stride + start, stride, weight + k, size, s, t);
    }
}

}  // namespace

// x: [rows][n], rows `stride` floats apart; weight: [rows] -> sum: [n] += weight * x, tally: [n] (or null) += sign of x
EXPORT void accord_sums(const float* x, int64_t rows, int64_t n, int64_t stride, const float* weight, float* sum, float* tally) {
    tally ? add_all<true>(x, rows, n, stride, weight, sum, tally) : add_all<false>(x, rows, n, stride, weight, sum, tally);
}
