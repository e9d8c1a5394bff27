#include "tests/sim/data_path.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <list>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "transfer/entries.h"

namespace baton::sim {

using transfer::DropReason;
using transfer::LeaseEntry;
using transfer::MessageHeader;
using transfer::SendEntry;

namespace {

// Small, so that a prompt takes several messages.
constexpr std::size_t kMaxMessage = std::size_t{4} << 10;
constexpr std::size_t kWindow = std::size_t{16} << 10;
constexpr Duration kCloseLimit = seconds(1);  // a closing inlet waits so long for receives

struct Op;
struct Link;

struct WayIn {
  std::uint64_t number = 0;
  bool is_closed = false;
  std::list<std::shared_ptr<Op>> receives;  // under way
};

struct Send {
  std::shared_ptr<SendEntry> entry;
  std::shared_ptr<Link> link;
};

// One life of one process.
struct End {
  End(Process& its_process,
      Strand& its_reactor,
      const KvArenaView& its_arena,
      ArenaWatch& its_watch)
      : process(its_process), reactor(its_reactor), arena(its_arena), watch(its_watch) {}
  Process& process;
  Strand& reactor;
  const KvArenaView arena;
  ArenaWatch& watch;
  std::map<LeaseId, std::shared_ptr<LeaseEntry>> leases;
  std::map<std::uint64_t, std::shared_ptr<WayIn>> inlets;
  std::vector<Send> sends;
  std::vector<std::shared_ptr<Link>> links;
  bool is_stopped = false;
  transfer::TransportStats stats;
};

using EndPtr = std::shared_ptr<End>;

// A connection to an inlet of another process.
struct Link {
  EndPtr to;
  std::shared_ptr<WayIn> inlet;
  bool is_up = true;
  std::function<void(Error)> failed;
  std::list<std::shared_ptr<Op>> ops;  // whose sender was not told yet
};

// One message on its way.
struct Op {
  EndPtr from;
  Send send;
  MessageHeader header;
  std::vector<transfer::Segment> segments;
  std::vector<std::byte> payload;
  std::uint64_t source_digest = 0;
  bool is_eager = false;
  bool ignores_close = false;
  bool breaks = false;
  bool is_told = false;    // the sender has its completion
  bool given_up = false;   // the sender reads no more
  bool has_ended = false;  // the receive is over
  std::size_t split() const { return payload.size() * 3 / 7; }
};

using OpPtr = std::shared_ptr<Op>;

}  // namespace

class DataPath::Core : public std::enable_shared_from_this<DataPath::Core> {
 public:
  Core(World& its_world, std::uint64_t seed) : world(its_world), rng(seed, 2) {}

  Duration latency(const End& from, const End& to) {
    Duration wait = rng.between(microseconds(20), microseconds(400));
    if (hold) {
      wait += hold(from.process.name(), to.process.name());
    }
    return wait;
  }

  // ---- sender's side, on its reactor

  void pump(const EndPtr& self) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < self->sends.size(); ++i) {
        const Send send = self->sends[i];
        if (const auto piece = send.entry->session.next()) {
          transmit(self, send, *piece);
          moved = true;
        }
        if (send.entry->session.needs_flush()) {
          send.entry->session.flush_posted();
          self->reactor.post_after(latency(*self, *send.link->to),
                                   [core = shared_from_this(), self, send] {
                                     send.entry->session.flush_done();
                                     core->settle(self, send);
                                   });
        }
      }
    }
  }

  void settle(const EndPtr& self, const Send& send) {
    pump(self);
    send.entry->notify();
    if (send.entry->session.is_over()) {
      std::erase_if(self->sends, [&](const Send& one) { return one.entry == send.entry; });
    }
  }

  std::uint64_t digest(const Op& op) const {
    std::uint64_t all = 0;
    for (const transfer::Segment& segment : op.segments) {
      all = XXH3_64bits_withSeed(op.from->arena.block(op.header.layer, segment.source),
                                 segment.count * op.from->arena.layout.block_bytes(),
                                 all);
    }
    return all;
  }

  // Takes bytes [begin, end) of the message from the sender's blocks.
  void read(Op& op, std::size_t begin, std::size_t end) {
    if (digest(op) != op.source_digest) {
      world.fail(fmt::format("{}: a block changed while it was being sent under lease {:x}",
                             op.from->process.name(),
                             op.header.lease.low));
    }
    std::size_t at = 0;
    for (const transfer::Segment& segment : op.segments) {
      const std::size_t size = segment.count * op.from->arena.layout.block_bytes();
      const std::byte* from = op.from->arena.block(op.header.layer, segment.source);
      const std::size_t low = std::max(at, begin);
      const std::size_t high = std::min(at + size, end);
      if (low < high) {
        std::memcpy(op.payload.data() + low, from + (low - at), high - low);
      }
      at += size;
    }
  }

  void transmit(const EndPtr& self, const Send& send, const transfer::Piece& piece) {
    const auto op = std::make_shared<Op>();
    op->from = self;
    op->send = send;
    op->segments = piece.segments;
    op->payload.resize(piece.bytes);
    op->header.lease = send.entry->session.lease();
    op->header.epoch = send.entry->session.epoch();
    op->header.layer = piece.layer;
    op->header.lane = transfer::Lane::Tcp;
    for (const transfer::Segment& segment : piece.segments) {
      op->header.add_run({segment.target, segment.count});
    }
    send.link->ops.push_back(op);
    ++counts.messages;
    if (!send.link->is_up || self->is_stopped) {
      self->reactor.post([core = shared_from_this(), op] { core->tell(op, false); });
      return;
    }
    op->source_digest = digest(*op);
    DataWeather now = weather;
    if (hook) {
      hook(self->process.name(), send.link->to->process.name(), op->header, now);
    }
    op->is_eager = rng.chance(0.4);
    Duration wait = latency(*self, *send.link->to);
    bool arrives = true;
    bool twice = false;
    if (rng.chance(now.drop)) {
      ++counts.dropped;
      op->is_eager = true;
      arrives = false;
    } else if (rng.chance(now.late)) {
      ++counts.late;
      op->is_eager = op->ignores_close = true;
      wait += rng.between(seconds(1), now.late_most);
    } else if (rng.chance(now.hang)) {
      ++counts.hung;
      op->is_eager = false;
      arrives = false;
    } else if (rng.chance(now.partial)) {
      op->is_eager = false;
      op->breaks = true;
    } else if (rng.chance(now.duplicate)) {
      ++counts.duplicated;
      op->is_eager = true;
      twice = true;
    } else if (rng.chance(now.slow)) {
      ++counts.slow;
      wait += rng.between(Duration::zero(), now.slow_most);
    }
    if (op->is_eager) {
      read(*op, 0, op->payload.size());
      if (rng.chance(now.corrupt)) {
        ++counts.corrupted;
        op->payload[rng.below(op->payload.size())] ^= std::byte{1} << rng.below(8);
      }
      self->reactor.post_after(rng.between(Duration::zero(), microseconds(200)),
                               [core = shared_from_this(), op] { core->tell(op, true); });
    }
    if (world.is_verbose()) {
      world.note(fmt::format("{} => {} data of lease {:x}, layer {}, {} bytes{}{}",
                             self->process.name(),
                             send.link->to->process.name(),
                             op->header.lease.low,
                             op->header.layer,
                             op->payload.size(),
                             op->is_eager ? "" : ", fetched",
                             !arrives            ? (op->is_eager ? ", DROPPED" : ", HUNG")
                             : op->ignores_close ? ", LATE"
                             : op->breaks        ? ", BREAKS"
                             : twice             ? ", TWICE"
                                                 : ""));
    }
    if (arrives) {
      carry(op, wait);
      if (twice) {
        carry(op, wait + rng.between(Duration::zero(), milliseconds(50)));
      }
    }
  }

  void carry(const OpPtr& op, Duration wait) {
    world.outside().post_after(wait, [core = shared_from_this(), op] {
      op->send.link->to->reactor.post([core, op] { core->arrive(op); });
    });
  }

  // The sender's operation is over.
  void tell(const OpPtr& op, bool is_ok) {
    if (std::exchange(op->is_told, true)) {
      return;
    }
    op->send.link->ops.remove(op);
    auto& session = op->send.entry->session;
    if (!is_ok) {
      ++op->from->stats.sends_failed;
      session.fail(Error{ErrorCode::PeerDead, "the operation failed"});
    } else {
      op->from->stats.bytes_sent += op->payload.size();
    }
    session.completed(op->payload.size());
    settle(op->from, op->send);
  }

  void lose_link(const EndPtr& self, const std::shared_ptr<Link>& link) {
    if (!std::exchange(link->is_up, false)) {
      return;
    }
    const Error error{ErrorCode::PeerDead,
                      "the connection to " + link->to->process.name() + " broke"};
    for (const OpPtr& op : link->ops) {
      op->given_up = true;
      self->reactor.post_after(rng.between(Duration::zero(), milliseconds(200)),
                               [core = shared_from_this(), op] { core->tell(op, false); });
    }
    const auto sends = self->sends;
    for (const Send& send : sends) {
      if (send.link == link) {
        send.entry->session.fail(error);
        settle(self, send);
      }
    }
    std::erase(self->links, link);
    if (link->failed) {
      std::exchange(link->failed, nullptr)(error);
    }
  }

  void fragment(const OpPtr& op, int part) {
    if (op->given_up || op->is_told || op->from->is_stopped) {
      return;
    }
    const std::size_t split = op->split();
    read(*op, part == 0 ? 0 : split, part == 0 ? split : op->payload.size());
    const Duration wait = latency(*op->from, *op->send.link->to);
    world.outside().post_after(wait, [core = shared_from_this(), op, part] {
      op->send.link->to->reactor.post([core, op, part] { core->land(op, part); });
    });
  }

  // ---- receiver's side, on its reactor

  void arrive(const OpPtr& op) {
    const EndPtr& to = op->send.link->to;
    const auto& inlet = op->send.link->inlet;
    if (to->is_stopped) {
      return;
    }
    if (inlet->is_closed && !op->ignores_close) {
      ++counts.after_close;
      return;
    }
    ++to->stats.messages_received;
    transfer::EncodedHeader encoded;
    transfer::encode(op->header, encoded);
    MessageHeader header;
    if (!transfer::decode(encoded.span(), header)) {
      world.fail("a header does not survive its codec");
      return;
    }
    const auto at = to->leases.find(header.lease);
    const auto drop = at == to->leases.end()
                          ? DropReason::UnknownLease
                          : at->second->session.admit(header, op->payload.size());
    if (drop != DropReason::None) {
      ++counts.refused;
      ++to->stats.messages_dropped;
      if (world.is_verbose()) {
        world.note(fmt::format("{} refuses data of lease {:x}: {}",
                               to->process.name(),
                               header.lease.low,
                               to_string(drop)));
      }
      op->from->reactor.post_after(latency(*to, *op->from),
                                   [core = shared_from_this(), op] { core->tell(op, true); });
      return;
    }
    if (op->is_eager) {
      write(*op, 0, op->payload.size());
      landed(op);
      return;
    }
    inlet->receives.push_back(op);
    op->from->reactor.post_after(latency(*to, *op->from),
                                 [core = shared_from_this(), op] { core->fragment(op, 0); });
  }

  void write(const Op& op, std::size_t begin, std::size_t end) {
    const EndPtr& to = op.send.link->to;
    const std::size_t block_bytes = to->arena.layout.block_bytes();
    std::size_t at = 0;
    for (const BlockRun& run : op.header.runs()) {
      for (std::uint32_t i = 0; i < run.count; ++i, at += block_bytes) {
        const std::size_t low = std::max(at, begin);
        const std::size_t high = std::min(at + block_bytes, end);
        if (low < high) {
          const BlockId block{run.first.value + i};
          to->watch.landing(op.header.lease, block);
          std::memcpy(to->arena.block(op.header.layer, block) + (low - at),
                      op.payload.data() + low,
                      high - low);
        }
      }
    }
  }

  void land(const OpPtr& op, int part) {
    const EndPtr& to = op->send.link->to;
    if (op->has_ended || to->is_stopped) {
      return;  // abandoned with its inlet
    }
    write(*op, part == 0 ? 0 : op->split(), part == 0 ? op->split() : op->payload.size());
    if (part == 0 && op->breaks) {
      ++counts.partial;
      to->reactor.post_after(rng.between(Duration::zero(), kCloseLimit),
                             [core = shared_from_this(), op] { core->fail_receive(op); });
      op->from->reactor.post_after(latency(*to, *op->from), [core = shared_from_this(), op] {
        core->lose_link(op->from, op->send.link);
      });
      return;
    }
    if (part == 0) {
      op->from->reactor.post_after(latency(*to, *op->from),
                                   [core = shared_from_this(), op] { core->fragment(op, 1); });
      return;
    }
    op->has_ended = true;
    op->send.link->inlet->receives.remove(op);
    landed(op);
    op->from->reactor.post_after(latency(*to, *op->from),
                                 [core = shared_from_this(), op] { core->tell(op, true); });
  }

  void landed(const OpPtr& op) {
    const EndPtr& to = op->send.link->to;
    counts.bytes += op->payload.size();
    to->stats.bytes_received += op->payload.size();
    const auto entry = to->leases.at(op->header.lease);
    entry->session.landed(op->header);
    notify(to, entry);
  }

  void fail_receive(const OpPtr& op) {
    const EndPtr& to = op->send.link->to;
    if (std::exchange(op->has_ended, true) || to->is_stopped) {
      return;
    }
    op->send.link->inlet->receives.remove(op);
    ++to->stats.receives_failed;
    const auto entry = to->leases.at(op->header.lease);
    entry->session.failed(op->header);
    notify(to, entry);
  }

  // A revoked lease is forgotten when nothing of it is under way any more.
  void notify(const EndPtr& to, const std::shared_ptr<LeaseEntry>& entry) {
    if (entry->session.state() == transfer::ReceiverState::Revoked && entry->session.is_fenced()) {
      to->watch.fenced(entry->session.lease());
      to->leases.erase(entry->session.lease());
    }
    entry->notify();
  }

  void close_inlet(const EndPtr& self, const std::shared_ptr<WayIn>& inlet) {
    if (std::exchange(inlet->is_closed, true)) {
      return;
    }
    self->inlets.erase(inlet->number);
    for (const OpPtr& op : inlet->receives) {
      self->reactor.post_after(rng.between(milliseconds(1), kCloseLimit),
                               [core = shared_from_this(), op] { core->fail_receive(op); });
    }
    lose_links_if([&](const Link& link) { return link.inlet == inlet; });
  }

  template <class Match>
  void lose_links_if(Match match) {
    for (const EndPtr& end : ends) {
      for (const auto& link : end->links) {
        if (link->is_up && match(*link)) {
          end->reactor.post_after(latency(*link->to, *end), [core = shared_from_this(), end, link] {
            core->lose_link(end, link);
          });
        }
      }
    }
  }

  World& world;
  Rng rng;
  DataWeather weather;
  Hook hook;
  Hold hold;
  DataCounts counts;
  std::vector<EndPtr> ends;
  std::uint64_t next_inlet = 1;
};

namespace {

using CorePtr = std::shared_ptr<DataPath::Core>;

class SimPeer final : public transfer::Peer {
 public:
  SimPeer(CorePtr core, EndPtr self, std::shared_ptr<Link> link)
      : core_(std::move(core)), self_(std::move(self)), link_(std::move(link)) {}
  bool is_up() const override { return link_->is_up; }
  std::string transport_name() const override { return "tcp"; }
  void disconnect() override {
    self_->reactor.post([core = core_, self = self_, link = link_] {
      link->failed = nullptr;
      core->lose_link(self, link);
    });
  }
  const std::shared_ptr<Link>& link() const { return link_; }

 private:
  const CorePtr core_;
  const EndPtr self_;
  const std::shared_ptr<Link> link_;
};

class SimInlet final : public transfer::Inlet {
 public:
  SimInlet(CorePtr core, EndPtr self, std::shared_ptr<WayIn> inlet)
      : core_(std::move(core)), self_(std::move(self)), inlet_(std::move(inlet)) {
    const std::string text = std::to_string(inlet_->number);
    address_.resize(text.size());
    std::memcpy(address_.data(), text.data(), text.size());
  }
  SimInlet(const SimInlet&) = delete;
  SimInlet& operator=(const SimInlet&) = delete;
  ~SimInlet() override {
    self_->reactor.post(
        [core = core_, self = self_, inlet = inlet_] { core->close_inlet(self, inlet); });
  }
  const std::vector<std::byte>& address() const override { return address_; }

 private:
  const CorePtr core_;
  const EndPtr self_;
  const std::shared_ptr<WayIn> inlet_;
  std::vector<std::byte> address_;
};

class SimReceiver final : public transfer::LeaseReceiver {
 public:
  SimReceiver(CorePtr core, EndPtr self, std::shared_ptr<LeaseEntry> entry)
      : core_(std::move(core)), self_(std::move(self)), entry_(std::move(entry)) {}
  SimReceiver(const SimReceiver&) = delete;
  SimReceiver& operator=(const SimReceiver&) = delete;
  ~SimReceiver() override { revoke(nullptr); }

  void expect(const transfer::Sent& sent, std::function<void(Result<Done>)> complete) override {
    self_->reactor.post([core = core_, entry = entry_, sent, complete = std::move(complete)] {
      entry->expect(sent, [core, complete](Result<Done> done) {
        core->counts.mismatches +=
            !done && done.error().code == ErrorCode::ChecksumMismatch ? 1 : 0;
        complete(std::move(done));
      });
    });
  }
  void revoke(std::function<void()> fenced) override {
    self_->reactor.post([core = core_, self = self_, entry = entry_, fenced = std::move(fenced)] {
      entry->session.revoke();
      core->notify(self, entry);
      entry->revoke(fenced);
    });
  }

 private:
  const CorePtr core_;
  const EndPtr self_;
  const std::shared_ptr<LeaseEntry> entry_;
};

class SimSender final : public transfer::LeaseSender {
 public:
  SimSender(CorePtr core, EndPtr self, Send send)
      : core_(std::move(core)), self_(std::move(self)), send_(std::move(send)) {}
  SimSender(const SimSender&) = delete;
  SimSender& operator=(const SimSender&) = delete;
  ~SimSender() override {
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
  void send_converted(std::uint32_t /*layer*/,
                      std::uint32_t /*first*/,
                      std::uint32_t /*count*/,
                      std::shared_ptr<const transfer::ContextBlocks> /*context*/) override {
    BATON_CHECK(false, "nodes of a simulation have one layout");
  }
  void finish(std::function<void(Result<transfer::Sent>)> flushed) override {
    run([flushed = std::move(flushed)](SendEntry& entry) { entry.finish(flushed); });
  }
  void abort(std::function<void()> quiesced) override {
    run([quiesced = std::move(quiesced)](SendEntry& entry) { entry.abort(quiesced); });
  }

 private:
  void run(std::function<void(SendEntry&)> step) {
    self_->reactor.post([core = core_, self = self_, send = send_, step = std::move(step)] {
      step(*send.entry);
      core->settle(self, send);
    });
  }
  const CorePtr core_;
  const EndPtr self_;
  const Send send_;
};

class SimTransport final : public transfer::Transport {
 public:
  SimTransport(CorePtr core, EndPtr self) : core_(std::move(core)), self_(std::move(self)) {}
  SimTransport(const SimTransport&) = delete;
  SimTransport& operator=(const SimTransport&) = delete;
  ~SimTransport() override { stop(); }

  std::string ucx_version() const override { return "sim"; }

  Result<std::unique_ptr<transfer::Inlet>> open_inlet() override {
    auto inlet = std::make_shared<WayIn>();
    inlet->number = core_->next_inlet++;
    self_->inlets[inlet->number] = inlet;
    return std::make_unique<SimInlet>(core_, self_, std::move(inlet));
  }

  std::unique_ptr<transfer::LeaseReceiver> open_lease(LeaseId lease,
                                                      Epoch epoch,
                                                      std::vector<BlockRun> runs,
                                                      transfer::DigestMode digest) override {
    self_->watch.opened(lease, runs);
    auto entry = std::make_shared<LeaseEntry>(lease, epoch, self_->arena, std::move(runs), digest);
    self_->leases[lease] = entry;
    return std::make_unique<SimReceiver>(core_, self_, std::move(entry));
  }

  Result<std::shared_ptr<transfer::Peer>> connect(std::span<const std::byte> inlet_address,
                                                  std::function<void(Error)> failed) override {
    const auto* text = reinterpret_cast<const char*>(inlet_address.data());
    std::uint64_t number = 0;
    std::from_chars(text, text + inlet_address.size(), number);
    auto link = std::make_shared<Link>();
    link->failed = std::move(failed);
    for (const EndPtr& end : core_->ends) {
      const auto found = end->inlets.find(number);
      if (found != end->inlets.end()) {
        link->to = end;
        link->inlet = found->second;
      }
    }
    if (link->to == nullptr) {
      return fail(ErrorCode::PeerDead, "no such inlet");
    }
    self_->links.push_back(link);
    if (link->to->process.is_dead()) {
      self_->reactor.post([core = core_, self = self_, link] { core->lose_link(self, link); });
    }
    return std::make_shared<SimPeer>(core_, self_, std::move(link));
  }

  Result<std::unique_ptr<transfer::LeaseSender>> begin(std::shared_ptr<transfer::Peer> peer,
                                                       const KvGrant& grant,
                                                       transfer::DigestMode digest) override {
    if (grant.layout_hash != self_->arena.layout.hash()) {
      return fail(ErrorCode::Mismatch, "the grant is for another KV layout");
    }
    const transfer::PlanLimits limits{.block_bytes = self_->arena.layout.block_bytes(),
                                      .max_bytes = kMaxMessage};
    Send send{std::make_shared<SendEntry>(grant, self_->arena.layout.layers, limits, kWindow),
              dynamic_cast<SimPeer&>(*peer).link()};
    send.entry->session.use_digest(digest, self_->arena);
    self_->reactor.post([core = core_, self = self_, send] {
      self->sends.push_back(send);
      if (!send.link->is_up) {
        send.entry->session.fail(Error{ErrorCode::PeerDead, "the peer is gone"});
      }
      core->settle(self, send);
    });
    return std::make_unique<SimSender>(core_, self_, std::move(send));
  }

  transfer::TransportStats stats() const override {
    transfer::TransportStats stats = self_->stats;
    // A reactor turns all the time.
    stats.loop_count = static_cast<std::uint64_t>(core_->world.elapsed() / milliseconds(1)) + 1;
    stats.open_leases = self_->leases.size();
    stats.open_sends = self_->sends.size();
    return stats;
  }

  void stop() override { self_->is_stopped = true; }

 private:
  const CorePtr core_;
  const EndPtr self_;
};

}  // namespace

DataPath::DataPath(World& world, std::uint64_t seed) : core_(std::make_shared<Core>(world, seed)) {}
DataPath::~DataPath() {
  // Operations hold what holds them.
  for (const EndPtr& end : core_->ends) {
    for (const auto& link : end->links) {
      link->ops.clear();
    }
    for (const auto& [number, inlet] : end->inlets) {
      inlet->receives.clear();
    }
    end->links.clear();
    end->sends.clear();
  }
}

std::unique_ptr<transfer::Transport> DataPath::make_transport(Process& process,
                                                              Strand& reactor,
                                                              const KvArenaView& arena,
                                                              ArenaWatch& watch) {
  auto end = std::make_shared<End>(process, reactor, arena, watch);
  core_->ends.push_back(end);
  return std::make_unique<SimTransport>(core_, std::move(end));
}

void DataPath::set_weather(const DataWeather& weather) {
  core_->weather = weather;
}
void DataPath::set_hook(Hook hook) {
  core_->hook = std::move(hook);
}
void DataPath::set_hold(Hold hold) {
  core_->hold = std::move(hold);
}
const DataCounts& DataPath::counts() const {
  return core_->counts;
}

void DataPath::died(const Process& process) {
  core_->lose_links_if([&](const Link& link) { return &link.to->process == &process; });
}

void DataPath::cut(const std::string& from, const std::string& to) {
  for (const EndPtr& end : core_->ends) {
    if (end->process.name() == from && !end->process.is_dead()) {
      const auto links = end->links;
      for (const auto& link : links) {
        if (link->to->process.name() == to) {
          end->reactor.post([core = core_, end, link] { core->lose_link(end, link); });
        }
      }
    }
  }
}

std::size_t DataPath::open_inlets(const Process& process) const {
  std::size_t open = 0;
  for (const EndPtr& end : core_->ends) {
    open += &end->process == &process ? end->inlets.size() : 0;
  }
  return open;
}

}  // namespace baton::sim
