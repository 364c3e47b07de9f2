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

// Memory that a thread keeps between calls.
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
};

void turn(const float* from, long rows, long columns, float* to) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

// logits: [classes][n] -> their gradient in place; the mean loss, or NaN for a label that is no class
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

}  // namespace

// x: [n][in of the first layer], y: [n], w: the flat parameters -> g: their gradient, and the mean loss. 1 where torch must do it:
// something is not finite, or a label is no class.
EXPORT int accord_chain_gradient(
    const Layer* layers, int64_t count, int64_t n, const float* x, const int64_t* y, const float* w, float* g, float* loss) {
    static thread_local std::vector<Room> rooms;
    if ((int64_t)rooms.size() < count + 1) rooms.resize(count + 1);
    const Layer& last = layers[count - 1];
    for (long i = 0; i < n; i++)
        if (y[i] < 0 || y[i] >= last.out) return 1;

    std::vector<const float*> inputs(count);  // of every layer, [n][in]
    const float* at = x;
    for (long l = 0; l < count; l++) {
        const Layer& layer = layers[l];
        Room &room = rooms[l], &before = rooms[l ? l - 1 : count];
        inputs[l] = at;
        float* out = room.out.of(n * layer.out);
        if (!layer.linear) {
            int64_t sizes[11];
            memcpy(sizes, layer.sizes, sizeof sizes);
            sizes[0] = n;
            uint8_t* which = room.which.of(n * (layer.out / sizes[4]) * ((sizes[4] + 7) / 8 * 8));
            if (accord_block_forward(sizes, at, w + layer.weight, layer.bias_of(w), out, which)) return 1;
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

    const float* g_turned = logits;  // of a linear layer's output, [out][n]
    const float* g_out = nullptr;    // of a block's output, [n][out]
    for (long l = count; l-- > 0;) {
        const Layer& layer = layers[l];
        Room &room = rooms[l], &before = rooms[l ? l - 1 : count];
        float* dx = l ? before.g.of(n * layer.in) : nullptr;
        float *dw = g + layer.weight, *db = layer.bias < 0 ? room.unused.of(layer.out) : g + layer.bias;
        if (!layer.linear) {
            int64_t sizes[11];
            memcpy(sizes, layer.sizes, sizeof sizes);
            sizes[0] = n;
            if (accord_block_backward(sizes, inputs[l], w + layer.weight, room.which.of(0), g_out, dx, dw, db)) return 1;
            g_out = dx;
            continue;
        }
        multiply({layer.out, layer.in, n, g_turned, n, 1, inputs[l], layer.in, dw, layer.in});
        for (long o = 0; o < layer.out; o++) {
            db[o] = 0.0f;
            for (long i = 0; i < n; i++) db[o] += g_turned[o * n + i];
        }
        if (!l) break;
        multiply({n, layer.in, layer.out, g_turned, 1, n, w + layer.weight, layer.in, dx, layer.in}, true);
        if (layers[l - 1].linear) {
            const float* passed = inputs[l];
            for (long i = 0; i < n * layer.in; i++) dx[i] = passed[i] > 0.0f ? dx[i] : 0.0f;
            float* next = before.g_turned.of(n * layer.in);
            turn(dx, n, layer.in, next);
            g_turned = next;
        }
        g_out = dx;
    }
    return 0;
}

// w and v: [n], moved along factor * g + decay * w + mu * (w - start) + drift; `sum`: adds up what there is before mu and drift.
// start, drift and sum may be null.
EXPORT void accord_sgd(
    int64_t n, const float* __restrict__ g, float* __restrict__ w, float* __restrict__ v, const float* __restrict__ start,
    const float* __restrict__ drift, float* __restrict__ sum, float factor, float decay, float mu, float momentum, float lr) {
    for (long i = 0; i < n; i++) {
        float along = g[i] * factor + decay * w[i];
        if (sum) sum[i] += along;
        if (start) along += mu * (w[i] - start[i]);
        if (drift) along += drift[i];
        v[i] = momentum * v[i] + along;
        w[i] -= lr * v[i];
    }
}
