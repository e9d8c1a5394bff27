#include "gateway/routing/sent_blocks.h"

#include <algorithm>
#include <utility>

namespace baton::gateway {
namespace {

template <class Parts>
std::size_t blocks_of(const Parts& parts) {
  std::size_t blocks = 0;
  for (const auto& part : parts) {
    blocks += part.hashes->size();
  }
  return blocks;
}

}  // namespace

SentBlocks::Ticket SentBlocks::sent(std::vector<Part> computed, std::vector<Part> moved) {
  const std::size_t blocks = blocks_of(computed) + blocks_of(moved);
  if (blocks == 0 || blocks_ + blocks > kMaxBlocks) {
    return 0;
  }
  blocks_ += blocks;
  Open open{with_lives(std::move(computed)), with_lives(std::move(moved))};
  expect(open.computed);
  const Ticket ticket = next_ticket_++;
  open_.emplace(ticket, std::move(open));
  return ticket;
}

std::vector<SentBlocks::Sent> SentBlocks::with_lives(std::vector<Part> parts) const {
  std::vector<Sent> sent;
  sent.reserve(parts.size());
  for (Part& part : parts) {
    sent.push_back({{part.slot, life_of(part.slot)}, std::move(part.hashes)});
  }
  return sent;
}

void SentBlocks::expect(const std::vector<Sent>& parts) {
  for (const Sent& part : parts) {
    expected_.add(part.holder, part.hashes);
  }
}

void SentBlocks::settled(Ticket ticket, TimePoint now, bool was_computed) {
  auto found = open_.extract(ticket);
  if (!found) {
    return;
  }
  Open& open = found.mapped();
  leaving_.push_back({now + linger_, std::move(open.computed)});
  if (was_computed) {
    expect(open.moved);
    leaving_.push_back({now + linger_, std::move(open.moved)});
  } else {
    blocks_ -= blocks_of(open.moved);
  }
}

void SentBlocks::expire(TimePoint now) {
  for (; !leaving_.empty() && leaving_.front().at <= now; leaving_.pop_front()) {
    std::ranges::for_each(leaving_.front().parts, [this](const Sent& part) { forget(part); });
  }
}

void SentBlocks::forget(const Sent& part) {
  expected_.remove(part.holder, *part.hashes);
  blocks_ -= part.hashes->size();
}

void SentBlocks::announced(PrefixMap::Slot slot) {
  for (Leaving& leaving : leaving_) {
    std::erase_if(leaving.parts, [&](const Sent& part) {
      const bool is_known = part.holder.slot == slot;
      if (is_known) {
        forget(part);
      }
      return is_known;
    });
  }
}

void SentBlocks::retire(PrefixMap::Slot slot) {
  lives_.resize(std::max<std::size_t>(lives_.size(), slot + std::size_t{1}));
  ++lives_[slot];
}

void SentBlocks::match(std::span<const std::uint64_t> chain,
                       std::size_t slots,
                       std::vector<std::uint32_t>& matched) const {
  matched.assign(slots, 0);
  expected_.match(chain, [&](const ExpectedPrefixes::Holder& holder, std::size_t blocks) {
    if (holder.slot < slots && holder.life == life_of(holder.slot)) {
      matched[holder.slot] = static_cast<std::uint32_t>(blocks);
    }
  });
}

}  // namespace baton::gateway
