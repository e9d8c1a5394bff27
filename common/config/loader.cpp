// Reads cluster.yaml: the tree of the file, overrides on top, then one walk over the schema that
// takes values out and collects every error.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <utility>

#include "common/base/nearest.h"
#include "common/config/cluster_config.h"
#include "common/config/config_checks.h"
#include "common/config/schema.h"
#include "common/config/text_rules.h"
#include "common/config/yaml_tree.h"

namespace baton {
namespace {

constexpr std::size_t kMaxList = 1024;
constexpr std::size_t kMaxErrors = 20;

// The last name of a path.
std::string_view leaf(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

// A likely key for a wrong one: near in the same section, or the same name in another.
std::string suggestion(const std::string& wrong, const std::vector<std::string>& valid) {
  if (const auto best = nearest(wrong, valid); !best.empty()) {
    return fmt::format("; did you mean '{}'?", best);
  }
  for (const auto& key : config_keys()) {
    if (leaf(key.path) == wrong) {
      return fmt::format("; did you mean '{}'?", key.path);
    }
  }
  return fmt::format("; it may hold {}", fmt::join(valid, ", "));
}

class Loader final : public ConfigVisitor {
 public:
  Loader(const YamlNode& root, std::string name) : name_(std::move(name)) { enter("", &root); }

  void begin_section(std::string_view name, std::string_view) override { enter(name, take(name)); }
  void end_section() override { leave(); }

  void text(std::string_view name,
            std::string& value,
            const TextRule& rule,
            std::string_view) override {
    const auto* const node = take(name);
    if (node != nullptr && !scalar(name, *node, "a text", value)) {
      return;
    }
    check_text(node != nullptr ? node->where : place(), path_of(name), rule, value);
  }

  void number(std::string_view name,
              std::uint32_t& value,
              std::uint32_t low,
              std::uint32_t high,
              std::string_view) override {
    if (const auto read = whole_number(name, low, high)) {
      value = *read;
    }
  }

  void millis(std::string_view name,
              std::chrono::milliseconds& value,
              std::uint32_t low,
              std::uint32_t high,
              std::string_view) override {
    if (const auto read = whole_number(name, low, high)) {
      value = std::chrono::milliseconds(*read);
    }
  }

  void flag(std::string_view name, bool& value, std::string_view) override {
    const auto* const node = take(name);
    if (node == nullptr) {
      return;
    }
    const bool plain = node->kind == YamlNode::Kind::Scalar && !node->quoted;
    if (plain && (node->text == "true" || node->text == "false")) {
      value = node->text == "true";
    } else {
      expected(name, *node, "true or false");
    }
  }

  void addresses(std::string_view name,
                 std::vector<std::string>& value,
                 std::string_view) override {
    const auto* const node = take(name);
    if (node == nullptr || !list(name, *node)) {
      return;
    }
    value.clear();
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      const auto index = fmt::format("{}.{}", name, i);
      auto& item = value.emplace_back();
      if (scalar(index, node->items[i], "an address", item)) {
        check_text(node->items[i].where, path_of(index), text_rules::kAddress, item);
      }
    }
    if (value.empty()) {
      problem(node->where, fmt::format("{}: must name at least one address", path_of(name)));
    }
  }

  void text_map(std::string_view name,
                std::map<std::string, std::string>& value,
                std::string_view key_prefix,
                std::string_view) override {
    const auto* const node = take(name);
    if (node == nullptr || node->kind == YamlNode::Kind::Null) {
      return;
    }
    if (node->kind != YamlNode::Kind::Map) {
      expected(name, *node, "a map");
      return;
    }
    for (const auto& entry : node->entries) {
      if (!entry.key.starts_with(key_prefix)) {
        problem(
            entry.where,
            fmt::format("{}: key '{}' must begin with {}", path_of(name), entry.key, key_prefix));
      } else {
        scalar(fmt::format("{}.{}", name, entry.key), entry.value, "a text", value[entry.key]);
      }
    }
  }

  void texts(std::string_view name,
             std::vector<std::string>& value,
             const TextRule& rule,
             std::string_view) override {
    const auto* const node = take(name);
    if (node == nullptr || !list(name, *node)) {
      return;
    }
    value.clear();
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      const auto index = fmt::format("{}.{}", name, i);
      auto& item = value.emplace_back();
      if (scalar(index, node->items[i], "a text", item)) {
        check_text(node->items[i].where, path_of(index), rule, item);
      }
    }
  }

  void entries(std::string_view name,
               std::string_view,
               const EntryWalk& walk,
               std::string_view) override {
    const auto* const node = take(name);
    if (node == nullptr || !list(name, *node)) {
      return;
    }
    walk.clear();
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      enter(fmt::format("{}.{}", name, i), &node->items[i]);
      walk.visit_new();
      leave();
    }
  }

  // What joins several keys.
  void add(const std::vector<ConfigProblem>& problems) {
    for (const ConfigProblem& found : problems) {
      problem(place_of_key(found.key), found.text);
    }
  }

  // At the end of the walk.
  Status finish() {
    leave();
    if (errors_.empty()) {
      return {};
    }
    std::ranges::stable_sort(errors_, is_before, &Fault::where);
    std::string all;
    for (std::size_t i = 0; i < std::min(errors_.size(), kMaxErrors); ++i) {
      all += fmt::format("{}{}: {}", i == 0 ? "" : "\n", errors_[i].where, errors_[i].what);
    }
    if (errors_.size() > kMaxErrors) {
      all += fmt::format("\n... and {} more", errors_.size() - kMaxErrors);
    }
    return fail(ErrorCode::InvalidConfig, std::move(all));
  }

 private:
  struct Fault {
    std::string where;
    std::string what;
  };
  struct Level {
    std::string path;
    const YamlNode* node;  // null: the section is absent
    std::vector<std::string> known;
  };

  void enter(std::string_view name, const YamlNode* node) {
    const auto path = name.empty() ? std::string() : path_of(name);
    if (node != nullptr && node->kind == YamlNode::Kind::Null) {
      node = nullptr;  // "decode:" with nothing behind it
    }
    if (node != nullptr && node->kind != YamlNode::Kind::Map) {
      problem(node->where,
              path.empty() ? fmt::format("expected a map of sections, got {}", node->describe())
                           : fmt::format("{}: expected a map, got {}", path, node->describe()));
      node = nullptr;
    }
    levels_.push_back({path, node, {}});
  }

  // Whatever of this section nobody asked for is unknown.
  void leave() {
    const auto level = std::move(levels_.back());
    levels_.pop_back();
    if (level.node != nullptr) {
      for (const auto& entry : level.node->entries) {
        if (std::find(level.known.begin(), level.known.end(), entry.key) == level.known.end()) {
          problem(entry.where,
                  fmt::format("unknown key '{}'{}{}",
                              entry.key,
                              level.path.empty() ? "" : fmt::format(" in '{}'", level.path),
                              suggestion(entry.key, level.known)));
        }
      }
    }
  }

  const YamlNode* take(std::string_view name) {
    auto& level = levels_.back();
    level.known.emplace_back(name);
    return level.node != nullptr ? level.node->find(name) : nullptr;
  }

  std::string path_of(std::string_view name) const {
    const auto& path = levels_.empty() ? std::string() : levels_.back().path;
    return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  }

  // Of the section at hand, for a key that is absent.
  std::string place() const {
    return levels_.back().node != nullptr && !levels_.back().node->where.empty()
               ? levels_.back().node->where
               : name_;
  }

  std::string place_of_key(const std::string& key) const {
    return levels_.front().node != nullptr ? place_in(*levels_.front().node, key, name_) : name_;
  }

  void problem(const std::string& where, const std::string& what) {
    errors_.push_back({where, what});
  }

  void expected(std::string_view name, const YamlNode& node, std::string_view type) {
    problem(node.where,
            fmt::format("{}: expected {}, got {}", path_of(name), type, node.describe()));
  }

  bool scalar(std::string_view name,
              const YamlNode& node,
              std::string_view type,
              std::string& value) {
    if (node.kind != YamlNode::Kind::Scalar) {
      expected(name, node, type);
      return false;
    }
    value = node.text;
    return true;
  }

  bool list(std::string_view name, const YamlNode& node) {
    if (node.kind != YamlNode::Kind::List) {
      expected(name, node, "a list");
      return false;
    }
    if (node.items.size() > kMaxList) {
      problem(node.where,
              fmt::format("{}: {} entries, at most {} are allowed",
                          path_of(name),
                          node.items.size(),
                          kMaxList));
      return false;
    }
    return true;
  }

  std::optional<std::uint32_t> whole_number(std::string_view name,
                                            std::uint32_t low,
                                            std::uint32_t high) {
    const auto* const node = take(name);
    if (node == nullptr) {
      return std::nullopt;
    }
    std::int64_t value = 0;
    const auto& text = node->text;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (node->kind != YamlNode::Kind::Scalar || node->quoted ||
        parsed.ptr != text.data() + text.size() || parsed.ec == std::errc::invalid_argument) {
      expected(name, *node, "a whole number");
      return std::nullopt;
    }
    if (parsed.ec != std::errc{} || value < low || value > high) {
      problem(node->where,
              fmt::format("{}: must be between {} and {}, got {}", path_of(name), low, high, text));
      return std::nullopt;
    }
    return static_cast<std::uint32_t>(value);
  }

  void check_text(const std::string& where,
                  const std::string& path,
                  const TextRule& rule,
                  const std::string& value) {
    if (const auto fault = fault_of(value, rule)) {
      problem(where, fmt::format("{}: {}", path, *fault));
    }
  }

  const std::string name_;
  std::vector<Level> levels_;
  std::vector<Fault> errors_;
};

// The first line of a small file, without the spaces around it.
Result<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line) || line.size() > 4096) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("cluster.token_file: cannot read a line from {}", path));
  }
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  line.erase(std::find_if_not(line.rbegin(), line.rend(), is_space).base(), line.end());
  line.erase(line.begin(), std::find_if_not(line.begin(), line.end(), is_space));
  if (line.empty()) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("cluster.token_file: the first line of {} is empty", path));
  }
  return line;
}

Result<ClusterConfig> read_tree(const YamlNode& root, const std::string& name) {
  ClusterConfig config;
  Loader loader(root, name);
  visit_config(config, loader);
  ClusterSection& cluster = config.cluster;
  if (!cluster.token_file.empty()) {
    auto token = first_line(cluster.token_file);
    if (!token) {
      loader.add({{"cluster.token_file", token.error().message}});
    } else if (!cluster.token.empty()) {
      loader.add({{"cluster.token", "cluster.token: there is cluster.token_file, too; keep one"}});
    } else {
      cluster.token = std::move(*token);
    }
  }
  loader.add(check_config(config));
  BATON_TRY(loader.finish());
  return config;
}

}  // namespace

Result<ClusterConfig> parse_config(const std::string& text,
                                   const std::string& name,
                                   const std::vector<std::string>& overrides) {
  BATON_ASSIGN(const auto root, parse_yaml(text, name, overrides));
  return read_tree(root, name);
}

Result<ClusterConfig> load_config(const std::string& path,
                                  const std::vector<std::string>& overrides) {
  BATON_ASSIGN(const auto root, load_yaml(path, overrides));
  return read_tree(root, path);
}

Result<std::vector<ApiKeyEntry>> load_api_keys(const std::string& path) {
  BATON_ASSIGN(const auto root, load_yaml(path, {}));
  std::vector<ApiKeyEntry> keys;
  Loader loader(root, path);
  visit_key_file(keys, loader);
  loader.add(check_api_keys(keys, "keys"));
  BATON_TRY(loader.finish());
  return keys;
}

}  // namespace baton
