// Reads the fields of one JSON object into values, with errors that name field, expected and found
// type in the words of the OpenAI API. The first error sticks; later reads then do nothing.
//
// Thread: one owner. Failure: `error()`.
#pragma once

#include <simdjson.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/http/api_error.h"

namespace baton::gateway {

using JsonElement = simdjson::dom::element;

inline constexpr std::size_t kMaxJsonDepth = 64;

// Reads one body. The memory for it serves the thread's next body, too, unless it is much.
class JsonBody {
 public:
  JsonBody();
  JsonBody(const JsonBody&) = delete;
  JsonBody& operator=(const JsonBody&) = delete;
  ~JsonBody();

  // `body` must be an object, which lives as long as both. Malformed JSON is a 400 with the byte
  // position. A text with simdjson::SIMDJSON_PADDING bytes of room behind it is not copied.
  ApiResult<simdjson::dom::object> parse(const std::string& body);

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
};

// "a string", "an integer", … for messages.
std::string_view json_type_name(const JsonElement& value);
ApiError wrong_type(std::string_view param, std::string_view expected, const JsonElement& value);
// The field is known, and what it asks for is not to be had here.
ApiError unsupported(std::string_view param, std::string_view what);
ApiError out_of_range(std::string_view param, std::string message);

// The fields of an object by name; of a name that occurs twice the last stays.
class JsonFields {
 public:
  // `known` must be sorted. `path` is put before names in messages ("stream_options.").
  JsonFields(simdjson::dom::object object,
             std::span<const std::string_view> known,
             std::string path = "");

  // Null and absent are the same: nothing is stored, the default stays.
  void read(std::string_view name, bool& into);
  void read(std::string_view name, std::string& into);
  void read(std::string_view name, double low, double high, float& into);
  void read(std::string_view name, std::int64_t low, std::int64_t high, std::int64_t& into);
  void read(std::string_view name,
            std::int64_t low,
            std::int64_t high,
            std::optional<std::uint32_t>& into);
  // The value, unless absent or null.
  std::optional<JsonElement> get(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }

  void fail(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }
  std::uint32_t unknown() const { return unknown_; }
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }

 private:
  using Present = std::pair<std::string_view, JsonElement>;
  std::vector<Present> present_;  // known ones; few of many
  std::string path_;
  std::uint32_t unknown_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace baton::gateway
