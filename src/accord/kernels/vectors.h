// Vectors of floats in the compiler's own notation, and how many a register and a processor hold.

#pragma once

#include <cstdint>

#define UNROLL _Pragma("GCC unroll 32")

namespace {  // every file has its own: another build of this library may be loaded too

#ifdef __AVX512F__
constexpr int WIDE = 16, REGISTERS = 32;
#else
constexpr int WIDE = 8, REGISTERS = 16;
#endif

template <int V> struct Of {
    typedef float Float __attribute__((vector_size(4 * V)));
    typedef float Loose __attribute__((vector_size(4 * V), aligned(4), may_alias));  // at any address
    typedef int32_t Int __attribute__((vector_size(4 * V)));
    typedef uint8_t Byte __attribute__((vector_size(V), aligned(1), may_alias));
};
template <int V> using Float = typename Of<V>::Float;
template <int V> inline Float<V> load(const float* p) { return *(const typename Of<V>::Loose*)p; }
template <int V> inline void store(float* p, Float<V> v) { *(typename Of<V>::Loose*)p = v; }

}  // namespace
