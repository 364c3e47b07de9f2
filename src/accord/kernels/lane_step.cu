// The step of SGD with momentum, or of Adam, for many lanes in one pass over memory.
//
// Matrices are [lanes, size] and read as one row, four coordinates at a time: where each lane begins, its memory need
// not be aligned. Columns have a number for each lane. What is not wanted is null.

template <int N>
struct alignas(4 * N) Packed {
    float of[N];
};

struct Step {
    float *w, *first, *second;  // the parameters, and what the optimiser keeps: only Adam has a second
    const float* gradient;
    float* gradients;  // where the sum of all steps' gradients is wanted
    const float *start, *drift;
    const float *count, *lr, *share, *beta, *fresh, *keep, *eps, *factor, *decay, *mu;

    template <int N>
    __device__ void move(long long at, int lane) const {
        using Some = Packed<N>;
        auto read = [=](const float* matrix) { return *reinterpret_cast<const Some*>(matrix + at); };
        auto write = [=](float* matrix, const Some& some) { *reinterpret_cast<Some*>(matrix + at) = some; };
        Some here = read(w), follow = read(gradient);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (factor) follow.of[j] *= factor[lane];
            if (decay) follow.of[j] += decay[lane] * here.of[j];
        }
        if (gradients) {
            Some sum = read(gradients);
#pragma unroll
            for (int j = 0; j < N; j++) sum.of[j] += follow.of[j];
            write(gradients, sum);
        }
        if (mu) {
            const Some begun = read(start);
#pragma unroll
            for (int j = 0; j < N; j++) follow.of[j] += mu[lane] * (here.of[j] - begun.of[j]);
        }
        if (drift) {
            const Some more = read(drift);
#pragma unroll
            for (int j = 0; j < N; j++) follow.of[j] += more.of[j];
        }
        Some mean = read(first);  // SGD's velocity
        if (second) {
            Some square = read(second);
#pragma unroll
            for (int j = 0; j < N; j++) {
                mean.of[j] += share[lane] * (follow.of[j] - mean.of[j]);
                square.of[j] = beta[lane] * square.of[j] + fresh[lane] * follow.of[j] * follow.of[j];
                here.of[j] = here.of[j] * keep[lane] - lr[lane] * (mean.of[j] / (sqrtf(square.of[j]) + eps[lane]));
            }
            write(second, square);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) {
                mean.of[j] = share[lane] * mean.of[j] + follow.of[j];
                here.of[j] -= lr[lane] * mean.of[j];
            }
        }
        write(first, mean);
        write(w, here);
    }
};

// A lane whose count is 0 keeps everything.
extern "C" __global__ void step(float* w, float* first, float* second, const float* gradient, float* gradients,
                                const float* start, const float* drift, const float* count, const float* lr,
                                const float* share, const float* beta, const float* fresh, const float* keep,
                                const float* eps, const float* factor, const float* decay, const float* mu, int lanes,
                                int size) {
    const Step all = {w,  first, second, gradient, gradients, start, drift,  count, lr,
                      share, beta, fresh, keep,  eps,       factor, decay, mu};
    const long long at = 4 * (blockIdx.x * (long long)blockDim.x + threadIdx.x), end = (long long)lanes * size;
    if (at >= end) return;
    const int lane = at / size;
    if (at + 4 <= (lane + 1LL) * size) {
        if (count[lane] > 0) all.move<4>(at, lane);
        return;
    }
    for (long long one = at; one < at + 4 && one < end; one++)
        if (count[one / size] > 0) all.move<1>(one, one / size);
}
