// Text of a cluster.yaml: a configuration or an error that says where.
#pragma once

#include "common/config/cluster_config.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct ConfigFuzz {
  static constexpr std::string_view kName = "config";

  static void run(std::span<const std::uint8_t> bytes) {
    if (bytes.size() > 16384) {
      return;
    }
    const auto config = parse_config(std::string(as_text(bytes)), "fuzz.yaml", {});
    fuzz_check(config || !config.error().message.empty());
  }

  static std::vector<std::string> seeds() {
    return {"cluster:\n  token: abc\n  gateways: [127.0.0.1:7000]\n",
            "cluster:\n  token: \"x\"\ngateway:\n  http: 127.0.0.1:8000\nnodes:\n  - name: p1\n    "
            "role: "
            "prefill\n",
            "a: &x [1, 2]\nb: *x\nc: {d: !!str 5, e: ~}\n"};
  }
};

}  // namespace baton::fuzz
