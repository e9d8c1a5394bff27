#include "gateway/openai/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "gateway/http/json_fault.h"

namespace baton::gateway {
namespace {

using Type = simdjson::dom::element_type;

constexpr std::size_t kLeastBytes = 4096;                      // that a parser has room for
constexpr std::size_t kMaxKeptBytes = std::size_t{256} << 10;  // of a body, to keep its parser
thread_local std::unique_ptr<simdjson::dom::parser> kept_parser;

ApiError malformed(std::string_view body, simdjson::error_code code) {
  const auto fault = find_json_fault(body, kMaxJsonDepth);
  std::string where = fault ? fmt::format("{} at byte {}", fault->what, fault->offset)
                            : std::string(simdjson::error_message(code));
  return bad_request(
      "invalid_json", "", fmt::format("The request body is not valid JSON: {}.", where));
}

}  // namespace

JsonBody::JsonBody() : parser_(std::move(kept_parser)) {
  if (parser_ == nullptr) {
    parser_ = std::make_unique<simdjson::dom::parser>();
  }
}

JsonBody::~JsonBody() {
  if (parser_->capacity() <= kMaxKeptBytes) {
    kept_parser = std::move(parser_);
  }
}

ApiResult<simdjson::dom::object> JsonBody::parse(const std::string& body) {
  if (parser_->capacity() < body.size() || parser_->capacity() == 0) {
    const std::size_t room = body.size() > kMaxKeptBytes
                                 ? body.size()
                                 : std::bit_ceil(std::max(body.size(), kLeastBytes));
    // One level more than allowed: simdjson counts the document itself.
    if (const auto code = parser_->allocate(room, kMaxJsonDepth + 1)) {
      return std::unexpected(malformed(body, code));
    }
  }
  JsonElement root;
  if (const auto code = parser_->parse(body).get(root)) {
    return std::unexpected(malformed(body, code));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return std::unexpected(
        bad_request("invalid_type",
                    "",
                    fmt::format("The request body must be a JSON object, but it is {}.",
                                json_type_name(root))));
  }
  return object;
}

std::string_view json_type_name(const JsonElement& value) {
  switch (value.type()) {
    case Type::ARRAY:
      return "an array";
    case Type::OBJECT:
      return "an object";
    case Type::INT64:
    case Type::UINT64:
      return "an integer";
    case Type::DOUBLE:
      return "a decimal";
    case Type::STRING:
      return "a string";
    case Type::BOOL:
      return "a boolean";
    case Type::NULL_VALUE:
      return "null";
  }
  return "something else";
}

ApiError wrong_type(std::string_view param, std::string_view expected, const JsonElement& value) {
  return bad_request("invalid_type",
                     std::string(param),
                     fmt::format("Invalid type for '{}': expected {}, but got {} instead.",
                                 param,
                                 expected,
                                 json_type_name(value)));
}

ApiError unsupported(std::string_view param, std::string_view what) {
  return bad_request("unsupported_parameter",
                     std::string(param),
                     fmt::format("Unsupported parameter: '{}'. {}", param, what));
}

ApiError out_of_range(std::string_view param, std::string message) {
  return bad_request("invalid_value",
                     std::string(param),
                     fmt::format("Invalid value for '{}': {}.", param, message));
}

JsonFields::JsonFields(simdjson::dom::object object,
                       std::span<const std::string_view> known,
                       std::string path)
    : path_(std::move(path)) {
  present_.reserve(std::min(object.size(), known.size()));
  for (const auto field : object) {
    if (!std::binary_search(known.begin(), known.end(), field.key)) {
      ++unknown_;
      continue;
    }
    const auto before = std::ranges::find(present_, field.key, &Present::first);
    if (before == present_.end()) {
      present_.emplace_back(field.key, field.value);
    } else {
      before->second = field.value;
    }
  }
}

std::optional<JsonElement> JsonFields::get(std::string_view name) const {
  const auto found = std::ranges::find(present_, name, &Present::first);
  if (found == present_.end() || found->second.is_null()) {
    return std::nullopt;
  }
  return found->second;
}

void JsonFields::fail(ApiError error) {
  if (!error_) {
    error_ = std::move(error);
  }
}

void JsonFields::read(std::string_view name, bool& into) {
  if (const auto value = get(name); value && value->get(into) != simdjson::SUCCESS) {
    fail(wrong_type(path_of(name), "a boolean", *value));
  }
}

void JsonFields::read(std::string_view name, std::string& into) {
  const auto value = get(name);
  if (!value) {
    return;
  }
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    return fail(wrong_type(path_of(name), "a string", *value));
  }
  into = text;
}

void JsonFields::read(std::string_view name, double low, double high, float& into) {
  const auto value = get(name);
  if (!value) {
    return;
  }
  double number = 0;
  if (value->get(number) != simdjson::SUCCESS) {
    return fail(wrong_type(path_of(name), "a number", *value));
  }
  if (!std::isfinite(number) || number < low || number > high) {
    return fail(out_of_range(path_of(name),
                             fmt::format("must be between {} and {}, got {}", low, high, number)));
  }
  into = static_cast<float>(number);
}

void JsonFields::read(std::string_view name,
                      std::int64_t low,
                      std::int64_t high,
                      std::int64_t& into) {
  const auto value = get(name);
  if (!value) {
    return;
  }
  if (value->type() == Type::UINT64) {  // above int64: only "too large" is left to say
    return fail(out_of_range(path_of(name), fmt::format("must be at most {}", high)));
  }
  std::int64_t number = 0;
  if (value->type() != Type::INT64 || value->get(number) != simdjson::SUCCESS) {
    return fail(wrong_type(path_of(name), "an integer", *value));
  }
  if (number < low) {
    return fail(
        out_of_range(path_of(name), fmt::format("must be at least {}, got {}", low, number)));
  }
  if (number > high) {
    return fail(
        out_of_range(path_of(name), fmt::format("must be at most {}, got {}", high, number)));
  }
  into = number;
}

void JsonFields::read(std::string_view name,
                      std::int64_t low,
                      std::int64_t high,
                      std::optional<std::uint32_t>& into) {
  if (has(name)) {
    std::int64_t number = 0;
    read(name, low, high, number);
    into = static_cast<std::uint32_t>(number);
  }
}

}  // namespace baton::gateway
