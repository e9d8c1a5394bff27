// llama.cpp as a peer of the engine benchmark: found, run as a child process, its figures read.
//
// Thread: the caller's. Failure: a peer that cannot be found or run, or whose output is not
// understood, gives an Error with its last lines.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

class Peer {
 public:
  // `where`: "auto", or a folder with llama-bench and llama-batched-bench (or above their bin/).
  static Result<Peer> find(const std::string& where);

  const std::string& folder() const { return folder_; }
  // Prefill tokens a second for each prompt length.
  Result<std::vector<double>> prefill(const std::string& model,
                                      const std::vector<unsigned>& tokens,
                                      unsigned threads) const;
  // Decode tokens a second, all sequences together, for each batch.
  Result<std::vector<double>> decode(const std::string& model,
                                     unsigned prompt,
                                     unsigned tokens,
                                     const std::vector<unsigned>& batches,
                                     unsigned threads) const;

 private:
  explicit Peer(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace baton::bench
