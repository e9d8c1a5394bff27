#include "tests/support/memory_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "common/base/host_port.h"
#include "common/rpc/call_table.h"
#include "common/rpc/frame_codec.h"
#include "common/rpc/handshake.h"
#include "common/wire/convert.h"

namespace baton::testing {
namespace {

constexpr std::chrono::milliseconds kHelloTimeout{5'000};
constexpr std::size_t kMaxHandshakes = 128;

}  // namespace

// The state of both ends. Side 0 is `first`.
class MemoryLink : public std::enable_shared_from_this<MemoryLink> {
 public:
  using Names = std::shared_ptr<const std::set<std::string>>;

  MemoryLink(Executor& first_executor,
             Executor& second_executor,
             std::string first,
             std::string second,
             FrameHook hook,
             EndHook end_hook,
             Names held)
      : hook_(std::move(hook)),
        end_hook_(std::move(end_hook)),
        held_(std::move(held)),
        ends_{End(first_executor), End(second_executor)} {
    ends_[0].name = std::move(first);
    ends_[1].name = std::move(second);
  }

  struct Handlers {
    Channel::FrameHandler on_frame;
    Channel::ClosedHandler on_closed;
  };
  struct Travelling {
    TimePoint due;
    std::string bytes;
  };
  struct End {
    explicit End(Executor& its_executor) : executor(its_executor), calls(its_executor) {}
    Executor& executor;
    std::string name;
    bool open = true;
    std::shared_ptr<const Handlers> handlers = std::make_shared<Handlers>();
    CallTable calls;
    std::deque<Travelling> inbox;  // on its way to this end
    bool delivery_pending = false;
    TimerHandle delivery;
  };

  End& end(int side) { return ends_[static_cast<std::size_t>(side)]; }
  bool joins(const std::string& name) const {
    return ends_[0].name == name || ends_[1].name == name;
  }

  void send(int side, const wire::Frame& frame) {
    auto& from = end(side);
    auto& to = end(1 - side);
    if (!from.open) {
      return;
    }
    std::string bytes;
    if (auto status = encode_frame(frame, bytes); !status) {
      lose(side, std::move(status).error());
      return;
    }
    const auto fate = hook_ ? hook_(from.name, to.name, frame) : FrameFate{};
    if (fate.drop || !to.open) {
      return;
    }
    auto due = to.executor.now() + fate.delay;
    if (!to.inbox.empty()) {
      due = std::max(due, to.inbox.back().due);
    }
    to.inbox.push_back({due, std::move(bytes)});
    deliver_later(1 - side);
  }

  // One side ends with an error; the other sees its peer gone.
  void lose(int side, Error why) {
    end_of(side, std::move(why));
    peer_gone(side);
  }

  void close(int side) {
    auto& mine = end(side);
    mine.handlers = nullptr;
    mine.calls.forget_all();
    if (std::exchange(mine.open, false)) {
      peer_gone(side);
    }
  }

  // What came while a side was held.
  void let_go() {
    deliver_later(0);
    deliver_later(1);
  }

  bool is_open() const { return ends_[0].open && ends_[1].open; }

  // The process of one end is gone: the other reads what is on its way, then the end.
  void vanish(int side) {
    end(side).inbox.clear();
    end(side).calls.forget_all();
    if (std::exchange(end(side).open, false)) {
      peer_gone(side);
    }
  }

  void kill() {
    for (const int side : {0, 1}) {
      end(side).inbox.clear();
      end_of(side, Error{ErrorCode::PeerDead, fmt::format("{} is gone", end(1 - side).name)});
    }
  }

 private:
  // After what is on its way already, as the end of a stream is.
  void peer_gone(int side) {
    auto& other = end(1 - side);
    if (other.open) {
      auto due = other.executor.now();
      if (end_hook_) {
        due += end_hook_(end(side).name, other.name);
      }
      other.inbox.push_back(
          {other.inbox.empty() ? due : std::max(due, other.inbox.back().due), std::string()});
      deliver_later(1 - side);
    }
  }

  void end_of(int side, Error why) {
    auto& mine = end(side);
    if (!std::exchange(mine.open, false)) {
      return;
    }
    mine.executor.post([self = shared_from_this(), side, why = std::move(why)] {
      auto& lost = self->end(side);
      lost.calls.fail_all(why);
      if (const auto handlers = lost.handlers; handlers != nullptr && handlers->on_closed) {
        handlers->on_closed(why);
      }
    });
  }

  bool is_held(int side) { return held_ != nullptr && held_->contains(end(side).name); }

  void deliver_later(int side) {
    auto& to = end(side);
    if (to.inbox.empty() || is_held(side) || std::exchange(to.delivery_pending, true)) {
      return;
    }
    const auto wait = to.inbox.front().due - to.executor.now();
    auto task = [self = shared_from_this(), side] {
      self->end(side).delivery_pending = false;
      if (!self->is_held(side)) {
        self->deliver(side);
        self->deliver_later(side);
      }
    };
    if (wait <= Duration::zero()) {
      to.executor.post(std::move(task));
    } else {
      to.delivery = to.executor.call_after(wait, std::move(task));
    }
  }

  void deliver(int side) {
    auto& to = end(side);
    if (to.inbox.empty()) {
      return;
    }
    const auto bytes = std::move(to.inbox.front().bytes);
    to.inbox.pop_front();
    if (!to.open) {
      return;
    }
    if (bytes.empty()) {
      end_of(side, Error{ErrorCode::PeerDead, fmt::format("{} is gone", end(1 - side).name)});
      return;
    }
    FrameDecoder decoder;
    decoder.feed(bytes);
    auto frame = decoder.next();
    if (!frame || !*frame) {
      lose(side, Error{ErrorCode::ProtocolError, "a broken frame"});
    } else if ((*frame)->answers() != 0) {
      to.calls.finish(std::move(**frame));
    } else if (const auto handlers = to.handlers; handlers->on_frame) {
      handlers->on_frame(std::move(**frame));
    }
  }

  const FrameHook hook_;
  const EndHook end_hook_;
  const Names held_;
  std::array<End, 2> ends_;
};

namespace {

class MemoryChannel final : public Channel {
 public:
  MemoryChannel(std::shared_ptr<MemoryLink> link, int side) : link_(std::move(link)), side_(side) {}
  MemoryChannel(const MemoryChannel&) = delete;
  MemoryChannel& operator=(const MemoryChannel&) = delete;
  ~MemoryChannel() override { link_->close(side_); }

  void set_handlers(FrameHandler on_frame, ClosedHandler on_closed) override {
    link_->end(side_).handlers = std::make_shared<const MemoryLink::Handlers>(
        MemoryLink::Handlers{std::move(on_frame), std::move(on_closed)});
  }
  void send(wire::Frame frame) override { link_->send(side_, frame); }
  void call(wire::Frame frame, std::chrono::milliseconds timeout, AnswerHandler handler) override {
    auto& mine = link_->end(side_);
    if (mine.open) {
      const auto number = mine.calls.open(timeout, std::move(handler));
      frame.set_call(number);
      if (frame.ByteSizeLong() <= kMaxFrameBytes) {
        link_->send(side_, frame);
        return;
      }
      link_->end(side_).executor.post([link = link_, side = side_, number] {
        link->end(side).calls.fail_one(
            number, Error{ErrorCode::InvalidArgument, "a control frame is over the limit"});
      });
      return;
    }
    link_->end(side_).executor.post([link = link_, side = side_, handler = std::move(handler)] {
      if (link->end(side).handlers != nullptr) {
        handler(fail(ErrorCode::PeerDead, "the connection is closed"));
      }
    });
  }
  void answer(const wire::Frame& question, wire::Frame reply) override {
    if (question.call() != 0) {
      reply.set_answers(question.call());
      send(std::move(reply));
    }
  }
  void answer_error(const wire::Frame& question, const Error& error) override {
    wire::Frame reply;
    *reply.mutable_refusal() = to_refusal(error);
    answer(question, std::move(reply));
  }
  void close() override { link_->close(side_); }
  void abort(Error why) override { link_->lose(side_, std::move(why)); }
  bool is_open() const override { return link_->end(side_).open; }
  std::size_t queued_bytes() const override { return 0; }
  std::string remote() const override { return link_->end(1 - side_).name; }

 private:
  const std::shared_ptr<MemoryLink> link_;
  const int side_;
};

struct MemoryDialing {
  DialHandler done;  // empty once over
  std::shared_ptr<HelloExchange> exchange;
  TimerHandle timer;
};

class MemoryDial final : public Dial {
 public:
  explicit MemoryDial(std::shared_ptr<MemoryDialing> dialing) : dialing_(std::move(dialing)) {}
  MemoryDial(const MemoryDial&) = delete;
  MemoryDial& operator=(const MemoryDial&) = delete;
  ~MemoryDial() override {
    dialing_->done = {};
    dialing_->timer.cancel();
    if (dialing_->exchange != nullptr) {
      dialing_->exchange->cancel();
    }
  }

 private:
  const std::shared_ptr<MemoryDialing> dialing_;
};

void finish(const std::shared_ptr<MemoryDialing>& dialing, Result<Dialed> result) {
  const auto done = std::exchange(dialing->done, {});
  dialing->timer.cancel();
  if (const auto exchange = std::exchange(dialing->exchange, nullptr)) {
    exchange->cancel();
  }
  if (done) {
    done(std::move(result));
  }
}

}  // namespace

namespace {

MemoryPair join(std::shared_ptr<MemoryLink> link) {
  return {std::make_unique<MemoryChannel>(link, 0), std::make_unique<MemoryChannel>(link, 1), link};
}

}  // namespace

void MemoryPair::kill() {
  link->kill();
}

MemoryPair make_memory_pair(Executor& executor,
                            std::string first_name,
                            std::string second_name,
                            FrameHook hook,
                            std::shared_ptr<const std::set<std::string>> held) {
  return join(std::make_shared<MemoryLink>(executor,
                                           executor,
                                           std::move(first_name),
                                           std::move(second_name),
                                           std::move(hook),
                                           EndHook(),
                                           std::move(held)));
}

class MemoryListener final : public Listener {
 public:
  MemoryListener(MemoryFabric& fabric,
                 std::string address,
                 std::uint64_t number,
                 std::shared_ptr<Greeter> greeter)
      : fabric_(fabric),
        address_(std::move(address)),
        number_(number),
        greeter_(std::move(greeter)) {}
  MemoryListener(const MemoryListener&) = delete;
  MemoryListener& operator=(const MemoryListener&) = delete;
  ~MemoryListener() override { stop(); }

  std::string address() const override { return address_; }
  ListenerStats stats() const override { return greeter_->stats(); }
  void stop() override {
    greeter_->stop();
    const auto found = fabric_.listening_.find(address_);
    if (found != fabric_.listening_.end() && found->second.number == number_) {
      fabric_.listening_.erase(found);
    }
  }

 private:
  MemoryFabric& fabric_;
  const std::string address_;
  const std::uint64_t number_;
  const std::shared_ptr<Greeter> greeter_;
};

class MemoryNetwork final : public Network {
 public:
  MemoryNetwork(MemoryFabric& fabric, std::string self, Executor& executor)
      : fabric_(fabric), self_(std::move(self)), executor_(executor) {}

  std::unique_ptr<Dial> dial(const std::string& address,
                             wire::Hello hello,
                             std::chrono::milliseconds timeout,
                             DialHandler handler) override {
    auto& executor = executor_;
    auto dialing = std::make_shared<MemoryDialing>();
    dialing->done = std::move(handler);
    const std::weak_ptr<MemoryDialing> weak = dialing;
    dialing->timer = executor.call_after(timeout, [weak, address] {
      if (const auto self = weak.lock()) {
        finish(self, fail(ErrorCode::Timeout, address + " did not answer in time"));
      }
    });
    executor.post([this, weak, address, hello = std::move(hello)]() mutable {
      if (const auto self = weak.lock(); self != nullptr && self->done) {
        connect(self, address, std::move(hello));
      }
    });
    return std::make_unique<MemoryDial>(std::move(dialing));
  }

  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           HelloHandler on_hello,
                                           AcceptHandler on_accept) override {
    BATON_ASSIGN(auto parsed, HostPort::parse(address));
    if (parsed.port == 0) {
      parsed.port = fabric_.next_port_++;
    }
    const auto bound = parsed.to_string();
    if (fabric_.listening_.contains(bound)) {
      return fail(ErrorCode::IoError, "cannot listen on " + bound + ": Address already in use");
    }
    auto greeter = std::make_shared<Greeter>(
        executor_, std::move(on_hello), std::move(on_accept), kHelloTimeout, kMaxHandshakes);
    const auto number = fabric_.next_number_++;
    fabric_.listening_[bound] = {self_, &executor_, number, greeter};
    return std::make_unique<MemoryListener>(fabric_, bound, number, std::move(greeter));
  }

 private:
  void connect(const std::shared_ptr<MemoryDialing>& dialing,
               const std::string& address,
               wire::Hello hello) {
    const auto found = fabric_.listening_.find(address);
    if (found == fabric_.listening_.end()) {
      finish(dialing,
             fail(ErrorCode::PeerDead, "cannot reach " + address + ": Connection refused"));
      return;
    }
    auto pair = join(std::make_shared<MemoryLink>(executor_,
                                                  *found->second.executor,
                                                  self_,
                                                  found->second.owner,
                                                  fabric_.hook_,
                                                  fabric_.end_hook_,
                                                  fabric_.held_));
    std::erase_if(fabric_.links_, [](const auto& link) { return link.expired(); });
    fabric_.links_.push_back(pair.link);
    found->second.greeter->add(std::move(pair.second));
    const std::weak_ptr<MemoryDialing> weak = dialing;
    dialing->exchange = HelloExchange::start(
        std::move(pair.first), std::move(hello), [weak](Result<Dialed> result) {
          if (const auto self = weak.lock()) {
            finish(self, std::move(result));
          }
        });
  }

  MemoryFabric& fabric_;
  const std::string self_;
  Executor& executor_;
};

MemoryFabric::~MemoryFabric() = default;

std::unique_ptr<Network> MemoryFabric::network(std::string self, Executor& executor) {
  return std::make_unique<MemoryNetwork>(*this, std::move(self), executor);
}

void MemoryFabric::forget_listeners(const std::string& self) {
  std::erase_if(listening_, [&](const auto& entry) { return entry.second.owner == self; });
}

void MemoryFabric::set_held(const std::string& self, bool is_held) {
  if (is_held) {
    held_->insert(self);
    return;
  }
  held_->erase(self);
  for (const auto& weak : links_) {
    if (const auto link = weak.lock()) {
      link->let_go();
    }
  }
}

void MemoryFabric::kill(const std::string& self) {
  forget_listeners(self);
  for (const auto& weak : links_) {
    if (const auto link = weak.lock(); link != nullptr && link->joins(self)) {
      link->kill();
    }
  }
}

void MemoryFabric::vanish(const std::string& self) {
  forget_listeners(self);
  for (const auto& weak : links_) {
    if (const auto link = weak.lock(); link != nullptr && link->joins(self)) {
      link->vanish(link->end(0).name == self ? 0 : 1);
    }
  }
}

bool MemoryFabric::cut(const std::string& one, const std::string& other) {
  bool any = false;
  for (const auto& weak : links_) {
    if (const auto link = weak.lock();
        link != nullptr && link->is_open() && link->joins(one) && link->joins(other)) {
      link->kill();
      any = true;
    }
  }
  return any;
}

std::size_t MemoryFabric::open_calls(const std::string& self) const {
  std::size_t open = 0;
  for (const auto& weak : links_) {
    if (const auto link = weak.lock(); link != nullptr && link->joins(self)) {
      open += link->end(link->end(0).name == self ? 0 : 1).calls.size();
    }
  }
  return open;
}

}  // namespace baton::testing
