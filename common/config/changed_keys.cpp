#include "common/config/changed_keys.h"

#include <fmt/format.h>

#include <utility>

#include "common/config/schema.h"

namespace baton {
namespace {

// The values as text, with their paths.
class Recorder final : public ConfigVisitor {
 public:
  void begin_section(std::string_view name, std::string_view) override { path_.emplace_back(name); }
  void end_section() override { path_.pop_back(); }
  void text(std::string_view name, std::string& value, const TextRule&, std::string_view) override {
    add(name, value);
  }
  void number(std::string_view name,
              std::uint32_t& value,
              std::uint32_t,
              std::uint32_t,
              std::string_view) override {
    add(name, std::to_string(value));
  }
  void millis(std::string_view name,
              std::chrono::milliseconds& value,
              std::uint32_t,
              std::uint32_t,
              std::string_view) override {
    add(name, std::to_string(value.count()));
  }
  void flag(std::string_view name, bool& value, std::string_view) override {
    add(name, value ? "true" : "false");
  }
  void addresses(std::string_view name,
                 std::vector<std::string>& value,
                 std::string_view) override {
    add(name, fmt::format("{}", fmt::join(value, "\n")));
  }
  void text_map(std::string_view name,
                std::map<std::string, std::string>& value,
                std::string_view,
                std::string_view) override {
    std::string all;
    for (const auto& [key, text] : value) {
      all += key + "\n" + text + "\n";
    }
    add(name, std::move(all));
  }
  void texts(std::string_view name,
             std::vector<std::string>& value,
             const TextRule&,
             std::string_view) override {
    add(name, fmt::format("{}", fmt::join(value, "\n")));
  }
  void entries(std::string_view name,
               std::string_view,
               const EntryWalk& walk,
               std::string_view) override {
    add(name, "");
    ++depth_;
    walk.visit_all();
    --depth_;
  }

  std::vector<std::pair<std::string, std::string>> values;

 private:
  // What is in a list counts for the list.
  void add(std::string_view name, std::string value) {
    if (depth_ > 0) {
      values.back().second += fmt::format("{}\n{}\n", name, value);
      return;
    }
    values.emplace_back(fmt::format("{}.{}", fmt::join(path_, "."), name), std::move(value));
  }

  std::vector<std::string> path_;
  std::uint32_t depth_ = 0;  // of lists
};

std::vector<std::pair<std::string, std::string>> values_of(ClusterConfig& config) {
  Recorder recorder;
  visit_config(config, recorder);
  return std::move(recorder.values);
}

}  // namespace

std::vector<std::string> changed_keys(ClusterConfig before, ClusterConfig after) {
  const auto old_values = values_of(before);
  const auto new_values = values_of(after);
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < new_values.size(); ++i) {
    if (i >= old_values.size() || old_values[i] != new_values[i]) {
      paths.push_back(new_values[i].first);
    }
  }
  return paths;
}

}  // namespace baton
