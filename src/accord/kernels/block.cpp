// Convolution + bias + ReLU + 2x2 max-pool in one pass, forward and backward, for any channels, kernel size and padding. One thread.
//
// Forward: a vector holds output channels. The conv outputs of two pooling windows stay in registers until their maxima are known, so the
// unpooled picture is never written. Backward: of every window one pixel has a gradient, so three quarters of the work of a dense
// convolution is left out; both gradients are the same operation, "add up g * patch over a list of places".
//
// Pictures are copied sample by sample to [row][column][channel] with the padding around them: a patch is then `kh` runs of kw * C floats.
// Callers must bring finite numbers (0 * infinity is skipped here, and is NaN in a dense convolution): both functions return 1 if
// something is not finite, and the caller then takes the plain way.

#include <cstdint>
#include <cstring>
#include <vector>

#include "vectors.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {  // nothing but the two functions is seen from outside: another build of this file may be loaded too

struct Shape {
    long n, c, h, w, k, kh, kw, top, left, oh, ow;  // oh, ow: size of the convolution's output
    long hp() const { return oh + kh - 1; }
    long wp() const { return ow + kw - 1; }
    long ph() const { return oh / 2; }
    long pw() const { return ow / 2; }
    long row() const { return wp() * c; }  // floats in a padded row
    long run() const { return kw * c; }    // floats of a patch that lie next to each other
    long run_up() const { return (run() + WIDE - 1) / WIDE * WIDE; }
    long padded() const { return hp() * row() + 2 * WIDE; }  // vectors may reach beyond the last run
    long k_up() const { return (k + 7) / 8 * 8; }            // channels of `which`, and of the picture before it is turned around
};

Shape shape_of(const int64_t* s) { return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10]}; }

// Memory that a thread keeps between calls, beginning at a cache line.
float* scratch(int which, size_t size) {
    static thread_local std::vector<float> kept[4];
    if (kept[which].size() < size + 16) kept[which].resize(size + 16);
    return (float*)(((uintptr_t)kept[which].data() + 63) & ~(uintptr_t)63);
}

// The sum of 0 * v: zero if all are finite, else NaN.
float odd(const float* v, long n) {
    float sum[WIDE] = {};
    long i = 0;
    for (; i + WIDE <= n; i += WIDE)
        for (int j = 0; j < WIDE; j++) sum[j] += 0.0f * v[i + j];
    float all = 0.0f;
    for (; i < n; i++) all += 0.0f * v[i];
    for (int j = 0; j < WIDE; j++) all += sum[j];
    return all;
}

// One sample [C][H][W] to [row][column][C] inside its padding, which must be zero already.
void pack(const Shape& s, const float* x, float* to) {
    for (long y = 0; y < s.h; y++) {
        float* line = to + (y + s.top) * s.row() + s.left * s.c;
        if (s.c == 1) memcpy(line, x + y * s.w, s.w * sizeof(float));
        for (long c = 0; c < s.c && s.c > 1; c++)
            for (long i = 0; i < s.w; i++) line[i * s.c + c] = x[(c * s.h + y) * s.w + i];
    }
}

void unpack(const Shape& s, const float* from, float* x) {
    for (long c = 0; c < s.c; c++)
        for (long y = 0; y < s.h; y++)
            for (long i = 0; i < s.w; i++) x[(c * s.h + y) * s.w + i] = from[(y + s.top) * s.row() + (i + s.left) * s.c + c];
}

// ------------------------------------------------------------------------------------------------------------------------------ forward

// Two rows of `COLUMNS` conv outputs for NV * V channels, then their pooling windows. x: the first pixel's patch. w: [kh][run][NV * V].
template <int V, int NV, int COLUMNS>
void windows(const Shape& s, const float* x, const float* w, const float* bias, float* out, uint8_t* which) {
    Float<V> acc[2][COLUMNS][NV];
    const long row = s.row(), run = s.run(), c = s.c, k_up = s.k_up();
    UNROLL for (int v = 0; v < NV; v++) {
        Float<V> b = load<V>(bias + v * V);
        UNROLL for (int i = 0; i < 2 * COLUMNS; i++) acc[i / COLUMNS][i % COLUMNS][v] = b;
    }
    for (long ky = 0; ky < s.kh; ky++, x += row) {
        for (long j = 0; j < run; j++, w += NV * V) {
            Float<V> weight[NV];
            UNROLL for (int v = 0; v < NV; v++) weight[v] = load<V>(w + v * V);
            UNROLL for (int i = 0; i < 2 * COLUMNS; i++) {
                const float pixel = x[(i / COLUMNS) * row + (i % COLUMNS) * c + j];
                UNROLL for (int v = 0; v < NV; v++) acc[i / COLUMNS][i % COLUMNS][v] += pixel * weight[v];
            }
        }
    }
    UNROLL for (int p = 0; p < COLUMNS / 2; p++)
        UNROLL for (int v = 0; v < NV; v++) {
            Float<V> best = acc[0][2 * p][v];
            typename Of<V>::Int place = {};
            UNROLL for (int i = 1; i < 4; i++) {  // torch's rule: a later value must be larger, or NaN
                const Float<V> here = acc[i / 2][2 * p + i % 2][v];
                const auto takes = (here > best) | (here != here);
                best = takes ? here : best;
                place = takes ? place * 0 + i : place;
            }
            const auto dead = best <= 0.0f;
            store<V>(out + p * k_up + v * V, dead ? Float<V>{} : best);
            using Byte = typename Of<V>::Byte;
            if (which) *(Byte*)(which + p * k_up + v * V) = __builtin_convertvector(dead ? place * 0 + 4 : place, Byte);
        }
}

template <int V, int NV>
void plane(const Shape& s, const float* x, const float* w, const float* bias, float* out, uint8_t* which) {
    for (long y = 0; y < s.ph(); y++) {
        for (long i = 0; i < s.pw(); i += 2) {
            const long from = 2 * y * s.row() + 2 * i * s.c, at = (y * s.pw() + i) * s.k_up();
            auto two = i + 1 < s.pw() ? windows<V, NV, 4> : windows<V, NV, 2>;
            two(s, x + from, w, bias, out + at, which ? which + at : nullptr);
        }
    }
}

// How many channels the next block takes: two wide vectors, one, or (always enough for the rest) eight.
long block(long left) { return REGISTERS == 32 && left >= 2 * WIDE ? 2 * WIDE : left >= WIDE ? WIDE : 8; }

}  // namespace

// x: [N][C][H][W], w: [K][C][kh][kw], b: [K] or null -> out: [N][K][ph][pw];
// which: [N][ph * pw][k_up] (the maximum's place in its window, 4 if it was not above 0) or null
EXPORT int accord_block_forward(const int64_t* sizes, const float* x, const float* w, const float* b, float* out, uint8_t* which) {
    const Shape s = shape_of(sizes);
    const long taps = s.kh * s.run(), positions = s.ph() * s.pw(), picture = s.c * s.h * s.w;
    float bad = odd(x, s.n * picture) + odd(w, s.k * taps) + (b ? odd(b, s.k) : 0.0f);
    if (!(bad == 0.0f)) return 1;
    float *xp = scratch(0, s.padded()), *wp = scratch(1, taps * s.k_up()), *bp = scratch(2, s.k_up());
    float* op = scratch(3, positions * s.k_up());
    memset(xp, 0, s.padded() * sizeof(float));
    memset(bp, 0, s.k_up() * sizeof(float));
    if (b) memcpy(bp, b, s.k * sizeof(float));
    float* to = wp;
    for (long k = 0, wide; k < s.k_up(); k += wide) {
        wide = block(s.k_up() - k);
        for (long ky = 0; ky < s.kh; ky++)
            for (long kx = 0; kx < s.kw; kx++)
                for (long c = 0; c < s.c; c++)
                    for (long i = k; i < k + wide; i++) *to++ = i < s.k ? w[((i * s.c + c) * s.kh + ky) * s.kw + kx] : 0.0f;
    }
    for (long n = 0; n < s.n; n++) {
        pack(s, x + n * picture, xp);
        uint8_t* places = which ? which + n * positions * s.k_up() : nullptr;
        for (long k = 0, wide; k < s.k_up(); k += wide) {
            wide = block(s.k_up() - k);
            auto run = wide == 2 * WIDE ? plane<WIDE, 2> : wide == WIDE ? plane<WIDE, 1> : plane<8, 1>;
            run(s, xp, wp + k * taps, bp + k, op + k, places ? places + k : nullptr);
        }
        float* sample = out + n * s.k * positions;
        for (long k = 0; k < s.k; k++)
            for (long i = 0; i < positions; i++) sample[k * positions + i] = op[i * s.k_up() + k];
    }
    return 0;
}

// ----------------------------------------------------------------------------------------------------------------------------- backward

namespace {

struct Place {
    int32_t at;
    float g;
};

// to[r][v] += the sum over the list of g * from[at][r][v], for ROWS rows of NV vectors
template <int V, int ROWS, int NV>
void gather(const Place* list, long n, const float* from, long from_row, float* to, long to_row) {
    Float<V> acc[ROWS][NV];
    UNROLL for (int i = 0; i < ROWS * NV; i++) acc[i / NV][i % NV] = load<V>(to + (i / NV) * to_row + (i % NV) * V);
    for (long l = 0; l < n; l++) {
        const float* patch = from + list[l].at;
        const float g = list[l].g;
        UNROLL for (int i = 0; i < ROWS * NV; i++) acc[i / NV][i % NV] += g * load<V>(patch + (i / NV) * from_row + (i % NV) * V);
    }
    UNROLL for (int i = 0; i < ROWS * NV; i++) store<V>(to + (i / NV) * to_row + (i % NV) * V, acc[i / NV][i % NV]);
}

typedef void Gather(const Place*, long, const float*, long, float*, long);

// A patch of `kh` runs, cut into tiles that registers hold.
struct Tiles {
    long rows, columns, vector;  // rows and floats of a tile, floats of a vector
    Gather* full;
    Gather* last;

    template <int V, int ROWS> static Gather* pick(long nv) {
        static Gather* const table[] = {gather<V, ROWS, 1>, gather<V, ROWS, 2>, gather<V, ROWS, 3>, gather<V, ROWS, 4>};
        return table[nv - 1];
    }
    template <int V> static Tiles of(const Shape& s) {
        const long vectors = (s.run() + V - 1) / V, most = REGISTERS == 32 ? 4 : 2;
        const long nv = vectors < most ? vectors : most, rest = (vectors - 1) % nv + 1;
        if (s.kh == 5) return {5, nv * V, V, pick<V, 5>(nv), pick<V, 5>(rest)};
        if (s.kh == 3) return {3, nv * V, V, pick<V, 3>(nv), pick<V, 3>(rest)};
        return {1, nv * V, V, pick<V, 1>(nv), pick<V, 1>(rest)};
    }
    Tiles(long r, long c, long v, Gather* f, Gather* l) : rows(r), columns(c), vector(v), full(f), last(l) {}
    explicit Tiles(const Shape& s) : Tiles(s.run() <= 8 ? of<8>(s) : of<WIDE>(s)) {}

    void operator()(const Shape& s, const Place* list, long n, const float* from, long from_row, float* to, long to_row) const {
        for (long column = 0; column < s.run(); column += columns)
            for (long ky = 0; ky < s.kh; ky += rows)
                (column + columns < s.run() ? full : last)(
                    list, n, from + ky * from_row + column, from_row, to + ky * to_row + column, to_row);
    }
};

}  // namespace

// g: [N][K][ph][pw] -> dx: [N][C][H][W] or null, dw: [K][C][kh][kw], db: [K]
EXPORT int accord_block_backward(
    const int64_t* sizes, const float* x, const float* w, const uint8_t* which, const float* g, float* dx, float* dw, float* db) {
    const Shape s = shape_of(sizes);
    const long positions = s.ph() * s.pw(), picture = s.c * s.h * s.w, up = s.run_up(), patch = s.kh * up;
    if (!(odd(g, s.n * s.k * positions) == 0.0f)) return 1;
    float *xp = scratch(0, s.padded()), *dwp = scratch(1, s.k * patch + WIDE), *wp = nullptr, *dxp = nullptr;
    memset(xp, 0, s.padded() * sizeof(float));
    memset(dwp, 0, s.k * patch * sizeof(float));
    memset(db, 0, s.k * sizeof(float));
    if (dx) {  // zeros beyond a run: they are added to whatever lies there
        wp = scratch(2, s.k * patch);
        dxp = scratch(3, s.padded());
        memset(wp, 0, s.k * patch * sizeof(float));
        for (long k = 0; k < s.k; k++)
            for (long ky = 0; ky < s.kh; ky++)
                for (long kx = 0; kx < s.kw; kx++)
                    for (long c = 0; c < s.c; c++) wp[k * patch + ky * up + kx * s.c + c] = w[((k * s.c + c) * s.kh + ky) * s.kw + kx];
    }
    const Tiles tiles(s);
    // Where a window's first pixel lies, and how far it is from there to each of its four.
    const int32_t step[5] = {0, (int32_t)s.c, (int32_t)s.row(), (int32_t)(s.row() + s.c), 0};
    std::vector<int32_t> first(positions);
    for (long i = 0; i < positions; i++) first[i] = 2 * (i / s.pw() * s.row() + i % s.pw() * s.c);
    std::vector<Place> list((positions > 4 * s.k ? positions : 4 * s.k) + 1);
    for (long n = 0; n < s.n; n++) {
        pack(s, x + n * picture, xp);
        const uint8_t* places = which + n * positions * s.k_up();
        const float* sample = g + n * s.k * positions;
        for (long k = 0; k < s.k; k++) {
            long count = 0;
            float sum = 0.0f;
            for (long i = 0; i < positions; i++) {
                const uint8_t place = places[i * s.k_up() + k];
                const float here = sample[k * positions + i];
                list[count] = {first[i] + step[place], here};
                sum += place < 4 ? here : 0.0f;
                count += place < 4;
            }
            db[k] += sum;
            tiles(s, list.data(), count, xp, s.row(), dwp + k * patch, up);
        }
        if (!dx) continue;
        memset(dxp, 0, s.padded() * sizeof(float));
        for (long i = 0; i < positions; i++) {
            // One list per place of the window. Their lengths are 16 bits each of one number: a branch could not be foretold.
            uint64_t lengths = 0;
            for (long k = 0; k < s.k; k++) {
                const unsigned place = places[i * s.k_up() + k], shift = 16 * (place & 3);
                list[(place & 3) * s.k + (lengths >> shift & 0xffff)] = {(int32_t)(k * patch), sample[k * positions + i]};
                lengths += (uint64_t)(place < 4) << shift;
            }
            for (int place = 0; place < 4; place++, lengths >>= 16)
                if (const long count = lengths & 0xffff)
                    tiles(s, &list[place * s.k], count, wp, up, dxp + first[i] + step[place], s.row());
        }
        unpack(s, dxp, dx + n * picture);
    }
    for (long k = 0; k < s.k; k++)
        for (long ky = 0; ky < s.kh; ky++)
            for (long kx = 0; kx < s.kw; kx++)
                for (long c = 0; c < s.c; c++) dw[((k * s.c + c) * s.kh + ky) * s.kw + kx] = dwp[k * patch + ky * up + kx * s.c + c];
    return 0;
}
