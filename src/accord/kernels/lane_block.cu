// Convolution and bias of many lanes, each with weights of its own, and a ReLU and a 2 x 2 max-pool after it where there
// are such, forwards and backwards.
//
// Compiled for one shape of block: `lane_block.py` defines CHANNELS, HEIGHT, WIDTH, KERNELS, HIGH, WIDE, TOP, LEFT, RELU
// and POOL, and how the work is cut. Pictures and weights lie in shared memory, sums in registers. Everything is computed in
// float32. No sum goes over more than one lane, and how a sum is cut depends on the shape alone, so that a lane's bits
// do not depend on the others.

constexpr int WINDOW = POOL ? 2 : 1;  // pixels of the convolution, each way, that come to one of the output
constexpr int ROWS = (HEIGHT + 2 * TOP - HIGH + 1) / WINDOW, COLUMNS = (WIDTH + 2 * LEFT - WIDE + 1) / WINDOW;
constexpr int STOPPED = 4;  // in the place of a window's pixel: ReLU lets no gradient through
constexpr int PIXELS = ROWS * COLUMNS, TAPS = HIGH * WIDE, IMAGE = CHANNELS * HEIGHT * WIDTH;

template <int N, int BYTES>
struct alignas(BYTES) Packed {  // read in as few loads as its alignment allows
    float of[N];
};

template <int N>
struct Constant {
    static constexpr int value = N;
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

// The largest divisor of a number that is at most so large.
__device__ constexpr int divisor(int number, int most) {
    while (number % most) most--;
    return most;
}

// Correlates SAMPLES pictures of IN channels with SOME kernels: a thread has one square of one sample. As many channels
// as there is room for are in shared memory at a time. `fill(pictures, first, chunk)` puts them there, where without
// EDGES it has to write everything; `weight(some, channel, tap)` gives what they are correlated with.
template <int IN, int SAMPLES, int THREADS, int SOME, bool EDGES, class Over, class Fill, class Weight>
__device__ void correlate(int sample, int square, Fill fill, Weight weight, Sums<SOME>& sums) {
    constexpr int fit = ROOM / (SAMPLES * Over::plane + SOME * TAPS), chunk = divisor(IN, fit < IN ? fit : IN);
    alignas(16) __shared__ float pictures[SAMPLES * chunk * Over::plane];
    alignas(16) __shared__ float weights[chunk * TAPS * SOME];
    const float* corner = pictures + sample * chunk * Over::plane + square / Over::across * 2 * Over::width +
                          square % Over::across * 2;
    if (EDGES)
        for (int n = threadIdx.x; n < SAMPLES * chunk * Over::plane; n += THREADS) pictures[n] = 0.0f;
    for (int first = 0; first < IN; first += chunk) {
        __syncthreads();  // whoever still reads the chunk before
        fill(pictures, first, Constant<chunk>());
        for (int n = threadIdx.x; n < SOME * chunk * TAPS; n += THREADS) {
            const int some = n / (chunk * TAPS), at = n % (chunk * TAPS);
            weights[at * SOME + some] = weight(some, first + at / TAPS, at % TAPS);
        }
        __syncthreads();
        if (sample < SAMPLES)
            for (int channel = 0; channel < chunk; channel++)
                add_channel<SOME>(corner + channel * Over::plane, Over::width, weights + channel * TAPS * SOME, sums);
    }
}

// Copies CHUNK channels of some samples, from `x` on, to planes whose first TOP rows and LEFT columns are not theirs. A
// plane has DOWN rows and ACROSS columns; what does not fit is left out.
template <int THREADS, int CHUNK, int DOWN, int ACROSS, int PLANE>
__device__ void copy_channels(const float* x, int samples, float* planes) {
    constexpr int group = WIDTH % 4 ? (WIDTH % 2 ? 1 : 2) : 4, groups = WIDTH / group;
    constexpr bool aligned = LEFT % group == 0 && ACROSS % group == 0 && PLANE % group == 0;
    using Group = Packed<group, 4 * group>;
    for (int n = threadIdx.x; n < samples * CHUNK * HEIGHT * groups; n += THREADS) {
        const int row = n / groups % HEIGHT, column = n % groups * group, plane = n / (groups * HEIGHT);
        const float* from = x + plane / CHUNK * IMAGE + (plane % CHUNK * HEIGHT + row) * WIDTH + column;
        float* to = planes + plane * PLANE + (row + TOP) * ACROSS + column + LEFT;
        const Group some = *reinterpret_cast<const Group*>(from);
        if (row + TOP >= DOWN) continue;
        if constexpr (aligned) {
            if (column + LEFT < ACROSS) *reinterpret_cast<Group*>(to) = some;
        } else {
#pragma unroll
            for (int j = 0; j < group; j++)
                if (column + LEFT + j < ACROSS) to[j] = some.of[j];
        }
    }
}

// The output, and which pixel of its window each value came from. Blocks: (lane, samples, squares) x SOME_KERNELS
// kernels.
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS)
    forward(const float* x, const float* weight, const float* bias, float* out, unsigned char* which,
            long long weight_lane, long long bias_lane, int batch) {
    using Over = Squares<(ROWS * WINDOW + 1) / 2, (COLUMNS * WINDOW + 1) / 2>;
    constexpr bool edges = TOP || LEFT || Over::height > HEIGHT || Over::width > WIDTH;
    constexpr int tiles = (Over::count + FORWARD_THREADS - 1) / FORWARD_THREADS;
    const int cuts = (batch + FORWARD_SAMPLES - 1) / FORWARD_SAMPLES;
    const long long lane = blockIdx.x / (cuts * tiles);
    const int begin = blockIdx.x / tiles % cuts * FORWARD_SAMPLES, first = blockIdx.y * SOME_KERNELS;
    const int item = blockIdx.x % tiles * FORWARD_THREADS + threadIdx.x;
    const int sample = item / Over::count, square = item % Over::count;
    const int there = batch - begin < FORWARD_SAMPLES ? batch - begin : FORWARD_SAMPLES;
    x += (lane * batch + begin) * IMAGE;
    weight += lane * weight_lane;
    Sums<SOME_KERNELS> sums = {};
    correlate<CHANNELS, FORWARD_SAMPLES, FORWARD_THREADS, SOME_KERNELS, edges, Over>(
        sample, square,
        [=](float* pictures, int first, auto chunk) {
            copy_channels<FORWARD_THREADS, chunk.value, Over::height, Over::width, Over::plane>(
                x + first * HEIGHT * WIDTH, there, pictures);
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
        const long long plane = ((lane * batch + begin + sample) * KERNELS + first + s) * PIXELS;
        float best = 0.0f;
        int place = STOPPED;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float value = sums[p][s] + more;
            // the first of equals, NaN before all: as torch has it
            if (!POOL || p == 0 || value > best || value != value) best = value, place = POOL ? p : 0;
            if (POOL && p < 3) continue;
            const int row = square / Over::across * 2 + p / 2, column = square % Over::across * 2 + p % 2;
            if (RELU && best <= 0) best = 0.0f, place = STOPPED;
            if (row >= ROWS * WINDOW || column >= COLUMNS * WINDOW) continue;
            const long long at = plane + row / WINDOW * COLUMNS + column / WINDOW;
            out[at] = best;
            which[at] = place;
        }
    }
}

// The gradient of the pictures: the gradient before pooling and ReLU, correlated with the weights turned around. Blocks: (lane,
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
    const int there = batch - begin < BACKWARD_SAMPLES ? batch - begin : BACKWARD_SAMPLES;
    g += (lane * batch + begin) * KERNELS * PIXELS;
    which += (lane * batch + begin) * KERNELS * PIXELS;
    weight += lane * weight_lane;
    Sums<SOME_CHANNELS> sums = {};
    correlate<KERNELS, BACKWARD_SAMPLES, BACKWARD_THREADS, SOME_CHANNELS, true, Over>(
        sample, square,
        [=](float* pictures, int first, auto chunk) {
            for (int n = threadIdx.x; n < there * chunk.value * PIXELS; n += BACKWARD_THREADS) {
                const int plane = n / PIXELS, pixel = n % PIXELS;
                const int at = (plane / chunk.value * KERNELS + first + plane % chunk.value) * PIXELS + pixel;
                const int row = pixel / COLUMNS * WINDOW + HIGH - 1 - TOP;
                const int column = pixel % COLUMNS * WINDOW + WIDE - 1 - LEFT;
                float* to = pictures + plane * Over::plane + row * Over::width + column;
                const int place = which[at];
                const float value = g[at];
#pragma unroll
                for (int p = 0; p < WINDOW * WINDOW; p++)
                    to[p / 2 * Over::width + p % 2] = place == p ? value : 0.0f;
            }
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
    constexpr int height = ROWS * WINDOW + HIGH - 1, width = COLUMNS * WINDOW + WIDE - 1;
    constexpr int plane = height * width | 1;  // odd: threads of neighbouring channels read from different banks
    constexpr int pairs = WEIGHT_KERNELS * WEIGHT_CHANNELS, sums = TAPS + 1;  // the last of the sums is the bias's
    constexpr int room = WEIGHT_CHANNELS * plane > TURNS * pairs * sums ? WEIGHT_CHANNELS * plane : TURNS * pairs * sums;
    constexpr int channel_groups = CHANNELS / WEIGHT_CHANNELS;
    __shared__ float planes[room];
    __shared__ Winner winners[WEIGHT_KERNELS * PIXELS];
    static_assert(sizeof(planes) + sizeof(winners) <= 48 << 10, "any device has so much");
    const long long lane = blockIdx.x / parts;
    const int part = blockIdx.x % parts;
    const int first_kernel = blockIdx.y / channel_groups * WEIGHT_KERNELS;
    const int first_channel = blockIdx.y % channel_groups * WEIGHT_CHANNELS;
    const int channel = threadIdx.x % WEIGHT_CHANNELS, kernel = threadIdx.x / WEIGHT_CHANNELS % WEIGHT_KERNELS;
    const int turn = threadIdx.x / pairs;
    float total[sums] = {};
    for (int n = threadIdx.x; n < WEIGHT_CHANNELS * plane; n += WEIGHT_THREADS) planes[n] = 0.0f;  // edges stay so
    const int end = (part + 1) * samples < batch ? (part + 1) * samples : batch;
    for (int sample = part * samples; sample < end; sample++) {
        const float* image = x + (lane * batch + sample) * IMAGE + first_channel * HEIGHT * WIDTH;
        const long long gradients = (lane * batch + sample) * KERNELS * PIXELS;
        __syncthreads();
        copy_channels<WEIGHT_THREADS, WEIGHT_CHANNELS, height, width, plane>(image, 1, planes);
        for (int n = threadIdx.x; n < WEIGHT_KERNELS * PIXELS; n += WEIGHT_THREADS) {
            const bool there = first_kernel + n / PIXELS < KERNELS;
            const long long at = gradients + first_kernel * PIXELS + n;
            const int place = there ? which[at] : STOPPED, pixel = n % PIXELS;
            const int row = pixel / COLUMNS * WINDOW + place / 2 % 2, column = pixel % COLUMNS * WINDOW + place % 2;
            winners[n] = {place == STOPPED ? 0.0f : g[at], row * width + column};
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
        if (k >= KERNELS) continue;
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
