#include "engine/grammar/schema_overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace baton::engine {
namespace {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

constexpr int kOverlapDepth = 8;  // references and choices that are looked through

// False once `work` is used up.
bool spend(OverlapWork& work, std::size_t amount = 1) {
  if (amount > work.left) {
    work.left = 0;
    return false;
  }
  work.left -= static_cast<std::uint32_t>(amount);
  return true;
}

std::optional<element> member(const element& schema, std::string_view name) {
  object fields;
  element value;
  if (schema.get(fields) == SUCCESS && fields.at_key(name).get(value) == SUCCESS) {
    return value;
  }
  return std::nullopt;
}

// Follows references; nothing when they go round or nowhere.
std::optional<element> resolved(const element& root, element schema) {
  for (int i = 0; i < kOverlapDepth; ++i) {
    const auto reference = member(schema, "$ref");
    std::string_view text;
    if (!reference) {
      return schema;
    }
    const auto target =
        reference->get(text) == SUCCESS ? find_definition(root, text) : std::nullopt;
    if (!target) {
      return std::nullopt;
    }
    schema = *target;
  }
  return std::nullopt;
}

// The values of `const` or `enum`.
std::optional<std::vector<element>> values_of(const element& schema) {
  if (const auto value = member(schema, "const")) {
    return std::vector<element>{*value};
  }
  const auto list = member(schema, "enum");
  array items;
  if (!list || list->get(items) != SUCCESS) {
    return std::nullopt;
  }
  return std::vector<element>(items.begin(), items.end());
}

// The same text for equal values; large whole numbers may share one, which only refuses more.
std::string canonical(const element& value) {
  double number = 0;
  return value.get(number) == SUCCESS ? fmt::format("{:.17g}", number) : simdjson::minify(value);
}

bool have_equal(const std::vector<element>& a, const std::vector<element>& b) {
  std::unordered_set<std::string> known;
  for (const element& each : a) {
    known.insert(canonical(each));
  }
  return std::ranges::any_of(b,
                             [&](const element& each) { return known.contains(canonical(each)); });
}

std::uint8_t schema_bits(const element& root,
                         const element& unresolved,
                         int depth,
                         OverlapWork& work) {
  const auto schema = resolved(root, unresolved);
  if (!schema || depth > kOverlapDepth || !spend(work)) {
    return kAllTypeBits;
  }
  if (const auto values = values_of(*schema)) {
    std::uint8_t bits = 0;
    if (!spend(work, values->size())) {
      return kAllTypeBits;
    }
    for (const element& value : *values) {
      bits |= type_bits(value);
    }
    return bits;
  }
  for (const std::string_view name : {"anyOf", "oneOf"}) {
    array cases;
    if (const auto list = member(*schema, name); list && list->get(cases) == SUCCESS) {
      std::uint8_t bits = 0;
      for (const element each : cases) {
        bits |= schema_bits(root, each, depth + 1, work);
        if (bits == kAllTypeBits) {
          break;
        }
      }
      return bits;
    }
  }
  const auto type = member(*schema, "type");
  std::string_view name;
  array names;
  if (type && type->get(name) == SUCCESS) {
    return type_bits(name);
  }
  std::uint8_t bits = 0;
  if (type && type->get(names) == SUCCESS) {
    for (const element each : names) {
      if (each.get(name) == SUCCESS) {
        bits |= type_bits(name);
      }
    }
  }
  return bits == 0 ? std::uint8_t{kAllTypeBits} : bits;
}

bool requires_property(const element& schema, std::string_view name) {
  const auto list = member(schema, "required");
  array names;
  if (!list || list->get(names) != SUCCESS) {
    return false;
  }
  return std::ranges::any_of(names, [&](const element& each) {
    std::string_view text;
    return each.get(text) == SUCCESS && text == name;
  });
}

bool may_overlap_at(const element& root,
                    const element& first,
                    const element& second,
                    int depth,
                    OverlapWork& work) {
  const auto a = resolved(root, first);
  const auto b = resolved(root, second);
  if (!a || !b || depth > kOverlapDepth || !spend(work)) {
    return true;
  }
  const std::uint8_t common = schema_bits(root, *a, 0, work) & schema_bits(root, *b, 0, work);
  if (common == 0) {
    return false;
  }
  const auto left = values_of(*a);
  const auto right = values_of(*b);
  if (left && right) {
    return !spend(work, left->size() + right->size()) || have_equal(*left, *right);
  }
  // Objects that both must have a property which cannot be the same in both.
  const auto a_properties = member(*a, "properties");
  const auto b_properties = member(*b, "properties");
  object fields;
  if (common != kObjectBit || !a_properties || !b_properties ||
      a_properties->get(fields) != SUCCESS) {
    return true;
  }
  for (const auto& [key, schema] : fields) {
    const auto other = member(*b_properties, key);
    if (other && requires_property(*a, key) && requires_property(*b, key) &&
        !may_overlap_at(root, schema, *other, depth + 1, work)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::uint8_t type_bits(const element& value) {
  switch (value.type()) {
    case element_type::NULL_VALUE:
      return kNullBit;
    case element_type::BOOL:
      return kBooleanBit;
    case element_type::INT64:
    case element_type::UINT64:
      return kWholeBit;
    case element_type::DOUBLE: {
      const double number = value.get_double().value_unsafe();
      return static_cast<std::uint8_t>(number == std::floor(number) ? kWholeBit : kFractionBit);
    }
    case element_type::STRING:
      return kStringBit;
    case element_type::ARRAY:
      return kArrayBit;
    case element_type::OBJECT:
      return kObjectBit;
  }
  return 0;
}

std::uint8_t type_bits(std::string_view type_name) {
  static constexpr auto kNames = std::to_array<std::pair<std::string_view, std::uint8_t>>(
      {{"null", kNullBit},
       {"boolean", kBooleanBit},
       {"integer", kWholeBit},
       {"number", kWholeBit | kFractionBit},
       {"string", kStringBit},
       {"array", kArrayBit},
       {"object", kObjectBit}});
  const auto found =
      std::ranges::find(kNames, type_name, [](const auto& pair) { return pair.first; });
  return found == kNames.end() ? std::uint8_t{0} : found->second;
}

std::optional<element> find_definition(const element& root, std::string_view reference) {
  if (reference == "#") {
    return root;
  }
  for (const std::string_view group : {"$defs", "definitions"}) {
    const std::string prefix = "#/" + std::string(group) + "/";
    if (!reference.starts_with(prefix)) {
      continue;
    }
    // Escapes of JSON pointers and of URIs are left out: no name in use has any.
    const std::string_view name = reference.substr(prefix.size());
    const auto definitions = member(root, group);
    if (name.find_first_of("~%/") == std::string_view::npos && definitions) {
      return member(*definitions, name);
    }
  }
  return std::nullopt;
}

bool may_overlap(const element& root, const element& a, const element& b, OverlapWork& work) {
  return may_overlap_at(root, a, b, 0, work);
}

}  // namespace baton::engine
