// How a packed weight's bytes become vectors of codes, scales and mins. Packed layout: panels of 32
// output features; in a panel one record a 32-element block of K, for K-types behind a header a 256
// elements, so that a panel is one ascending stream of about the file's bytes:
//
//   header (K-types)  d f16[32]; Q4_K, Q5_K: -dmin f16[32]
//   record            nibbles [4][2][64 bytes]: byte 4i+b of [j][g] holds feature 16g+i; its low
//                     nibble is element 8j+b, its high nibble element 8j+4+b
//                     (Q8_0: bytes [8 steps][2][64], byte 4i+b of [s][g] is element 4s+b)
//                     5-bit types: fifth bits [8 steps][2][8 bytes], one bit a byte of the vector
//                     Q6_K: top bits [2][2][64 bytes]: step s of group g in byte [s/4][g], bits
//                     2(s%4) scales: f16[32], K-types u8[32], Q6_K s8[2][32] mins: f16[32], K-types
//                     u8[32]
//   expanded (scratch only): for one group after the other, or for both together where a tile holds
//                     both, a record a block: bytes [8 steps][groups][64], scales
//                     f32[32 / group][groups][16], mins f32[groups][16]
//   widened (scratch only): for one group after the other a record a block: signed codes i16 [16
//                     half steps][16 features][2], scales f32[16]
//
// A code is used unsigned: value = scale * (code - offset) + min.
//
// Only instruction-set translation units and the packer include this. Thread: pure. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace baton::kernels::cpu {
namespace {

// Byte places in a packed panel of one quantised type.
struct PanelLayout {
  std::size_t header_bytes;   // 0: none
  std::size_t header_blocks;  // records behind one header
  std::size_t extra_at;       // fifth or top bits
  std::size_t scale_at;
  std::size_t min_at;
  std::size_t record_bytes;
};

constexpr PanelLayout panel_layout(DType type) {
  switch (type) {
    case DType::Q4_0:
      return {0, 1, 0, 512, 0, 576};
    case DType::Q4_1:
      return {0, 1, 0, 512, 576, 640};
    case DType::Q5_0:
      return {0, 1, 512, 640, 0, 704};
    case DType::Q5_1:
      return {0, 1, 512, 640, 704, 768};
    case DType::Q8_0:
      return {0, 1, 0, 1024, 0, 1088};
    case DType::Q4_K:
      return {128, 8, 0, 512, 544, 576};
    case DType::Q5_K:
      return {128, 8, 512, 640, 672, 704};
    case DType::Q6_K:
      return {64, 8, 512, 768, 0, 832};
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  return {};
}

template <DType kType>
struct FileCodec {
  static constexpr PanelLayout kLayout = panel_layout(kType);
  static constexpr bool kK = kLayout.header_bytes != 0;
  static constexpr bool kSix = kType == DType::Q6_K;
  static constexpr bool kFive =
      kType == DType::Q5_0 || kType == DType::Q5_1 || kType == DType::Q5_K;
  static constexpr bool kWide = kType == DType::Q8_0;
  static constexpr int kSteps = 8;  // activation words a row and block
  static constexpr int kMaxCode = kWide ? 255 : kSix ? 63 : kFive ? 31 : 15;
  static constexpr int kParts = kSix ? 2 : 1;  // scales a record
  static constexpr bool kHasMin = kLayout.min_at != 0;
  // log2 of the offset; -1: none
  static constexpr int kOffsetShift = kType == DType::Q4_0   ? 3
                                      : kType == DType::Q5_0 ? 4
                                      : kSix                 ? 5
                                      : kWide                ? 7
                                                             : -1;

  // Groups of 16 output features in a record.
  template <class Isa>
  static constexpr int tile_groups() {
    return 2;
  }

  // Codes of steps 2j and 2j + 1 (four elements each) of group g.
  template <class Isa, int kPair>
  [[gnu::always_inline]] static inline void codes(const std::uint8_t* record,
                                                  int g,
                                                  typename Isa::W& even,
                                                  typename Isa::W& odd) {
    if constexpr (kWide) {
      even = Isa::load_codes(record + ((2 * kPair) * 2 + g) * 64);
      odd = Isa::load_codes(record + ((2 * kPair + 1) * 2 + g) * 64);
    } else {
      const typename Isa::W both = Isa::load_codes(record + (kPair * 2 + g) * 64);
      even = Isa::low_nibbles(both);
      odd = Isa::high_nibbles(both);
      if constexpr (kFive) {
        const std::uint8_t* fifth = record + kLayout.extra_at + g * 8;
        even = Isa::with_fifth_bits(even, fifth + (2 * kPair) * 16);
        odd = Isa::with_fifth_bits(odd, fifth + (2 * kPair + 1) * 16);
      } else if constexpr (kSix) {
        const typename Isa::W top =
            Isa::load_codes(record + kLayout.extra_at + ((kPair / 2) * 2 + g) * 64);
        even = Isa::template with_top_bits<(2 * kPair) % 4>(even, top);
        odd = Isa::template with_top_bits<(2 * kPair + 1) % 4>(odd, top);
      }
    }
  }

  template <class Isa>
  [[gnu::always_inline]] static inline typename Isa::F scale(const std::uint8_t* header,
                                                             const std::uint8_t* record,
                                                             int g,
                                                             int part) {
    const std::uint8_t* at = record + kLayout.scale_at;
    if constexpr (kSix) {
      return Isa::mul(half<Isa>(header, g), Isa::load_s8(at + part * 32 + g * 16));
    } else if constexpr (kK) {
      return Isa::mul(half<Isa>(header, g), Isa::load_u8(at + g * 16));
    } else {
      return half<Isa>(at, g);
    }
  }

  template <class Isa>
  [[gnu::always_inline]] static inline typename Isa::F min(const std::uint8_t* header,
                                                           const std::uint8_t* record,
                                                           int g) {
    const std::uint8_t* at = record + kLayout.min_at;
    if constexpr (kK) {
      return Isa::mul(half<Isa>(header + 64, g), Isa::load_u8(at + g * 16));
    } else {
      return half<Isa>(at, g);
    }
  }

 private:
  template <class Isa>
  [[gnu::always_inline]] static inline typename Isa::F half(const std::uint8_t* at, int g) {
    return Isa::load(reinterpret_cast<const std::uint16_t*>(at) + g * 16);
  }
};

// What `expand_panel` makes of a panel when many row tiles will use it.
template <class Isa, class From>
struct ExpandedCodec {
  static constexpr int kSteps = From::kSteps;
  static constexpr int kMaxCode = From::kMaxCode;
  static constexpr int kParts = From::kParts;
  static constexpr bool kHasMin = From::kHasMin;
  static constexpr bool kWide = From::kWide;
  static constexpr int kOffsetShift = From::kOffsetShift;
  static constexpr int kGroups = Isa::kGroups;
  static constexpr std::size_t kCodeBytes = kGroups * 512;
  static constexpr std::size_t kTableBytes = kGroups * 64;
  static constexpr PanelLayout kLayout = {0,
                                          1,
                                          0,
                                          kCodeBytes,
                                          kCodeBytes + kParts* kTableBytes,
                                          kCodeBytes + (kParts + kHasMin) * kTableBytes};

  template <class>
  static constexpr int tile_groups() {
    return kGroups;
  }

  // `g`: 0 or, in a record of both groups, 1.
  static constexpr std::size_t code_at(int step, int g) {
    return static_cast<std::size_t>(step * kGroups + g) * 64;
  }
  static constexpr std::size_t scale_at(int part, int g) {
    return kLayout.scale_at + part * kTableBytes + g * 64;
  }
  static constexpr std::size_t min_at(int g) { return kLayout.min_at + g * 64; }

  template <class I, int kPair>
  [[gnu::always_inline]] static inline void codes(const std::uint8_t* record,
                                                  int g,
                                                  typename I::W& even,
                                                  typename I::W& odd) {
    even = I::load_codes(record + code_at(2 * kPair, g));
    odd = I::load_codes(record + code_at(2 * kPair + 1, g));
  }
  template <class I>
  [[gnu::always_inline]] static inline typename I::F scale(const std::uint8_t*,
                                                           const std::uint8_t* record,
                                                           int g,
                                                           int part) {
    return I::load(reinterpret_cast<const float*>(record + scale_at(part, g)));
  }
  template <class I>
  [[gnu::always_inline]] static inline typename I::F min(const std::uint8_t*,
                                                         const std::uint8_t* record,
                                                         int g) {
    return I::load(reinterpret_cast<const float*>(record + min_at(g)));
  }
};

// What `widen_panel` makes of Q8_0 for products of 16-bit pairs.
struct WidenedCodec {
  static constexpr int kSteps = 16;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = false;
  static constexpr PanelLayout kLayout = {0, 1, 0, 1024, 0, 1088};

  template <class>
  static constexpr int tile_groups() {
    return 1;
  }
  template <class Isa>
  [[gnu::always_inline]] static inline typename Isa::F scale(const std::uint8_t*,
                                                             const std::uint8_t* record,
                                                             int,
                                                             int) {
    return Isa::load(reinterpret_cast<const float*>(record + kLayout.scale_at));
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
