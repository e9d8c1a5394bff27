// Every key of cluster.yaml, once: name, place, default, bounds, help. The loader, the printed
// description and the checks of the examples all walk this list.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <string>
#include <vector>

namespace baton {

struct ConfigKey {
  std::string path;      // decode.pool.N.name: N stands for an index
  std::string type;      // text, number, yes/no, list, map, address, or "one of a, b"
  std::string fallback;  // default as YAML
  std::string bounds;    // "1 to 4096"; empty: none
  std::string help;
};

std::vector<ConfigKey> config_keys();

}  // namespace baton
