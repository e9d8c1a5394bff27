// The prefix cache of a simulated node: names of blocks, the least recently used thrown out. Keeps
// a list of what came and went, as a node announces it.
//
// Thread: plain value. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace baton::bench {

class BlockCache {
 public:
  explicit BlockCache(std::size_t capacity) : capacity_(capacity) {}

  // Leading blocks of the chain that are here.
  std::size_t held(std::span<const std::uint64_t> chain) const;
  // The whole chain was used: what was not here comes in, the end of it the first to go again.
  void use(std::span<const std::uint64_t> chain);
  // Room for fewer blocks now, or more again.
  void resize(std::size_t capacity);

  std::size_t size() const { return order_.size(); }
  struct Changes {
    std::vector<std::uint64_t> stored;
    std::vector<std::uint64_t> removed;
  };
  // Since the last call.
  Changes take_changes();

 private:
  void shrink();

  std::size_t capacity_;
  std::list<std::uint64_t> order_;  // the most recently used first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> places_;
  std::unordered_map<std::uint64_t, bool> before_;  // was it here at the last call?
};

}  // namespace baton::bench
