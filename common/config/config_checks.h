// Rules that join several keys of a configuration.
//
// Thread: plain functions. Failure: problems come back as values, in order.
#pragma once

#include <string>
#include <vector>

#include "common/config/cluster_config.h"

namespace baton {

struct ConfigProblem {
  std::string key;   // where in the file; a section when the key is absent
  std::string text;  // "key: sentence"
};

std::vector<ConfigProblem> check_config(const ClusterConfig& config);
// `list`: where the keys stand, as gateway.keys.
std::vector<ConfigProblem> check_api_keys(const std::vector<ApiKeyEntry>& keys,
                                          const std::string& list);

}  // namespace baton
