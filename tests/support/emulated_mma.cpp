#include "tests/support/emulated_mma.h"

#include <bit>

#include "kernels/half.h"

namespace baton::testing {
namespace {

constexpr unsigned kRows = 16;
constexpr unsigned kColumns = 8;

// Where element i of a lane's c lies.
unsigned c_row(unsigned lane, unsigned i) {
  return lane / 4 + (i < 2 ? 0 : 8);
}
unsigned c_column(unsigned lane, unsigned i) {
  return lane % 4 * 2 + i % 2;
}

// The whole matrices, b by columns: a[row][k], b[column][k].
template <class T, unsigned kDepth>
struct Operands {
  T a[kRows][kDepth];
  T b[kColumns][kDepth];
};

// `kPerWord` neighbouring k lie in a word, the first lowest.
template <class T, unsigned kPerWord, class Convert>
Operands<T, 8 * kPerWord> unpack(const WarpMma& lanes, const Convert& convert) {
  constexpr unsigned kBits = 32 / kPerWord;
  constexpr std::uint32_t kMask = (1U << kBits) - 1;
  Operands<T, 8 * kPerWord> out;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned g = lane / 4;
    const unsigned k = lane % 4 * kPerWord;
    for (unsigned j = 0; j < kPerWord; ++j) {
      const auto element = [&](std::uint32_t word) {
        return convert((word >> (j * kBits)) & kMask);
      };
      const MmaPart& part = *lanes[lane];
      out.a[g][k + j] = element(part.a[0]);
      out.a[g + 8][k + j] = element(part.a[1]);
      out.a[g][k + j + 4 * kPerWord] = element(part.a[2]);
      out.a[g + 8][k + j + 4 * kPerWord] = element(part.a[3]);
      out.b[g][k + j] = element(part.b[0]);
      out.b[g][k + j + 4 * kPerWord] = element(part.b[1]);
    }
  }
  return out;
}

template <class Convert>
void multiply_floats(const WarpMma& lanes, const Convert& convert) {
  const auto in = unpack<double, 2>(lanes, convert);
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const auto& a = in.a[c_row(lane, i)];
      const auto& b = in.b[c_column(lane, i)];
      std::uint32_t& c = lanes[lane]->c[i];
      double sum = std::bit_cast<float>(c);
      for (unsigned k = 0; k < 16; ++k) {
        sum += a[k] * b[k];
      }
      c = std::bit_cast<std::uint32_t>(static_cast<float>(sum));
    }
  }
}

}  // namespace

void multiply_half(const WarpMma& lanes) {
  multiply_floats(lanes, [](std::uint32_t bits) {
    return static_cast<double>(kernels::half_to_float(static_cast<std::uint16_t>(bits)));
  });
}

void multiply_bfloat(const WarpMma& lanes) {
  multiply_floats(lanes, [](std::uint32_t bits) {
    return static_cast<double>(kernels::bfloat_to_float(static_cast<std::uint16_t>(bits)));
  });
}

void multiply_int8(const WarpMma& lanes) {
  const auto in = unpack<std::int32_t, 4>(
      lanes, [](std::uint32_t bits) { return static_cast<std::int8_t>(bits); });
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const auto& a = in.a[c_row(lane, i)];
      const auto& b = in.b[c_column(lane, i)];
      for (unsigned k = 0; k < 32; ++k) {
        lanes[lane]->c[i] += static_cast<std::uint32_t>(a[k] * b[k]);
      }
    }
  }
}

}  // namespace baton::testing
