#include "gateway/access/key_source.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "common/config/config_checks.h"

namespace baton::gateway {
namespace {

constexpr std::chrono::milliseconds kLookEvery{1'000};

}  // namespace

KeySource::KeySource(Executor& executor,
                     KeyRing& ring,
                     const Logger& log,
                     std::vector<ApiKeyEntry> keys,
                     std::string path)
    : executor_(executor), ring_(ring), log_(log), keys_(std::move(keys)), path_(std::move(path)) {}

Status KeySource::start() {
  BATON_TRY(load(keys_));
  if (!path_.empty()) {
    arm();
  }
  return {};
}

void KeySource::reload() {
  reload(keys_);
}

void KeySource::reload(std::vector<ApiKeyEntry> keys) {
  if (const Status loaded = load(keys); !loaded) {
    log_.error("the keys stay as they were: {}", loaded.error().message);
    return;
  }
  keys_ = std::move(keys);
  if (!path_.empty()) {
    log_.info("read the keys of {}", path_);
  }
}

KeySource::Stamp KeySource::stamp() const {
  struct stat found {};
  if (::stat(path_.c_str(), &found) != 0) {
    return {};
  }
  return {found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec,
          found.st_ino,
          static_cast<std::int64_t>(found.st_size)};
}

Status KeySource::load(const std::vector<ApiKeyEntry>& keys) {
  std::vector<ApiKeyEntry> all = keys;
  if (!path_.empty()) {
    loaded_ = stamp();
    BATON_ASSIGN(const auto more, load_api_keys(path_));
    all.insert(all.end(), more.begin(), more.end());
    if (all.empty()) {
      return fail(ErrorCode::InvalidConfig,
                  fmt::format("{} has no keys: nobody could ask for anything", path_));
    }
    if (const auto problems = check_api_keys(all, "keys"); !problems.empty()) {
      return fail(ErrorCode::InvalidConfig,
                  fmt::format("{} and gateway.keys together: {}", path_, problems.front().text));
    }
  }
  if (all.empty() && !keys_.empty()) {
    return fail(ErrorCode::InvalidConfig,
                "gateway.keys is empty now, which would let everybody in: restart to do that");
  }
  ring_.set(all);
  return {};
}

void KeySource::arm() {
  timer_ = executor_.call_after(kLookEvery, [this] {
    if (stamp() != loaded_) {
      reload();
    }
    arm();
  });
}

}  // namespace baton::gateway
