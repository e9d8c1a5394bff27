#include "transfer/ucx/links.h"

#include <algorithm>
#include <utility>

namespace baton::transfer {
namespace {

// How long UCX may take to give back what is outstanding on a closing connection.
constexpr std::chrono::milliseconds kLinkCloseLimit{500};
// How long a connection over verbs may take to be complete. Less than UCX's UD_TIMEOUT of 30 s: UCX
// 1.13 ends the process when that one runs out first.
constexpr std::chrono::seconds kProveLimit{20};

// Connected, as far as UCX has said, and not yet complete.
bool is_awaited(const Link& link) {
  const Lane lane = link.lane;
  return link.is_up && !link.is_proven && lane != Lane::Tcp && lane != Lane::Shm;
}

}  // namespace

UcxLinks::UcxLinks(UcxContext& context, Reactor& reactor, Events events)
    : context_(context), reactor_(reactor), events_(std::move(events)) {}

UcxLinks::~UcxLinks() = default;

Status UcxLinks::open(const LinkPtr& link, const PeerAddress& address) {
  BATON_ASSIGN(link->worker, UcxWorker::create(context_));
  BATON_TRY(link->worker->set_message_handler(kPutAnswer, &UcxLinks::on_answer, link.get()));
  // Just before connecting: UCX 1.13 does not bear a refusal well (links.h).
  BATON_ASSIGN(link->process, watch_process(address.process));
  // The endpoint is the link's, so the callback's pointer lives as long as it can run.
  BATON_ASSIGN(
      link->endpoint,
      UcxEndpoint::create(*link->worker, address.ucx, [this, raw = link.get()](ucs_status_t why) {
        raw->lost = why;
        needs_check_ = true;
      }));
  link->lanes = lanes_of(link->endpoint->get());
  link->lane = link->lanes.bulk;
  link->peer = address.process;
  BATON_TRY(reactor_.watch(link->worker->event_fd(), nullptr));
  links_.push_back(link);
  prove(*link);
  link->prove_limit = std::chrono::steady_clock::now() + kProveLimit;
  needs_check_ |= is_awaited(*link);
  if (link->process) {
    return reactor_.watch(link->process.get(), [this, weak = std::weak_ptr(link)] {
      if (const LinkPtr lost = weak.lock()) {
        lose(lost, Error{ErrorCode::PeerDead, "the peer's process has ended"});
      }
    });
  }
  return {};
}

void UcxLinks::release(const LinkPtr& link) {
  link->failed = nullptr;
  if (link->is_up.exchange(false)) {
    start_close(link);
  }
}

void UcxLinks::disconnect(const LinkPtr& link) {
  link->failed = nullptr;
  lose(link, Error{ErrorCode::PeerStalled, "the connection to the peer was given up"});
}

void UcxLinks::close_all() {
  const auto links = links_;
  for (const LinkPtr& link : links) {
    link->is_up = false;
    start_close(link);
  }
}

unsigned UcxLinks::progress() {
  unsigned done = 0;
  for (const LinkPtr& link : links_) {
    done += link->worker->progress();
  }
  return done;
}

bool UcxLinks::arm() {
  return std::all_of(
      links_.begin(), links_.end(), [](const LinkPtr& link) { return link->worker->arm(); });
}

void UcxLinks::check() {
  if (!std::exchange(needs_check_, false)) {
    return;
  }
  const auto links = links_;
  for (const LinkPtr& link : links) {
    if (link->lost != UCS_OK) {
      lose(link, Error{ErrorCode::PeerDead, ucx_error("the peer's data connection", link->lost)});
    } else if (is_awaited(*link) && std::chrono::steady_clock::now() >= link->prove_limit) {
      lose(link, Error{ErrorCode::PeerDead, "the peer does not answer on its data connection"});
    }
  }
  std::erase_if(links_,
                [this](const LinkPtr& link) { return link->is_closing && is_closed(link); });
  needs_check_ |= std::any_of(links_.begin(), links_.end(), [](const LinkPtr& link) {
    return link->is_closing || is_awaited(*link);
  });
}

void UcxLinks::lose(const LinkPtr& link, const Error& error) {
  if (!link->is_up.exchange(false)) {
    return;
  }
  link->is_given_up = true;
  events_.lost(*link, error);
  start_close(link);
  if (link->failed) {
    std::exchange(link->failed, nullptr)(error);
  }
}

void UcxLinks::prove(Link& link) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxLinks::on_proven;
  params.user_data = &link;
  void* request = ucp_ep_flush_nbx(link.endpoint->get(), &params);
  if (UCS_PTR_IS_PTR(request)) {
    ++link.operations;
  } else {
    link.is_proven = UCS_PTR_STATUS(request) == UCS_OK;
  }
}

void UcxLinks::on_proven(void* request, ucs_status_t status, void* user_data) {
  Link& link = *static_cast<Link*>(user_data);
  --link.operations;
  link.is_proven = status == UCS_OK;
  ucp_request_free(request);
}

ucs_status_t UcxLinks::on_answer(void* arg,
                                 const void* header,
                                 std::size_t header_length,
                                 void* /*data*/,
                                 std::size_t length,
                                 const ucp_am_recv_param_t* /*param*/) {
  const Link& link = *static_cast<const Link*>(arg);
  PutMessage answer;
  if (length == 0 &&
      decode({static_cast<const std::byte*>(header), header_length}, answer).has_value() &&
      answer.kind == PutKind::Answer && link.answered) {
    link.answered(answer);
  }
  return UCS_OK;
}

void UcxLinks::start_close(const LinkPtr& link) {
  if (link->is_closing || !link->endpoint) {
    return;
  }
  link->is_closing = true;
  link->close_limit = std::chrono::steady_clock::now() + kLinkCloseLimit;
  if (link->process) {
    reactor_.unwatch(link->process.get());
    link->process = UniqueFd();
  }
  needs_check_ = true;
}

bool UcxLinks::is_closed(const LinkPtr& link) {
  const Lane lane = link->lane;
  const bool may_close =
      link->is_proven || lane == Lane::Shm || (lane == Lane::Tcp && link->lost != UCS_OK);
  const bool is_broken = link->is_given_up || link->lost != UCS_OK;
  // What the peer is still to be told goes first.
  const bool is_drained =
      is_broken || link->operations == 0 || std::chrono::steady_clock::now() >= link->close_limit;
  if (!link->is_close_posted && may_close && is_drained) {
    link->is_close_posted = true;
    link->close_limit = std::chrono::steady_clock::now() + kLinkCloseLimit;
    // By force what is outstanding ends as cancelled.
    const bool force = is_broken || link->operations > 0;
    link->close_request = link->endpoint->close(force);
  }
  if (link->close_request != nullptr &&
      ucp_request_check_status(link->close_request) != UCS_INPROGRESS) {
    ucp_request_free(std::exchange(link->close_request, nullptr));
  }
  const bool is_clean =
      link->is_close_posted && link->close_request == nullptr && link->operations == 0;
  if (!is_clean && std::chrono::steady_clock::now() < link->close_limit) {
    return false;
  }
  reactor_.unwatch(link->worker->event_fd());
  if (!is_clean) {
    link->worker->abandon();
  } else if (link->key != nullptr) {
    ucp_rkey_destroy(std::exchange(link->key, nullptr));
  }
  link->endpoint.reset();
  link->worker.reset();
  if (link->operations > 0) {
    events_.abandoned(*link);
  }
  return true;
}

}  // namespace baton::transfer
