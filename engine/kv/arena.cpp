#include "engine/kv/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace baton::engine {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// First number of a file such as memory.max; empty for "max" and for a missing file.
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) {
    return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

// Page cache that a group may drop on demand counts as free.
std::uint64_t inactive_file(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  std::uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "total_inactive_file") {
      return value;
    }
  }
  return 0;
}

std::optional<std::uint64_t> group_left(const std::string& folder,
                                        const char* limit_name,
                                        const char* usage_name) {
  const auto limit = read_number(folder + "/" + limit_name);
  const auto used = read_number(folder + "/" + usage_name);
  if (!limit || !used) {
    return std::nullopt;
  }
  const std::uint64_t busy = *used - std::min(*used, inactive_file(folder));
  return *limit - std::min(*limit, busy);
}

// The tightest limit on the way from this process's group to the root.
std::optional<std::uint64_t> cgroup_left() {
  std::optional<std::uint64_t> least;
  const auto take = [&](std::optional<std::uint64_t> left) {
    if (left) {
      least = std::min(least.value_or(std::numeric_limits<std::uint64_t>::max()), *left);
    }
  };
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const auto last = line.rfind(':');
    if (last == std::string::npos) {
      continue;
    }
    const bool is_v2 = line.starts_with("0::");
    const bool is_v1_memory = line.find(":memory:") != std::string::npos;
    if (!is_v2 && !is_v1_memory) {
      continue;
    }
    std::string path = line.substr(last + 1);
    while (true) {
      if (is_v2) {
        take(group_left("/sys/fs/cgroup" + path, "memory.max", "memory.current"));
      } else {
        take(group_left(
            "/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      }
      const auto slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) {
        break;
      }
      path.resize(slash);
    }
  }
  return least;
}

}  // namespace

std::uint64_t available_memory() {
  const auto machine = mem_available();
  const auto group = cgroup_left();
  if (!machine) {
    return group.value_or(0);
  }
  return group ? std::min(*machine, *group) : *machine;
}

Result<std::uint32_t> blocks_in(const KvLayout& layout, std::uint32_t arena_mb) {
  BATON_TRY(validate(layout));
  const std::uint64_t per_block = layout.block_bytes_all_layers();
  const std::uint64_t blocks = arena_mb * kMiB / per_block;
  if (blocks == 0) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("kv.arena_mb={} holds no block: one block of {} takes {} MiB",
                            arena_mb,
                            layout.to_string(),
                            (per_block + kMiB - 1) / kMiB));
  }
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(blocks, std::numeric_limits<std::uint32_t>::max()));
}

Result<KvArena> KvArena::create(const KvLayout& layout,
                                std::uint32_t num_blocks,
                                std::optional<std::uint64_t> available) {
  BATON_TRY(validate(layout));
  if (num_blocks == 0) {
    return fail(ErrorCode::InvalidArgument, "a KV arena needs at least one block");
  }
  KvArenaView view{.base = nullptr, .layout = layout, .num_blocks = num_blocks};
  const std::uint64_t needed = view.bytes();
  const std::uint64_t left = available ? *available : available_memory();
  if ((available || left != 0) && needed > left) {
    return fail(ErrorCode::OutOfMemory,
                fmt::format("the KV arena needs {} bytes ({} MiB, {} blocks) and {} MiB are "
                            "available: lower kv.arena_mb or give the node more memory",
                            needed,
                            (needed + kMiB - 1) / kMiB,
                            num_blocks,
                            left / kMiB));
  }
  void* memory = ::mmap(
      nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::OutOfMemory,
                fmt::format("cannot map {} bytes ({} MiB) for the KV arena: {}; lower kv.arena_mb",
                            needed,
                            (needed + kMiB - 1) / kMiB,
                            std::strerror(errno)));
  }
  // Advice only: without huge pages the arena is slower, not wrong.
  (void)::madvise(memory, needed, MADV_HUGEPAGE);
  view.base = static_cast<std::byte*>(memory);
  return KvArena(view);
}

KvArena& KvArena::operator=(KvArena&& other) noexcept {
  if (this != &other) {
    unmap();
    view_ = std::exchange(other.view_, {});
  }
  return *this;
}

KvArena::~KvArena() {
  unmap();
}

void KvArena::unmap() {
  if (view_.base != nullptr) {
    ::munmap(view_.base, view_.bytes());
    view_ = {};
  }
}

}  // namespace baton::engine
