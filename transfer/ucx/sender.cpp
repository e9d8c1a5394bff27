#include "transfer/ucx/sender.h"

#include <algorithm>
#include <utility>

namespace baton::transfer {

UcxSender::UcxSender(const KvArenaView& arena,
                     UcxContext& context,
                     const UcxMemory& memory,
                     Reactor& reactor)
    : ucx_(context),
      links_(context,
             reactor,
             {.lost = [this](Link& link, const Error& error) { on_lost(link, error); },
              .abandoned = [this](Link& link) { paths_.ops.abandon(link); }}) {
  paths_.arena = arena;
  paths_.memory = memory.get();
  paths_.memory_type = memory.type();
}

UcxSender::~UcxSender() = default;

void UcxSender::touch_now() {
  touch();
  if (is_stopped_ && links_.is_empty()) {
    turn();
  }
}

void UcxSender::connect(const LinkPtr& link, const PeerAddress& address) {
  const Status status =
      is_stopped_ ? fail(ErrorCode::Unavailable, "the transport has stopped") : open(link, address);
  if (!status) {
    const auto failed = std::move(link->failed);
    links_.release(link);  // what was opened of it
    if (failed) {
      failed(status.error());
    }
  }
}

Status UcxSender::open(const LinkPtr& link, const PeerAddress& address) {
  BATON_TRY(links_.open(link, address));
  BATON_TRY(choose_path(link, address.offer));
  if (link->path != PathKind::Am) {
    auto& path = static_cast<UcxPutPath&>(path_of(*link));
    link->answered = [&path, weak = std::weak_ptr(link)](const PutMessage& answer) {
      if (const LinkPtr asked = weak.lock()) {
        path.answered(asked, answer);
      }
    };
  }
  if (link->path == PathKind::ShmPut) {
    shm_.settle_claims(link);
  }
  return {};
}

Status UcxSender::choose_path(const LinkPtr& link, const PutOffer& offer) {
  if (offer.is_empty() || !offer.fits(paths_.arena.layout)) {
    return {};
  }
  link->offer = offer;
  if (ucx_.allows_rdma_put() && offer.allows_rdma && link->lanes.puts_by_rdma) {
    const ucs_status_t status =
        ucp_ep_rkey_unpack(link->endpoint->get(), offer.key.data(), &link->key);
    if (status != UCS_OK) {
      return fail(ErrorCode::ProtocolError, ucx_error("the key of the peer's arena", status));
    }
    link->path = PathKind::RdmaPut;
  } else if (ucx_.allows_shm_put() && offer.allows_shm && link->lane == Lane::Shm &&
             link->process) {
    // A process of this host, which can watch for our end as we do for its.
    auto mapped = MappedArena::map(offer, link->peer);
    if (mapped) {
      link->mapped = std::move(*mapped);
      link->path = PathKind::ShmPut;
    } else if (mapped.error().code != ErrorCode::IoError) {
      return std::unexpected(mapped.error());  // not merely forbidden by the system
    }
  }
  return {};
}

DataPath& UcxSender::path_of(const Link& link) {
  switch (link.path) {
    case PathKind::RdmaPut:
      return rdma_;
    case PathKind::ShmPut:
      return shm_;
    case PathKind::Am:
      break;
  }
  return am_;
}

void UcxSender::begin(const std::shared_ptr<Send>& send) {
  // What must be gathered first is never put.
  send->path = send->staging != nullptr ? &am_ : &path_of(*send->link);
  send->entry.session.set_pack_below(send->path->pack_below(send->link->lane));
  sends_.push_back(send);
  paths_.counters.open.store(sends_.size(), std::memory_order_relaxed);
  if (!send->link->is_up) {
    send->entry.session.fail(
        is_stopped_ ? Error{ErrorCode::Unavailable, "the transport has stopped"}
                    : Error{ErrorCode::PeerDead, "the connection to the peer is lost"});
  }
  touch_now();
}

bool UcxSender::turn() {
  bool worked = shm_.begin_turn();
  links_.check();
  while (std::exchange(paths_.is_dirty, false)) {
    worked = true;
    post();
    rdma_.end_turn();
    for (const auto& send : sends_) {
      if (send->entry.session.needs_flush()) {
        send->path->flush(send);
      }
    }
    worked |= reap();
  }
  return worked;
}

// One message a send in turns, as long as windows admit some.
void UcxSender::post() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (const auto& send : sends_) {
      if (!send->entry.session.is_ready() || !send->path->is_open(send)) {
        continue;
      }
      if (auto piece = send->entry.session.next()) {
        send->path->post(send, *piece);
        moved = true;
      }
    }
  }
}

bool UcxSender::reap() {
  const auto sends = sends_;  // callbacks may end handles, never sends_ itself
  for (const auto& send : sends) {
    if (send->entry.session.is_over()) {
      send->path->release(send);
    }
    send->entry.notify();
  }
  const auto removed =
      std::erase_if(sends_, [](const auto& send) { return send->entry.session.is_over(); });
  paths_.counters.open.store(sends_.size(), std::memory_order_relaxed);
  return removed > 0;
}

void UcxSender::on_lost(const Link& link, const Error& error) {
  for (const auto& send : sends_) {
    if (send->link.get() == &link) {
      send->entry.session.fail(error);
    }
  }
  touch();
}

void UcxSender::stop() {
  for (const auto& send : sends_) {
    send->entry.session.fail(Error{ErrorCode::Unavailable, "the transport has stopped"});
  }
  links_.close_all();
  is_stopped_ = true;
  touch();
}

}  // namespace baton::transfer
