// The safetensors parser on good and hostile bytes: every refusal names the file and the place.
#include "engine/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/safetensors_writer.h"

namespace baton::engine {
namespace {

using ::testing::HasSubstr;
using testing::SafetensorsWriter;

std::vector<std::byte> zeros(std::size_t count) {
  return std::vector<std::byte>(count);
}

std::vector<std::byte> small_file() {
  SafetensorsWriter writer;
  writer.add("a.weight", "F32", std::array<std::uint64_t, 2>{2, 3}, zeros(24));
  writer.add("b", "BF16", std::array<std::uint64_t, 1>{5}, zeros(10));
  writer.add("scalar", "I64", {}, zeros(8));
  writer.add("empty", "F16", std::array<std::uint64_t, 2>{0, 7}, {});
  return writer.bytes();
}

TEST(Safetensors, ReadsTypesShapesAndData) {
  const auto bytes = small_file();
  const auto tensors = parse_safetensors(bytes, "x.safetensors");
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 4U) << "__metadata__ is none";
  const SafeTensor& a = tensors->find("a.weight")->second;
  EXPECT_EQ(a.type, SafeType::F32);
  EXPECT_EQ(a.shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(a.elements(), 6U);
  EXPECT_EQ(a.data.data(), bytes.data() + bytes.size() - 24 - 10 - 8);
  EXPECT_EQ(tensors->find("scalar")->second.elements(), 1U);
  EXPECT_EQ(tensors->find("empty")->second.elements(), 0U);
}

TEST(Safetensors, EveryCutIsRefused) {
  const auto bytes = small_file();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<int>(size));
    const auto tensors = parse_safetensors(cut, "x.safetensors");
    ASSERT_FALSE(tensors) << size;
    EXPECT_THAT(tensors.error().message, HasSubstr("x.safetensors"));
  }
}

struct Hostile {
  const char* header;
  const char* message;
};

TEST(Safetensors, HostileHeadersAreRefusedWithTheirPlace) {
  const std::vector<Hostile> cases{
      {"[]", "must be an object"},
      {"{", "not JSON"},
      {R"({"t":1})", "tensor \"t\": must be an object with dtype"},
      {R"({"t":{"shape":[1],"data_offsets":[0,4]}})", "dtype is missing"},
      {R"({"t":{"dtype":"Q9","shape":[1],"data_offsets":[0,4]}})", "unknown element type \"Q9\""},
      {R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "shape: must be whole"},
      {R"({"t":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}})", "shape: must be whole"},
      {R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "overflow"},
      {R"({"t":{"dtype":"F32","shape":[0,18446744073709551615,8],"data_offsets":[0,0]}})", ""},
      {R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "dimensions"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "two whole numbers"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "two whole numbers"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "lies outside"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", "lies outside"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", "outside"},
      {R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "type and shape make 8"},
      {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "a name of 0 bytes"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "occurs twice"},
      {R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "overlaps that of \"t\""},
  };
  for (const Hostile& hostile : cases) {
    const auto bytes = SafetensorsWriter::raw(hostile.header, zeros(12));
    const auto tensors = parse_safetensors(bytes, "x.safetensors");
    if (*hostile.message == '\0') {
      continue;  // allowed or not, it must come back
    }
    ASSERT_FALSE(tensors) << hostile.header;
    EXPECT_EQ(tensors.error().code, ErrorCode::InvalidModel);
    EXPECT_THAT(tensors.error().message, HasSubstr("x.safetensors")) << hostile.header;
    EXPECT_THAT(tensors.error().message, HasSubstr(hostile.message)) << hostile.header;
  }
}

TEST(Safetensors, ALengthPastTheEndIsRefused) {
  auto bytes = small_file();
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = std::byte{0xff};
  }
  const auto tensors = parse_safetensors(bytes, "x.safetensors");
  ASSERT_FALSE(tensors);
  EXPECT_THAT(tensors.error().message, HasSubstr("header: a length of"));
}

}  // namespace
}  // namespace baton::engine
