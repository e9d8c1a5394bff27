// baton key new: a fresh API key and the entry that a gateway's configuration needs for it.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "common/base/random.h"
#include "gateway/access/key_ring.h"

namespace baton::cli {
namespace {

constexpr int kRandomWords = 4;  // 256 bits

std::string new_key() {
  const RandomSource random = system_random();
  std::string key = "sk-baton-";
  for (int i = 0; i < kRandomWords; ++i) {
    key += fmt::format("{:016x}", random());
  }
  return key;
}

int run(const std::string& name) {
  const bool is_name =
      !name.empty() && name.size() <= 64 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
          std::string::npos;
  if (!is_name) {
    return report("key",
                  {ErrorCode::InvalidConfig,
                   "--name takes 1 to 64 letters, digits, '-', '_' or '.'; not '" + name + "'"});
  }
  const std::string key = new_key();
  fmt::print("# For the client; it is not shown again:\n#   {}\n", key);
  fmt::print("# For gateway.keys or the file of gateway.keys_file:\n");
  fmt::print("- name: {}\n  sha256: {}\n", name, gateway::to_hex(gateway::sha256(key)));
  return kDone;
}

}  // namespace

void add_key(CLI::App& app, Action& chosen) {
  auto name = std::make_shared<std::string>();
  CLI::App* group = app.add_subcommand("key", "API keys of clients");
  group->require_subcommand(1);
  group->footer("Example:\n  baton key new --name team-a");
  CLI::App* command = group->add_subcommand("new", "Make a key; prints it and its hash");
  command->add_option("--name", *name, "Name of the key, for the configuration and metrics")
      ->required();
  command->footer(
      "The gateway keeps the hash alone: copy the key now. `baton check --describe` shows what an\n"
      "entry may hold besides (limits, tiers, models, admin).\n"
      "Exit status: 0 done; 2 wrong arguments.\n"
      "Example:\n"
      "  baton key new --name team-a");
  command->callback([name, &chosen] { chosen = [name] { return run(*name); }; });
}

}  // namespace baton::cli
