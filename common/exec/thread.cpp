#include "common/exec/thread.h"

#include <pthread.h>

#include <utility>

namespace baton {

void set_thread_name(const std::string& name) {
  constexpr std::size_t kLongest = 15;
  pthread_setname_np(pthread_self(), name.substr(0, kLongest).c_str());
}

NamedThread::NamedThread(std::string name, std::function<void(std::stop_token)> body)
    : thread_([name = std::move(name), body = std::move(body)](std::stop_token stop) {
        set_thread_name(name);
        body(std::move(stop));
      }) {}

void NamedThread::join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace baton
