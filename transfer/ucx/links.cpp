#include "transfer/ucx/links.h"

#include <algorithm>
#include <utility>

namespace baton::transfer {
namespace {

// How long UCX may take to give back what is outstanding on a closing connection.
constexpr std::chrono::milliseconds kCloseLimit{500};

}  // namespace

UcxLinks::UcxLinks(UcxContext& context, Reactor& reactor, Events events)
    : context_(context), reactor_(reactor), events_(std::move(events)) {}

UcxLinks::~UcxLinks() = default;

Status UcxLinks::open(const LinkPtr& link, const PeerAddress& address) {
  BATON_ASSIGN(link->process, watch_process(address.process));
  BATON_ASSIGN(link->worker, UcxWorker::create(context_));
  // The endpoint is the link's, so the callback's pointer lives as long as it can run.
  BATON_ASSIGN(
      link->endpoint,
      UcxEndpoint::create(*link->worker, address.ucx, [this, raw = link.get()](ucs_status_t why) {
        raw->lost = why;
        needs_check_ = true;
      }));
  link->lane = link->endpoint->lane();
  BATON_TRY(reactor_.watch(link->worker->event_fd(), nullptr));
  links_.push_back(link);
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
    start_close(link, link->operations > 0);
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
    start_close(link, link->operations > 0);
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
    }
  }
  std::erase_if(links_,
                [this](const LinkPtr& link) { return link->is_closing && is_closed(link); });
  needs_check_ |= std::any_of(
      links_.begin(), links_.end(), [](const LinkPtr& link) { return link->is_closing; });
}

void UcxLinks::lose(const LinkPtr& link, const Error& error) {
  if (!link->is_up.exchange(false)) {
    return;
  }
  events_.lost(*link, error);
  start_close(link, true);
  if (link->failed) {
    std::exchange(link->failed, nullptr)(error);
  }
}

void UcxLinks::start_close(const LinkPtr& link, bool force) {
  if (link->is_closing || !link->endpoint) {
    return;
  }
  link->is_closing = true;
  link->close_limit = std::chrono::steady_clock::now() + kCloseLimit;
  if (link->process) {
    reactor_.unwatch(link->process.get());
    link->process = UniqueFd();
  }
  link->is_close_forced = force;
  if (!must_wait(*link)) {
    post_close(*link);
  }
  needs_check_ = true;
}

bool UcxLinks::must_wait(const Link& link) {
  return link.is_close_forced && link.lane == Lane::Tcp && !link.is_proven && link.lost == UCS_OK &&
         std::chrono::steady_clock::now() < link.close_limit;
}

void UcxLinks::post_close(Link& link) {
  link.is_close_posted = true;
  link.close_limit = std::chrono::steady_clock::now() + kCloseLimit;
  link.close_request = link.endpoint->close(link.is_close_forced);
}

bool UcxLinks::is_closed(const LinkPtr& link) {
  if (!link->is_close_posted) {
    if (must_wait(*link)) {
      return false;
    }
    post_close(*link);
  }
  if (link->close_request != nullptr &&
      ucp_request_check_status(link->close_request) != UCS_INPROGRESS) {
    ucp_request_free(std::exchange(link->close_request, nullptr));
  }
  if (link->close_request != nullptr || link->operations > 0) {
    if (std::chrono::steady_clock::now() < link->close_limit) {
      return false;
    }
  }
  reactor_.unwatch(link->worker->event_fd());
  if (link->close_request != nullptr || link->operations > 0) {
    link->worker->abandon();
  }
  link->endpoint.reset();
  link->worker.reset();
  if (link->operations > 0) {
    events_.abandoned(*link);
  }
  return true;
}

}  // namespace baton::transfer
