// The small HTTP server of a process for operators: /metrics, /livez (also /healthz), /readyz. Low
// rate only: it has a few threads of its own and takes none of the control strand's time.
//
// Owner: the composition root. Thread: the callbacks run on the server's threads: they read atomics
// or take a snapshot. Failure: `start` gives an Error for a bad address or a busy port.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace baton {

struct AdminHandlers {
  struct Answer {
    bool ok = true;
    std::string text;  // a line for people, or JSON
  };
  std::function<std::string()> metrics;  // Prometheus text
  std::function<Answer()> live;          // absent: always ok
  std::function<Answer()> ready;         // absent: always ok
  std::function<std::string()> status;   // absent: no /status; JSON
  struct Page {
    std::string path;
    std::string content_type;
    std::function<std::string()> make;
  };
  std::vector<Page> pages;
};

class AdminServer {
 public:
  // `listen`: host:port; port 0 takes a free one.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& listen,
                                                    AdminHandlers handlers);
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  ~AdminServer();

  // host:port it really has.
  std::string address() const;
  // Ends the threads; idempotent.
  void stop();

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
