#include "common/obs/admin_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "common/base/host_port.h"
#include "common/exec/thread.h"

namespace baton {
namespace {

constexpr std::size_t kThreads = 16;        // each silent client holds one for kClientPatience
constexpr std::time_t kClientPatience = 1;  // seconds
constexpr std::size_t kMaxBody = 4096;

void answer(const std::function<AdminHandlers::Answer()>& ask, httplib::Response& response) {
  const auto got = ask ? ask() : AdminHandlers::Answer{true, "ok"};
  response.status = got.ok ? 200 : 503;
  const bool json = !got.text.empty() && got.text.front() == '{';
  response.set_content(got.text + "\n", json ? "application/json" : "text/plain");
}

}  // namespace

struct AdminServer::Impl {
  httplib::Server server;
  AdminHandlers handlers;
  HostPort address;
  std::atomic<bool> ended = false;
  NamedThread thread;
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() {
  stop();
}

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& listen,
                                                        AdminHandlers handlers) {
  BATON_ASSIGN(const auto address, HostPort::parse(listen));
  auto impl = std::make_unique<Impl>();
  impl->handlers = std::move(handlers);
  auto& server = impl->server;
  auto* const self = impl.get();

  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // The library's own choice sets SO_REUSEPORT, with which a busy port goes unnoticed.
  server.set_socket_options([](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  // A kept connection would hold a thread, and `stop`, for as long as it idles.
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(kClientPatience);  // also the wait for a first byte
  server.set_read_timeout(kClientPatience, 0);
  server.set_write_timeout(kClientPatience, 0);
  server.set_payload_max_length(kMaxBody);

  server.Get("/metrics", [self](const httplib::Request&, httplib::Response& response) {
    response.set_content(self->handlers.metrics ? self->handlers.metrics() : "",
                         "text/plain; version=0.0.4");
  });
  const auto live = [self](const httplib::Request&, httplib::Response& response) {
    answer(self->handlers.live, response);
  };
  server.Get("/livez", live);
  server.Get("/healthz", live);
  server.Get("/readyz", [self](const httplib::Request&, httplib::Response& response) {
    answer(self->handlers.ready, response);
  });
  if (impl->handlers.status) {
    server.Get("/status", [self](const httplib::Request&, httplib::Response& response) {
      response.set_content(self->handlers.status(), "application/json");
    });
  }

  for (const AdminHandlers::Page& page : impl->handlers.pages) {
    server.Get(page.path, [&page](const httplib::Request&, httplib::Response& response) {
      response.set_content(page.make(), page.content_type);
    });
  }

  impl->address = address;
  errno = 0;
  const int port = address.port == 0 ? server.bind_to_any_port(address.host.c_str())
                   : server.bind_to_port(address.host.c_str(), address.port) ? address.port
                                                                             : -1;
  if (port <= 0) {
    return fail(ErrorCode::IoError,
                fmt::format("cannot listen on {} for metrics: {}",
                            listen,
                            errno != 0 ? std::strerror(errno) : "address not usable"));
  }
  impl->address.port = static_cast<std::uint16_t>(port);
  impl->thread = NamedThread("admin", [self](const std::stop_token&) {
    self->server.listen_after_bind();
    self->ended = true;
  });
  // `stop` on a server that does not run yet would be lost, so wait for the thread's first steps.
  while (!server.is_running() && !self->ended) {
    std::this_thread::yield();
  }
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

std::string AdminServer::address() const {
  return impl_->address.to_string();
}

void AdminServer::stop() {
  impl_->server.stop();
  impl_->thread.join();
}

}  // namespace baton
