#include "gateway/openai/openai_client.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace baton::gateway {
namespace {

void read_tier(JsonFields& fields, ApiRequest& request) {
  std::string name;
  fields.read("service_tier", name);
  if (name.empty()) {
    return;
  }
  request.names_tier = true;
  if (name == "auto") {
    return;
  }
  const std::string own = name == "scale" ? "default" : name == "fast" ? "priority" : name;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    if (own == kTierNames[i]) {
      request.service_tier = static_cast<Tier>(i);
      return;
    }
  }
  fields.fail(
      out_of_range("service_tier", "must be one of auto, default, fast, flex, priority, scale"));
}

}  // namespace

void read_client(JsonFields& fields, ApiRequest& request) {
  fields.read("user", request.user);
  fields.read("safety_identifier", request.safety_identifier);
  fields.read("prompt_cache_key", request.prompt_cache_key);
  read_tier(fields, request);
  std::int64_t priority = 0;
  fields.read("priority",
              std::numeric_limits<std::int32_t>::min(),
              std::numeric_limits<std::int32_t>::max(),
              priority);
  request.priority = static_cast<std::int32_t>(priority);
  if (const auto metadata = fields.get("metadata")) {
    if (!metadata->is_object()) {
      return fields.fail(wrong_type("metadata", "an object", *metadata));
    }
    request.metadata_json = simdjson::minify(*metadata);
  }
}

}  // namespace baton::gateway
