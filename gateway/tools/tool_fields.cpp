#include "gateway/tools/tool_fields.h"

#include <fmt/format.h>

namespace baton::gateway {

ApiError missing_field(const std::string& path) {
  return bad_request(
      "missing_required_parameter", path, fmt::format("Missing required parameter: '{}'.", path));
}

ApiResult<simdjson::dom::object> object_at(const std::optional<JsonElement>& value,
                                           const std::string& path) {
  if (!value) {
    return std::unexpected(missing_field(path));
  }
  simdjson::dom::object object;
  if (value->get(object) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path, "an object", *value));
  }
  return object;
}

ApiResult<void> check_function_type(JsonFields& fields, const std::string& path) {
  if (!fields.has("type")) {
    return std::unexpected(missing_field(path + ".type"));
  }
  std::string type;
  fields.read("type", type);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  if (type != "function") {
    return std::unexpected(
        bad_request("unsupported_value",
                    path + ".type",
                    fmt::format("This server supports tools of type 'function', not '{}'.", type)));
  }
  return {};
}

}  // namespace baton::gateway
