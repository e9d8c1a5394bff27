#include "engine/grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/grammar/schema_overlap.h"

namespace baton::engine {
namespace {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;

// Every keyword that is understood; any other is refused.
constexpr auto kKeywords = std::to_array<Keyword>({{"$comment", Group::Note},
                                                   {"$defs", Group::Definitions},
                                                   {"$ref", Group::Shape},
                                                   {"$schema", Group::Note},
                                                   {"additionalProperties", Group::Object},
                                                   {"allOf", Group::Shape},
                                                   {"anyOf", Group::Shape},
                                                   {"const", Group::Shape},
                                                   {"contentEncoding", Group::Note},
                                                   {"contentMediaType", Group::Note},
                                                   {"default", Group::Note},
                                                   {"definitions", Group::Definitions},
                                                   {"deprecated", Group::Note},
                                                   {"description", Group::Note},
                                                   {"enum", Group::Shape},
                                                   {"examples", Group::Note},
                                                   {"exclusiveMaximum", Group::Number},
                                                   {"exclusiveMinimum", Group::Number},
                                                   {"format", Group::String},
                                                   {"items", Group::Array},
                                                   {"maxItems", Group::Array},
                                                   {"maxLength", Group::String},
                                                   {"maxProperties", Group::Object},
                                                   {"maximum", Group::Number},
                                                   {"minItems", Group::Array},
                                                   {"minLength", Group::String},
                                                   {"minProperties", Group::Object},
                                                   {"minimum", Group::Number},
                                                   {"multipleOf", Group::Number},
                                                   {"oneOf", Group::Shape},
                                                   {"pattern", Group::String},
                                                   {"patternProperties", Group::Object},
                                                   {"prefixItems", Group::Array},
                                                   {"properties", Group::Object},
                                                   {"propertyNames", Group::Object},
                                                   {"readOnly", Group::Note},
                                                   {"required", Group::Object},
                                                   {"title", Group::Note},
                                                   {"type", Group::Type},
                                                   {"unevaluatedItems", Group::Array},
                                                   {"unevaluatedProperties", Group::Object},
                                                   {"uniqueItems", Group::Array},
                                                   {"writeOnly", Group::Note}});

constexpr auto kFormats = std::to_array<std::string_view>({"date",
                                                           "date-time",
                                                           "duration",
                                                           "email",
                                                           "hostname",
                                                           "ipv4",
                                                           "ipv6",
                                                           "json-pointer",
                                                           "relative-json-pointer",
                                                           "time",
                                                           "uri",
                                                           "uri-reference",
                                                           "uri-template",
                                                           "uuid"});

}  // namespace

const Keyword* find_keyword(std::string_view name) {
  const auto found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found == kKeywords.end() ? nullptr : &*found;
}

std::span<const std::string_view> known_formats() {
  return kFormats;
}

Fields::Fields(const simdjson::dom::object& object) {
  for (const auto& [key, value] : object) {
    const auto [place, is_new] = places_.emplace(key, fields_.size());
    if (is_new) {
      fields_.emplace_back(key, value);
    } else {
      fields_[place->second].second = value;
    }
  }
}

std::optional<element> Fields::get(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? std::nullopt : std::optional(fields_[found->second].second);
}

std::uint8_t bits_of(Group group) {
  switch (group) {
    case Group::String:
      return kStringBit;
    case Group::Number:
      return kWholeBit | kFractionBit;
    case Group::Array:
      return kArrayBit;
    case Group::Object:
      return kObjectBit;
    default:
      return 0;
  }
}

std::unexpected<Error> wrong(std::string_view place, std::string_view what) {
  return fail(ErrorCode::InvalidArgument, fmt::format("schema{}: {}", place, what));
}

std::unexpected<Error> unsupported(std::string_view place, std::string_view keyword) {
  return wrong(place, fmt::format("the keyword '{}' is not supported", keyword));
}

Result<std::uint8_t> read_type(const element& type, const std::string& place) {
  std::string_view text;
  if (type.get(text) == SUCCESS) {
    if (const std::uint8_t bits = type_bits(text)) {
      return bits;
    }
    return wrong(place, fmt::format("there is no type '{}'", text));
  }
  array names;
  if (type.get(names) != SUCCESS || names.size() == 0) {
    return wrong(place, "'type' must be a string or a list of strings");
  }
  std::uint8_t bits = 0;
  for (const element each : names) {
    const std::uint8_t more = each.get(text) == SUCCESS ? type_bits(text) : std::uint8_t{0};
    if (more == 0) {
      return wrong(place, "'type' must be a list of names of types");
    }
    bits |= more;
  }
  return bits;
}

}  // namespace baton::engine
