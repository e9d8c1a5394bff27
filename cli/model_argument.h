// The model a command line names: a GGUF file, a Hugging Face folder, or a catalogue name whose
// file is in the cache.
//
// Thread: main. Failure: InvalidConfig for what is neither; NotFound that says how to fetch it.
#pragma once

#include <fmt/format.h>

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
  const CataloguePlaces places = CataloguePlaces::from_environment();
  if (const auto models = load_catalogue(places.catalogue); models && model.path.empty()) {
    if (const auto known = find_model(*models, text); !known) {
      return fail(ErrorCode::InvalidConfig, known.error().message);
    }
  }
  auto path = resolve_model_path(model, places);
  if (!path && !model.path.empty()) {
    return fail(ErrorCode::InvalidConfig, fmt::format("no file or folder {}", text));
  }
  return path;
}

}  // namespace baton::cli
