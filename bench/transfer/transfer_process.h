// A child process that is spoken to by lines over its standard input and output: the receiving
// process of a benchmark, or a peer's.
//
// Owner: one measurement; the destructor closes its input, waits a moment and kills its process
// group. Thread: one. Failure: IoError when it cannot be started, dies or stays silent; a line
// "failed REASON" from it becomes Unavailable with the reason.
#pragma once

#include <sys/types.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

class TransferProcess {
 public:
  // `environment` is added to ours. `is_silent`: its standard error is thrown away.
  static Result<std::unique_ptr<TransferProcess>> start(
      std::vector<std::string> command,
      const std::vector<std::pair<std::string, std::string>>& environment = {},
      bool is_silent = false);
  ~TransferProcess();
  TransferProcess(const TransferProcess&) = delete;
  TransferProcess& operator=(const TransferProcess&) = delete;

  void say(const std::string& line);
  // The rest of the next line, which begins with `word`.
  Result<std::istringstream> hear(const std::string& word);
  // Stops and continues the process and its children, so that they take no processor time.
  void pause();
  void resume();

 private:
  TransferProcess(pid_t pid, int to, int from) : pid_(pid), to_(to), from_(from) {}

  pid_t pid_;
  int to_;
  int from_;
  std::string heard_;  // read, not taken yet
};

}  // namespace baton::bench
