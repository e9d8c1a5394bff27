// What a schema with a type says of its values, type by type.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "common/json/json_escape.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/schema_overlap.h"
#include "engine/grammar/schema_writer.h"
#include "engine/grammar/text_check.h"

namespace baton::engine {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

namespace {

// Counts of properties make a rule for every pair of property and count.
constexpr std::size_t kMostCounted = 50;

}  // namespace

Status SchemaWriter::typed(const Fields& fields, const std::string& place, std::size_t depth) {
  std::uint8_t bits = 0;
  if (const auto type = fields.get("type")) {
    BATON_ASSIGN(bits, read_type(*type, place));
  } else {
    // A limit without a type holds for values of its type alone; one type has to be chosen.
    std::string_view first;
    for (const auto& [key, value] : fields) {
      const Keyword* known = find_keyword(key);
      const std::uint8_t more = known == nullptr ? std::uint8_t{0} : bits_of(known->group);
      if (more != 0 && bits != 0 && more != bits) {
        return wrong(place, fmt::format("'{}' beside '{}' needs a 'type'", key, first));
      }
      first = more != 0 && first.empty() ? key : first;
      bits |= more;
    }
    if (bits == 0) {
      return {};  // any value
    }
  }
  static constexpr auto kTypes =
      std::to_array<std::pair<std::string_view, std::uint8_t>>({{"null", kNullBit},
                                                                {"boolean", kBooleanBit},
                                                                {"string", kStringBit},
                                                                {"array", kArrayBit},
                                                                {"object", kObjectBit}});
  std::vector<std::string_view> types;
  for (const auto& [type, bit] : kTypes) {
    if ((bits & bit) != 0) {
      types.push_back(type);
    }
  }
  if ((bits & kFractionBit) != 0) {
    types.emplace_back("number");
  } else if ((bits & kWholeBit) != 0) {
    types.emplace_back("integer");
  }
  name("type");
  if (types.size() == 1) {
    append_json_string(out_, types.front());
  } else {
    out_ += '[';
    for (const std::string_view type : types) {
      item();
      append_json_string(out_, type);
    }
    out_ += ']';
  }
  if ((bits & kStringBit) != 0) {
    BATON_TRY(string_keywords(fields, place));
  }
  if ((bits & (kWholeBit | kFractionBit)) != 0) {
    BATON_TRY(number_keywords(fields, bits, place));
  }
  if ((bits & kArrayBit) != 0) {
    BATON_TRY(array_keywords(fields, place, depth));
  }
  if ((bits & kObjectBit) != 0) {
    BATON_TRY(object_keywords(fields, place, depth));
  }
  return {};
}

Result<std::int64_t> SchemaWriter::number(const Fields& fields,
                                          std::string_view keyword,
                                          const std::string& place) {
  const auto value = fields.get(keyword);
  if (!value) {
    return -1;
  }
  double number = -1;
  if (value->get(number) != SUCCESS || number < 0 || number != std::floor(number)) {
    return wrong(place, fmt::format("'{}' must be a whole number, 0 or more", keyword));
  }
  constexpr double kMost = 1e15;
  return static_cast<std::int64_t>(std::min(number, kMost));
}

Result<std::int64_t> SchemaWriter::count(const Fields& fields,
                                         std::string_view keyword,
                                         const std::string& place) {
  BATON_ASSIGN(const std::int64_t value, number(fields, keyword, place));
  if (value > SchemaLimits::kCount) {
    return wrong(place, fmt::format("'{}' is above {}", keyword, SchemaLimits::kCount));
  }
  if (value >= 0) {
    name(keyword);
    out_ += std::to_string(value);
  }
  return value;
}

// Letters beyond ASCII are written as escapes: only so is an expression read as one of the text
// within a JSON string, and not of bytes.
Status SchemaWriter::pattern(std::string_view regex, const std::string& place) {
  BATON_ASSIGN(
      const std::size_t size,
      check_regex(
          regex, TextLimits::kPatternExpanded, fmt::format("schema{}: the pattern", place)));
  pattern_size_ += size;
  if (pattern_size_ > SchemaLimits::kPatterns) {
    return wrong(place,
                 fmt::format("the patterns of the schema have more than {} characters and classes, "
                             "repetitions written out",
                             SchemaLimits::kPatterns));
  }
  std::string ascii;
  bool is_escaped = false;
  for (std::size_t i = 0; i < regex.size();) {
    const auto byte = static_cast<unsigned char>(regex[i]);
    if (byte < 0x80) {
      is_escaped = byte == '\\' && !is_escaped;
      ascii += regex[i++];
      continue;
    }
    // simdjson has checked the text: sequences are whole.
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    std::uint32_t code = byte & (0x7fU >> length);
    for (std::size_t k = 1; k < length && i + k < regex.size(); ++k) {
      code = code << 6U | (static_cast<unsigned char>(regex[i + k]) & 0x3fU);
    }
    if (is_escaped) {
      ascii.pop_back();
      is_escaped = false;
    }
    ascii += fmt::format("\\u{{{:x}}}", code);
    i += length;
  }
  append_json_string(out_, ascii);
  patterns_.push_back(std::move(ascii));
  return {};
}

Status SchemaWriter::string_keywords(const Fields& fields, const std::string& place) {
  BATON_ASSIGN(const std::int64_t least, number(fields, "minLength", place));
  BATON_ASSIGN(const std::int64_t most, number(fields, "maxLength", place));
  const auto regex = fields.get("pattern");
  const auto format = fields.get("format");
  const bool has_length = least >= 0 || most >= 0;
  if ((regex || format) && (has_length || (regex && format))) {
    return wrong(place,
                 fmt::format("'{}' beside '{}' is not supported",
                             least >= 0  ? "minLength"
                             : most >= 0 ? "maxLength"
                                         : "format",
                             regex ? "pattern" : "format"));
  }
  std::string_view text;
  if (regex) {
    if (regex->get(text) != SUCCESS) {
      return wrong(place, "'pattern' must be a string");
    }
    name("pattern");
    return pattern(text, place);
  }
  if (format) {
    if (format->get(text) != SUCCESS ||
        std::ranges::find(known_formats(), text) == known_formats().end()) {
      return wrong(place,
                   fmt::format("the format {} is not supported; known are {}",
                               simdjson::minify(*format),
                               fmt::join(known_formats(), ", ")));
    }
    copy("format", *format);
  }
  if (has_length) {
    if (least > SchemaLimits::kLength) {
      return wrong(place, fmt::format("'minLength' is above {}", SchemaLimits::kLength));
    }
    if (most >= 0 && least > most) {
      return wrong(place, "'minLength' is above 'maxLength'");
    }
    // Characters that need an escape are left out there, and control characters by the vocabulary.
    name("minLength");
    out_ += std::to_string(std::max<std::int64_t>(0, least));
    if (most >= 0) {
      name("maxLength");
      out_ += std::to_string(std::min<std::int64_t>(most, SchemaLimits::kLength));
    }
  }
  return {};
}

Status SchemaWriter::number_keywords(const Fields& fields,
                                     std::uint8_t bits,
                                     const std::string& place) {
  for (const std::string_view keyword :
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    const auto value = fields.get(keyword);
    if (!value) {
      continue;
    }
    double number = 0;
    if (value->get(number) != SUCCESS) {
      return wrong(place, fmt::format("'{}' must be a number", keyword));
    }
    if (keyword == "multipleOf" && (bits & kFractionBit) != 0) {
      return wrong(place, "'multipleOf' is supported for the type 'integer' alone");
    }
    copy(keyword, *value);
  }
  return {};
}

Status SchemaWriter::array_keywords(const Fields& fields,
                                    const std::string& place,
                                    std::size_t depth) {
  bool is_wanted = false;
  if (const auto unique = fields.get("uniqueItems");
      unique && (unique->get(is_wanted) != SUCCESS || is_wanted)) {
    return unsupported(place, "uniqueItems");
  }
  BATON_ASSIGN(const std::int64_t least, count(fields, "minItems", place));
  BATON_TRY(count(fields, "maxItems", place));
  std::int64_t first = 0;
  if (const auto prefix = fields.get("prefixItems")) {
    array list;
    if (prefix->get(list) != SUCCESS) {
      return wrong(place, "'prefixItems' must be a list");
    }
    name("prefixItems");
    out_ += '[';
    for (const element each : list) {
      item();
      BATON_TRY(schema(each, fmt::format("{}/prefixItems/{}", place, first), depth + 1));
      ++first;
    }
    out_ += ']';
  }
  const auto listed = fields.get("items");
  const auto items = listed ? listed : fields.get("unevaluatedItems");
  bool is_open = true;
  if (items && items->is_array()) {
    return wrong(place, "'items' as a list is not supported; use 'prefixItems'");
  }
  name("items");
  if (items && items->get(is_open) != SUCCESS) {
    return schema(*items, place + (listed ? "/items" : "/unevaluatedItems"), depth + 1);
  }
  // A list with named first items has no others unless it says so or must.
  out_ += is_open && (items || first == 0 || least > first) ? "{}" : "false";
  return {};
}

Status SchemaWriter::object_keywords(const Fields& fields,
                                     const std::string& place,
                                     std::size_t depth) {
  const auto patterns = fields.get("patternProperties");
  const auto names = fields.get("propertyNames");
  object properties;
  const auto listed = fields.get("properties");
  if (listed && listed->get(properties) != SUCCESS) {
    return wrong(place, "'properties' must be an object");
  }
  const std::size_t num_named = listed ? properties.size() : 0;
  // Properties that the schema does not name: closed, any, or with the schema `others`.
  auto others = fields.get("additionalProperties");
  others = others ? others : fields.get("unevaluatedProperties");
  bool is_open = num_named == 0 && !patterns;
  bool is_closed_outright = false;
  if (bool flag = false; others && others->get(flag) == SUCCESS) {
    is_open = flag;
    is_closed_outright = !flag;
    others = std::nullopt;
  } else if (others) {
    is_open = true;
  }
  BATON_TRY(property_counts(fields, num_named, is_open || patterns, place));
  if (patterns || names) {
    const std::string_view beside = num_named > 0         ? "properties"
                                    : patterns && names   ? "propertyNames"
                                    : patterns && is_open ? "additionalProperties"
                                                          : "";
    if (!beside.empty()) {
      return wrong(place,
                   fmt::format("'{}' beside '{}' is not supported",
                               patterns ? "patternProperties" : "propertyNames",
                               beside));
    }
  }
  if (patterns) {
    object list;
    if (patterns->get(list) != SUCCESS || list.size() != 1) {
      return wrong(place, "'patternProperties' is supported with exactly one pattern");
    }
    name("patternProperties");
    out_ += '{';
    for (const auto& [key, value] : list) {
      out_ += out_.back() == '{' ? "" : ",";
      BATON_TRY(pattern(key, place));
      out_ += ':';
      BATON_TRY(schema(value, place + "/patternProperties", depth + 1));
    }
    out_ += '}';
  }
  if (names) {
    name("propertyNames");
    BATON_TRY(schema(*names, place + "/propertyNames", depth + 1));
  }
  const bool may_add = !is_closed_outright && !patterns && !names;
  BATON_TRY(named_properties(listed ? Fields(properties) : Fields(),
                             fields.get("required"),
                             may_add,
                             others,
                             place,
                             depth));
  name("additionalProperties");
  if (others) {
    return schema(*others, place + "/additionalProperties", depth + 1);
  }
  out_ += is_open ? "{}" : "false";
  return {};
}

Status SchemaWriter::property_counts(const Fields& fields,
                                     std::size_t num_named,
                                     bool has_others,
                                     const std::string& place) {
  BATON_ASSIGN(const std::int64_t least, count(fields, "minProperties", place));
  BATON_ASSIGN(const std::int64_t most, count(fields, "maxProperties", place));
  if ((least >= 0 || most >= 0) && num_named > kMostCounted) {
    return wrong(place,
                 fmt::format("'minProperties' and 'maxProperties' are supported beside at most {} "
                             "properties",
                             kMostCounted));
  }
  if (least > 1 && has_others) {
    // A name may be written twice, and then counts once.
    return wrong(place, "'minProperties' above 1 is supported only where every property is named");
  }
  return {};
}

// `properties` and `required`; a required one without a schema gets that of `others`.
Status SchemaWriter::named_properties(const Fields& properties,
                                      const std::optional<element>& required,
                                      bool may_add,
                                      const std::optional<element>& others,
                                      const std::string& place,
                                      std::size_t depth) {
  std::vector<std::string_view> wanted;
  array list;
  if (required && required->get(list) != SUCCESS) {
    return wrong(place, "'required' must be a list");
  }
  if (required) {
    for (const element each : list) {
      std::string_view text;
      if (each.get(text) != SUCCESS) {
        return wrong(place, "'required' must be a list of strings");
      }
      if (std::ranges::find(wanted, text) == wanted.end()) {
        wanted.push_back(text);
      }
    }
  }
  name("properties");
  out_ += '{';
  for (const auto& [key, value] : properties) {
    name(key);
    BATON_TRY(schema(value, fmt::format("{}/properties/{}", place, key), depth + 1));
  }
  for (const std::string_view key : wanted) {
    if (properties.get(key)) {
      continue;
    }
    if (!may_add) {
      return wrong(place, fmt::format("the required property '{}' has no schema", key));
    }
    name(key);
    if (others) {
      BATON_TRY(schema(*others, place + "/additionalProperties", depth + 1));
    } else {
      out_ += "{}";
    }
  }
  out_ += '}';
  if (!wanted.empty()) {
    name("required");
    out_ += '[';
    for (const std::string_view key : wanted) {
      item();
      append_json_string(out_, key);
    }
    out_ += ']';
  }
  return {};
}

}  // namespace baton::engine
