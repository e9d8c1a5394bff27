#include "kernels/cpu/numa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

namespace baton::kernels::cpu {
namespace {

constexpr int kMaxNodes = 1024;  // as the kernel
constexpr int kMaxCores = 65536;
constexpr int kInterleave = 3;  // MPOL_INTERLEAVE, of libnuma's headers

bool read_number(std::string_view& text, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || out < 0 || out >= kMaxCores) {
    return false;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

std::vector<int> read_list(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_core_list(line);
}

}  // namespace

std::vector<int> parse_core_list(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == ' ')) {
    rest.remove_suffix(1);
  }
  std::vector<int> out;
  while (!rest.empty()) {
    int first = 0;
    if (!read_number(rest, first)) {
      return {};
    }
    int last = first;
    if (take(rest, '-') && (!read_number(rest, last) || last < first)) {
      return {};
    }
    for (int i = first; i <= last; ++i) {
      out.push_back(i);
    }
    if (!rest.empty() && (!take(rest, ',') || rest.empty())) {
      return {};
    }
  }
  return out;
}

std::vector<int> memory_nodes(const std::string& root, const std::vector<int>& cores) {
  std::vector<int> nodes;
  for (const int node : read_list(root + "/online")) {
    if (node >= kMaxNodes) {
      continue;
    }
    const std::vector<int> own = read_list(root + "/node" + std::to_string(node) + "/cpulist");
    const bool used = std::any_of(cores.begin(), cores.end(), [&](int core) {
      return std::find(own.begin(), own.end(), core) != own.end();
    });
    if (used) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

bool spread_over_nodes(void* place, std::size_t bytes, const std::vector<int>& nodes) {
  if (nodes.size() < 2) {
    return false;
  }
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMaxNodes / kBits> mask{};
  for (const int node : nodes) {
    mask[static_cast<std::size_t>(node / kBits)] |= 1UL << (node % kBits);
  }
  // The kernel reads one bit less than it is told.
  return syscall(SYS_mbind, place, bytes, kInterleave, mask.data(), kMaxNodes + 1, 0) == 0;
}

}  // namespace baton::kernels::cpu
