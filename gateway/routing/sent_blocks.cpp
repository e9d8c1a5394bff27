#include "gateway/routing/sent_blocks.h"

#include <utility>

namespace baton::gateway {

SentBlocks::Ticket SentBlocks::sent(std::vector<Part> computed, std::vector<Part> moved) {
  std::size_t blocks = 0;
  for (const auto* parts : {&computed, &moved}) {
    for (const Part& part : *parts) {
      blocks += part.hashes.size();
    }
  }
  if (blocks == 0 || counts_.size() + blocks > kMaxBlocks) {
    return 0;
  }
  expect(computed);
  const Ticket ticket = next_ticket_++;
  open_.emplace(ticket, Open{std::move(computed), std::move(moved)});
  return ticket;
}

void SentBlocks::expect(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    for (const std::uint64_t hash : part.hashes) {
      counts_.update(key(part.slot, hash), [](std::uint64_t count) { return count + 1; });
      map_.expect(part.slot, hash, true);
    }
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
  }
}

void SentBlocks::expire(TimePoint now) {
  for (; !leaving_.empty() && leaving_.front().at <= now; leaving_.pop_front()) {
    for (const Part& part : leaving_.front().parts) {
      for (const std::uint64_t hash : part.hashes) {
        const std::uint64_t left =
            counts_.update(key(part.slot, hash), [](std::uint64_t count) { return count - 1; });
        if (left == 0) {
          map_.expect(part.slot, hash, false);
        }
      }
    }
  }
}

}  // namespace baton::gateway
