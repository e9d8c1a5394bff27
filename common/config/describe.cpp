// The schema in words: a list of keys, a Markdown table, a commented YAML file.
#include <fmt/format.h>

#include "common/config/cluster_config.h"
#include "common/config/schema.h"

namespace baton {
namespace {

// A scalar as YAML; texts that YAML could take for something else are quoted.
std::string quoted(const std::string& text) {
  const bool plain =
      !text.empty() && text.find_first_of(":#[]{},&*!|>'\"%@` ") == std::string::npos;
  return plain ? text : fmt::format("\"{}\"", text);
}

std::string type_of(const TextRule& rule) {
  switch (rule.form) {
    case TextRule::Form::Name:
      return "name";
    case TextRule::Form::Address:
      return "host:port";
    case TextRule::Form::Choice:
    case TextRule::Form::Cores:
    case TextRule::Form::Origin:
    case TextRule::Form::Ratio:
    case TextRule::Form::Sha256:
    case TextRule::Form::Any:
      return "text";
  }
  return "text";
}

class Lister final : public ConfigVisitor {
 public:
  void begin_section(std::string_view name, std::string_view help) override {
    keys.push_back({path_of(name), "section", "", "", std::string(help)});
    path_.emplace_back(name);
  }
  void end_section() override { path_.pop_back(); }

  void text(std::string_view name,
            std::string& value,
            const TextRule& rule,
            std::string_view help) override {
    const auto fallback = value.empty() && rule.required ? "required" : quoted(value);
    add(name, type_of(rule), fallback, fmt::format("{}", fmt::join(rule.choices, ", ")), help);
  }
  void number(std::string_view name,
              std::uint32_t& value,
              std::uint32_t low,
              std::uint32_t high,
              std::string_view help) override {
    add(name, "number", std::to_string(value), fmt::format("{} to {}", low, high), help);
  }
  void millis(std::string_view name,
              std::chrono::milliseconds& value,
              std::uint32_t low,
              std::uint32_t high,
              std::string_view help) override {
    add(name,
        "milliseconds",
        std::to_string(value.count()),
        fmt::format("{} to {}", low, high),
        help);
  }
  void flag(std::string_view name, bool& value, std::string_view help) override {
    add(name, "true or false", value ? "true" : "false", "", help);
  }
  void addresses(std::string_view name,
                 std::vector<std::string>& value,
                 std::string_view help) override {
    std::string list;
    for (const auto& item : value) {
      list += (list.empty() ? "" : ", ") + quoted(item);
    }
    add(name, "list of host:port", fmt::format("[{}]", list), "", help);
  }
  void text_map(std::string_view name,
                std::map<std::string, std::string>&,
                std::string_view key_prefix,
                std::string_view help) override {
    add(name, "map of text", "{}", fmt::format("keys begin with {}", key_prefix), help);
  }
  void texts(std::string_view name,
             std::vector<std::string>& value,
             const TextRule& rule,
             std::string_view help) override {
    std::string list;
    for (const auto& item : value) {
      list += (list.empty() ? "" : ", ") + quoted(item);
    }
    add(name,
        "list of text",
        fmt::format("[{}]", list),
        fmt::format("{}", fmt::join(rule.choices, ", ")),
        help);
  }
  void entries(std::string_view name,
               std::string_view type,
               const EntryWalk& walk,
               std::string_view help) override {
    add(name, std::string(type), "[]", "", help);
    path_.emplace_back(fmt::format("{}.N", name));
    walk.visit_new();
    path_.pop_back();
  }

  std::vector<ConfigKey> keys;

 private:
  std::string path_of(std::string_view name) const {
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", fmt::join(path_, "."), name);
  }
  void add(std::string_view name,
           std::string type,
           std::string fallback,
           std::string bounds,
           std::string_view help) {
    keys.push_back({path_of(name),
                    std::move(type),
                    std::move(fallback),
                    std::move(bounds),
                    std::string(help)});
  }

  std::vector<std::string> path_;
};

std::string comment_of(const ConfigKey& key) {
  auto text = key.help;
  if (!key.bounds.empty()) {
    text += fmt::format(" ({})", key.bounds);
  }
  return text;
}

}  // namespace

std::vector<ConfigKey> config_keys() {
  ClusterConfig defaults;
  Lister lister;
  visit_config(defaults, lister);
  return std::move(lister.keys);
}

std::string config_keys_markdown() {
  std::string out = "| key | type | default | bounds | what it does |\n|---|---|---|---|---|\n";
  for (const auto& key : config_keys()) {
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n",
                       key.path,
                       key.type,
                       key.fallback.empty() ? "" : fmt::format("`{}`", key.fallback),
                       key.bounds,
                       key.help);
  }
  return out;
}

std::string describe_config() {
  std::string out =
      "# Every key of a cluster configuration, with its default. Only cluster.token has none.\n";
  for (const auto& key : config_keys()) {
    std::size_t depth = 0;
    for (std::size_t at = key.path.find('.'); at != std::string::npos;
         at = key.path.find('.', at + 1)) {
      ++depth;
    }
    const auto name = key.path.substr(key.path.rfind('.') + 1);
    // "N" is the dash of a list, not a level of its own.
    const std::string indent(depth * 2, ' ');
    const bool is_of_node = !key.path.starts_with("gateway.");
    const bool first_of_entry = is_of_node && key.path.ends_with(".pool.N.name");
    const bool section = key.type == "section";
    if (depth == 0) {
      out += "\n";
    }
    if (key.path.find(".N.") != std::string::npos &&
        (!is_of_node || key.path.find(".pool.N.") == std::string::npos)) {
      // An entry would change what the gateway does; the list stays empty.
      out += fmt::format("{}# {}: {}\n", indent, name, comment_of(key));
      continue;
    }
    out += fmt::format("{}# {}\n", indent, comment_of(key));
    if (first_of_entry) {
      out += fmt::format("{}- name: {}\n",
                         indent.substr(2),
                         key.path.starts_with("prefill") ? "prefill-0" : "decode-0");
    } else if (section || (is_of_node && key.path.ends_with(".pool"))) {
      out += fmt::format("{}{}:\n", indent, name);
    } else if (key.fallback == "required") {
      out += fmt::format("{}{}: change-me\n", indent, name);
    } else {
      out += fmt::format("{}{}: {}\n", indent, name, key.fallback);
    }
  }
  return out;
}

}  // namespace baton
