#include "common/base/digits.h"

#include <gtest/gtest.h>

#include <limits>

namespace baton {
namespace {

TEST(Digits, StandBehindTheText) {
  std::string text = "n=";
  append_number(text, 0);
  append_number(text, -17);
  append_number(text, std::numeric_limits<std::uint64_t>::max());
  append_number(text, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(text, "n=0-1718446744073709551615-9223372036854775808");
}

TEST(Digits, HexHasSixteenOfThem) {
  std::string text = "x";
  append_hex(text, 0x0123456789abcdefULL);
  append_hex(text, 0xfULL);
  EXPECT_EQ(text, "x0123456789abcdef000000000000000f");
}

}  // namespace
}  // namespace baton
