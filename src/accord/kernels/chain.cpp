// The gradient of a batch for a chain of layers: blocks (convolution, ReLU, 2x2 max-pool: block.cpp), then linear layers with ReLU
// between them, then softmax and cross-entropy; and the step of SGD along it. One thread.
//
// Activations of linear layers are kept twice, [sample][feature] and turned around: with both, all three products of a layer read and
// write whole vectors.

#include <cmath>
#include <cstring>
#include <vector>

#include "product.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
int accord_block_forward(const int64_t* sizes, const float* x, const float* w, const float* b, float* out, uint8_t* which);
int accord_block_backward(
    const int64_t* sizes, const float* x, const float* w, const uint8_t* which, const float* g, float* dx, float* dw, float* db);
}

namespace {

// A layer as Python lays it out: 16 numbers. `weight` and `bias` are where they lie in the flat vector; bias -1: none.
struct Layer {
    int64_t linear, weight, bias, in, out, sizes[11];

    const float* bias_of(const float* w) const { return bias < 0 ? nullptr : w + bias; }
};

struct Sizes {  // of a block, for so many samples
    int64_t of[11];
    Sizes(const Layer& layer, long n) {
        memcpy(of, layer.sizes, sizeof of);
        of[0] = n;
    }
};

// Memory that a thread keeps between calls, unless it is much.
constexpr size_t MUCH = 1 << 24;
template <class T> struct Kept {
    std::vector<T> values;
    T* of(size_t size) {
        if (values.size() < size) values.resize(size);
        return values.data();
    }
};
struct Room {
    Kept<float> out, turned, g, g_turned, unused;  // of a layer: its output, that turned around, and the gradients of both
    Kept<uint8_t> which;
    size_t size() const { return out.values.size() + turned.values.size() + g.values.size() + g_turned.values.size(); }
};
thread_local std::vector<Room> rooms;

void turn(const float* from, long rows, long columns, float* to) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

// logits: [classes][n] -> their gradient in place; the mean loss
float cross_entropy(float* logits, long classes, long n, const int64_t* y) {
    float sum = 0.0f;
    for (long i = 0; i < n; i++) {
        float largest = logits[i], total = 0.0f;
        for (long c = 1; c < classes; c++) largest = logits[c * n + i] > largest ? logits[c * n + i] : largest;
        const float right = logits[y[i] * n + i];
        for (long c = 0; c < classes; c++) total += logits[c * n + i] = std::exp(logits[c * n + i] - largest);
        sum += std::log(total) - (right - largest);
        for (long c = 0; c < classes; c++) logits[c * n + i] /= total * n;
        logits[y[i] * n + i] -= 1.0f / n;
    }
    return sum / n;
}

// What moves a parameter, for all of the flat vector: `start` (of mu), `drift` and `sum` may be null.
struct Step {
    float *w, *v;
    const float *start, *drift;
    float *sum;
    float factor, decay, mu, momentum, lr;
};

// w and v move along factor * g + decay * w + mu * (w - start) + drift; `sum` adds up what there is before mu and drift.
void move(const Step& s, long at, long n, const float* __restrict__ g) {
    float *__restrict__ w = s.w + at, *__restrict__ v = s.v + at, *__restrict__ sum = s.sum ? s.sum + at : nullptr;
    const float *__restrict__ start = s.start ? s.start + at : nullptr, *__restrict__ drift = s.drift ? s.drift + at : nullptr;
    const float factor = s.factor, decay = s.decay, mu = s.mu, momentum = s.momentum, lr = s.lr;
    for (long i = 0; i < n; i++) {
        float along = g[i] * factor + decay * w[i];
        if (sum) sum[i] += along;
        if (start) along += mu * (w[i] - start[i]);
        if (drift) along += drift[i];
        v[i] = momentum * v[i] + along;
        w[i] -= lr * v[i];
    }
}

constexpr long STRIP = 24;  // rows of a weight whose gradient is still in the cache when the step takes it

// The gradient at w to g and the mean loss; with a step, w moves along it, and of the gradients of linear layers, the large ones, no more
// than a strip is ever in memory. x: [n][in of the first layer], y: [n]. 1 where torch must do it: something is not finite, or a label is
// no class; nothing has moved then.
int pass(const Layer* layers, long count, long n, const float* x, const int64_t* y, const float* w, float* g, float* loss, const Step* step) {
    if ((long)rooms.size() < count + 1) rooms.resize(count + 1);
    const Layer& last = layers[count - 1];
    for (long i = 0; i < n; i++)
        if (y[i] < 0 || y[i] >= last.out) return 1;

    std::vector<const float*> inputs(count), g_turned(count);  // of every layer [n][in]; of linear ones, their outputs' gradients [out][n]
    const float* at = x;
    for (long l = 0; l < count; l++) {
        const Layer& layer = layers[l];
        Room &room = rooms[l], &before = rooms[l ? l - 1 : count];
        inputs[l] = at;
        float* out = room.out.of(n * layer.out);
        if (!layer.linear) {
            const Sizes sizes(layer, n);
            uint8_t* which = room.which.of(n * (layer.out / layer.sizes[4]) * ((layer.sizes[4] + 7) / 8 * 8));
            if (accord_block_forward(sizes.of, at, w + layer.weight, layer.bias_of(w), out, which)) return 1;
        } else {
            const bool follows = l && layers[l - 1].linear;  // whose output is turned already
            float *x_turned = before.turned.of(n * layer.in), *turned = room.turned.of(n * layer.out);
            if (!follows) turn(at, n, layer.in, x_turned);
            multiply({layer.out, n, layer.in, w + layer.weight, layer.in, 1, x_turned, n, turned, n, layer.bias_of(w)});
            if (l + 1 < count) {
                for (long i = 0; i < n * layer.out; i++) turned[i] = turned[i] < 0.0f ? 0.0f : turned[i];  // NaN stays
                turn(turned, layer.out, n, out);
            }
        }
        at = out;
    }
    float* logits = rooms[count - 1].turned.of(n * last.out);
    *loss = cross_entropy(logits, last.out, n, y);
    if (!std::isfinite(*loss)) return 1;

    g_turned[count - 1] = logits;
    for (long l = count; l-- > 0;) {  // gradients of inputs, and of the parameters of blocks
        const Layer& layer = layers[l];
        Room &room = rooms[l], &before = rooms[l ? l - 1 : count];
        float* dx = l ? before.g.of(n * layer.in) : nullptr;
        if (!layer.linear) {
            float* db = layer.bias < 0 ? room.unused.of(layer.out) : g + layer.bias;
            const Sizes sizes(layer, n);
            const float* g_out = room.g.of(0);
            if (accord_block_backward(sizes.of, inputs[l], w + layer.weight, room.which.of(0), g_out, dx, g + layer.weight, db)) return 1;
        } else if (l) {
            multiply({n, layer.in, layer.out, g_turned[l], 1, n, w + layer.weight, layer.in, dx, layer.in}, true);
            if (layers[l - 1].linear) {
                for (long i = 0; i < n * layer.in; i++) dx[i] = inputs[l][i] > 0.0f ? dx[i] : 0.0f;
                float* turned = before.g_turned.of(n * layer.in);
                turn(dx, n, layer.in, turned);
                g_turned[l - 1] = turned;
            }
        }
    }
    for (long l = 0; l < count; l++) {  // gradients of the parameters of linear layers; nothing reads w any more, so it may move
        const Layer& layer = layers[l];
        for (long o = 0; layer.linear && o < layer.out; o += STRIP) {
            const long rows = o + STRIP < layer.out ? STRIP : layer.out - o, first = layer.weight + o * layer.in;
            float* dw = step ? rooms[l].unused.of(STRIP * layer.in) : g + first;
            multiply({rows, layer.in, n, g_turned[l] + o * n, n, 1, inputs[l], layer.in, dw, layer.in});
            if (step) move(*step, first, rows * layer.in, dw);
        }
        for (long o = 0; layer.linear && layer.bias >= 0 && o < layer.out; o++) {
            g[layer.bias + o] = 0.0f;
            for (long i = 0; i < n; i++) g[layer.bias + o] += g_turned[l][o * n + i];
        }
        if (step && !layer.linear) move(*step, layer.weight, layer.sizes[4] * layer.sizes[1] * layer.sizes[5] * layer.sizes[6], g + layer.weight);
        if (step && layer.bias >= 0) move(*step, layer.bias, layer.linear ? layer.out : layer.sizes[4], g + layer.bias);
    }
    return 0;
}

// The same. Where there is no memory for it torch must do it, and has the error to tell.
int guarded(const Layer* layers, long count, long n, const float* x, const int64_t* y, const float* w, float* g, float* loss, const Step* step) {
    int odd = 1;
    try {
        odd = pass(layers, count, n, x, y, w, g, loss, step);
    } catch (const std::bad_alloc&) {
    }
    size_t kept = 0;
    for (const Room& room : rooms) kept += room.size();
    if (kept > MUCH) std::vector<Room>().swap(rooms);
    return odd;
}

}  // namespace

EXPORT int accord_chain_gradient(
    const Layer* layers, int64_t count, int64_t n, const float* x, const int64_t* y, const float* w, float* g, float* loss) {
    return guarded(layers, count, n, x, y, w, g, loss, nullptr);
}

// The gradient is not all there afterwards: g is a place to work in.
EXPORT int accord_chain_step(
    const Layer* layers, int64_t count, int64_t n, const float* x, const int64_t* y, float* w, float* g, float* loss, float* v,
    const float* start, const float* drift, float* sum, float decay, float mu, float momentum, float lr) {
    const Step step = {w, v, start, drift, sum, 1.0f, decay, mu, momentum, lr};
    return guarded(layers, count, n, x, y, w, g, loss, &step);
}

EXPORT void accord_sgd(
    int64_t n, const float* g, float* w, float* v, const float* start, const float* drift, float* sum, float factor, float decay, float mu,
    float momentum, float lr) {
    move({w, v, start, drift, sum, factor, decay, mu, momentum, lr}, 0, n, g);
}
