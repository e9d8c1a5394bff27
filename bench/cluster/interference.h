// What long prompts do to streams that run: four streams generate while prompts of 4000 tokens
// arrive, and once more without them. Baton with prefill and decode on a core each, Baton colocated
// in one process on both cores, and llama-server on both cores with two settings: all in one run,
// real processes, one HTTP client.
//
// Thread: the caller's. Failure: a server that does not come up or a stream that breaks gives its
// Error; slow tokens are figures, not Errors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct InterferenceOptions {
  std::string model;       // path of a GGUF file
  std::string bin_folder;  // where the programs of Baton are
  std::string run_folder;  // configurations and logs
  std::string peer;        // as for `bench engine`; empty: Baton alone
  bool colocated = true;   // also Baton's colocated mode
  unsigned streams = 4;
  unsigned stream_prompt = 64;
  unsigned long_prompt = 4000;
  unsigned every_s = 12;                           // a long prompt each
  unsigned seconds = 36;                           // of each pass
  std::string prefill_cores = "0";                 // of the prefill node
  std::string decode_cores = "1";                  // of the decode node
  std::vector<std::string> set;                    // KEY=VALUE over Baton's configuration
  bool threads = false;                            // tell what each thread of Baton's nodes did
  std::function<void(std::string_view)> progress;  // a line for people; may be empty
};

// Gaps between tokens of the running streams, milliseconds.
struct Gaps {
  std::size_t count = 0;
  double p50 = 0;
  double p99 = 0;
  double worst = 0;
};

struct InterferenceRow {
  std::string name;
  Gaps undisturbed;
  Gaps disturbed;                     // of the same positions
  std::vector<double> first_token_s;  // of each long prompt
  std::size_t compared_tokens = 0;
  bool same_tokens = false;  // disturbed streams said what undisturbed ones did

  double p99_ratio() const { return undisturbed.p99 > 0 ? disturbed.p99 / undisturbed.p99 : 0; }
  double worst_ratio() const { return undisturbed.p50 > 0 ? disturbed.worst / undisturbed.p50 : 0; }
};

Result<std::vector<InterferenceRow>> run_interference(const InterferenceOptions& options);

std::string to_json(const std::vector<InterferenceRow>& rows);
std::string to_text(const std::vector<InterferenceRow>& rows);
std::string to_markdown(const std::vector<InterferenceRow>& rows);

}  // namespace baton::bench
