#include "tests/support/fake_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "common/base/check.h"
#include "transfer/entries.h"

namespace baton::testing {

using transfer::DropReason;
using transfer::LeaseEntry;
using transfer::MessageHeader;
using transfer::SendEntry;

namespace {

constexpr std::size_t kMaxMessage = std::size_t{1} << 20;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// One process's transport: state that only tasks touch, and counters that anyone reads.
struct FakeEndpoint {
  struct Link {  // to one peer
    std::string to;
    std::atomic<bool> is_up = true;
    std::function<void(Error)> failed;
    std::vector<std::function<void()>> stalled;  // fail one operation each
    const std::shared_ptr<std::atomic<std::uint64_t>> moves =
        std::make_shared<std::atomic<std::uint64_t>>(0);
  };
  struct Send {
    std::shared_ptr<SendEntry> entry;
    std::shared_ptr<Link> link;
    std::shared_ptr<transfer::Staging> staging;  // null: the grant's blocks lie as the arena's
  };

  std::string name;
  KvArenaView arena;
  transfer::TransportOptions options;
  std::map<LeaseId, std::shared_ptr<LeaseEntry>> leases;
  std::vector<Send> sends;
  std::vector<std::weak_ptr<Link>> links;
  bool is_dead = false;
  bool is_stuck = false;  // the data thread stands still
  std::atomic<bool> is_stopped = false;
  std::mutex arena_mutex;  // held while bytes of the arena move; after stop() none do
  std::atomic<std::uint64_t> sent = 0, received = 0, messages = 0, dropped = 0, failures = 0,
                             loops = 0, open_leases = 0, open_sends = 0, mismatches = 0;
};

class FakeNetwork::Core : public std::enable_shared_from_this<FakeNetwork::Core> {
 public:
  explicit Core(Post post) : post_(std::move(post)) {}

  void post(std::function<void()> task) {
    if (post_) {
      post_(std::move(task));
      return;
    }
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }

  std::size_t pump() {
    std::size_t ran = 0;
    while (true) {
      std::function<void()> task;
      {
        const std::lock_guard lock(mutex_);
        if (tasks_.empty()) {
          return ran;
        }
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
      ++ran;
    }
  }

  void add(std::shared_ptr<FakeEndpoint> endpoint) {
    const std::lock_guard lock(mutex_);
    endpoints_[endpoint->name] = std::move(endpoint);
  }

  std::shared_ptr<FakeEndpoint> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto at = endpoints_.find(name);
    return at == endpoints_.end() ? nullptr : at->second;
  }

  void for_each(const std::function<void(const std::shared_ptr<FakeEndpoint>&)>& visit) {
    std::vector<std::shared_ptr<FakeEndpoint>> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, endpoint] : endpoints_) {
        all.push_back(endpoint);
      }
    }
    for (const auto& endpoint : all) {
      visit(endpoint);
    }
  }

  // Posts what the windows admit, one piece a send and turn.
  void pump_sends(const std::shared_ptr<FakeEndpoint>& self) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < self->sends.size(); ++i) {
        const FakeEndpoint::Send send = self->sends[i];
        if (auto piece = send.entry->session.next()) {
          transmit(self, send, *piece);
          moved = true;
        }
        if (send.entry->session.needs_flush()) {
          send.entry->session.flush_posted();
          post([core = shared_from_this(), self, send] {
            if (!self->is_dead) {
              send.entry->session.flush_done();
              core->settle(self, send);
            }
          });
        }
      }
    }
  }

  static void turn(FakeEndpoint& self) { self.loops += self.is_dead || self.is_stuck ? 0 : 1; }

  void settle(const std::shared_ptr<FakeEndpoint>& self, const FakeEndpoint::Send& send) {
    turn(*self);
    pump_sends(self);
    send.entry->notify();
    if (send.entry->session.is_over()) {
      std::erase_if(self->sends, [&](const auto& one) { return one.entry == send.entry; });
    }
    self->open_sends = self->sends.size();
  }

  void lose_link(const std::shared_ptr<FakeEndpoint>& self,
                 const std::shared_ptr<FakeEndpoint::Link>& link) {
    if (!link->is_up.exchange(false)) {
      return;
    }
    const Error error{ErrorCode::PeerDead, "the process " + link->to + " is gone"};
    const auto sends = self->sends;
    for (const auto& send : sends) {
      if (send.link == link) {
        ++self->failures;
        send.entry->session.fail(error);
        settle(self, send);
      }
    }
    for (const auto& give_up : std::exchange(link->stalled, {})) {
      give_up();
    }
    if (link->failed) {
      std::exchange(link->failed, nullptr)(error);
    }
  }

  // `torn`: so many bytes at the end are not written, though the transport says that they were.
  void deliver(const std::string& to,
               std::span<const std::byte> header_bytes,
               std::span<const std::byte> bytes,
               std::size_t torn = 0) {
    const auto target = find(to);
    if (!target || target->is_dead) {
      return;
    }
    std::unique_lock lock(target->arena_mutex);
    if (target->is_stopped) {
      return;
    }
    ++target->messages;
    MessageHeader header;
    if (!transfer::decode(header_bytes, header)) {
      ++target->dropped;
      return;
    }
    const auto at = target->leases.find(header.lease);
    if (at == target->leases.end() ||
        at->second->session.admit(header, bytes.size()) != DropReason::None) {
      ++target->dropped;
      return;
    }
    const auto entry = at->second;
    const std::byte* from = bytes.data();
    std::size_t left = bytes.size() - torn;
    for (const BlockRun& run : header.runs()) {
      const std::size_t size = std::min(left, run.count * target->arena.layout.block_bytes());
      std::memcpy(target->arena.block(header.layer, run.first), from, size);
      from += size;
      left -= size;
    }
    lock.unlock();
    target->received += bytes.size();
    entry->session.landed(header);
    entry->notify();
  }

  void release(std::vector<std::function<void()>>& held) {
    for (auto& one : std::exchange(held, {})) {
      post(std::move(one));
    }
  }

  Hook hook;
  std::vector<std::function<void()>> late;
  std::vector<std::function<void()>> stalled;

 private:
  void transmit(const std::shared_ptr<FakeEndpoint>& self,
                const FakeEndpoint::Send& send,
                const transfer::Piece& piece) {
    auto message = std::make_shared<FakeMessage>();
    message->from = self->name;
    message->to = send.link->to;
    message->header.lease = send.entry->session.lease();
    message->header.epoch = send.entry->session.epoch();
    message->header.layer = piece.layer;
    message->header.lane = transfer::Lane::Shm;
    bool is_stopped = false;
    {
      const std::lock_guard lock(self->arena_mutex);
      is_stopped = self->is_stopped;
      for (const transfer::Segment& segment : piece.segments) {
        message->header.add_run({segment.target, segment.count});
        if (!is_stopped && send.staging != nullptr) {
          const std::size_t at = message->bytes.size();
          message->bytes.resize(at + segment.count * send.staging->layout().block_bytes());
          const auto out = std::span(message->bytes).subspan(at);
          send.staging->gather(piece.layer, segment.source.value, segment.count, out);
          send.entry->session.gathered(piece.layer, segment.source.value, out);
        } else if (!is_stopped) {
          const std::byte* from = self->arena.block(piece.layer, segment.source);
          message->bytes.insert(
              message->bytes.end(), from, from + segment.count * self->arena.layout.block_bytes());
        }
      }
    }
    const auto target = find(message->to);
    const bool is_stuck = self->is_stuck || (target && target->is_stuck);
    const FakeFate fate = is_stopped ? FakeFate::Fail
                          : is_stuck ? FakeFate::Stall
                          : hook     ? hook(*message)
                                     : FakeFate::Deliver;
    const std::size_t torn = spoil(*message, fate, self->arena.layout.block_bytes());
    const auto arrive = [core = shared_from_this(), message, torn] {
      transfer::EncodedHeader encoded;
      transfer::encode(message->header, encoded);
      core->deliver(message->to, encoded.span(), message->bytes, torn);
    };
    const auto complete = [core = shared_from_this(), self, send, size = piece.bytes](bool is_ok) {
      if (self->is_dead) {
        return;
      }
      if (!is_ok) {
        send.entry->session.fail(Error{ErrorCode::PeerDead, "the operation failed"});
        ++self->failures;
      } else {
        self->sent += size;
      }
      send.entry->session.completed(size);
      core->settle(self, send);
    };
    switch (fate) {
      case FakeFate::Deliver:
      case FakeFate::Flip:
      case FakeFate::Swap:
      case FakeFate::Tear:
      case FakeFate::Replay:
      case FakeFate::Duplicate:
        post([arrive, complete] {
          arrive();
          complete(true);
        });
        if (fate == FakeFate::Duplicate) {
          post(arrive);
        }
        return;
      case FakeFate::Late:
        late.emplace_back(arrive);
        [[fallthrough]];
      case FakeFate::Drop:
        post([complete] { complete(true); });
        return;
      case FakeFate::Stall: {
        const auto is_over = std::make_shared<bool>(false);
        stalled.emplace_back([arrive, complete, is_over] {
          arrive();
          if (!std::exchange(*is_over, true)) {
            complete(true);
          }
        });
        send.link->stalled.emplace_back([complete, is_over] {
          if (!std::exchange(*is_over, true)) {
            complete(false);
          }
        });
        return;
      }
      case FakeFate::Fail:
        post([complete] { complete(false); });
        return;
    }
  }

  // Damages the bytes as the fate says; returns how many at the end do not arrive.
  std::size_t spoil(FakeMessage& message, FakeFate fate, std::size_t block_bytes) {
    std::vector<std::byte>& bytes = message.bytes;
    std::vector<std::byte> honest = bytes;
    std::size_t torn = 0;
    if (fate == FakeFate::Flip) {
      bytes[bytes.size() / 2] ^= std::byte{1};
    } else if (fate == FakeFate::Swap) {
      BATON_CHECK(bytes.size() >= 2 * block_bytes, "two blocks to swap");
      const auto second = bytes.begin() + static_cast<std::ptrdiff_t>(block_bytes);
      std::swap_ranges(bytes.begin(), second, second);
    } else if (fate == FakeFate::Tear) {
      torn = block_bytes / 2;
    } else if (fate == FakeFate::Replay) {
      BATON_CHECK(last_bytes_.size() == bytes.size(), "an earlier message of this length");
      bytes = last_bytes_;
    }
    last_bytes_ = std::move(honest);
    return torn;
  }

  Post post_;
  std::vector<std::byte> last_bytes_;  // of the message before
  std::mutex mutex_;                   // guards tasks_ and endpoints_
  std::deque<std::function<void()>> tasks_;
  std::map<std::string, std::shared_ptr<FakeEndpoint>> endpoints_;
};

namespace {

using CorePtr = std::shared_ptr<FakeNetwork::Core>;
using EndpointPtr = std::shared_ptr<FakeEndpoint>;

class FakePeer : public transfer::Peer {
 public:
  FakePeer(CorePtr core, EndpointPtr self, std::shared_ptr<FakeEndpoint::Link> link)
      : core_(std::move(core)), self_(std::move(self)), link_(std::move(link)) {}
  bool is_up() const override { return link_->is_up; }
  std::string transport_name() const override { return "shm"; }
  void disconnect() override {
    core_->post([core = core_, self = self_, link = link_] {
      link->failed = nullptr;
      core->lose_link(self, link);
    });
  }
  const std::shared_ptr<FakeEndpoint::Link>& link() const { return link_; }

 private:
  CorePtr core_;
  EndpointPtr self_;
  std::shared_ptr<FakeEndpoint::Link> link_;
};

class FakeInlet : public transfer::Inlet {
 public:
  explicit FakeInlet(const std::string& name) : address_(name.size()) {
    std::memcpy(address_.data(), name.data(), name.size());
  }
  const std::vector<std::byte>& address() const override { return address_; }

 private:
  std::vector<std::byte> address_;
};

class FakeReceiver : public transfer::LeaseReceiver {
 public:
  FakeReceiver(CorePtr core, EndpointPtr self, std::shared_ptr<LeaseEntry> entry)
      : core_(std::move(core)), self_(std::move(self)), entry_(std::move(entry)) {}
  ~FakeReceiver() override { revoke(nullptr); }

  void expect(const transfer::Sent& sent, std::function<void(Result<Done>)> complete) override {
    core_->post([self = self_, entry = entry_, sent, complete = std::move(complete)] {
      if (!self->is_dead) {
        entry->expect(sent, [self, complete](Result<Done> done) {
          self->mismatches += !done && done.error().code == ErrorCode::ChecksumMismatch ? 1 : 0;
          complete(std::move(done));
        });
      }
    });
  }

  void revoke(std::function<void()> fenced) override {
    core_->post([self = self_, entry = entry_, fenced = std::move(fenced)] {
      if (self->is_dead) {
        return;
      }
      self->leases.erase(entry->session.lease());
      self->open_leases = self->leases.size();
      entry->revoke(fenced);
    });
  }

 private:
  CorePtr core_;
  EndpointPtr self_;
  std::shared_ptr<LeaseEntry> entry_;
};

class FakeSender : public transfer::LeaseSender {
 public:
  FakeSender(CorePtr core, EndpointPtr self, FakeEndpoint::Send send)
      : core_(std::move(core)), self_(std::move(self)), send_(std::move(send)) {}
  ~FakeSender() override {
    run([](SendEntry& entry) {
      if (!entry.session.is_over()) {
        entry.abort(nullptr);
      }
    });
  }

  void send_layer(std::uint32_t layer, std::uint32_t first, std::vector<BlockId> blocks) override {
    run([layer, first, blocks = std::move(blocks)](SendEntry& entry) {
      entry.session.add_layer(layer, first, blocks);
    });
  }
  void send_converted(std::uint32_t layer,
                      std::uint32_t first,
                      std::uint32_t count,
                      std::shared_ptr<const transfer::ContextBlocks> context) override {
    run([layer, first, count, staging = send_.staging, context](SendEntry& entry) {
      staging->extend(context);
      entry.session.add_converted(layer, first, count);
    });
  }
  void finish(std::function<void(Result<transfer::Sent>)> flushed) override {
    run([flushed = std::move(flushed)](SendEntry& entry) { entry.finish(flushed); });
  }
  void abort(std::function<void()> quiesced) override {
    run([quiesced = std::move(quiesced)](SendEntry& entry) { entry.abort(quiesced); });
  }
  transfer::Progress progress() const override { return send_.entry->progress(); }

 private:
  void run(std::function<void(SendEntry&)> step) {
    core_->post([core = core_, self = self_, send = send_, step = std::move(step)] {
      if (!self->is_dead) {
        step(*send.entry);
        core->settle(self, send);
      }
    });
  }

  CorePtr core_;
  EndpointPtr self_;
  FakeEndpoint::Send send_;
};

class FakeTransport : public transfer::Transport {
 public:
  FakeTransport(CorePtr core, EndpointPtr self) : core_(std::move(core)), self_(std::move(self)) {}
  ~FakeTransport() override { stop(); }

  std::string ucx_version() const override { return "fake"; }
  Result<std::unique_ptr<transfer::Inlet>> open_inlet() override {
    return std::make_unique<FakeInlet>(self_->name);
  }

  std::unique_ptr<transfer::LeaseReceiver> open_lease(LeaseId lease,
                                                      Epoch epoch,
                                                      std::vector<BlockRun> runs,
                                                      transfer::DigestMode digest) override {
    auto entry = std::make_shared<LeaseEntry>(lease, epoch, self_->arena, std::move(runs), digest);
    core_->post([self = self_, entry] {
      self->leases[entry->session.lease()] = entry;
      self->open_leases = self->leases.size();
    });
    return std::make_unique<FakeReceiver>(core_, self_, std::move(entry));
  }

  Result<std::shared_ptr<transfer::Peer>> connect(std::span<const std::byte> inlet_address,
                                                  std::function<void(Error)> failed) override {
    if (inlet_address.empty()) {
      return fail(ErrorCode::InvalidArgument, "the inlet's address is empty");
    }
    auto link = std::make_shared<FakeEndpoint::Link>();
    link->to = text_of(inlet_address);
    link->failed = std::move(failed);
    core_->post([core = core_, self = self_, link] {
      self->links.push_back(link);
      const auto target = core->find(link->to);
      if (!target || target->is_dead) {
        core->lose_link(self, link);
      }
    });
    return std::make_shared<FakePeer>(core_, self_, std::move(link));
  }

  Result<std::unique_ptr<transfer::LeaseSender>> begin(std::shared_ptr<transfer::Peer> peer,
                                                       const KvGrant& grant,
                                                       transfer::DigestMode digest) override {
    BATON_ASSIGN(const bool converts, transfer::needs_conversion(self_->arena.layout, grant));
    const KvLayout& layout = converts ? grant.layout : self_->arena.layout;
    const transfer::PlanLimits limits{layout.block_bytes(), kMaxMessage, 0, 1};
    FakeEndpoint::Send send{
        std::make_shared<SendEntry>(
            grant, self_->arena.layout.layers, limits, self_->options.window_bytes),
        dynamic_cast<FakePeer&>(*peer).link(),
        converts ? std::make_shared<transfer::Staging>(self_->arena, grant) : nullptr};
    send.entry->session.use_digest(digest, self_->arena);
    send.entry->share_moves(send.link->moves);
    core_->post([core = core_, self = self_, send] {
      self->sends.push_back(send);
      if (!send.link->is_up) {
        send.entry->session.fail(Error{ErrorCode::PeerDead, "the peer is gone"});
      }
      core->settle(self, send);
    });
    return std::make_unique<FakeSender>(core_, self_, std::move(send));
  }

  transfer::TransportStats stats() const override {
    transfer::TransportStats stats;
    stats.bytes_sent = self_->sent;
    stats.bytes_received = self_->received;
    stats.messages_received = self_->messages;
    stats.messages_dropped = self_->dropped;
    stats.sends_failed = self_->failures;
    stats.digest_mismatches = self_->mismatches;
    stats.loop_count = self_->loops;
    stats.open_leases = self_->open_leases;
    stats.open_sends = self_->open_sends;
    return stats;
  }

  void poke() override {
    core_->post([self = self_] { FakeNetwork::Core::turn(*self); });
  }

  void stop() override {
    {
      const std::lock_guard lock(self_->arena_mutex);
      if (self_->is_stopped.exchange(true)) {
        return;
      }
    }
    core_->post([core = core_, self = self_] {
      const auto sends = self->sends;
      for (const auto& send : sends) {
        send.entry->session.fail(Error{ErrorCode::Unavailable, "the transport has stopped"});
        core->settle(self, send);
      }
      const auto leases = std::exchange(self->leases, {});
      for (const auto& [id, entry] : leases) {
        entry->revoke(nullptr);
      }
      self->open_leases = 0;
    });
  }

 private:
  CorePtr core_;
  EndpointPtr self_;
};

}  // namespace

FakeNetwork::FakeNetwork(Post post) : core_(std::make_shared<Core>(std::move(post))) {}
FakeNetwork::~FakeNetwork() {
  // Held messages hold the core that holds them.
  core_->late.clear();
  core_->stalled.clear();
}

std::unique_ptr<transfer::Transport> FakeNetwork::make_transport(
    const std::string& name, KvArenaView arena, const transfer::TransportOptions& options) {
  auto endpoint = std::make_shared<FakeEndpoint>();
  endpoint->name = name;
  endpoint->arena = arena;
  endpoint->options = options;
  core_->add(endpoint);
  return std::make_unique<FakeTransport>(core_, std::move(endpoint));
}

void FakeNetwork::set_hook(Hook hook) {
  core_->hook = std::move(hook);
}

void FakeNetwork::inject(const std::string& to,
                         std::span<const std::byte> header,
                         std::span<const std::byte> bytes) {
  core_->post([core = core_,
               to,
               header = std::vector<std::byte>(header.begin(), header.end()),
               bytes = std::vector<std::byte>(bytes.begin(), bytes.end())] {
    core->deliver(to, header, bytes);
  });
}

void FakeNetwork::release_late() {
  core_->post([core = core_] { core->release(core->late); });
}

void FakeNetwork::release_stalled() {
  core_->post([core = core_] { core->release(core->stalled); });
}

void FakeNetwork::set_stuck(const std::string& name, bool is_stuck) {
  if (const auto endpoint = core_->find(name)) {
    core_->post([endpoint, is_stuck] { endpoint->is_stuck = is_stuck; });
  }
}

void FakeNetwork::kill(const std::string& name) {
  core_->post([core = core_, name] {
    const auto victim = core->find(name);
    if (!victim || victim->is_dead) {
      return;
    }
    victim->is_dead = true;
    core->for_each([&](const std::shared_ptr<FakeEndpoint>& other) {
      const auto links = other->links;
      for (const auto& weak : links) {
        const auto link = weak.lock();
        if (link && link->to == name && !other->is_dead) {
          core->lose_link(other, link);
        }
      }
    });
  });
}

std::size_t FakeNetwork::pump() {
  return core_->pump();
}

}  // namespace baton::testing
