// Runs every function of a kernel table on inputs made here and hashes what comes out. Built twice:
// for this machine's scalar kernels, and as a bare program of the AVX-512 ones that a simulated
// processor runs (guest.cpp). Equal hashes mean equal bits.
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

// One sequence of two chunks and a bit, one KV head shared by three queries.
constexpr std::uint32_t kReplayTokens = 530;
constexpr std::uint32_t kBlockTokens = 32;
constexpr std::uint32_t kReplayBlocks = (kReplayTokens + kBlockTokens - 1) / kBlockTokens;
constexpr std::uint32_t kGroup = 3;
constexpr std::uint32_t kMostDim = 64;
constexpr std::uint32_t kQueryRows = 5;

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
  alignas(64) std::byte scratch[1 << 20];  // more than either kind of job asks for
  alignas(64) std::uint8_t arena[kReplayBlocks * kBlockTokens * 2 * (kMostDim + 1) * 4];
  alignas(64) float partials[3 * kQueryRows * kGroup * (kMostDim + 32)];
  std::uint32_t blocks[kReplayBlocks];
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

// A block table backwards, and keys and values of any code. Gives bytes a block.
inline std::size_t make_arena(KvCode code,
                              std::uint32_t dim,
                              Numbers& numbers,
                              ReplayMemory& memory) {
  const std::size_t elements = std::size_t{2} * dim * kBlockTokens;
  const bool wide = code == KvCode::F16 || code == KvCode::I16;
  const std::size_t element = code == KvCode::F32 ? 4 : wide ? 2 : 1;
  const bool scaled = code != KvCode::F32 && code != KvCode::F16;
  const std::size_t scales = scaled ? std::size_t{2} * kBlockTokens : 0;
  std::uint8_t* at = memory.arena;
  for (std::uint32_t block = 0; block < kReplayBlocks; ++block) {
    memory.blocks[block] = kReplayBlocks - 1 - block;
    if (code == KvCode::F16) {
      put_halves(numbers, at, elements * element);
    }
    for (std::size_t i = 0; i < elements && code != KvCode::F16; ++i) {
      const float value = numbers.next_float();
      const auto byte = static_cast<std::uint8_t>(numbers.next());
      const bool used = (byte & 0x7F) != 0x7F && byte != 0x80;  // else NaN of F8, -128 of I8
      const std::uint8_t own = used ? byte : std::uint8_t{0};
      if (code == KvCode::F32) {
        __builtin_memcpy(at + i * element, &value, sizeof(value));
      } else if (code == KvCode::I16) {
        const auto whole = static_cast<std::int16_t>(value * 2047.0F);
        __builtin_memcpy(at + i * element, &whole, sizeof(whole));
      } else {
        at[i] = own;
      }
    }
    at += elements * element;
    for (std::size_t i = 0; i < scales; ++i, at += sizeof(float)) {
      const float scale = (numbers.next_float() + 2.5F) / 128.0F;
      __builtin_memcpy(at, &scale, sizeof(scale));
    }
  }
  return static_cast<std::size_t>(at - memory.arena) / kReplayBlocks;
}

// A job's rows at once, then chunk by chunk.
inline void replay_job(const KernelTable& kernels,
                       ReplayMemory& memory,
                       AttentionJob job,
                       std::uint64_t* hashes) {
  const std::size_t floats = std::size_t{job.rows} * kGroup * job.head_dim;
  kernels.attend_rows(job);
  hashes[0] = hash_of(memory.y, floats * sizeof(float));
  for (std::size_t i = 0; i < floats; ++i) {
    memory.y[i] = 0.0F;
  }
  const std::size_t seen_from = job.window == 0 ? 0 : job.first_position + 1 - job.window;
  job.first_chunk = static_cast<std::uint32_t>(seen_from / kAttentionChunk);
  job.chunks = (kReplayTokens - 1) / kAttentionChunk + 1 - job.first_chunk;
  job.partial_stride = std::size_t{job.rows} * kGroup * partial_floats(job.head_dim);
  job.partials = memory.partials;
  for (std::uint32_t chunk = 0; chunk < job.chunks; ++chunk) {
    AttentionJob part = job;
    part.first_chunk += chunk;
    part.partials += chunk * job.partial_stride;
    kernels.attend_chunk(part);
  }
  kernels.merge_chunks(job);
  hashes[1] = hash_of(memory.y, floats * sizeof(float));
}

inline std::size_t replay_attention(const KernelTable& kernels,
                                    ReplayMemory& memory,
                                    Numbers& numbers,
                                    std::uint64_t* hashes) {
  constexpr KvCode kCodes[] = {KvCode::F32, KvCode::F16, KvCode::I16, KvCode::I8, KvCode::F8};
  constexpr std::uint32_t kDims[] = {kMostDim, 20};
  constexpr std::uint32_t kRowCounts[] = {kQueryRows, 1};  // several tiles of queries; one
  std::size_t count = 0;
  for (const KvCode code : kCodes) {
    for (const std::uint32_t dim : kDims) {
      AttentionJob job{};
      job.block_bytes = make_arena(code, dim, numbers, memory);
      job.layer = reinterpret_cast<const std::byte*>(memory.arena);
      job.blocks = memory.blocks;
      job.block_tokens = kBlockTokens;
      job.kv_heads = 1;
      job.head_dim = dim;
      job.code = code;
      job.group = kGroup;
      job.scale = 0.125F;
      job.softcap = dim == kMostDim ? 0.0F : 20.0F;
      job.window = dim == kMostDim ? 0 : 300;
      job.q = memory.x;
      job.q_stride = kGroup * dim;
      job.out = memory.y;
      job.out_stride = kGroup * dim;
      job.end_position = kReplayTokens;
      job.scratch = memory.scratch;
      for (const std::uint32_t rows : kRowCounts) {
        job.first_position = kReplayTokens - rows;
        job.rows = rows;
        replay_job(kernels, memory, job, hashes + count);
        count += 2;
      }
    }
  }
  return count;
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
      job.tiles =
          quantised ? quant_row_tiles(kernels, rows) : make_row_tiles(rows, kernels.float_row_tile);
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
  return count + replay_attention(kernels, memory, numbers, hashes + count);
}

}  // namespace
}  // namespace baton::kernels::cpu
