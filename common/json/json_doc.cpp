#include "common/json/json_doc.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>

namespace baton {
namespace {

constexpr std::size_t kMaxShownKey = 64;
constexpr std::size_t kMaxWordDigits = 18;  // any such integer fits 64 bits

// Integers longer than a machine word, outside of strings, get a ".0".
std::string with_wide_integers_as_floats(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (in_string || c < '0' || c > '9') {
      if (in_string && c == '\\' && at + 1 < text.size()) {
        out += c;
        ++at;
      } else if (c == '"') {
        in_string = !in_string;
      }
      out += text[at++];
      continue;
    }
    std::size_t end = at;
    bool integer = true;
    while (end < text.size() &&
           ((text[end] >= '0' && text[end] <= '9') || text[end] == '.' || text[end] == 'e' ||
            text[end] == 'E' || text[end] == '+' || text[end] == '-')) {
      integer = integer && text[end] >= '0' && text[end] <= '9';
      ++end;
    }
    out.append(text.substr(at, end - at));
    if (integer && end - at > kMaxWordDigits) {
      out += ".0";
    }
    at = end;
  }
  return out;
}

std::string shown(std::string_view key) {
  std::string out;
  for (const char c : key.substr(0, kMaxShownKey)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return key.size() > kMaxShownKey ? out + "…" : out;
}

}  // namespace

std::unexpected<Error> JsonValue::bad(std::string_view why) const {
  return fail(ErrorCode::InvalidModel, fmt::format("{}: {}", place_, why));
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  simdjson::dom::object object;
  simdjson::dom::element value;
  if (element_.get(object) != simdjson::SUCCESS ||
      object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) {
    return std::nullopt;
  }
  return JsonValue(value, fmt::format("{}: {}", place_, shown(key)));
}

Result<JsonValue> JsonValue::at(std::string_view key) const {
  if (auto value = find(key)) {
    return std::move(*value);
  }
  return bad(element_.is_object() ? fmt::format("{} is missing", shown(key))
                                  : fmt::format("must be an object with {}", shown(key)));
}

Result<std::uint64_t> JsonValue::to_uint(std::uint64_t high) const {
  std::uint64_t value = 0;
  double real = 0;
  if (element_.get(value) != simdjson::SUCCESS) {
    // 4096.0 is a whole number to those who write settings.
    if (!element_.is_double() || element_.get(real) != simdjson::SUCCESS || real < 0 ||
        real > 0x1p53 || real != std::floor(real)) {
      return bad("must be a whole number, 0 or more");
    }
    value = static_cast<std::uint64_t>(real);
  }
  if (value > high) {
    return bad(fmt::format("must be at most {}, is {}", high, value));
  }
  return value;
}

Result<double> JsonValue::to_double() const {
  double value = 0;
  if (element_.get(value) != simdjson::SUCCESS || !std::isfinite(value)) {
    return bad("must be a number");
  }
  return value;
}

Result<bool> JsonValue::to_bool() const {
  bool value = false;
  if (element_.get(value) != simdjson::SUCCESS) {
    return bad("must be true or false");
  }
  return value;
}

Result<std::string_view> JsonValue::to_string() const {
  std::string_view value;
  if (element_.get(value) != simdjson::SUCCESS) {
    return bad("must be a text");
  }
  return value;
}

Result<simdjson::dom::array> JsonValue::to_array() const {
  simdjson::dom::array value;
  if (element_.get(value) != simdjson::SUCCESS) {
    return bad("must be a list");
  }
  return value;
}

Result<simdjson::dom::object> JsonValue::to_object() const {
  simdjson::dom::object value;
  if (element_.get(value) != simdjson::SUCCESS) {
    return bad("must be an object");
  }
  return value;
}

Result<std::uint64_t> JsonValue::uint_or(std::string_view key,
                                         std::uint64_t other,
                                         std::uint64_t high) const {
  const auto value = find(key);
  return value ? value->to_uint(high) : Result<std::uint64_t>(other);
}

Result<double> JsonValue::double_or(std::string_view key, double other) const {
  const auto value = find(key);
  return value ? value->to_double() : Result<double>(other);
}

Result<bool> JsonValue::bool_or(std::string_view key, bool other) const {
  const auto value = find(key);
  return value ? value->to_bool() : Result<bool>(other);
}

Result<std::string_view> JsonValue::string_or(std::string_view key, std::string_view other) const {
  const auto value = find(key);
  return value ? value->to_string() : Result<std::string_view>(other);
}

Result<JsonDoc> JsonDoc::parse(std::string_view text, const std::string& source) {
  JsonDoc doc;
  doc.source_ = source;
  doc.parser_ = std::make_unique<simdjson::dom::parser>();
  auto error = doc.parser_->parse(text.data(), text.size(), true).get(doc.root_);
  if (error == simdjson::NUMBER_ERROR || error == simdjson::TAPE_ERROR) {
    const std::string widened = with_wide_integers_as_floats(text);
    error = doc.parser_->parse(widened.data(), widened.size(), true).get(doc.root_);
  }
  if (error != simdjson::SUCCESS) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: this is not JSON: {}", source, simdjson::error_message(error)));
  }
  return doc;
}

Result<JsonDoc> JsonDoc::load(const std::string& path, std::size_t max_bytes) {
  BATON_ASSIGN(const std::string text, read_text_file(path, max_bytes));
  return parse(text, path);
}

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) {
    return fail(ErrorCode::NotFound, fmt::format("cannot read {}", path));
  }
  const std::streamoff size = in.tellg();
  if (size < 0) {
    return fail(ErrorCode::IoError, fmt::format("{} is not a regular file", path));
  }
  if (static_cast<std::uint64_t>(size) > max_bytes) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: {} bytes; at most {} are read", path, size, max_bytes));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  in.seekg(0);
  in.read(text.data(), size);
  if (!in) {
    return fail(ErrorCode::IoError, fmt::format("cannot read {} whole", path));
  }
  return text;
}

}  // namespace baton
