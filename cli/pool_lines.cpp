#include "cli/pool_lines.h"

#include <fmt/format.h>

#include <iterator>

#include "cli/table.h"

namespace baton::cli {
namespace {

std::string counted(std::string number, std::string_view thing) {
  const bool is_one = number == "1";
  return fmt::format("{} {}{}", std::move(number), thing, is_one ? "" : "s");
}

}  // namespace

std::string pool_lines(const boost::json::object& status) {
  std::string out;
  for (const boost::json::object* pool : objects_of(status, "pools")) {
    fmt::format_to(std::back_inserter(out),
                   "pools of {} (change_roles: {})\n",
                   cell(*pool, "model"),
                   cell(*pool, "change_roles"));
    for (const char* role : {"prefill", "decode"}) {
      const boost::json::value* fields = pool->if_contains(role);
      if (fields == nullptr || !fields->is_object()) {
        continue;
      }
      const boost::json::object& size = fields->as_object();
      fmt::format_to(
          std::back_inserter(out), "  {}: {}", role, counted(cell(size, "nodes"), "node"));
      if (cell(size, "wanted") != cell(size, "nodes")) {
        fmt::format_to(std::back_inserter(out),
                       ", {} wants {}",
                       cell(*pool, "split_by"),
                       cell(size, "wanted"));
      }
      fmt::format_to(std::back_inserter(out),
                     "; {} desired\n",
                     counted(cell(size, "desired_replicas"), "replica"));
    }
  }
  return out;
}

}  // namespace baton::cli
