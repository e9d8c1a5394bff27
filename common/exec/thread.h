// A thread with a name that debuggers and `top` show; it is joined when its owner is destroyed.
//
// Owner: a composition root or the class whose thread it is. Thread: owner's. Failure: the process
// ends when the system cannot start a thread.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace baton {

// Names the calling thread; the system keeps 15 bytes.
void set_thread_name(const std::string& name);

class NamedThread {
 public:
  NamedThread() = default;  // no thread
  NamedThread(std::string name, std::function<void(std::stop_token)> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&&) = default;
  ~NamedThread() = default;  // asks to stop, then joins

  void request_stop() { thread_.request_stop(); }
  void join();
  bool is_running() const { return thread_.joinable(); }

 private:
  std::jthread thread_;
};

}  // namespace baton
