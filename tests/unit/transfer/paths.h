// Which data paths the tests of a transport run over, by name: a transport, and its path where that
// is not the usual one: "tcp", "shm", "shm_put", "rdma", "rdma_am".
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace baton::testing {

// `usual`, or the one that BATON_TEST_TRANSPORT (tcp, shm, or rdma where there is a device) and
// BATON_TEST_PATH (am, put; may be absent) name.
inline std::vector<std::string> tested_paths(std::vector<std::string> usual) {
  const char* const transport = std::getenv("BATON_TEST_TRANSPORT");
  const char* const path = std::getenv("BATON_TEST_PATH");
  if (transport == nullptr) {
    return usual;
  }
  return {path == nullptr ? std::string(transport) : std::string(transport) + "_" + path};
}

inline std::string transport_of(const std::string& name) {
  return name.substr(0, name.find('_'));
}

// What transfer.path is set to.
inline std::string path_of(const std::string& name) {
  const auto end = name.find('_');
  return end == std::string::npos ? "auto" : name.substr(end + 1);
}

// The receiver does not see the bytes arrive.
inline bool is_put(const std::string& name) {
  return path_of(name) == "put" || name == "rdma";
}

inline std::vector<std::string> tested_put_paths() {
  std::vector<std::string> puts;
  for (const std::string& name : tested_paths({"shm_put"})) {
    if (is_put(name)) {
      puts.push_back(name);
    }
  }
  return puts;
}

inline std::string lane_name(const std::string& name) {
  const std::string transport = transport_of(name);
  return transport == "rdma" ? "rc_verbs" : transport == "fake" ? "shm" : transport;
}

}  // namespace baton::testing
