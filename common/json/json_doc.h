// A parsed JSON text whose every error names the source and the place inside, for settings that
// come as foreign bytes. Numbers that no machine word holds are taken as floating point, since
// settings written from Python have them.
//
// Owner: JsonDoc owns the text; a JsonValue is a view into it. Thread: const after parsing.
// Failure: InvalidModel with source, place and reason.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace baton {

class JsonValue {
 public:
  // `place`: source and path, for messages.
  JsonValue(simdjson::dom::element element, std::string place)
      : element_(element), place_(std::move(place)) {}

  bool is_object() const { return element_.is_object(); }
  bool is_array() const { return element_.is_array(); }
  bool is_string() const { return element_.is_string(); }
  bool is_bool() const { return element_.is_bool(); }

  // A member; absent, null, or asked of what is no object: nullopt.
  std::optional<JsonValue> find(std::string_view key) const;
  // A member that must be there.
  Result<JsonValue> at(std::string_view key) const;

  Result<std::uint64_t> to_uint(std::uint64_t high) const;  // 0 to `high`
  Result<double> to_double() const;
  Result<bool> to_bool() const;
  Result<std::string_view> to_string() const;
  Result<simdjson::dom::array> to_array() const;
  Result<simdjson::dom::object> to_object() const;

  // The same for a member that may be absent or null: then `other`.
  Result<std::uint64_t> uint_or(std::string_view key,
                                std::uint64_t other,
                                std::uint64_t high) const;
  Result<double> double_or(std::string_view key, double other) const;
  Result<bool> bool_or(std::string_view key, bool other) const;
  Result<std::string_view> string_or(std::string_view key, std::string_view other) const;

  const std::string& place() const { return place_; }
  std::unexpected<Error> bad(std::string_view why) const;

 private:
  simdjson::dom::element element_;
  std::string place_;
};

class JsonDoc {
 public:
  // `source` is used in messages.
  static Result<JsonDoc> parse(std::string_view text, const std::string& source);
  // A file of at most `max_bytes`. A missing file is NotFound.
  static Result<JsonDoc> load(const std::string& path, std::size_t max_bytes);

  JsonValue root() const { return {root_, source_}; }

 private:
  JsonDoc() = default;

  std::string source_;
  std::unique_ptr<simdjson::dom::parser> parser_;  // owns what root_ points into
  simdjson::dom::element root_;
};

// The bytes of a file of at most `max_bytes`. A missing file is NotFound.
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes);

}  // namespace baton
