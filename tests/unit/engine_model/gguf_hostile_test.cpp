// Hostile GGUF bytes: every cut, impossible counts, bad types, bad places, and seeded mutations.
// Each must end in an Error or in a file whose every view lies inside the bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/model/gguf.h"
#include "tests/support/gguf_writer.h"

namespace baton::engine {
namespace {

using kernels::DType;
using testing::GgufWriter;
using ::testing::HasSubstr;

std::vector<std::byte> zeros(std::size_t count) {
  return std::vector<std::byte>(count);
}

// A file with every kind of value and a few tensors.
std::vector<std::byte> small_file() {
  GgufWriter w;
  w.add_string("general.architecture", "llama");
  w.add_uint("general.alignment", 32);
  w.add_float("llama.rope.freq_base", 1e4F);
  w.add_bool("flag", true);
  w.add_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "bc", ""});
  w.add_floats("tokenizer.ggml.scores", std::vector<float>{1, 2, 3});
  w.add_ints("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 3});
  w.add_tensor("first", std::array<std::uint64_t, 2>{8, 3}, DType::F32, zeros(96));
  w.add_tensor("second", std::array<std::uint64_t, 2>{64, 2}, DType::Q8_0, zeros(136));
  w.add_tensor("third", std::array<std::uint64_t, 1>{5}, DType::F16, zeros(10));
  return w.bytes();
}

// Reads everything a parsed file offers, so that a bad view is a sanitizer's find.
std::uint64_t touch(const GgufFile& file, std::span<const std::byte> bytes) {
  std::uint64_t sum = file.data_offset;
  const auto inside = [&](const void* data, std::size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    EXPECT_TRUE(size == 0 || (from >= bytes.data() && from + size <= bytes.data() + bytes.size()));
    for (std::size_t i = 0; i < size; ++i) {
      sum += std::to_integer<unsigned>(from[i]);
    }
  };
  for (const auto& [key, value] : file.values) {
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      inside(text->data(), text->size());
    } else if (const auto* array = std::get_if<GgufArray>(&value)) {
      inside(array->bytes.data(), array->bytes.size());
      std::vector<std::string> strings;
      std::vector<float> floats;
      std::vector<std::int64_t> ints;
      sum += static_cast<std::uint64_t>(read_strings(*array, strings)) +
             static_cast<std::uint64_t>(read_floats(*array, floats)) +
             static_cast<std::uint64_t>(read_ints(*array, ints));
    }
  }
  for (const auto& [name, tensor] : file.tensors) {
    EXPECT_EQ(tensor.data.size(), tensor.rows * kernels::row_bytes(tensor.dtype, tensor.cols));
    inside(tensor.data.data(), tensor.data.size());
  }
  return sum;
}

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto file = parse_gguf(bytes, "evil.gguf");
  if (file) {
    ADD_FAILURE() << "parsed";
    return "";
  }
  EXPECT_EQ(file.error().code, ErrorCode::InvalidModel);
  EXPECT_THAT(file.error().message, HasSubstr("evil.gguf"));
  EXPECT_THAT(file.error().message, HasSubstr("byte offset"));
  return file.error().message;
}

template <class T>
std::vector<std::byte> patched(std::vector<std::byte> bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

std::size_t find(const std::vector<std::byte>& bytes, std::string_view text) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.find(text);
}

TEST(GgufHostile, TheSmallFileItselfIsFine) {
  const auto bytes = small_file();
  const auto file = parse_gguf(bytes, "good.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->values.size(), 7U);
  EXPECT_EQ(file->tensors.size(), 3U);
  touch(*file, bytes);
}

TEST(GgufHostile, EveryCutIsAnError) {
  const auto whole = small_file();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // An exact allocation each time, so that one byte too far is seen.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = parse_gguf(cut, "cut.gguf");
    ASSERT_FALSE(file) << "cut to " << size << " of " << whole.size();
  }
}

TEST(GgufHostile, MagicAndVersion) {
  EXPECT_THAT(error_of(patched(small_file(), 0, std::uint32_t{0x46475547})),
              HasSubstr("not a GGUF"));
  EXPECT_THAT(error_of(patched(small_file(), 4, std::uint32_t{1})), HasSubstr("version 1"));
  EXPECT_THAT(error_of(patched(small_file(), 4, std::uint32_t{0x03000000})), HasSubstr("version"));
}

TEST(GgufHostile, HugeCountsAllocateNothing) {
  for (const std::uint64_t count : {std::numeric_limits<std::uint64_t>::max(),
                                    std::uint64_t{1} << 63U,
                                    std::uint64_t{1} << 40U,
                                    std::uint64_t{1000}}) {
    EXPECT_THAT(error_of(patched(small_file(), 8, count)), HasSubstr("cannot fit"));
    EXPECT_THAT(error_of(patched(small_file(), 16, count)), HasSubstr("cannot fit"));
    const auto bytes = small_file();
    const std::size_t tokens = find(bytes, "tokenizer.ggml.tokens") + 21;
    EXPECT_THAT(error_of(patched(bytes, tokens + 8, count)), HasSubstr("tokenizer.ggml.tokens"));
    const std::size_t scores = find(bytes, "tokenizer.ggml.scores") + 21;
    EXPECT_THAT(error_of(patched(bytes, scores + 8, count)), HasSubstr("cannot fit"));
    // A string's and a name's length.
    EXPECT_THAT(error_of(patched(bytes, tokens + 16, count)), HasSubstr("tokenizer.ggml.tokens"));
    EXPECT_THAT(error_of(patched(bytes, 24, count)), HasSubstr("metadata value 0"));
  }
}

TEST(GgufHostile, BadTypesAndNestedArrays) {
  const auto bytes = small_file();
  const std::size_t flag = find(bytes, "flag") + 4;
  EXPECT_THAT(error_of(patched(bytes, flag, std::uint32_t{13})), HasSubstr("\"flag\""));
  const std::size_t scores = find(bytes, "tokenizer.ggml.scores") + 21;
  EXPECT_THAT(error_of(patched(bytes, scores + 4, std::uint32_t{9})), HasSubstr("not supported"));
  EXPECT_THAT(error_of(patched(bytes, scores + 4, std::uint32_t{99})), HasSubstr("not supported"));
  const std::size_t first = find(bytes, "first") + 5;
  for (const std::uint32_t type : {4U, 5U, 9U, 15U, 16U, 39U, 0xffffffffU}) {
    EXPECT_THAT(error_of(patched(bytes, first + 20, type)), HasSubstr("\"first\""));
  }
}

TEST(GgufHostile, BadShapes) {
  const auto bytes = small_file();
  const std::size_t first = find(bytes, "first") + 5;
  EXPECT_THAT(error_of(patched(bytes, first, std::uint32_t{0})), HasSubstr("dimensions"));
  EXPECT_THAT(error_of(patched(bytes, first, std::uint32_t{5})), HasSubstr("dimensions"));
  EXPECT_THAT(error_of(patched(bytes, first + 4, std::uint64_t{0})), HasSubstr("dimension is 0"));
  for (const unsigned shift : {62U, 60U, 32U}) {
    EXPECT_FALSE(error_of(patched(bytes, first + 4, std::uint64_t{1} << shift)).empty());
    EXPECT_FALSE(error_of(patched(bytes, first + 12, std::uint64_t{1} << shift)).empty());
  }
  const std::size_t second = find(bytes, "second") + 6;
  EXPECT_THAT(error_of(patched(bytes, second + 4, std::uint64_t{63})), HasSubstr("multiple"));
  EXPECT_THAT(error_of(patched(bytes, second + 4, std::uint64_t{1} << 63U)), HasSubstr("overflow"));
}

TEST(GgufHostile, BadPlaces) {
  const auto bytes = small_file();
  const std::size_t offset = find(bytes, "second") + 6 + 4 + 16 + 4;
  EXPECT_THAT(error_of(patched(bytes, offset, std::uint64_t{100})), HasSubstr("multiple of 32"));
  EXPECT_THAT(error_of(patched(bytes, offset, std::uint64_t{64})), HasSubstr("overlaps"));
  EXPECT_THAT(error_of(patched(bytes, offset, std::uint64_t{1} << 20U)), HasSubstr("past the end"));
  EXPECT_THAT(error_of(patched(bytes, offset, ~std::uint64_t{31})), HasSubstr("past the end"));
}

TEST(GgufHostile, BadAlignmentAndDuplicates) {
  const auto bytes = small_file();
  const std::size_t alignment = find(bytes, "general.alignment") + 17 + 4;
  for (const std::uint32_t value : {0U, 1U, 33U, 0x80000000U}) {
    EXPECT_THAT(error_of(patched(bytes, alignment, value)), HasSubstr("general.alignment"));
  }
  GgufWriter twice;
  twice.add_uint("key", 1);
  twice.add_uint("key", 2);
  EXPECT_THAT(error_of(twice.bytes()), HasSubstr("twice"));
  GgufWriter tensors;
  tensors.add_tensor("t", std::array<std::uint64_t, 1>{8}, DType::F32, zeros(32));
  tensors.add_tensor("t", std::array<std::uint64_t, 1>{8}, DType::F32, zeros(32));
  EXPECT_THAT(error_of(tensors.bytes()), HasSubstr("twice"));
}

TEST(GgufHostile, MessagesShowForeignTextSafely) {
  GgufWriter w;
  w.add_raw("evil\x1b[31m\n", 77, {});
  const std::string message = error_of(w.bytes());
  EXPECT_THAT(message, HasSubstr("\\x1b[31m\\x0a"));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(GgufHostile, SeededMutationsNeverLeaveTheBytes) {
  const auto whole = small_file();
  std::uint64_t state = 20;
  const auto random = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return state >> 33U;
  };
  unsigned parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = whole;
    const unsigned changes = 1 + random() % 4;
    for (unsigned i = 0; i < changes; ++i) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<std::byte>(random());
          break;
        case 1:
          bytes[at] ^= static_cast<std::byte>(1U << (random() % 8));
          break;
        case 2:
          bytes[at] = std::byte{0xff};
          break;
        default: {
          const std::size_t end = std::min(bytes.size(), at + 8);
          std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() + static_cast<std::ptrdiff_t>(end),
                    static_cast<std::byte>(random()));
        }
      }
    }
    if (const auto file = parse_gguf(bytes, "mutated.gguf")) {
      ++parsed;
      touch(*file, bytes);
    } else {
      EXPECT_EQ(file.error().code, ErrorCode::InvalidModel);
    }
  }
  EXPECT_GT(parsed, 0U) << "mutations of tensor data leave a file valid";
}

}  // namespace
}  // namespace baton::engine
