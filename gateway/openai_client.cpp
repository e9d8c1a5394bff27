#include "gateway/openai_client.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace baton::gateway {

void read_client(JsonFields& fields, ApiRequest& request) {
  fields.read("user", request.user);
  fields.read("safety_identifier", request.safety_identifier);
  fields.read("prompt_cache_key", request.prompt_cache_key);
  fields.read("service_tier", request.service_tier);
  static constexpr auto kTiers =
      std::to_array<std::string_view>({"", "auto", "default", "fast", "flex", "priority", "scale"});
  if (std::ranges::find(kTiers, request.service_tier) == kTiers.end()) {
    fields.fail(out_of_range("service_tier",
                             "must be 'auto', 'default', 'flex', 'scale', 'priority' or 'fast'"));
  }
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
