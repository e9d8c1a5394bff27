// How matrices lie on the device for the tensor-core products, and the arguments of those kernels.
// The host packs (packed_weight.h), the kernels read.
//
// Quantised weights are integer codes with a scale, and perhaps a min, for each output feature and
// group of K. Features come in tiles of 16, K in groups of 32, and a tile's codes of one group lie
// as the lanes of a warp hold them for an 8-bit product (device_host.h, mma_int8), so that a warp
// reads one run of bytes:
//   codes   4-bit: [tile][group][lane][2 words]: nibbles of the fragment's first and second
//   register
//           in the low and high halves of the first word's bytes, third and fourth in the second's
//           8-bit, signed: [tile][group][lane][4 words]
//   scales  Half: f16 [tile][group][16]; K: u8 [tile][group][16]; K16: s8 [tile][group][2][16]
//   mins    as scales; formats without have none
//   supers  of K: f16 [tile][K / 256][2][16], d and -dmin; of K16: f16 [tile][K / 256][16], d
// Float weights: [tile][K / 16][lane][4 words of two 16-bit floats], or, of FP8 E4M3, [2 words of
// four]; zeros beyond the matrix.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::kernels::cuda {

inline constexpr unsigned kTileRows = 16;    // output features of a tensor product
inline constexpr unsigned kGroup = 32;       // of K that share a scale, and of one 8-bit product
inline constexpr unsigned kSuperGroups = 8;  // groups behind one super scale
inline constexpr unsigned kStepK = 16;       // of K in one 16-bit product
inline constexpr unsigned kBlockTiles = 4;   // warps of a block, a tile each
inline constexpr unsigned kTokenTile = 8;    // rows of x in a tensor product
inline constexpr unsigned kTokenTiles = 8;   // and tiles of them in a block
inline constexpr unsigned kBlockTokens = kTokenTile * kTokenTiles;
// K is cut at its multiples: each part is a chain from zero, parts are added in ascending order,
// whether one block computes all parts or each has a block of its own.
inline constexpr unsigned kPartK = 1024;

enum class ScaleKind : std::uint8_t { Half, K, K16 };

// One of the ways a quantised type lies on the device: codes of four bits, less an offset, or
// signed bytes; scales; mins.
template <bool kIsNibbles, std::int32_t kCodeOffset, ScaleKind kScaleKind, bool kMin>
struct QuantFormat {
  static constexpr bool kNibbles = kIsNibbles;
  static constexpr std::int32_t kOffset = kCodeOffset;
  static constexpr ScaleKind kScales = kScaleKind;
  static constexpr bool kHasMin = kMin;
};
using FormatQ4_0 = QuantFormat<true, 8, ScaleKind::Half, false>;
using FormatQ4_1 = QuantFormat<true, 0, ScaleKind::Half, true>;
using FormatQ4_K = QuantFormat<true, 0, ScaleKind::K, true>;
using FormatQ8_0 = QuantFormat<false, 0, ScaleKind::Half, false>;  // and Q5_0
using FormatQ5_1 = QuantFormat<false, 0, ScaleKind::Half, true>;
using FormatQ5_K = QuantFormat<false, 0, ScaleKind::K, true>;
using FormatQ6_K = QuantFormat<false, 0, ScaleKind::K16, false>;

// A quantised matrix on the device. rows features, cols a multiple of 32.
struct QuantMatrix {
  const std::uint32_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* mins = nullptr;
  const std::uint16_t* supers = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};

// Rows of x rounded to 8 bits in groups of 32: x = scale * code.
struct QuantRows {
  const std::uint32_t* codes = nullptr;  // s8 [m][cols]
  const float* scales = nullptr;         // [m][cols / 32]
  const float* sums = nullptr;           // [m][cols / 32], scale * the sum of the group's codes
};

// Rows of x as sums of two 16-bit floats: x = scale * (high + low), but for what both drop.
struct SplitRows {
  const std::uint16_t* high = nullptr;  // [m][padded K]
  const std::uint16_t* low = nullptr;
  const float* scales = nullptr;  // [m], powers of two
};

enum class FloatFormat : std::uint8_t { Half, Bfloat, E4m3 };

struct FloatMatrix {
  const std::uint32_t* words = nullptr;
  const float* scales = nullptr;  // [rows] of E4m3; null: 1
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;  // of the matrix; tiles go on to the next multiple of 64
};

// Where a product goes. One block computes all parts of K, or one part when `parts` is not null.
struct MatmulTarget {
  float* y = nullptr;  // [m][stride]
  std::size_t stride = 0;
  float* parts = nullptr;  // [part][m][rows]
  std::uint32_t m = 0;
  bool accumulate = false;  // y += ; without effect on parts
};

struct QuantMatmulArgs {
  QuantMatrix w;
  QuantRows x;
  MatmulTarget out;
};

// Joins parts of K.
struct JoinArgs {
  MatmulTarget out;
  std::uint32_t rows = 0;  // features
  std::uint32_t parts = 0;
};

// Looks up rows of a table; one of the two matrices is the table.
struct ReadRowsArgs {
  QuantMatrix w;
  FloatMatrix floats;
  const std::int32_t* ids = nullptr;  // [count]
  float scale = 1.0F;
  float* out = nullptr;  // [count][cols]
};

struct FloatMatmulArgs {
  FloatMatrix w;
  SplitRows x;
  std::uint32_t padded = 0;  // K of x's rows: a multiple of 64
  MatmulTarget out;
};

struct PlainMatmulArgs {
  const float* w = nullptr;  // [rows][cols]
  const float* x = nullptr;  // [m][cols]
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  MatmulTarget out;
};

struct QuantiseArgs {
  const float* x = nullptr;        // [m][cols]
  std::uint32_t groups = 0;        // m * cols / 32
  std::uint32_t* codes = nullptr;  // as QuantRows
  float* scales = nullptr;
  float* sums = nullptr;
};

struct SplitArgs {
  const float* x = nullptr;  // [m][cols]
  std::uint32_t cols = 0;
  std::uint32_t padded = 0;  // columns of the output, zeros beyond cols
  std::uint16_t* high = nullptr;
  std::uint16_t* low = nullptr;
  float* scales = nullptr;
};

struct ReadPlainRowsArgs {
  const float* w = nullptr;           // [rows][cols]
  const std::int32_t* ids = nullptr;  // [count]
  std::uint32_t cols = 0;
  float scale = 1.0F;
  float* out = nullptr;  // [count][cols]
};

constexpr unsigned parts_of(unsigned cols) {
  return (cols + kPartK - 1) / kPartK;
}

}  // namespace baton::kernels::cuda
