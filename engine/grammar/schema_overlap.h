// Whether two JSON schemas can accept the same value: what `oneOf` needs to be written as a choice.
//
// Thread: pure functions. Failure: none; where it cannot tell, they may overlap.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace baton::engine {

// One bit a JSON type; Whole is a number that is an integer, Fraction any other number.
enum JsonTypeBit : std::uint8_t {
  kNullBit = 1,
  kBooleanBit = 2,
  kWholeBit = 4,
  kFractionBit = 8,
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllTypeBits = 127
};

// Of a value, and of a type's name ("number" has two bits); 0: there is no such type.
std::uint8_t type_bits(const simdjson::dom::element& value);
std::uint8_t type_bits(std::string_view type_name);

// The schema that a local reference names: "#", "#/$defs/NAME" or "#/definitions/NAME".
std::optional<simdjson::dom::element> find_definition(const simdjson::dom::element& root,
                                                      std::string_view reference);

// Schemas and values that all comparisons of one schema may look at, in all; beyond it they may
// overlap. References can make a small schema look endless.
struct OverlapWork {
  std::uint32_t left = 200'000;
};

bool may_overlap(const simdjson::dom::element& root,
                 const simdjson::dom::element& a,
                 const simdjson::dom::element& b,
                 OverlapWork& work);

}  // namespace baton::engine
