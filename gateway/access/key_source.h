// Keeps a KeyRing at what the configuration and its keys file say: reads the file at the start,
// when it has changed, and when asked. A file with a fault is told in the log and changes nothing.
//
// Owner: the composition root. Thread: the control strand. Failure: `start` gives the fault of the
// file; later faults are logged.
#pragma once

#include <string>
#include <vector>

#include "common/config/gateway_section.h"
#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "gateway/access/key_ring.h"

namespace baton::gateway {

class KeySource {
 public:
  // `keys`: those of the configuration; `path` may be empty.
  KeySource(Executor& executor,
            KeyRing& ring,
            const Logger& log,
            std::vector<ApiKeyEntry> keys,
            std::string path);

  Status start();
  // Now, whether the file has changed or not.
  void reload();
  // The same with `keys` in place of those of the configuration, unless there is a fault.
  void reload(std::vector<ApiKeyEntry> keys);

 private:
  // What tells that a file was written or replaced.
  struct Stamp {
    std::int64_t modified_ns = 0;
    std::uint64_t inode = 0;
    std::int64_t size = 0;
    bool operator==(const Stamp&) const = default;
  };
  Stamp stamp() const;
  Status load(const std::vector<ApiKeyEntry>& keys);
  void arm();

  Executor& executor_;
  KeyRing& ring_;
  const Logger& log_;
  std::vector<ApiKeyEntry> keys_;
  const std::string path_;
  Stamp loaded_;  // of the file as it was read last, good or bad
  TimerHandle timer_;
};

}  // namespace baton::gateway
