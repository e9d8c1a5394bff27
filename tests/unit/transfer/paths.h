// Which data paths the tests of a transport run over, and what each calls its lane.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace baton::testing {

// `usual`, or the one path that BATON_TEST_TRANSPORT names: "rdma" where there is a device.
inline std::vector<std::string> tested_paths(std::vector<std::string> usual) {
  const char* const one = std::getenv("BATON_TEST_TRANSPORT");
  return one == nullptr ? usual : std::vector<std::string>{one};
}

inline std::string lane_name(const std::string& path) {
  return path == "rdma" ? "rc_verbs" : path;
}

}  // namespace baton::testing
