// The keywords of a JSON schema that grammars hold to, and a schema as it is read.
//
// Thread: plain functions and values. Failure: InvalidArgument with the place.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace baton::engine {

enum class Group : std::uint8_t { Note, Definitions, Shape, Type, String, Number, Array, Object };

// What a keyword speaks of; Shape: it decides alone what the value is.
struct Keyword {
  std::string_view name;
  Group group;
};

// Null: not understood, to be refused.
const Keyword* find_keyword(std::string_view name);
// The formats of strings that have an expression of their own.
std::span<const std::string_view> known_formats();
// Of the types that a group's keywords limit.
std::uint8_t bits_of(Group group);

std::unexpected<Error> wrong(std::string_view place, std::string_view what);
std::unexpected<Error> unsupported(std::string_view place, std::string_view keyword);

// The members of an object, in order; of a name that occurs twice the last value.
class Fields {
 public:
  Fields() = default;
  explicit Fields(const simdjson::dom::object& object);

  std::optional<simdjson::dom::element> get(std::string_view name) const;
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string_view, simdjson::dom::element>> fields_;
  std::unordered_map<std::string_view, std::size_t> places_;
};

// The bits of `type`, a name or a list of names (schema_overlap.h).
Result<std::uint8_t> read_type(const simdjson::dom::element& type, const std::string& place);

}  // namespace baton::engine
