// What xgrammar says while it works. Its library is built without a log of its own; its messages
// come here, so that nothing a client sends reaches our log, and so that "ignored" becomes an
// error.
//
// Thread: any; messages belong to the thread that caused them. Failure: none.
#pragma once

#include <string>

namespace baton::engine {

// Keeps the first warning of this thread while it lives.
class WarningWatch {
 public:
  WarningWatch();
  WarningWatch(const WarningWatch&) = delete;
  WarningWatch& operator=(const WarningWatch&) = delete;
  ~WarningWatch();

  const std::string& first() const { return first_; }  // empty: there was none

 private:
  friend void note_warning(const std::string& message);
  std::string first_;
};

}  // namespace baton::engine
