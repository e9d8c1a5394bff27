// The device's functions where a kernel is compiled as host code: declarations that
// tests/support/cuda_emulator.cpp defines. See device.h for what they do.
#pragma once

#include <cstddef>
#include <cstdint>

#define BATON_DEVICE [[maybe_unused]] static inline
#define BATON_KERNEL(threads) void
#define BATON_MEMBER inline
#define BATON_UNROLL
#define BATON_UNROLL_BY_4
#define BATON_SHARED(Type, name) Type& name = *static_cast<Type*>(static_shared_bytes(sizeof(Type)))

namespace baton::kernels::cuda {

unsigned thread_index();
unsigned block_threads();
unsigned block_index();    // along x
unsigned block_index_y();  // along y
unsigned block_index_z();  // along z
unsigned grid_blocks();    // along x

void* static_shared_bytes(std::size_t bytes);
void* dynamic_shared_bytes();
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_bytes());
}

void sync_threads();
void sync_warp();
// The value of lane (own ^ mask), of lane `lane`.
float shuffle_xor(float value, unsigned mask);
std::uint32_t shuffle_xor(std::uint32_t value, unsigned mask);
std::uint64_t shuffle_xor(std::uint64_t value, unsigned mask);
float shuffle(float value, unsigned lane);
std::uint32_t shuffle(std::uint32_t value, unsigned lane);
std::uint64_t shuffle(std::uint64_t value, unsigned lane);
std::uint32_t ballot(bool vote);

// One rounding.
BATON_DEVICE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
BATON_DEVICE float square_root(float x) {
  return __builtin_sqrtf(x);
}
BATON_DEVICE float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
BATON_DEVICE std::uint32_t bits_of(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}

// Rounding to nearest even. A pair is two 16-bit floats, `low` in the low half.
std::uint16_t half_of(float x);
float float_of_half(std::uint16_t bits);
std::uint16_t bfloat_of(float x);
std::uint32_t half_pair(float low, float high);
std::uint32_t bfloat_pair(float low, float high);
BATON_DEVICE float float_of_bfloat(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

// c += a · b on tensor cores; fragments as the PTX ISA lays mma.sync out. With g = lane / 4 and
// t = lane % 4 a lane holds
//   of c [16][8]: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
//   16-bit, a [16][16]: pairs from (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8)
//           b [16][8]: pairs of k from (2t, g), (2t+8, g)
//   8-bit,  a [16][32]: fours from (g, 4t), (g+8, 4t), (g, 4t+16), (g+8, 4t+16)
//           b [32][8]: fours of k from (4t, g), (4t+16, g)
void mma_half(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void mma_bfloat(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void mma_int8(std::int32_t (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

// 16 bytes from global to shared memory, behind the thread's back; zeros where not `wanted` (then
// `from` is not read). They are there for the thread after wait_copies, for others after a barrier.
void copy_async16(void* to, const void* from, bool wanted = true);
void commit_copies();
// Until at most `kLeft` of the thread's committed groups are under way.
void wait_copies_left(unsigned left);
template <unsigned kLeft>
BATON_DEVICE void wait_copies() {
  wait_copies_left(kLeft);
}

// Shared memory; whole numbers only, so that order does not matter.
void atomic_add_shared(std::uint32_t* to, std::uint32_t value);
void atomic_add_shared(unsigned long long* to, unsigned long long value);

}  // namespace baton::kernels::cuda
