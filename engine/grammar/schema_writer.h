// Writes a JSON schema anew, schema by schema: see json_schema.h. Shapes (references, values,
// choices) are written in json_schema.cpp, limits of types in schema_types.cpp.
//
// Thread: one owner, one call. Failure: InvalidArgument with the place.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/json/json_escape.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_overlap.h"

namespace baton::engine {

class SchemaWriter {
 public:
  explicit SchemaWriter(const simdjson::dom::element& root) : root_(root) {}

  Result<NormalSchema> write() {
    BATON_TRY(schema(root_, "#", 0));
    return NormalSchema{.text = std::move(out_), .patterns = std::move(patterns_)};
  }

 private:
  // Appends the schema at `place` to out_.
  Status schema(const simdjson::dom::element& value, const std::string& place, std::size_t depth);
  Status definitions(const Fields& fields, const std::string& place, std::size_t depth);
  Status shape(std::string_view keyword,
               const simdjson::dom::element& value,
               const std::optional<simdjson::dom::element>& type,
               const std::string& place,
               std::size_t depth);
  Status values(std::string_view keyword,
                const simdjson::dom::element& value,
                const std::optional<simdjson::dom::element>& type,
                const std::string& place);
  Status cases(std::string_view keyword,
               const simdjson::dom::element& value,
               const std::string& place,
               std::size_t depth);
  Status typed(const Fields& fields, const std::string& place, std::size_t depth);
  Status string_keywords(const Fields& fields, const std::string& place);
  Status number_keywords(const Fields& fields, std::uint8_t bits, const std::string& place);
  Status array_keywords(const Fields& fields, const std::string& place, std::size_t depth);
  Status object_keywords(const Fields& fields, const std::string& place, std::size_t depth);
  Status property_counts(const Fields& fields,
                         std::size_t num_named,
                         bool has_others,
                         const std::string& place);
  Status named_properties(const Fields& properties,
                          const std::optional<simdjson::dom::element>& required,
                          bool may_add,
                          const std::optional<simdjson::dom::element>& others,
                          const std::string& place,
                          std::size_t depth);
  // A whole number, 0 or more; -1 when it is absent.
  Result<std::int64_t> number(const Fields& fields,
                              std::string_view name,
                              const std::string& place);
  // The same up to kCount; is written too.
  Result<std::int64_t> count(const Fields& fields, std::string_view name, const std::string& place);
  // An expression as a string of JSON.
  Status pattern(std::string_view regex, const std::string& place);

  // Begins a member of the object that is being written, and an item of the list.
  void name(std::string_view key) {
    out_ += out_.back() == '{' ? "" : ",";
    append_json_string(out_, key);
    out_ += ':';
  }
  void item() { out_ += out_.back() == '[' ? "" : ","; }
  void copy(std::string_view key, const simdjson::dom::element& value) {
    name(key);
    out_ += simdjson::minify(value);
  }

  const simdjson::dom::element root_;
  std::string out_;
  std::vector<std::string> patterns_;
  std::size_t num_schemas_ = 0;
  OverlapWork overlap_work_;  // over all oneOf
  std::size_t enum_bytes_ = 0;
  std::size_t pattern_size_ = 0;
};

}  // namespace baton::engine
