#include "prefill_node/decode_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "common/rpc/hello_check.h"
#include "common/wire/convert.h"
#include "node/kv_probe.h"

namespace baton::prefill_node {
namespace {

constexpr std::chrono::milliseconds kDialTimeout{2'000};
constexpr std::chrono::milliseconds kMinStall{2'000};  // TCP's repeats take as long

}  // namespace

DecodeLinks::DecodeLinks(Executor& executor,
                         Network& network,
                         transfer::Transport& transport,
                         const node::NodeIdentity& identity,
                         HeartbeatLimits limits,
                         const Logger& log,
                         bool opens_inlets)
    : executor_(executor),
      network_(network),
      transport_(transport),
      identity_(identity),
      limits_(limits),
      log_(log),
      opens_inlets_(opens_inlets) {}

void DecodeLinks::post(std::function<void()> task) {
  executor_.post([alive = std::weak_ptr<bool>(alive_), task = std::move(task)] {
    if (!alive.expired()) {
      task();
    }
  });
}

UserId DecodeLinks::join(const KvGrant& grant, LinkUser user, LeaseOwner owner, bool is_bound) {
  auto found = std::ranges::find_if(
      links_, [&](const Link& link) { return link.address == grant.control_address; });
  if (found != links_.end() && found->is_up() && found->incarnation != grant.incarnation) {
    // The node was started again and the loss has not been seen yet, or the grant is an old one;
    // the handshake of a new link tells.
    const std::uint64_t number = found->number;
    lose(number, {ErrorCode::StaleIncarnation, "the decode node was started again"});
    found = links_.end();
  }
  Link& link = found == links_.end() ? open(grant.control_address) : *found;
  const UserId id{next_user_++};
  link.users.emplace(id,
                     User{.lease = grant.lease,
                          .epoch = grant.epoch,
                          .incarnation = grant.incarnation,
                          .layout_hash = grant.layout_hash,
                          .owner = owner,
                          .calls = std::move(user)});
  if (link.is_up()) {
    if (!is_bound) {
      beat(link);  // binds the lease to this connection now
    }
    post([this, number = link.number] {
      if (Link* link = find(number)) {
        greet(*link);
      }
    });
  }
  return id;
}

DecodeLinks::Link& DecodeLinks::open(const std::string& address) {
  Link& link = links_.emplace_back();
  link.address = address;
  link.number = next_number_++;
  wire::Hello hello = identity_.hello();
  if (opens_inlets_) {
    if (auto inlet = transport_.open_inlet()) {
      link.inlet = std::move(*inlet);
      hello.set_worker_address(link.inlet->address().data(), link.inlet->address().size());
    } else {
      log_.warn("no way in for {}, so no pulls from it: {}", address, inlet.error().message);
    }
  }
  link.dial = network_.dial(
      address, hello, kDialTimeout, [this, number = link.number](Result<Dialed> result) {
        dialed(number, std::move(result));
      });
  return link;
}

void DecodeLinks::dialed(std::uint64_t number, Result<Dialed> result) {
  Link* link = find(number);
  if (link == nullptr) {
    return;
  }
  if (!result) {
    lose(number, result.error());
    return;
  }
  if (const Status status = connect(*link, std::move(*result)); !status) {
    lose(number, status.error());
    return;
  }
  log_.info("connected to decode node at {}", link->address);
  beat(*link);
  greet(*link);
}

Status DecodeLinks::connect(Link& link, Dialed dialed) {
  BATON_TRY(check_welcome(dialed.welcome, identity_.expects({})));
  const auto digest = transfer::parse_digest_mode(dialed.welcome.digest());
  if (!digest && !dialed.welcome.digest().empty()) {
    return fail(ErrorCode::ProtocolError,
                fmt::format("Welcome: \"{}\" is no digest mode", dialed.welcome.digest()));
  }
  link.digest = digest.value_or(transfer::DigestMode::Off);
  const std::string& address = dialed.welcome.worker_address();
  auto peer = transport_.connect(
      std::as_bytes(std::span(address.data(), address.size())),
      [this, number = link.number, alive = std::weak_ptr<bool>(alive_), &executor = executor_](
          const Error& why) {
        executor.post([this, number, alive, why] {
          if (!alive.expired()) {
            lose(number, why);
          }
        });
      });
  if (!peer) {
    return std::unexpected(peer.error());
  }
  link.peer = std::move(*peer);
  link.incarnation = Incarnation{dialed.welcome.incarnation()};
  link.layout_hash = dialed.welcome.model().layout_hash();
  link.channel = std::move(dialed.channel);
  link.channel->set_handlers([this, &link](const wire::Frame& frame) { on_frame(link, frame); },
                             [this, number = link.number](const Error& why) { lose(number, why); });
  link.watch.emplace(executor_, limits_, [this, number = link.number](PeerHealth health) {
    if (health == PeerHealth::Dead) {
      lose(number, {ErrorCode::PeerStalled, "the decode node missed its heartbeats"});
    }
  });
  link.data_watch.emplace(executor_, limits_, [this, number = link.number] {
    lose(number, {ErrorCode::PeerStalled, "the decode node's data thread stands still"});
  });
  link.beats.emplace(executor_, limits_.period, [this, &link] { beat(link); });
  return {};
}

void DecodeLinks::greet(Link& link) {
  // A user may leave, or the link be lost, in a callback: work from a list of ids.
  const std::uint64_t number = link.number;
  std::vector<UserId> waiting;
  for (const auto& [id, user] : link.users) {
    if (user.abort_reason && user.incarnation == link.incarnation) {
      send_abort(link, user, *user.abort_reason);
    } else if (!user.told_up) {
      waiting.push_back(id);
    }
  }
  std::erase_if(link.users, [](const auto& item) { return item.second.abort_reason.has_value(); });
  for (const UserId id : waiting) {
    Link* now = find(number);
    if (now == nullptr) {
      return;
    }
    const auto found = now->users.find(id);
    if (found == now->users.end()) {
      continue;
    }
    found->second.told_up = true;
    if (found->second.incarnation != now->incarnation) {
      const auto lost = std::move(found->second.calls.on_lost);
      now->users.erase(found);
      lost({ErrorCode::StaleIncarnation, "the grant is of an earlier life of the decode node"});
      continue;
    }
    if (found->second.layout_hash != now->layout_hash) {
      const auto lost = std::move(found->second.calls.on_lost);
      now->users.erase(found);
      lost({ErrorCode::Mismatch, "the grant's KV layout is not the one the decode node has"});
      continue;
    }
    const auto up = found->second.calls.on_up;
    up();
  }
}

void DecodeLinks::on_frame(Link& link, const wire::Frame& frame) {
  link.watch->beat();
  if (frame.has_quiesced()) {
    const LeaseId lease = lease_of(frame.quiesced());
    for (const auto& [id, user] : link.users) {
      if (user.lease == lease && user.epoch.value == frame.quiesced().epoch() &&
          user.calls.on_quiesced) {
        const auto quiesced = user.calls.on_quiesced;
        quiesced();
        return;
      }
    }
  }
  if (frame.has_prefill()) {
    return handed(link, frame.prefill());
  }
  if (frame.body_case() != wire::Frame::kAbort) {
    link.data_watch->beat(frame.heartbeat().load().reactor_ticks());  // an answer to a heartbeat
    return;
  }
  const LeaseId lease = lease_of(frame.abort());
  for (const auto& [id, user] : link.users) {
    if (user.lease == lease && user.epoch.value == frame.abort().epoch()) {
      const auto abort = user.calls.on_abort;
      abort(
          {ErrorCode::GrantRevoked, "the decode node ended the lease: " + frame.abort().reason()});
      return;
    }
  }
}

void DecodeLinks::handed(const Link& link, const wire::Prefill& message) {
  const std::uint64_t number = link.number;
  const Status told = on_handed_ ? on_handed_({link.address, link.incarnation}, message)
                                 : fail(ErrorCode::ProtocolError, "nobody takes requests here");
  Link* now = find(number);  // what was begun may have lost it
  if (told || now == nullptr || !now->is_up()) {
    return;
  }
  log_.warn("request {:016x} handed on by the decode node at {} is given back: {}",
            message.request().id(),
            now->address,
            told.error().message);
  wire::Frame frame;
  wire::Abort& abort = *frame.mutable_abort();
  set_lease(abort, lease_of(message.grant()), Epoch{message.grant().epoch()});
  abort.set_reason(told.error().message);
  abort.set_tell_gateway(true);
  now->channel->send(std::move(frame));
}

void DecodeLinks::beat(Link& link) {
  if (!link.is_up()) {
    return;
  }
  wire::Frame frame;
  wire::Heartbeat& heartbeat = *frame.mutable_heartbeat();
  node::fill_ticks(*heartbeat.mutable_load(), transport_);
  for (const auto& [id, user] : link.users) {
    if (!user.abort_reason && !user.is_ending && user.owner == LeaseOwner::DecodeNode) {
      set_lease(*heartbeat.add_leases(), user.lease, user.epoch);
    }
  }
  link.channel->send(std::move(frame));
}

void DecodeLinks::lose(std::uint64_t number, const Error& why) {
  const auto found =
      std::ranges::find_if(links_, [number](const Link& link) { return link.number == number; });
  if (found == links_.end()) {
    return;
  }
  log_.warn("decode node at {} lost: {}", found->address, why.message);
  std::list<Link> lost;
  lost.splice(lost.end(), links_, found);
  if (lost.front().channel != nullptr) {
    lost.front().channel->close();
  }
  if (lost.front().peer != nullptr) {
    lost.front().peer->disconnect();  // its users' blocks must not wait for a node that is stopped
  }
  for (auto& [id, user] : lost.front().users) {
    const Error error{why.code, "decode node at " + lost.front().address + ": " + why.message};
    if (!user.abort_reason) {
      lost_users_.emplace(id, std::pair{std::move(user.calls), error});
    }
  }
  post([this] { tell_lost(); });
}

void DecodeLinks::tell_lost() {
  while (!lost_users_.empty()) {
    // A callback may let other users leave.
    const auto node = lost_users_.extract(lost_users_.begin());
    node.mapped().first.on_lost(node.mapped().second);
  }
}

DecodeLinks::Link* DecodeLinks::find(std::uint64_t number) {
  const auto found =
      std::ranges::find_if(links_, [number](const Link& link) { return link.number == number; });
  return found == links_.end() ? nullptr : &*found;
}

DecodeLinks::Link* DecodeLinks::link_of(UserId id) {
  const auto found =
      std::ranges::find_if(links_, [id](const Link& link) { return link.users.contains(id); });
  return found == links_.end() ? nullptr : &*found;
}

void DecodeLinks::leave(UserId id) {
  lost_users_.erase(id);
  if (Link* link = link_of(id)) {
    link->users.erase(id);
  }
}

bool DecodeLinks::abort(UserId id, const std::string& reason) {
  Link* link = link_of(id);
  if (link == nullptr) {
    lost_users_.erase(id);
    return false;  // the loss of the connection has ended the lease
  }
  User& user = link->users.at(id);
  if (!link->is_up() && user.owner == LeaseOwner::ThisNode) {
    link->users.erase(id);  // the decode node knows nothing of it
    return false;
  }
  if (!link->is_up()) {
    user.calls = {};
    user.abort_reason = reason;
    return false;
  }
  user.is_ending = true;
  send_abort(*link, user, reason);
  return true;
}

std::chrono::milliseconds DecodeLinks::stall_limit() const {
  return std::max<std::chrono::milliseconds>(kMinStall, limits_.period * limits_.dead_after);
}

void DecodeLinks::give_up(UserId id, const Error& why) {
  if (const Link* link = link_of(id)) {
    lose(link->number, why);
  }
}

void DecodeLinks::send_abort(Link& link, const User& user, const std::string& reason) {
  wire::Frame frame;
  wire::Abort& abort = *frame.mutable_abort();
  set_lease(abort, user.lease, user.epoch);
  abort.set_reason(reason);
  link.channel->send(std::move(frame));
}

Channel* DecodeLinks::channel(UserId id) {
  Link* link = link_of(id);
  return link == nullptr ? nullptr : link->channel.get();
}

std::shared_ptr<transfer::Peer> DecodeLinks::peer(UserId id) {
  Link* link = link_of(id);
  return link == nullptr ? nullptr : link->peer;
}

transfer::DigestMode DecodeLinks::digest(UserId id) {
  Link* link = link_of(id);
  return link == nullptr ? transfer::DigestMode::Off : link->digest;
}

void DecodeLinks::close_all() {
  while (!links_.empty()) {
    lose(links_.front().number, {ErrorCode::Unavailable, "shutting down"});
  }
}

std::uint32_t DecodeLinks::num_up() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(links_, [](const Link& link) { return link.is_up(); }));
}

}  // namespace baton::prefill_node
