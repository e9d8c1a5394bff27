// llama.cpp as a peer of the engine benchmark: found, run as a child process, its figures read.
//
// Thread: the caller's. Failure: a peer that cannot be found or run, or whose output is not
// understood, gives an Error with its last lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

// A child process that has ended well.
struct RunOutput {
  std::string text;  // both outputs, at most the last 64 KiB
  double seconds = 0;
  std::size_t peak_rss_bytes = 0;
};
Result<RunOutput> run_measured(std::vector<std::string> command);

// What a run of the peer gave.
struct PeerFigures {
  std::vector<double> tokens_per_s;
  std::size_t peak_rss_bytes = 0;
};

class Peer {
 public:
  // `where`: "auto", or a folder with llama-bench and llama-batched-bench (or above their bin/).
  static Result<Peer> find(const std::string& where);

  const std::string& folder() const { return folder_; }

  // How one run is set; the rest is as the peer ships it.
  enum class Attention : std::uint8_t { Plain, Flash, FlashQ8 };  // keys and values F16, F16, Q8_0
  struct Setting {
    unsigned threads = 1;
    Attention attention = Attention::Plain;
  };
  // Prompt tokens a second for each prompt length.
  Result<PeerFigures> prefill(const std::string& model,
                              const std::vector<unsigned>& tokens,
                              const Setting& setting) const;
  // One sequence generates `tokens` tokens from an empty context on.
  Result<PeerFigures> generate(const std::string& model,
                               unsigned tokens,
                               const Setting& setting) const;
  // Tokens a second of all sequences together, for each batch; each sequence holds `context`.
  Result<PeerFigures> decode(const std::string& model,
                             unsigned context,
                             unsigned tokens,
                             const std::vector<unsigned>& batches,
                             const Setting& setting) const;
  // A process that loads the model, computes a short prompt and ends.
  Result<RunOutput> load(const std::string& model, unsigned prompt, unsigned threads) const;

 private:
  explicit Peer(std::string folder) : folder_(std::move(folder)) {}
  // One turn over prompts of these lengths ("512,2048"; "0": none) and so many generated tokens.
  Result<RunOutput> llama_bench(const std::string& model,
                                const std::string& prompts,
                                unsigned generated,
                                const Setting& setting) const;

  std::string folder_;
};
std::string_view to_string(Peer::Attention attention);  // "", "fa", "fa q8_0"

}  // namespace baton::bench
