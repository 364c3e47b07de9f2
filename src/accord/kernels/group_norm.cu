// GroupNorm of pictures whose channels lie innermost, what is added to it and ReLU, forwards and backwards.
//
// Compiled for one shape: `group_norm.py` defines CHANNELS, PIXELS, GROUPS, RELU, MORE (something is added), NARROW
// (pictures are bfloat16, else float32) and DOWN. A block has one group of channels of one picture, and sums are float32.

constexpr int PART = CHANNELS / GROUPS, ACROSS = PART / 4;  // a thread has four channels
constexpr int THREADS = DOWN * ACROSS, EACH = (PIXELS + DOWN - 1) / DOWN;
constexpr float COUNT = (float)PIXELS * PART;

struct alignas(16) Four {
    float of[4];
};

struct alignas(8) Halves {
    unsigned short of[4];
};

union Bits {
    float number;
    unsigned bits;
};

template <bool>
struct Choice {
    using Type = Four;
};
template <>
struct Choice<true> {
    using Type = Halves;
};
using Stored = Choice<NARROW>::Type;

__device__ float wide(float value) { return value; }
__device__ float wide(unsigned short value) {
    Bits all;
    all.bits = (unsigned)value << 16;
    return all.number;
}

__device__ void narrow(float value, float& to) { to = value; }
__device__ void narrow(float value, unsigned short& to) {  // to the nearest, to even in the middle
    Bits all;
    all.number = value;
    to = value != value ? 0x7fc0 : (all.bits + 0x7fff + (all.bits >> 16 & 1)) >> 16;
}

// Where a block's group begins, and how its threads read and write it.
struct Group {
    long long first;  // of the picture's numbers
    int row, channel;  // the thread's first pixel, and its first channel within the group

    __device__ Group() {
        row = threadIdx.x / ACROSS;
        channel = threadIdx.x % ACROSS * 4;
        first = (long long)(blockIdx.x / GROUPS) * PIXELS * CHANNELS + blockIdx.x % GROUPS * PART + channel;
    }

    __device__ Four read(const Stored* from, int pixel) const {
        const Stored some = from[(first + (long long)pixel * CHANNELS) / 4];
        Four all;
#pragma unroll
        for (int c = 0; c < 4; c++) all.of[c] = wide(some.of[c]);
        return all;
    }

    __device__ void write(Stored* to, int pixel, const Four& all) const {
        Stored some;
#pragma unroll
        for (int c = 0; c < 4; c++) narrow(all.of[c], some.of[c]);
        to[(first + (long long)pixel * CHANNELS) / 4] = some;
    }

    __device__ Four channels(const float* of_all) const {
        Four mine;
#pragma unroll
        for (int c = 0; c < 4; c++) mine.of[c] = of_all[blockIdx.x % GROUPS * PART + channel + c];
        return mine;
    }
};

// The sum of every thread's value, for all of them; always in the same order.
__device__ float sum_of_block(float value) {
    __shared__ float values[THREADS];
    __syncthreads();  // whoever still reads the sum before
    values[threadIdx.x] = value;
    for (int some = THREADS; some > 1;) {
        const int half = (some + 1) / 2;
        __syncthreads();
        if (threadIdx.x < some - half) values[threadIdx.x] += values[threadIdx.x + half];
        some = half;
    }
    __syncthreads();
    return values[0];
}

// `statistics`: mean and 1 / deviation of every group.
extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const Stored* x, const float* weight, const float* bias, const Stored* more, Stored* y, float* statistics,
            float eps) {
    const Group group;
    Four seen[EACH];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int pixel = group.row + n * DOWN;
        if (pixel >= PIXELS) continue;
        seen[n] = group.read(x, pixel);
        sum += (seen[n].of[0] + seen[n].of[1]) + (seen[n].of[2] + seen[n].of[3]);
    }
    const float mean = sum_of_block(sum) / COUNT;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        if (group.row + n * DOWN >= PIXELS) continue;
#pragma unroll
        for (int c = 0; c < 4; c++) squares += (seen[n].of[c] - mean) * (seen[n].of[c] - mean);
    }
    const float inverse = 1.0f / sqrtf(sum_of_block(squares) / COUNT + eps);
    const Four scale = group.channels(weight), shift = group.channels(bias);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int pixel = group.row + n * DOWN;
        if (pixel >= PIXELS) continue;
        Four added = {};
        if (MORE) added = group.read(more, pixel);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float value = (seen[n].of[c] - mean) * inverse * scale.of[c] + shift.of[c] + added.of[c];
            if (RELU && value <= 0) value = 0.0f;  // NaN stays NaN
            seen[n].of[c] = value;
        }
        group.write(y, pixel, seen[n]);
    }
    if (threadIdx.x == 0) {
        statistics[2 * blockIdx.x] = mean;
        statistics[2 * blockIdx.x + 1] = inverse;
    }
}

// The gradients of the pictures and of what was added, and of each picture its share of those of weight and bias:
// `[pictures, 2, CHANNELS]`.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward(const Stored* x, const Stored* y, const Stored* g, const float* weight, const float* statistics, Stored* dx,
             Stored* dmore, float* shares) {
    __shared__ float sums[2][DOWN][PART];
    const Group group;
    const float mean = statistics[2 * blockIdx.x], inverse = statistics[2 * blockIdx.x + 1];
    const Four scale = group.channels(weight);
    auto gradient = [&](int pixel) {  // before ReLU
        Four before = group.read(g, pixel);
        if (RELU) {
            const Four after = group.read(y, pixel);
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (after.of[c] <= 0) before.of[c] = 0.0f;
        }
        return before;
    };
    Four of_bias = {}, of_weight = {};
    for (int pixel = group.row; pixel < PIXELS; pixel += DOWN) {
        const Four before = gradient(pixel), seen = group.read(x, pixel);
        if (MORE) group.write(dmore, pixel, before);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            of_bias.of[c] += before.of[c];
            of_weight.of[c] += before.of[c] * (seen.of[c] - mean) * inverse;
        }
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
        sums[0][group.row][group.channel + c] = of_weight.of[c];
        sums[1][group.row][group.channel + c] = of_bias.of[c];
    }
    for (int some = DOWN; some > 1;) {
        const int half = (some + 1) / 2;
        __syncthreads();
        if (group.row < some - half)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                sums[0][group.row][group.channel + c] += sums[0][group.row + half][group.channel + c];
                sums[1][group.row][group.channel + c] += sums[1][group.row + half][group.channel + c];
            }
        some = half;
    }
    float along = 0.0f, whole = 0.0f;  // of the group: how the gradient follows the normalised picture, and its sum
    if (group.row == 0)  // the only rows it reads are its own
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int channel = group.channel + c;
            const long long at = (long long)(blockIdx.x / GROUPS) * 2 * CHANNELS + blockIdx.x % GROUPS * PART + channel;
            shares[at] = sums[0][0][channel];
            shares[at + CHANNELS] = sums[1][0][channel];
            along += scale.of[c] * sums[0][0][channel];
            whole += scale.of[c] * sums[1][0][channel];
        }
    along = sum_of_block(along) / COUNT;
    whole = sum_of_block(whole) / COUNT;
    for (int pixel = group.row; pixel < PIXELS; pixel += DOWN) {
        const Four before = gradient(pixel), seen = group.read(x, pixel);
        Four after;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float normal = (seen.of[c] - mean) * inverse;
            after.of[c] = inverse * (before.of[c] * scale.of[c] - whole - normal * along);
        }
        group.write(dx, pixel, after);
    }
}
