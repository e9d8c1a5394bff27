// The model a command line names: a GGUF file, a Hugging Face folder, or a catalogue name whose
// file is in the cache.
//
// Thread: main. Failure: NotFound that says how to fetch it.
#pragma once

#include <string>

#include "common/config/catalogue.h"

namespace baton::cli {

inline Result<std::string> model_argument(const std::string& text) {
  ModelSection model;
  if (is_model_path(text)) {
    model.path = text;
  } else {
    model.id = text;
  }
  return resolve_model_path(model, CataloguePlaces::from_environment());
}

}  // namespace baton::cli
