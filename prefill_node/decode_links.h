// A prefill node's connections to decode nodes: made at first use, kept, dropped whole when either
// half (control channel, data endpoint) breaks, and made again at the next use.
//
// Decode nodes hand requests on over their links. A user of a link registers its lease: the lease
// is then named in every heartbeat, which binds and renews it, and the user hears when the decode
// node ends it or the link is lost.
//
// Owner: PrefillNode. Thread: control strand; the transport's callbacks post themselves there.
// Failure: a user that waits gets the dial's error; StaleIncarnation when the decode node is
// another life than the grant's; Mismatch when its blocks are not laid out as the grant says.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/network.h"
#include "common/types/kv_grant.h"
#include "common/wire/control.pb.h"
#include "node/data_watch.h"
#include "node/identity.h"
#include "transfer/transport.h"

namespace baton::prefill_node {

// Callbacks of one user. None is called inside `join`, nor after `leave`.
struct LinkUser {
  std::function<void()> on_up;                 // channel and peer are there
  std::function<void(const Error&)> on_lost;   // the user has been removed
  std::function<void(const Error&)> on_abort;  // the decode node ended the lease
  std::function<void()> on_quiesced;           // it writes under this node's lease no more
};

// Whose blocks the lease of a user is of.
enum class LeaseOwner : std::uint8_t {
  DecodeNode,  // renewed by heartbeats
  ThisNode,    // the decode node writes, or is asked to
};

using UserId = StrongId<struct LinkUserTag, std::uint64_t>;

class DecodeLinks {
 public:
  // Of the decode node at the other end.
  struct Life {
    std::string address;
    Incarnation incarnation{};
  };
  // A request that this decode node hands on. An error: nobody could be told, and the decode node
  // gets the lease back with its sentence.
  using HandedOn = std::function<Status(const Life&, const wire::Prefill&)>;

  DecodeLinks(Executor& executor,
              Network& network,
              transfer::Transport& transport,
              const node::NodeIdentity& identity,
              HeartbeatLimits limits,
              const Logger& log,
              bool opens_inlets = false);
  DecodeLinks(const DecodeLinks&) = delete;
  DecodeLinks& operator=(const DecodeLinks&) = delete;
  ~DecodeLinks() = default;

  // Set before any link is up.
  void set_on_handed(HandedOn on_handed) { on_handed_ = std::move(on_handed); }
  // Joins the link to the grant's node, dialling when there is none. `is_bound`: it came by that
  // link, so that the decode node needs no word of it yet.
  UserId join(const KvGrant& grant,
              LinkUser user,
              LeaseOwner owner = LeaseOwner::DecodeNode,
              bool is_bound = false);
  void leave(UserId id);
  // Tells the decode node to end the lease. True: told; the user stays until it leaves. False: it
  // will be told when the link comes up; the user has left.
  bool abort(UserId id, const std::string& reason);
  // Breaks the user's link: what is under way on it ends in a bounded time.
  void give_up(UserId id, const Error& why);
  // Null when the user's link is not up.
  Channel* channel(UserId id);
  std::shared_ptr<transfer::Peer> peer(UserId id);
  // How long what is on its way may stand still although the decode node's heartbeats come.
  std::chrono::milliseconds stall_limit() const;
  // How the decode node wants its blocks checked; Off when the link is not up.
  transfer::DigestMode digest(UserId id);
  void close_all();
  std::uint32_t num_up() const;

 private:
  struct User {
    LeaseId lease;
    Epoch epoch{};
    Incarnation incarnation{};      // that the grant speaks of
    std::uint64_t layout_hash = 0;  // that the grant speaks of
    LeaseOwner owner = LeaseOwner::DecodeNode;
    LinkUser calls;
    bool told_up = false;
    bool is_ending = false;                   // the decode node was told: no more renewals
    std::optional<std::string> abort_reason;  // it has left; the decode node is to be told
  };
  struct Link {
    std::string address;
    std::uint64_t number = 0;                // tells late callbacks of an earlier link apart
    std::unique_ptr<transfer::Inlet> inlet;  // the decode node's way in, for pulls
    std::unique_ptr<Dial> dial;
    std::unique_ptr<Channel> channel;
    std::shared_ptr<transfer::Peer> peer;
    Incarnation incarnation{};
    std::uint64_t layout_hash = 0;  // of the decode node's blocks, by its Welcome
    transfer::DigestMode digest = transfer::DigestMode::Off;
    std::optional<HeartbeatSender> beats;
    std::optional<HeartbeatWatch> watch;
    std::optional<node::DataWatch> data_watch;
    std::map<UserId, User> users;
    bool is_up() const { return channel != nullptr; }
  };

  Link& open(const std::string& address);
  void dialed(std::uint64_t number, Result<Dialed> result);
  Status connect(Link& link, Dialed dialed);
  void on_frame(Link& link, const wire::Frame& frame);
  void handed(const Link& link, const wire::Prefill& message);
  void greet(Link& link);  // tells waiting users
  void beat(Link& link);
  void send_abort(Link& link, const User& user, const std::string& reason);
  void lose(std::uint64_t number, const Error& why);
  Link* find(std::uint64_t number);
  Link* link_of(UserId id);
  void tell_lost();
  void post(std::function<void()> task);  // unless this object is gone by then

  Executor& executor_;
  Network& network_;
  transfer::Transport& transport_;
  const node::NodeIdentity& identity_;
  const HeartbeatLimits limits_;
  const Logger& log_;
  const bool opens_inlets_;  // lets decode nodes write here
  HandedOn on_handed_;
  std::list<Link> links_;
  std::map<UserId, std::pair<LinkUser, Error>> lost_users_;  // to be told by the next task
  std::uint64_t next_number_ = 1;
  std::uint64_t next_user_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::prefill_node
