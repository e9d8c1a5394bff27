// Transport over UCX: puts context, memory, reactor, receiver and sender together, and turns the
// calls of any thread into commands of the reactor.

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "common/base/check.h"
#include "transfer/shared_arena.h"
#include "transfer/transport.h"
#include "transfer/ucx/context.h"
#include "transfer/ucx/reactor.h"
#include "transfer/ucx/receiver.h"
#include "transfer/ucx/sender.h"
#include "transfer/ucx/worker.h"

namespace baton::transfer {
namespace {

constexpr std::size_t kMaxWindow = std::size_t{32} << 20;
constexpr std::size_t kMaxMessage = std::size_t{1} << 20;

// What the transport and all its handles share. Members are in the order of construction; `stop`
// takes them down in reverse.
class Core {
 public:
  Core(const TransportOptions& options, const KvArenaView& arena)
      : options(options), arena(arena) {}
  ~Core() { stop(); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status start();
  void stop();

  const TransportOptions options;
  const KvArenaView arena;
  std::unique_ptr<UcxContext> context;
  std::unique_ptr<SharedArena> shared;  // when it may be put into over shared memory
  std::unique_ptr<UcxMemory> memory;
  std::unique_ptr<Reactor> reactor;
  std::unique_ptr<UcxReceiver> receiver;
  std::unique_ptr<UcxSender> sender;

 private:
  void shut_down();
  Result<PutOffer> make_offer() const;

  std::mutex stop_mutex_;  // two threads may stop at once
  bool is_stopped_ = false;
};

Status Core::start() {
  BATON_ASSIGN(context, UcxContext::create(options));
  BATON_TRY(context->check(options.memory));
  if (context->allows_shm_put()) {
    BATON_ASSIGN(shared, SharedArena::share(arena));  // before its pages are registered
  }
  BATON_ASSIGN(memory, UcxMemory::create(*context, arena.base, arena.bytes(), options.memory));
  BATON_ASSIGN(reactor, Reactor::create());
  BATON_ASSIGN(PutOffer offer, make_offer());
  receiver = std::make_unique<UcxReceiver>(arena, *memory, *reactor, std::move(offer));
  sender = std::make_unique<UcxSender>(arena, *context, *memory, *reactor);
  reactor->start({
      .progress = [this] { return receiver->progress() + sender->progress(); },
      .arm = [this] { return receiver->arm() && sender->arm(); },
      .turn =
          [this] {
            receiver->check();
            return sender->turn();
          },
      .has_traffic = [this] { return sender->has_traffic() || receiver->is_receiving(); },
      .shut_down = [this] { shut_down(); },
  });
  return {};
}

Result<PutOffer> Core::make_offer() const {
  PutOffer offer;
  if (context->allows_rdma_put()) {
    BATON_ASSIGN(offer.key, memory->pack_key());
    offer.allows_rdma = true;
  }
  if (shared) {
    shared->describe(offer);
  }
  if (!offer.is_empty()) {
    offer.base = reinterpret_cast<std::uintptr_t>(arena.base);
    offer.block_bytes = arena.layout.block_bytes();
    offer.layers = arena.layout.layers;
    offer.num_blocks = arena.num_blocks;
  }
  return offer;
}

// On the reactor, as its last act. Closing inlets and links has a time limit, so this ends.
void Core::shut_down() {
  receiver->stop();
  sender->stop();
  while (!sender->is_over() || !receiver->is_over()) {
    receiver->progress();
    receiver->check();
    sender->progress();
    sender->turn();
  }
}

void Core::stop() {
  const std::lock_guard lock(stop_mutex_);
  if (std::exchange(is_stopped_, true) || !sender) {
    return;
  }
  reactor->stop();
  memory.reset();  // the arena may go now
}

class UcxPeer : public Peer {
 public:
  UcxPeer(std::shared_ptr<Core> core, std::shared_ptr<Link> link)
      : core_(std::move(core)), link_(std::move(link)) {}
  ~UcxPeer() override {
    core_->reactor->post([core = core_.get(), link = link_] { core->sender->release(link); });
  }
  UcxPeer(const UcxPeer&) = delete;
  UcxPeer& operator=(const UcxPeer&) = delete;

  bool is_up() const override { return link_->is_up; }
  std::string transport_name() const override { return std::string(to_string(link_->lane)); }

  void disconnect() override {
    core_->reactor->post([core = core_.get(), link = link_] { core->sender->disconnect(link); });
  }

  const Core* core() const { return core_.get(); }
  const std::shared_ptr<Link>& link() const { return link_; }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<Link> link_;
};

class UcxInlet : public Inlet {
 public:
  UcxInlet(std::shared_ptr<Core> core, std::shared_ptr<UcxReceiver::InletState> state)
      : core_(std::move(core)), state_(std::move(state)), address_(state_->worker->address()) {
    core_->reactor->post([core = core_.get(), state = state_] { core->receiver->add(state); });
  }
  ~UcxInlet() override {
    core_->reactor->post([core = core_.get(), state = state_] { core->receiver->remove(state); });
  }
  UcxInlet(const UcxInlet&) = delete;
  UcxInlet& operator=(const UcxInlet&) = delete;

  const std::vector<std::byte>& address() const override { return address_; }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<UcxReceiver::InletState> state_;
  const std::vector<std::byte> address_;
};

class UcxLeaseReceiver : public LeaseReceiver {
 public:
  UcxLeaseReceiver(std::shared_ptr<Core> core, std::shared_ptr<LeaseEntry> entry)
      : core_(std::move(core)), entry_(std::move(entry)) {}
  ~UcxLeaseReceiver() override { revoke(nullptr); }
  UcxLeaseReceiver(const UcxLeaseReceiver&) = delete;
  UcxLeaseReceiver& operator=(const UcxLeaseReceiver&) = delete;

  void expect(const Sent& sent, std::function<void(Result<Done>)> complete) override {
    core_->reactor->post(
        [core = core_.get(), entry = entry_, sent, complete = std::move(complete)]() mutable {
          entry->expect(sent, [core, complete = std::move(complete)](Result<Done> done) {
            if (!done && done.error().code == ErrorCode::ChecksumMismatch) {
              core->receiver->count_mismatch();
            }
            complete(std::move(done));
          });
        });
  }

  void revoke(std::function<void()> fenced) override {
    core_->reactor->post(
        [core = core_.get(), entry = entry_, fenced = std::move(fenced)]() mutable {
          core->receiver->close(entry->session.lease());
          entry->revoke(std::move(fenced));
        });
  }

  void writer_quiesced() override {
    core_->reactor->post(
        [core = core_.get(), entry = entry_] { core->receiver->quiesced(entry->session.lease()); });
  }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<LeaseEntry> entry_;
};

class UcxLeaseSender : public LeaseSender {
 public:
  UcxLeaseSender(std::shared_ptr<Core> core, std::shared_ptr<Peer> peer, std::shared_ptr<Send> send)
      : core_(std::move(core)), peer_(std::move(peer)), send_(std::move(send)) {}
  ~UcxLeaseSender() override {
    run([](SendEntry& entry) {
      if (!entry.session.is_over()) {
        entry.abort(nullptr);
      }
    });
  }
  UcxLeaseSender(const UcxLeaseSender&) = delete;
  UcxLeaseSender& operator=(const UcxLeaseSender&) = delete;

  void send_layer(std::uint32_t layer, std::uint32_t first, std::vector<BlockId> blocks) override {
    BATON_CHECK(send_->staging == nullptr, "another layout is converted");
    for (const BlockId block : blocks) {
      BATON_CHECK(block.value < core_->arena.num_blocks, "blocks to send are in the own arena");
    }
    run([layer, first, blocks = std::move(blocks)](SendEntry& entry) {
      entry.session.add_layer(layer, first, blocks);
    });
  }
  void send_converted(std::uint32_t layer,
                      std::uint32_t first,
                      std::uint32_t count,
                      std::shared_ptr<const ContextBlocks> context) override {
    BATON_CHECK(send_->staging != nullptr, "only another layout is converted");
    run([send = send_.get(), layer, first, count, context = std::move(context)](SendEntry& entry) {
      send->staging->extend(context);
      entry.session.add_converted(layer, first, count);
    });
  }
  void finish(std::function<void(Result<Sent>)> flushed) override {
    run([flushed = std::move(flushed)](SendEntry& entry) mutable {
      entry.finish(std::move(flushed));
    });
  }
  void abort(std::function<void()> quiesced) override {
    run([quiesced = std::move(quiesced)](SendEntry& entry) mutable {
      entry.abort(std::move(quiesced));
    });
  }
  Progress progress() const override { return send_->entry.progress(); }

 private:
  template <class Step>
  void run(Step step) {
    core_->reactor->post([core = core_.get(), send = send_, step = std::move(step)]() mutable {
      step(send->entry);
      core->sender->touch_now();
    });
  }

  std::shared_ptr<Core> core_;
  std::shared_ptr<Peer> peer_;  // keeps the connection while the send is open
  std::shared_ptr<Send> send_;
};

class UcxTransport : public Transport {
 public:
  explicit UcxTransport(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~UcxTransport() override { stop(); }
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  std::string ucx_version() const override { return ucx_version_string(); }

  Result<std::unique_ptr<Inlet>> open_inlet() override {
    BATON_ASSIGN(auto state, core_->receiver->make_inlet(*core_->context));
    return std::make_unique<UcxInlet>(core_, std::move(state));
  }

  std::unique_ptr<LeaseReceiver> open_lease(LeaseId lease,
                                            Epoch epoch,
                                            std::vector<BlockRun> runs,
                                            DigestMode digest) override {
    return std::make_unique<UcxLeaseReceiver>(
        core_, core_->receiver->open(lease, epoch, std::move(runs), digest));
  }

  Result<std::shared_ptr<Peer>> connect(std::span<const std::byte> inlet_address,
                                        std::function<void(Error)> failed) override {
    BATON_ASSIGN(PeerAddress address, open_address(inlet_address));
    auto link = std::make_shared<Link>();
    link->failed = std::move(failed);
    core_->reactor->post([core = core_.get(), link, address = std::move(address)] {
      core->sender->connect(link, address);
    });
    return std::make_shared<UcxPeer>(core_, std::move(link));
  }

  Result<std::unique_ptr<LeaseSender>> begin(std::shared_ptr<Peer> peer,
                                             const KvGrant& grant,
                                             DigestMode digest) override {
    const auto* own = dynamic_cast<const UcxPeer*>(peer.get());
    BATON_CHECK(own != nullptr && own->core() == core_.get(), "the peer is of this transport");
    BATON_ASSIGN(const bool converts, needs_conversion(core_->arena.layout, grant));
    const KvLayout& layout = converts ? grant.layout : core_->arena.layout;
    const PlanLimits limits{layout.block_bytes(), kMaxMessage, 0, kMaxRuns};
    auto send = std::make_shared<Send>(
        grant, core_->arena.layout.layers, limits, core_->options.window_bytes);
    send->entry.session.use_digest(digest, core_->arena);
    send->link = own->link();
    send->entry.share_moves(send->link->moves);
    if (converts) {
      send->staging = std::make_unique<Staging>(core_->arena, grant);
    }
    core_->reactor->post([core = core_.get(), send] { core->sender->begin(send); });
    return std::make_unique<UcxLeaseSender>(core_, std::move(peer), std::move(send));
  }

  TransportStats stats() const override;
  void poke() override { core_->reactor->poke(); }
  void stop() override { core_->stop(); }

 private:
  std::shared_ptr<Core> core_;
};

TransportStats UcxTransport::stats() const {
  const auto& received = core_->receiver->counters();
  const auto& sent = core_->sender->counters();
  TransportStats stats;
  stats.bytes_sent = sent.bytes;
  stats.bytes_received = received.bytes;
  stats.messages_received = received.messages;
  for (std::size_t i = 0; i < kDropReasons; ++i) {
    if (const std::uint64_t count = received.dropped[i]; count > 0) {
      stats.messages_dropped += count;
      stats.dropped_by_reason[std::string(to_string(static_cast<DropReason>(i)))] = count;
    }
  }
  stats.sends_failed = sent.failed;
  stats.receives_failed = received.failed;
  stats.digest_mismatches = received.mismatches;
  stats.loop_count = core_->reactor->loops();
  stats.open_leases = core_->receiver->open_leases();
  stats.open_sends = sent.open;
  return stats;
}

}  // namespace

Result<std::string> Transport::check(const TransportOptions& options) {
  BATON_ASSIGN([[maybe_unused]] const auto context, UcxContext::create(options));
  return ucx_version_string();
}

Result<std::unique_ptr<Transport>> Transport::create(const TransportOptions& options,
                                                     KvArenaView arena) {
  BATON_TRY(validate(arena.layout));
  if (arena.base == nullptr || arena.num_blocks == 0) {
    return fail(ErrorCode::InvalidArgument, "a transport needs an arena with at least one block");
  }
  if (options.window_bytes == 0 || options.window_bytes > kMaxWindow) {
    return fail(
        ErrorCode::InvalidConfig,
        fmt::format(
            "transfer window of {} bytes: it must be 1 .. {}", options.window_bytes, kMaxWindow));
  }
  auto core = std::make_shared<Core>(options, arena);
  BATON_TRY(core->start());
  return std::make_unique<UcxTransport>(std::move(core));
}

}  // namespace baton::transfer
