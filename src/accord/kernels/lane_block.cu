// Convolution, bias, ReLU and 2 x 2 max-pool of many lanes, each with weights of its own, forwards and backwards.
//
// Compiled for one shape of block: `lane_block.py` defines CHANNELS, HEIGHT, WIDTH, KERNELS, HIGH, WIDE, TOP and LEFT,
// and how the work is cut. Pictures and weights lie in shared memory, sums in registers. Everything is computed in
// float32. No sum goes over more than one lane, and how a sum is cut depends on the shape alone, so that a lane's bits
// do not depend on the others.

constexpr int ROWS = (HEIGHT + 2 * TOP - HIGH + 1) / 2, COLUMNS = (WIDTH + 2 * LEFT - WIDE + 1) / 2;  // once pooled
constexpr int PIXELS = ROWS * COLUMNS, TAPS = HIGH * WIDE, IMAGE = CHANNELS * HEIGHT * WIDTH;

template <int N, int BYTES>
struct alignas(BYTES) Packed {  // read in as few loads as its alignment allows
    float of[N];
};

// Squares of 2 x 2 pixels, DOWN times ACROSS of them in a picture, and the part of the picture that their taps reach.
template <int DOWN, int ACROSS>
struct Squares {
    static constexpr int across = ACROSS, count = DOWN * ACROSS;
    static constexpr int height = 2 * DOWN + HIGH - 1, width = 2 * ACROSS + WIDE - 1, plane = height * width;
};

// The sums over a kernel's taps at four pixels, top left to bottom right, for SOME kernels at once.
template <int SOME>
using Sums = float[4][SOME];

// Adds one channel's share to the sums. `corner`: the top left pixel of what the taps reach.
template <int SOME>
__device__ void add_channel(const float* corner, int width, const float* weights, Sums<SOME>& sums) {
    using Row = Packed<WIDE + 1, WIDE % 2 ? 8 : 4>;  // squares begin at even columns; rows are even where WIDE is odd
    using Weights = Packed<SOME, SOME % 4 ? (SOME % 2 ? 4 : 8) : 16>;
    Row patch[HIGH + 1];
#pragma unroll
    for (int i = 0; i <= HIGH; i++) patch[i] = *reinterpret_cast<const Row*>(corner + i * width);
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            const Weights w = reinterpret_cast<const Weights*>(weights)[i * WIDE + j];
#pragma unroll
            for (int s = 0; s < SOME; s++) {
                sums[0][s] += w.of[s] * patch[i].of[j];
                sums[1][s] += w.of[s] * patch[i].of[j + 1];
                sums[2][s] += w.of[s] * patch[i + 1].of[j];
                sums[3][s] += w.of[s] * patch[i + 1].of[j + 1];
            }
        }
}

// Correlates SAMPLES pictures of IN channels with SOME kernels: a thread has one square of one sample. As many channels
// as there is room for are in shared memory at a time. `picture(sample, channel, row, column)` and
// `weight(some, channel, tap)` give what is to be correlated.
template <int IN, int SAMPLES, int THREADS, int SOME, class Over, class Picture, class Weight>
__device__ void correlate(int sample, int square, Picture picture, Weight weight, Sums<SOME>& sums) {
    constexpr int fit = ROOM / (SAMPLES * Over::plane + SOME * TAPS), chunk = fit < IN ? fit : IN;
    static_assert(chunk > 0, "a channel has to fit");
    alignas(16) __shared__ float pictures[SAMPLES * chunk * Over::plane];
    alignas(16) __shared__ float weights[chunk * TAPS * SOME];
    const float* corner = pictures + sample * chunk * Over::plane + square / Over::across * 2 * Over::width +
                          square % Over::across * 2;
    for (int first = 0; first < IN; first += chunk) {
        const int there = IN - first < chunk ? IN - first : chunk;
        __syncthreads();  // whoever still reads the chunk before
        for (int n = threadIdx.x; n < SAMPLES * chunk * Over::plane; n += THREADS) {
            const int channel = n / Over::plane % chunk, at = n % Over::plane;
            pictures[n] = channel < there ? picture(n / (chunk * Over::plane), first + channel, at / Over::width,
                                                    at % Over::width)
                                          : 0.0f;
        }
        for (int n = threadIdx.x; n < SOME * there * TAPS; n += THREADS) {
            const int some = n / (there * TAPS), at = n % (there * TAPS);
            weights[at * SOME + some] = weight(some, first + at / TAPS, at % TAPS);
        }
        __syncthreads();
        if (sample < SAMPLES)
            for (int channel = 0; channel < there; channel++)
                add_channel<SOME>(corner + channel * Over::plane, Over::width, weights + channel * TAPS * SOME, sums);
    }
}

// The pooled output, and which pixel of its window each value came from: 4 where ReLU lets no gradient through.
// Blocks: (lane, samples, squares) x SOME_KERNELS kernels.
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS)
    forward(const float* x, const float* weight, const float* bias, float* out, unsigned char* which,
            long long weight_lane, long long bias_lane, int batch) {
    using Over = Squares<ROWS, COLUMNS>;
    constexpr int tiles = (Over::count + FORWARD_THREADS - 1) / FORWARD_THREADS;
    const int cuts = (batch + FORWARD_SAMPLES - 1) / FORWARD_SAMPLES;
    const long long lane = blockIdx.x / (cuts * tiles);
    const int begin = blockIdx.x / tiles % cuts * FORWARD_SAMPLES, first = blockIdx.y * SOME_KERNELS;
    const int item = blockIdx.x % tiles * FORWARD_THREADS + threadIdx.x;
    const int sample = item / Over::count, square = item % Over::count;
    x += lane * batch * IMAGE;
    weight += lane * weight_lane;
    Sums<SOME_KERNELS> sums = {};
    correlate<CHANNELS, FORWARD_SAMPLES, FORWARD_THREADS, SOME_KERNELS, Over>(
        sample, square,
        [=](int sample, int channel, int row, int column) {
            row -= TOP, column -= LEFT, sample += begin;
            const bool inside = sample < batch && row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
            return inside ? x[(long long)sample * IMAGE + (channel * HEIGHT + row) * WIDTH + column] : 0.0f;
        },
        [=](int some, int channel, int tap) {
            return first + some < KERNELS ? weight[((first + some) * CHANNELS + channel) * TAPS + tap] : 0.0f;
        },
        sums);
    if (sample >= FORWARD_SAMPLES || begin + sample >= batch) return;
#pragma unroll
    for (int s = 0; s < SOME_KERNELS; s++) {
        if (first + s >= KERNELS) break;
        const float more = bias ? bias[lane * bias_lane + first + s] : 0.0f;
        float best = sums[0][s] + more;
        int place = 0;
#pragma unroll
        for (int p = 1; p < 4; p++) {
            const float value = sums[p][s] + more;
            if (value > best || value != value) best = value, place = p;  // the first of equals, NaN before all: as torch
        }
        if (best <= 0) best = 0.0f, place = 4;
        const long long at = ((lane * batch + begin + sample) * KERNELS + first + s) * PIXELS + square;
        out[at] = best;
        which[at] = place;
    }
}

// The gradient of the pictures: the gradient before pooling, correlated with the weights turned around. Blocks: (lane,
// samples, squares) x SOME_CHANNELS channels.
extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS)
    image_gradient(const float* weight, const float* g, const unsigned char* which, float* dx, long long weight_lane,
                   int batch) {
    using Over = Squares<(HEIGHT + 1) / 2, (WIDTH + 1) / 2>;
    constexpr int tiles = (Over::count + BACKWARD_THREADS - 1) / BACKWARD_THREADS;
    const int cuts = (batch + BACKWARD_SAMPLES - 1) / BACKWARD_SAMPLES;
    const long long lane = blockIdx.x / (cuts * tiles);
    const int begin = blockIdx.x / tiles % cuts * BACKWARD_SAMPLES, first = blockIdx.y * SOME_CHANNELS;
    const int item = blockIdx.x % tiles * BACKWARD_THREADS + threadIdx.x;
    const int sample = item / Over::count, square = item % Over::count;
    g += lane * batch * KERNELS * PIXELS;
    which += lane * batch * KERNELS * PIXELS;
    weight += lane * weight_lane;
    Sums<SOME_CHANNELS> sums = {};
    correlate<KERNELS, BACKWARD_SAMPLES, BACKWARD_THREADS, SOME_CHANNELS, Over>(
        sample, square,
        [=](int sample, int kernel, int row, int column) {
            row += TOP - HIGH + 1, column += LEFT - WIDE + 1, sample += begin;
            if (sample >= batch || row < 0 || row >= 2 * ROWS || column < 0 || column >= 2 * COLUMNS) return 0.0f;
            const long long at =
                ((long long)sample * KERNELS + kernel) * PIXELS + row / 2 * COLUMNS + column / 2;
            return which[at] == row % 2 * 2 + column % 2 ? g[at] : 0.0f;
        },
        [=](int some, int kernel, int tap) {
            return first + some < CHANNELS ? weight[(kernel * CHANNELS + first + some) * TAPS + TAPS - 1 - tap] : 0.0f;
        },
        sums);
    if (sample >= BACKWARD_SAMPLES || begin + sample >= batch) return;
#pragma unroll
    for (int s = 0; s < SOME_CHANNELS; s++) {
        if (first + s >= CHANNELS) break;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const int row = square / Over::across * 2 + p / 2, column = square % Over::across * 2 + p % 2;
            if (row < HEIGHT && column < WIDTH)
                dx[(lane * batch + begin + sample) * IMAGE + ((first + s) * HEIGHT + row) * WIDTH + column] = sums[p][s];
        }
    }
}

// Parts of the gradients of weights and bias. Only one pixel of a window has a gradient, so a thread, which has one
// channel of one kernel, multiplies the taps' reach at that pixel. Where there are few kernels and channels, threads
// take turns with the pixels, and what they come to is added in their order. Blocks: (lane, part) x (kernels, channels).
extern "C" __global__ void __launch_bounds__(WEIGHT_THREADS)
    weight_gradients(const float* x, const float* g, const unsigned char* which, float* partial, int batch, int parts,
                     int samples) {
    struct Winner {
        float gradient;
        int at;  // in a channel's plane
    };
    constexpr int height = 2 * ROWS + HIGH - 1, width = 2 * COLUMNS + WIDE - 1;
    constexpr int plane = height * width | 1;  // odd: threads of neighbouring channels read from different banks
    constexpr int pairs = WEIGHT_KERNELS * WEIGHT_CHANNELS, sums = TAPS + 1;  // the last of the sums is the bias's
    constexpr int room = WEIGHT_CHANNELS * plane > TURNS * pairs * sums ? WEIGHT_CHANNELS * plane : TURNS * pairs * sums;
    constexpr int channel_groups = (CHANNELS + WEIGHT_CHANNELS - 1) / WEIGHT_CHANNELS;
    __shared__ float planes[room];
    __shared__ Winner winners[WEIGHT_KERNELS * PIXELS];
    const long long lane = blockIdx.x / parts;
    const int part = blockIdx.x % parts;
    const int first_kernel = blockIdx.y / channel_groups * WEIGHT_KERNELS;
    const int first_channel = blockIdx.y % channel_groups * WEIGHT_CHANNELS;
    const int channel = threadIdx.x % WEIGHT_CHANNELS, kernel = threadIdx.x / WEIGHT_CHANNELS % WEIGHT_KERNELS;
    const int turn = threadIdx.x / pairs;
    float total[sums] = {};
    const int end = (part + 1) * samples < batch ? (part + 1) * samples : batch;
    for (int sample = part * samples; sample < end; sample++) {
        const float* image = x + (lane * batch + sample) * IMAGE;
        const long long gradients = (lane * batch + sample) * KERNELS * PIXELS;
        __syncthreads();
        for (int n = threadIdx.x; n < WEIGHT_CHANNELS * height * width; n += WEIGHT_THREADS) {
            const int c = n / (height * width), row = n % (height * width) / width - TOP, column = n % width - LEFT;
            const bool inside = first_channel + c < CHANNELS && row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
            planes[c * plane + n % (height * width)] =
                inside ? image[((first_channel + c) * HEIGHT + row) * WIDTH + column] : 0.0f;
        }
        for (int n = threadIdx.x; n < WEIGHT_KERNELS * PIXELS; n += WEIGHT_THREADS) {
            const bool there = first_kernel + n / PIXELS < KERNELS;
            const long long at = gradients + first_kernel * PIXELS + n;
            const int place = there ? which[at] : 4, pixel = n % PIXELS;
            const int row = pixel / COLUMNS * 2 + place / 2 % 2, column = pixel % COLUMNS * 2 + place % 2;
            winners[n] = {place < 4 ? g[at] : 0.0f, row * width + column};
        }
        __syncthreads();
        if (turn < TURNS)
            for (int pixel = turn; pixel < PIXELS; pixel += TURNS) {
                const Winner winner = winners[kernel * PIXELS + pixel];
                if (winner.gradient == 0.0f) continue;
                const float* seen = planes + channel * plane + winner.at;
#pragma unroll
                for (int tap = 0; tap < TAPS; tap++)
                    total[tap] += winner.gradient * seen[tap / WIDE * width + tap % WIDE];
                total[TAPS] += winner.gradient;
            }
    }
    __syncthreads();
    if (turn < TURNS)
#pragma unroll
        for (int n = 0; n < sums; n++) planes[threadIdx.x * sums + n] = total[n];
    __syncthreads();
    partial += blockIdx.x * (long long)KERNELS * (CHANNELS * TAPS + 1);
    for (int n = threadIdx.x; n < pairs * sums; n += WEIGHT_THREADS) {
        const int k = first_kernel + n / sums / WEIGHT_CHANNELS, c = first_channel + n / sums % WEIGHT_CHANNELS;
        const int tap = n % sums;
        if (k >= KERNELS || c >= CHANNELS) continue;
        float sum = 0.0f;
        for (int t = 0; t < TURNS; t++) sum += planes[t * pairs * sums + n];
        if (tap < TAPS) partial[(k * CHANNELS + c) * TAPS + tap] = sum;
        else if (c == 0) partial[KERNELS * CHANNELS * TAPS + k] = sum;
    }
}

// Adds the parts up and writes weights and bias, which may lie apart, to their places. Blocks: lane x coordinates.
extern "C" __global__ void add_parts(const float* partial, float* into, float* into_bias, long long into_lane,
                                     long long bias_lane, int parts) {
    constexpr int weights = KERNELS * CHANNELS * TAPS, size = weights + KERNELS;
    const int n = blockIdx.y * blockDim.x + threadIdx.x;
    if (n >= size) return;
    const long long lane = blockIdx.x;
    float sum = 0.0f;
    for (int part = 0; part < parts; part++) sum += partial[(lane * parts + part) * size + n];
    if (n < weights) into[lane * into_lane + n] = sum;
    else if (into_bias) into_bias[lane * bias_lane + n - weights] = sum;
}
