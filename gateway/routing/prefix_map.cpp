#include "gateway/routing/prefix_map.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"

namespace baton::gateway {

PrefixMap::Slot PrefixMap::add() {
  // A retired slot is free again once nothing of it is left.
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Group& group = *groups_[i];
    if (std::popcount(group.used | group.retired) == kGroup) {
      while (group.retired != 0 && sweep(group)) {
      }
    }
    if (const std::uint64_t free = ~(group.used | group.retired); free != 0) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(free));
      group.used |= std::uint64_t{1} << bit;
      group.announced[bit] = 0;
      return static_cast<Slot>(i * kGroup + bit);
    }
  }
  groups_.push_back(std::make_unique<Group>(mixer_));
  groups_.back()->used = 1;
  return static_cast<Slot>((groups_.size() - 1) * kGroup);
}

void PrefixMap::retire(Slot slot) {
  Group& group = group_of(slot);
  BATON_CHECK((group.used & bit_of(slot)) != 0, "a slot was given up twice");
  group.used &= ~bit_of(slot);
  group.retired |= bit_of(slot);
}

void PrefixMap::store(Slot slot, std::span<const std::uint64_t> hashes) {
  Group& group = group_of(slot);
  const std::uint64_t bit = bit_of(slot);
  std::uint32_t& announced = group.announced[slot % kGroup];
  for (const std::uint64_t hash : hashes) {
    group.held.update(hash, [&](std::uint64_t holders) {
      if ((holders & bit) != 0 || announced >= kMaxBlocks) {
        return holders;
      }
      ++announced;
      return holders | bit;
    });
  }
}

void PrefixMap::remove(Slot slot, std::span<const std::uint64_t> hashes) {
  Group& group = group_of(slot);
  const std::uint64_t bit = bit_of(slot);
  for (const std::uint64_t hash : hashes) {
    group.held.update(hash, [&](std::uint64_t holders) {
      group.announced[slot % kGroup] -= (holders & bit) != 0 ? 1U : 0U;
      return holders & ~bit;
    });
  }
}

void PrefixMap::match(std::span<const std::uint64_t> chain,
                      std::span<const std::uint32_t> expected,
                      std::vector<std::uint32_t>& matched) const {
  matched.assign(slots(), 0);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = *groups_[i];
    const std::size_t first = i * kGroup;
    std::uint64_t holders = group.used;
    std::size_t depth = 0;
    const auto leave = [&](std::uint64_t leaving) {
      for (; leaving != 0; leaving &= leaving - 1) {
        matched[first + static_cast<std::uint32_t>(std::countr_zero(leaving))] =
            static_cast<std::uint32_t>(depth);
      }
    };
    std::uint64_t soon = 0;  // are expected to hold the block at `depth`, and all below `until`
    std::size_t until = 0;
    while (depth < chain.size() && holders != 0) {
      if (depth >= until) {
        soon = 0;
        until = chain.size();
        for (std::size_t bit = 0; bit < kGroup && first + bit < expected.size(); ++bit) {
          if (expected[first + bit] > depth) {
            soon |= std::uint64_t{1} << bit;
            until = std::min<std::size_t>(until, expected[first + bit]);
          }
        }
      }
      if ((holders & ~soon) == 0) {
        depth = until;
        continue;
      }
      const std::uint64_t next = holders & (soon | group.held.find(chain[depth]));
      leave(holders & ~next);
      holders = next;
      ++depth;
    }
    leave(holders);
  }
}

bool PrefixMap::sweep(Group& group) {
  if (group.next_segment == 0) {
    group.clearing = group.retired;
  }
  group.held.keep(group.next_segment, ~group.clearing);
  group.next_segment = (group.next_segment + 1) % BlockTable::kSegments;
  if (group.next_segment == 0) {
    group.retired &= ~group.clearing;
  }
  return group.retired != 0;
}

bool PrefixMap::sweep() {
  for (const auto& group : groups_) {
    if (group->retired != 0) {
      sweep(*group);
      return true;
    }
  }
  return false;
}

std::uint32_t PrefixMap::announced(Slot slot) const {
  return groups_[slot / kGroup]->announced[slot % kGroup];
}

std::size_t PrefixMap::size() const {
  std::size_t all = 0;
  for (const auto& group : groups_) {
    all += group->held.size();
  }
  return all;
}

std::size_t PrefixMap::bytes() const {
  std::size_t all = 0;
  for (const auto& group : groups_) {
    all += group->held.bytes();
  }
  return all;
}

}  // namespace baton::gateway
