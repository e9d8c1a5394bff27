// Every key of cluster.yaml, once: name, place, default, bounds, help. Loading, describing and the
// checks of the examples and of docs/configuration.md all walk this one list.
//
// Thread: plain functions. Failure: none here; a visitor that reads collects its own errors.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/cluster_config.h"

namespace baton {

// What may stand in a text.
struct TextRule {
  enum class Form { Any, Name, Address, Choice, Cores, Origin, Ratio, Sha256 };
  Form form = Form::Any;
  bool required = false;             // may not be empty
  std::vector<std::string> choices;  // Form::Choice
};

// Those that several parts of the schema use.
namespace text_rules {
inline const TextRule kAny{};
inline const TextRule kRequired{TextRule::Form::Any, true, {}};
inline const TextRule kName{TextRule::Form::Name, true, {}};
inline const TextRule kAddress{TextRule::Form::Address, true, {}};
}  // namespace text_rules

// A list of maps in the configuration.
struct EntryWalk {
  std::function<void()> clear;
  std::function<void()> visit_new;  // adds a fresh entry and walks its keys
  std::function<void()> visit_all;  // walks the keys of those that are there
};
// `visit` walks the keys of an entry; one that is added begins as `fresh`.
template <class Entry, class Visit>
EntryWalk walk_of(std::vector<Entry>& list, Visit visit, Entry fresh = {}) {
  return {[&list] { list.clear(); },
          [&list, visit, fresh] { visit(list.emplace_back(fresh)); },
          [&list, visit] { std::ranges::for_each(list, visit); }};
}

// Walks the keys in the order they are documented. `value` holds the default; a loader overwrites
// it.
class ConfigVisitor {
 public:
  virtual ~ConfigVisitor() = default;
  virtual void begin_section(std::string_view name, std::string_view help) = 0;
  virtual void end_section() = 0;
  virtual void text(std::string_view name,
                    std::string& value,
                    const TextRule& rule,
                    std::string_view help) = 0;
  virtual void number(std::string_view name,
                      std::uint32_t& value,
                      std::uint32_t low,
                      std::uint32_t high,
                      std::string_view help) = 0;
  virtual void millis(std::string_view name,
                      std::chrono::milliseconds& value,
                      std::uint32_t low,
                      std::uint32_t high,
                      std::string_view help) = 0;
  virtual void flag(std::string_view name, bool& value, std::string_view help) = 0;
  virtual void addresses(std::string_view name,
                         std::vector<std::string>& value,
                         std::string_view help) = 0;
  virtual void text_map(std::string_view name,
                        std::map<std::string, std::string>& value,
                        std::string_view key_prefix,
                        std::string_view help) = 0;
  // Each text must follow `rule`.
  virtual void texts(std::string_view name,
                     std::vector<std::string>& value,
                     const TextRule& rule,
                     std::string_view help) = 0;
  virtual void entries(std::string_view name,
                       std::string_view type,
                       const EntryWalk& walk,
                       std::string_view help) = 0;
};

void visit_config(ClusterConfig& config, ConfigVisitor& visitor);
void visit_gateway(GatewaySection& section, ConfigVisitor& visitor);
void visit_pools(PoolsSection& section, ConfigVisitor& visitor);
void visit_slo(SloSection& section, ConfigVisitor& visitor);
// The keys of a file named by gateway.keys_file.
void visit_key_file(std::vector<ApiKeyEntry>& keys, ConfigVisitor& visitor);

struct ConfigKey {
  std::string path;      // decode.pool.N.name: N stands for an index
  std::string type;      // text, name, host:port, number, milliseconds, true or false, list, map
  std::string fallback;  // default as YAML; "required" when there is none
  std::string bounds;    // "1 to 4096", "auto, tcp, shm"; empty: none
  std::string help;
};

std::vector<ConfigKey> config_keys();
// The same as a Markdown table, for docs/configuration.md.
std::string config_keys_markdown();

}  // namespace baton
