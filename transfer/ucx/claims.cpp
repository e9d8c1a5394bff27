#include "transfer/ucx/claims.h"

#include <tuple>
#include <utility>
#include <vector>

namespace baton::transfer {

bool UcxClaims::Less::operator()(const ProcessIdentity& a, const ProcessIdentity& b) const {
  return std::tie(a.host, a.start, a.pid) < std::tie(b.host, b.start, b.pid);
}

DropReason UcxClaims::give(const std::shared_ptr<LeaseEntry>& entry,
                           InletId inlet,
                           const PutMessage& asked) {
  const bool by_shm = asked.path == PathKind::ShmPut;
  if (by_shm && !watch(asked.writer)) {
    return DropReason::Unprovable;
  }
  const DropReason reason = entry->session.claim(asked.epoch);
  if (reason != DropReason::None) {
    if (by_shm) {
      unwatch(asked.writer);
    }
    return reason;
  }
  claims_[asked.lease] = {entry, inlet, asked.path, asked.writer};
  return reason;
}

void UcxClaims::end(const PutMessage& word, std::atomic<std::uint64_t>& landed) {
  const auto at = claims_.find(word.lease);
  if (at == claims_.end() || at->second.entry->session.epoch() != word.epoch ||
      at->second.path != word.path || at->second.writer != word.writer) {
    return;
  }
  const Claim claim = std::move(at->second);
  claims_.erase(at);
  if (claim.path == PathKind::ShmPut) {
    unwatch(claim.writer);
  }
  if (word.kind == PutKind::Done) {
    claim.entry->session.put_done(word.bytes, word.lane);
    // Before the user hears of them; a reader of the count sees the bytes too.
    landed.fetch_add(claim.entry->session.bytes_landed(), std::memory_order_release);
  } else {
    claim.entry->session.unclaimed();
  }
  claim.entry->notify();
}

template <class Match>
void UcxClaims::end_if(Match match) {
  std::vector<Claim> ended;
  std::erase_if(claims_, [&](auto& item) {
    if (!match(item.second)) {
      return false;
    }
    ended.push_back(std::move(item.second));
    return true;
  });
  for (const Claim& claim : ended) {
    if (claim.path == PathKind::ShmPut) {
      unwatch(claim.writer);
    }
    claim.entry->session.unclaimed();
    claim.entry->notify();
  }
}

void UcxClaims::quiesced(LeaseId lease) {
  end_if([lease](const Claim& claim) { return claim.entry->session.lease() == lease; });
}

void UcxClaims::inlet_closed(InletId inlet) {
  end_if([inlet](const Claim& claim) {
    return claim.inlet == inlet && claim.path == PathKind::RdmaPut;
  });
}

void UcxClaims::writer_ended(const ProcessIdentity& writer) {
  end_if([&writer](const Claim& claim) {
    return claim.path == PathKind::ShmPut && claim.writer == writer;
  });
}

bool UcxClaims::watch(const ProcessIdentity& writer) {
  const auto found = writers_.find(writer);
  if (found != writers_.end()) {
    ++found->second.claims;
    return true;
  }
  auto fd = watch_process(writer);
  if (!fd || !*fd) {
    return false;
  }
  const Status watched =
      reactor_.watch(fd->get(), [this, writer] { writer_ended(ProcessIdentity(writer)); });
  if (!watched) {
    return false;
  }
  writers_[writer] = {std::move(*fd), 1};
  return true;
}

void UcxClaims::unwatch(const ProcessIdentity& writer) {
  const auto found = writers_.find(writer);
  if (--found->second.claims == 0) {
    reactor_.unwatch(found->second.fd.get());
    writers_.erase(found);
  }
}

bool UcxClaims::has_any(InletId inlet) const {
  return has_any(inlet, PathKind::RdmaPut) || has_any(inlet, PathKind::ShmPut);
}

bool UcxClaims::has_any(InletId inlet, PathKind path) const {
  for (const auto& [lease, claim] : claims_) {
    if (claim.inlet == inlet && claim.path == path) {
      return true;
    }
  }
  return false;
}

}  // namespace baton::transfer
