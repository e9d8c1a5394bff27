// One streamed answer and what was measured while it came.
//
// Thread: one. Failure: as ApiClient::stream; what had come until then is kept.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/http/api_client.h"

namespace baton::cli {

struct Generation {
  std::string text;
  std::string finish_reason;
  std::vector<std::int64_t> token_ids;  // when asked for with return_token_ids
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  double ttft_ms = 0;
  double itl_p50_ms = 0;  // median gap between pieces that carried tokens
  json::object figures;   // the server's own: kv_bytes_moved, nodes, …
  Status status;

  // One JSON line with everything above but text and ids.
  std::string figures_line() const;
};

// Streams one answer; `on_text` gets each piece of text as it comes and may return false to stop.
Generation generate(ApiClient& client,
                    const std::string& path,
                    json::object body,
                    const std::function<bool(std::string_view)>& on_text);

}  // namespace baton::cli
