// The device's functions as nvcc compiles them. See device.h and device_host.h for what they do.
// Source: CUDA C++ programming guide; PTX ISA, warp-level matrix instructions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#define BATON_DEVICE [[maybe_unused]] static __device__ __forceinline__
// One block a multiprocessor is enough: told less, ptxas spills a register to have seven.
#define BATON_KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
#define BATON_MEMBER __device__ __forceinline__
#define BATON_UNROLL _Pragma("unroll")
#define BATON_UNROLL_BY_4 _Pragma("unroll 4")
#define BATON_SHARED(Type, name) __shared__ Type name

namespace baton::kernels::cuda {

BATON_DEVICE unsigned thread_index() {
  return threadIdx.x;
}
BATON_DEVICE unsigned block_threads() {
  return blockDim.x;
}
BATON_DEVICE unsigned block_index() {
  return blockIdx.x;
}
BATON_DEVICE unsigned block_index_y() {
  return blockIdx.y;
}
BATON_DEVICE unsigned block_index_z() {
  return blockIdx.z;
}
BATON_DEVICE unsigned grid_blocks() {
  return gridDim.x;
}

template <class T>
BATON_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char baton_dynamic_shared[];
  return reinterpret_cast<T*>(baton_dynamic_shared);
}

constexpr unsigned kAllLanes = 0xFFFFFFFFU;

BATON_DEVICE void sync_threads() {
  __syncthreads();
}
BATON_DEVICE void sync_warp() {
  __syncwarp();
}
BATON_DEVICE float shuffle_xor(float value, unsigned mask) {
  return __shfl_xor_sync(kAllLanes, value, static_cast<int>(mask));
}
BATON_DEVICE std::uint32_t shuffle_xor(std::uint32_t value, unsigned mask) {
  return __shfl_xor_sync(kAllLanes, value, static_cast<int>(mask));
}
BATON_DEVICE std::uint64_t shuffle_xor(std::uint64_t value, unsigned mask) {
  return __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(value), static_cast<int>(mask));
}
BATON_DEVICE float shuffle(float value, unsigned lane) {
  return __shfl_sync(kAllLanes, value, static_cast<int>(lane));
}
BATON_DEVICE std::uint32_t shuffle(std::uint32_t value, unsigned lane) {
  return __shfl_sync(kAllLanes, value, static_cast<int>(lane));
}
BATON_DEVICE std::uint64_t shuffle(std::uint64_t value, unsigned lane) {
  return __shfl_sync(kAllLanes, static_cast<unsigned long long>(value), static_cast<int>(lane));
}
BATON_DEVICE std::uint32_t ballot(bool vote) {
  return __ballot_sync(kAllLanes, vote);
}

BATON_DEVICE float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
BATON_DEVICE float square_root(float x) {
  return __fsqrt_rn(x);
}
BATON_DEVICE float float_of(std::uint32_t bits) {
  return __uint_as_float(bits);
}
BATON_DEVICE std::uint32_t bits_of(float x) {
  return __float_as_uint(x);
}

BATON_DEVICE std::uint16_t half_of(float x) {
  return __half_as_ushort(__float2half_rn(x));
}
BATON_DEVICE float float_of_half(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
BATON_DEVICE std::uint16_t bfloat_of(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
BATON_DEVICE float float_of_bfloat(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}
BATON_DEVICE std::uint32_t half_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
BATON_DEVICE std::uint32_t bfloat_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

BATON_DEVICE void mma_half(float (&c)[4],
                           const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
BATON_DEVICE void mma_bfloat(float (&c)[4],
                             const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
BATON_DEVICE void mma_int8(std::int32_t (&c)[4],
                           const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

BATON_DEVICE void copy_async16(void* to, const void* from, bool wanted = true) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}
BATON_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <unsigned kLeft>
BATON_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

BATON_DEVICE void atomic_add_shared(std::uint32_t* to, std::uint32_t value) {
  atomicAdd(to, value);
}
BATON_DEVICE void atomic_add_shared(unsigned long long* to, unsigned long long value) {
  atomicAdd(to, value);
}

}  // namespace baton::kernels::cuda
