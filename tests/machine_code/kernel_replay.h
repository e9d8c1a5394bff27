// Runs every function of a kernel table, but for attention, on inputs made here and hashes what
// comes out. Built twice: for this machine's scalar kernels, and as a bare program of the AVX-512
// ones that a simulated processor runs (guest.cpp). Equal hashes mean equal bits.
//
// No library but memcpy and memset. Thread: one. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/weight_codecs.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kReplayCols = 512;
constexpr std::size_t kReplayRows = 77;  // the last panel has one group and less
constexpr std::size_t kReplayPanels = 3;
constexpr std::size_t kMostRows = 70;
constexpr std::size_t kMostHashes = 128;

class Numbers {
 public:
  std::uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  // In [-2, 2).
  float next_float() { return (static_cast<float>(next() >> 8) - 0x1p23F) * 0x1p-22F; }
  // Of either sign, from 2^-9 to 1.
  std::uint16_t next_half() {
    const std::uint32_t bits = next();
    return static_cast<std::uint16_t>((bits & 0x8000) | ((6 + (bits >> 16) % 9) << 10) |
                                      (bits & 0x3FF));
  }

 private:
  std::uint64_t state_ = 88172645463325252ULL;
};

struct ReplayMemory {
  alignas(64) std::uint8_t weights[kReplayPanels * kReplayCols * kPanelRows * 4 + 8192];
  alignas(64) float x[kMostRows * kReplayCols];
  alignas(64) float other[kMostRows * kReplayCols];
  alignas(64) float y[kMostRows * kReplayRows];
  alignas(64) std::uint32_t activations[kMostRows * kReplayCols / kQuantBlock * kActivationWords];
  alignas(64) std::byte scratch[kReplayCols * kPanelRows * 4 + 16384];
};

inline void put_halves(Numbers& numbers, std::uint8_t* out, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 2) {
    const std::uint16_t half = numbers.next_half();
    __builtin_memcpy(out + at, &half, sizeof(half));
  }
}

// Panels as pack() would make them: any codes, scales that are numbers. Gives bytes a panel.
inline std::size_t make_panels(DType dtype, Numbers& numbers, std::uint8_t* out) {
  const std::size_t elements = kReplayPanels * kReplayCols * kPanelRows;
  if (dtype == DType::F32 || dtype == DType::BF16) {
    const std::size_t size = dtype == DType::F32 ? 4 : 2;
    for (std::size_t i = 0; i < elements; ++i) {
      const float value = numbers.next_float();
      __builtin_memcpy(
          out + i * size, reinterpret_cast<const char*>(&value) + sizeof(value) - size, size);
    }
    return kReplayCols * kPanelRows * size;
  }
  if (dtype == DType::F16) {
    put_halves(numbers, out, elements * 2);
    return kReplayCols * kPanelRows * 2;
  }
  const PanelLayout layout = panel_layout(dtype);
  std::uint8_t* at = out;
  for (std::size_t block = 0; block < kReplayPanels * kReplayCols / kQuantBlock; ++block) {
    if (layout.header_bytes != 0 && block % layout.header_blocks == 0) {
      put_halves(numbers, at, layout.header_bytes);
      at += layout.header_bytes;
    }
    for (std::size_t i = 0; i < layout.record_bytes; ++i) {
      at[i] = static_cast<std::uint8_t>(numbers.next());
    }
    if (layout.header_bytes == 0) {
      put_halves(numbers, at + layout.scale_at, kPanelRows * 2);
      if (layout.min_at != 0) {
        put_halves(numbers, at + layout.min_at, kPanelRows * 2);
      }
    }
    at += layout.record_bytes;
  }
  return static_cast<std::size_t>(at - out) / kReplayPanels;
}

inline std::uint64_t hash_of(const void* p, std::size_t bytes) {
  const auto* at = static_cast<const std::uint8_t*>(p);
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ at[i]) * 1099511628211ULL;
  }
  return hash;
}

// Gives how many hashes were written.
inline std::size_t replay(const KernelTable& kernels, ReplayMemory& memory, std::uint64_t* hashes) {
  constexpr DType kTypes[] = {DType::F32,
                              DType::F16,
                              DType::BF16,
                              DType::Q4_0,
                              DType::Q4_1,
                              DType::Q5_0,
                              DType::Q5_1,
                              DType::Q8_0,
                              DType::Q4_K,
                              DType::Q5_K,
                              DType::Q6_K};
  // One row, whole and broken tiles, and so many that panels are expanded.
  constexpr std::size_t kRowCounts[] = {1, 5, 13, kMostRows};
  std::size_t count = 0;
  Numbers numbers;
  for (std::size_t i = 0; i < kMostRows * kReplayCols; ++i) {
    memory.x[i] = numbers.next_float();
    memory.other[i] = numbers.next_float();
  }
  for (const DType dtype : kTypes) {
    const bool quantised = dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16;
    MatmulJob job{};
    job.panel_bytes = make_panels(dtype, numbers, memory.weights);
    job.dtype = dtype;
    job.weight = reinterpret_cast<const std::byte*>(memory.weights);
    job.rows = kReplayRows;
    job.cols = kReplayCols;
    job.end_panel = kReplayPanels;
    job.activations = memory.activations;
    job.x = memory.x;
    job.y = memory.y;
    job.y_stride = kReplayRows;
    job.scratch = memory.scratch;
    for (const std::size_t rows : kRowCounts) {
      job.tiles = make_row_tiles(rows, quantised ? kernels.quant_row_tile : kernels.float_row_tile);
      job.end_tile = job.tiles.count;
      job.accumulate = rows == 13;
      for (std::size_t i = 0; i < rows * kReplayRows; ++i) {
        memory.y[i] = 0.5F;
      }
      if (quantised) {
        kernels.quantise(
            {memory.x, kReplayCols, job.tiles, 0, job.tiles.count, memory.activations});
      }
      kernels.matmul(job);
      hashes[count++] = hash_of(memory.y, rows * kReplayRows * sizeof(float));
    }
  }
  constexpr std::size_t kOdd = 1003;  // no multiple of any vector
  const auto done = [&] { hashes[count++] = hash_of(memory.y, kOdd * sizeof(float)); };
  kernels.rms_norm(memory.x, 3, 331, memory.other, 1e-5F, memory.y);
  done();
  constexpr std::size_t kHalves[] = {8, 20, 32};
  for (const std::size_t half : kHalves) {
    for (std::size_t i = 0; i < kOdd; ++i) {
      memory.y[i] = memory.x[i];
    }
    kernels.rope_interleaved(memory.y, 3, 2 * half, memory.other, memory.other + half, half);
    done();
    kernels.rope_halves(memory.y, 3, 2 * half, memory.other, memory.other + half, half);
    done();
  }
  kernels.silu_mul(memory.x, memory.other, kOdd, memory.y);
  done();
  kernels.gelu_mul(memory.x, memory.other, kOdd, memory.y);
  done();
  kernels.add(memory.y, memory.other, kOdd);
  done();
  kernels.to_half(memory.x, kOdd, reinterpret_cast<std::uint16_t*>(memory.y));
  done();
  return count;
}

}  // namespace
}  // namespace baton::kernels::cpu
