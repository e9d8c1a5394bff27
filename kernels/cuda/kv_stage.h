// Brings 64 positions' keys or values of one head from the arena into shared memory as pairs of
// 16-bit floats, as tensor products take their second operand: keys as pairs of dimensions, values
// as pairs of positions. Whatever the arena's element, what is multiplied is F16, or BF16 where the
// arena is. Keys are staged as codes, whose scales come into the scores; values are multiplied out.
//
// A position behind the end is zeros. A value that is no number is staged as zero and its position
// marked, so that it spoils the queries that see it and no others (a weight of zero times infinity
// would be no number).
//
// Source of the idea: FlashAttention-2 (Dao 2023) for tiles; the rest is the arena's layout.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_pages.h"
#include "kernels/kv_codes.h"

namespace baton::kernels::cuda {

// Words from a row of pairs to the next: eight more than the row, so that a fragment's lanes fall
// into different banks.
inline constexpr unsigned kKeyPitch = kTileTokens + 8;
template <unsigned kDim>
inline constexpr unsigned kValuePitch = kDim + 8;

// Room for a tile's keys [kDim / 2][kKeyPitch], then for its values [kTileTokens / 2][kValuePitch].
template <unsigned kDim>
struct StagedTile {
  static constexpr unsigned kKeyWords = kDim / 2 * kKeyPitch;
  static constexpr unsigned kValueWords = kTileTokens / 2 * kValuePitch<kDim>;
  alignas(16) std::uint32_t words[kKeyWords > kValueWords ? kKeyWords : kValueWords];
  float key_scales[kTileTokens];
  float spoiled[kTileTokens];  // 0, or no number
};

// Which positions of which head; `first` is a multiple of 64, `end` the first that is not stored.
struct StageFrom {
  std::uint32_t table;
  std::uint32_t kv_head;
  std::uint32_t first;
  std::uint32_t end;
};

// The threads that stage together.
struct Crew {
  unsigned index;
  unsigned size;
};

template <unsigned kBytes>
struct alignas(kBytes) Chunk {
  std::uint32_t words[kBytes / 4];
};
template <unsigned kBytes>
BATON_DEVICE Chunk<kBytes> read_chunk(const std::byte* at) {
  Chunk<kBytes> chunk;
  __builtin_memcpy(&chunk, __builtin_assume_aligned(at, kBytes), kBytes);
  return chunk;
}

BATON_DEVICE float byte_value(KvElement element, std::uint32_t code) {
  return element == KvElement::E4m3
             ? e4m3_to_float(static_cast<std::uint8_t>(code))
             : static_cast<float>(static_cast<std::int8_t>(static_cast<std::uint8_t>(code)));
}

// Eight neighbouring elements times `scale`, as bits of 16-bit floats; aligned to their size.
BATON_DEVICE void read_eight(KvElement element,
                             const std::byte* at,
                             float scale,
                             std::uint16_t (&out)[8]) {
  switch (element) {
    case KvElement::Half:
    case KvElement::Bfloat: {
      const Chunk<16> chunk = read_chunk<16>(at);
      BATON_UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        out[i] = static_cast<std::uint16_t>(chunk.words[i / 2] >> (i % 2 * 16));
      }
      return;
    }
    case KvElement::Int16: {
      const Chunk<16> chunk = read_chunk<16>(at);
      BATON_UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        const auto code = static_cast<std::int16_t>(chunk.words[i / 2] >> (i % 2 * 16));
        out[i] = half_of(static_cast<float>(code) * scale);
      }
      return;
    }
    case KvElement::Float:
      BATON_UNROLL
      for (unsigned half = 0; half < 2; ++half) {
        const Chunk<16> chunk = read_chunk<16>(at + half * 16);
        BATON_UNROLL
        for (unsigned i = 0; i < 4; ++i) {
          out[half * 4 + i] = half_of(float_of(chunk.words[i]));
        }
      }
      return;
    case KvElement::Int8:
    case KvElement::E4m3: {
      const Chunk<8> chunk = read_chunk<8>(at);
      BATON_UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        const std::uint32_t code = chunk.words[i / 4] >> (i % 4 * 8) & 0xFFU;
        out[i] = half_of(byte_value(element, code) * scale);
      }
      return;
    }
  }
}

// One of them, wherever it lies.
BATON_DEVICE std::uint16_t read_one(KvElement element, const std::byte* at, float scale) {
  switch (element) {
    case KvElement::Half:
    case KvElement::Bfloat: {
      std::uint16_t bits;
      __builtin_memcpy(&bits, at, sizeof(bits));
      return bits;
    }
    case KvElement::Int16: {
      std::int16_t code;
      __builtin_memcpy(&code, at, sizeof(code));
      return half_of(static_cast<float>(code) * scale);
    }
    case KvElement::Float: {
      float x;
      __builtin_memcpy(&x, at, sizeof(x));
      return half_of(x);
    }
    case KvElement::Int8:
    case KvElement::E4m3:
      break;
  }
  return half_of(byte_value(element, static_cast<std::uint8_t>(*at)) * scale);
}

// Two rows of eight side by side: each word a pair, the first row's low.
BATON_DEVICE void store_pairs(const std::uint16_t (&low)[8],
                              const std::uint16_t (&high)[8],
                              std::uint32_t* to) {
  BATON_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    Chunk<16> chunk;
    BATON_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      chunk.words[i] = low[half * 4 + i] | static_cast<std::uint32_t>(high[half * 4 + i]) << 16;
    }
    *reinterpret_cast<Chunk<16>*>(to + half * 4) = chunk;
  }
}

// Also lays out the tile's key scales and clears its marks.
template <unsigned kDim>
BATON_DEVICE void stage_keys(const KvPages& pages,
                             const StageFrom& from,
                             const Crew& crew,
                             StagedTile<kDim>& tile) {
  constexpr unsigned kGroups = kTileTokens / 8;
  const std::size_t bytes = element_bytes(pages.element);
  for (unsigned i = crew.index; i < kTileTokens; i += crew.size) {
    const std::uint32_t position = from.first + i;
    tile.spoiled[i] = 0.0F;
    tile.key_scales[i] = has_scales(pages.element) && position < from.end
                             ? *scale_of(pages,
                                         block_of(pages, from.table, position),
                                         false,
                                         from.kv_head,
                                         position % pages.block_tokens)
                             : 1.0F;
  }
  for (unsigned task = crew.index; task < kDim / 2 * kGroups; task += crew.size) {
    const unsigned group = task % kGroups;
    const unsigned pair = task / kGroups;
    const std::uint32_t position = from.first + group * 8;
    std::uint16_t rows[2][8] = {};
    if (position < from.end) {
      const std::byte* const keys =
          block_of(pages, from.table, position) +
          (head_at(pages, from.kv_head) + position % pages.block_tokens) * bytes;
      BATON_UNROLL
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned dim = pair * 2 + half;
        if (dim < pages.head_dim) {
          read_eight(pages.element,
                     keys + std::size_t{dim} * pages.block_tokens * bytes,
                     1.0F,
                     rows[half]);
        }
        BATON_UNROLL
        for (unsigned i = 0; i < 8; ++i) {
          rows[half][i] = position + i < from.end ? rows[half][i] : std::uint16_t{0};
        }
      }
    }
    store_pairs(rows[0], rows[1], tile.words + pair * kKeyPitch + group * 8);
  }
}

template <unsigned kDim>
BATON_DEVICE void stage_values(const KvPages& pages,
                               const StageFrom& from,
                               const Crew& crew,
                               StagedTile<kDim>& tile) {
  constexpr unsigned kGroups = kDim / 8;
  const std::size_t bytes = element_bytes(pages.element);
  const std::uint32_t exponent = pages.element == KvElement::Bfloat ? 0x7F80U : 0x7C00U;
  for (unsigned task = crew.index; task < kTileTokens / 2 * kGroups; task += crew.size) {
    const unsigned group = task % kGroups;
    const unsigned pair = task / kGroups;
    const unsigned dim = group * 8;
    std::uint16_t rows[2][8] = {};
    BATON_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned token = pair * 2 + half;
      const std::uint32_t position = from.first + token;
      if (position >= from.end || dim >= pages.head_dim) {
        continue;
      }
      std::byte* const block = block_of(pages, from.table, position);
      const std::uint32_t in_block = position % pages.block_tokens;
      const float scale =
          has_scales(pages.element) ? *scale_of(pages, block, true, from.kv_head, in_block) : 1.0F;
      const std::byte* const values =
          block + pages.values_at +
          (head_at(pages, from.kv_head) + std::size_t{in_block} * pages.head_dim + dim) * bytes;
      if (pages.head_dim % 8 == 0) {
        read_eight(pages.element, values, scale, rows[half]);
      } else {
        BATON_UNROLL
        for (unsigned i = 0; i < 8; ++i) {
          if (dim + i < pages.head_dim) {
            rows[half][i] = read_one(pages.element, values + i * bytes, scale);
          }
        }
      }
      BATON_UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        if ((rows[half][i] & exponent) == exponent) {
          rows[half][i] = 0;
          tile.spoiled[token] = float_of(0x7FC00000U);  // all who write it write the same
        }
      }
    }
    store_pairs(rows[0], rows[1], tile.words + pair * kValuePitch<kDim> + dim);
  }
}

}  // namespace baton::kernels::cuda
