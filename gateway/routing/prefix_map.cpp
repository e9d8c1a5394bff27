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
  std::uint32_t& announced = group.announced[slot % kGroup];
  for (const std::uint64_t hash : hashes) {
    const std::uint64_t holders = group.held.find(hash);
    if ((holders & bit_of(slot)) == 0 && announced < kMaxBlocks) {
      group.held.set(hash, holders | bit_of(slot));
      ++announced;
    }
  }
}

void PrefixMap::remove(Slot slot, std::span<const std::uint64_t> hashes) {
  Group& group = group_of(slot);
  for (const std::uint64_t hash : hashes) {
    const std::uint64_t holders = group.held.find(hash);
    if ((holders & bit_of(slot)) != 0) {
      group.held.set(hash, holders & ~bit_of(slot));
      --group.announced[slot % kGroup];
    }
    // It had it and has thrown it out.
    expect(slot, hash, false);
  }
}

void PrefixMap::expect(Slot slot, std::uint64_t hash, bool expected) {
  group_of(slot).expected.update(hash, [bit = bit_of(slot), expected](std::uint64_t nodes) {
    return expected ? nodes | bit : nodes & ~bit;
  });
}

void PrefixMap::match(std::span<const std::uint64_t> chain,
                      std::vector<std::uint32_t>& matched) const {
  matched.assign(groups_.size() * kGroup, 0);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = *groups_[i];
    std::uint64_t holders = group.used;
    std::uint32_t depth = 0;
    const auto leave = [&](std::uint64_t leaving) {
      for (; leaving != 0; leaving &= leaving - 1) {
        matched[i * kGroup + static_cast<std::uint32_t>(std::countr_zero(leaving))] = depth;
      }
    };
    for (; depth < chain.size() && holders != 0; ++depth) {
      std::uint64_t next = holders & group.held.find(chain[depth]);
      if (next != holders) {
        next |= holders & group.expected.find(chain[depth]);
      }
      leave(holders & ~next);
      holders = next;
    }
    leave(holders);
  }
}

bool PrefixMap::sweep(Group& group) {
  if (group.next_segment == 0) {
    group.clearing = group.retired;
  }
  group.held.keep(group.next_segment, ~group.clearing);
  group.expected.keep(group.next_segment, ~group.clearing);
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
    all += group->held.size() + group->expected.size();
  }
  return all;
}

std::size_t PrefixMap::bytes() const {
  std::size_t all = 0;
  for (const auto& group : groups_) {
    all += group->held.bytes() + group->expected.bytes();
  }
  return all;
}

}  // namespace baton::gateway
