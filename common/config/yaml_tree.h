// A YAML file as a small tree whose nodes know their lines. Anchors, aliases, tags and a second
// document are refused, and size, depth and count are bounded: a configuration needs none of it,
// and with aliases a file of one kilobyte can unfold to gigabytes.
//
// Thread: plain values. Failure: InvalidConfig with "name:line: sentence".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton {

struct YamlNode {
  enum class Kind { Null, Scalar, List, Map };
  struct Entry;

  Kind kind = Kind::Null;
  std::string text;             // of a scalar
  bool quoted = false;          // written in quotes: a text whatever it looks like
  std::string where;            // "file:line", or the override it came from
  std::vector<YamlNode> items;  // of a list
  std::vector<Entry> entries;   // of a map, in the file's order

  YamlNode* find(std::string_view key);
  const YamlNode* find(std::string_view key) const;
  // For messages: a text, a list, a map, nothing.
  std::string describe() const;
};

struct YamlNode::Entry {
  std::string key;
  std::string where;
  YamlNode value;
};

struct YamlLimits {
  static constexpr std::size_t kBytes = 256 * 1024;
  static constexpr std::size_t kNodes = 20'000;
  static constexpr std::size_t kDepth = 16;
};

// An empty text gives a Null node. `name` stands before the line in messages.
Result<YamlNode> parse_yaml(const std::string& text, const std::string& name);

// Where a key such as "decode.pool.0.name" stands, or the innermost section of it that is there;
// `name` when none is.
std::string place_in(const YamlNode& root, const std::string& key, const std::string& name);

// The order of places in messages: files by name and their lines one after another, then a file as
// a whole, and what --set gave last.
bool is_before(const std::string& place, const std::string& other);

// Sets one value: "kv.arena_mb=256", "decode.pool.0.name=d0". The value is YAML; missing maps are
// made, a list grows by the index after its last.
Status apply_override(YamlNode& root, const std::string& assignment);

// A text, or a file, with overrides on top.
Result<YamlNode> parse_yaml(const std::string& text,
                            const std::string& name,
                            const std::vector<std::string>& overrides);
Result<YamlNode> load_yaml(const std::string& path, const std::vector<std::string>& overrides);

}  // namespace baton
