#include "engine/grammar/json_schema.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <vector>

#include "engine/grammar/schema_overlap.h"
#include "engine/grammar/schema_writer.h"

namespace baton::engine {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

Status SchemaWriter::schema(const element& value, const std::string& place, std::size_t depth) {
  if (depth > SchemaLimits::kDepth) {
    return wrong(place, fmt::format("schemas are nested more than {} deep", SchemaLimits::kDepth));
  }
  if (++num_schemas_ > SchemaLimits::kSchemas) {
    return wrong(place, fmt::format("there are more than {} schemas", SchemaLimits::kSchemas));
  }
  bool is_open = false;
  if (value.get(is_open) == SUCCESS) {
    if (!is_open) {
      return wrong(place, "the schema 'false' accepts nothing");
    }
    out_ += "{}";
    return {};
  }
  object object;
  if (value.get(object) != SUCCESS) {
    return wrong(place, "a schema must be an object");
  }
  const Fields fields(object);
  std::vector<std::string_view> shapes;
  std::vector<std::string_view> limits;  // keywords that a shape does not look at
  for (const auto& [key, field] : fields) {
    if (key.starts_with("x-") || (key == "$id" && depth == 0)) {
      continue;
    }
    const Keyword* known = find_keyword(key);
    if (known == nullptr) {
      return unsupported(place, key);
    }
    if (known->group == Group::Shape) {
      shapes.push_back(key);
    } else if (bits_of(known->group) != 0) {
      limits.push_back(key);
    }
  }
  out_ += '{';
  BATON_TRY(definitions(fields, place, depth));
  if (shapes.empty()) {
    BATON_TRY(typed(fields, place, depth));
  } else {
    const std::string_view keyword = shapes.front();
    const auto type = fields.get("type");
    const bool has_values = keyword == "const" || keyword == "enum";
    const std::string_view beside = shapes.size() > 1     ? shapes[1]
                                    : !limits.empty()     ? limits.front()
                                    : type && !has_values ? std::string_view("type")
                                                          : std::string_view();
    if (!beside.empty()) {
      return wrong(place, fmt::format("'{}' beside '{}' is not supported", beside, keyword));
    }
    BATON_TRY(shape(keyword, *fields.get(keyword), type, place, depth));
  }
  out_ += '}';
  return {};
}

// Only those of the root can be named; what others hold is dropped with them.
Status SchemaWriter::definitions(const Fields& fields,
                                 const std::string& place,
                                 std::size_t depth) {
  if (depth > 0) {
    return {};
  }
  for (const std::string_view group : {"$defs", "definitions"}) {
    const auto value = fields.get(group);
    if (!value) {
      continue;
    }
    object members;
    if (value->get(members) != SUCCESS) {
      return wrong(place, fmt::format("'{}' must be an object", group));
    }
    name(group);
    out_ += '{';
    for (const auto& [key, each] : Fields(members)) {
      name(key);
      BATON_TRY(schema(each, fmt::format("{}/{}/{}", place, group, key), depth + 1));
    }
    out_ += '}';
  }
  return {};
}

Status SchemaWriter::shape(std::string_view keyword,
                           const element& value,
                           const std::optional<element>& type,
                           const std::string& place,
                           std::size_t depth) {
  if (keyword == "const" || keyword == "enum") {
    return values(keyword, value, type, place);
  }
  if (keyword != "$ref") {
    return cases(keyword, value, place, depth);
  }
  std::string_view target;
  if (value.get(target) != SUCCESS) {
    return wrong(place, "'$ref' must be a string");
  }
  if (!find_definition(root_, target)) {
    return wrong(place,
                 fmt::format("'$ref' names '{}'; only '#' and what stands at '#/$defs/NAME' or "
                             "'#/definitions/NAME' can be named",
                             target));
  }
  copy(keyword, value);
  return {};
}

// Those that `type` allows too.
Status SchemaWriter::values(std::string_view keyword,
                            const element& value,
                            const std::optional<element>& type,
                            const std::string& place) {
  std::uint8_t bits = kAllTypeBits;
  if (type) {
    BATON_ASSIGN(bits, read_type(*type, place));
  }
  std::vector<element> allowed;
  array list;
  if (keyword == "const") {
    allowed.push_back(value);
  } else if (value.get(list) != SUCCESS) {
    return wrong(place, "'enum' must be a list");
  } else {
    allowed.assign(list.begin(), list.end());
  }
  std::erase_if(allowed, [bits](const element& each) { return (type_bits(each) & bits) == 0; });
  if (allowed.empty()) {
    return wrong(place, fmt::format("'{}' has no value of the type", keyword));
  }
  name("enum");
  out_ += '[';
  const std::size_t start = out_.size();
  for (const element& each : allowed) {
    item();
    out_ += simdjson::minify(each);
  }
  enum_bytes_ += out_.size() - start;
  out_ += ']';
  if (enum_bytes_ > SchemaLimits::kEnumBytes) {
    return wrong(place,
                 fmt::format("values of 'enum' and 'const' take more than {} bytes",
                             SchemaLimits::kEnumBytes));
  }
  return {};
}

Status SchemaWriter::cases(std::string_view keyword,
                           const element& value,
                           const std::string& place,
                           std::size_t depth) {
  array list;
  if (value.get(list) != SUCCESS || list.size() == 0) {
    return wrong(place, fmt::format("'{}' must be a list that is not empty", keyword));
  }
  const std::vector<element> each(list.begin(), list.end());
  if (keyword == "allOf" && each.size() > 1) {
    return wrong(place, "'allOf' of more than one schema is not supported");
  }
  if (keyword == "oneOf") {
    for (std::size_t i = 0; i < each.size(); ++i) {
      for (std::size_t j = i + 1; j < each.size(); ++j) {
        if (may_overlap(root_, each[i], each[j], overlap_work_)) {
          return wrong(place,
                       fmt::format("the cases {} and {} of 'oneOf' may both accept a value, which "
                                   "is not supported; give them different types or a required "
                                   "property with different 'const' values, or use 'anyOf'",
                                   i,
                                   j));
        }
      }
    }
  }
  name("anyOf");
  out_ += '[';
  for (std::size_t i = 0; i < each.size(); ++i) {
    item();
    BATON_TRY(schema(each[i], fmt::format("{}/{}/{}", place, keyword, i), depth + 1));
  }
  out_ += ']';
  return {};
}

Result<NormalSchema> normalise_schema(std::string_view text) {
  if (text.size() > SchemaLimits::kBytes) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("the schema has {} bytes; the limit is {}", text.size(), SchemaLimits::kBytes));
  }
  simdjson::dom::parser parser;
  element root;
  // Every schema takes two levels of JSON or more; what is deeper is refused by `schema`.
  if (const auto code =
          parser.allocate(std::max<std::size_t>(text.size(), 64), 4 * SchemaLimits::kDepth)) {
    return fail(ErrorCode::OutOfMemory, simdjson::error_message(code));
  }
  if (const auto code = parser.parse(text.data(), text.size()).get(root)) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("the schema is not JSON: {}", simdjson::error_message(code)));
  }
  return SchemaWriter(root).write();
}

}  // namespace baton::engine
