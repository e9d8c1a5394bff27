// The catalogue of models that `baton pull` can fetch (configs/models.yaml), and where a model's
// file lies in this machine's cache. Nodes and tools resolve `model.id` through it.
//
// Thread: plain values, const after loading. Failure: InvalidConfig with file and line for a broken
// catalogue; NotFound, with the command that helps, for a model that is not in the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/config/cluster_config.h"

namespace baton {

// One wheel that holds a piece of a model's file.
struct CataloguePart {
  std::string package;  // PyPI name
  std::string version;  // pinned
  std::string member;   // path inside the wheel
};

struct CatalogueModel {
  std::string name;       // what clients and configurations call it
  std::string file_name;  // in the cache's models folder
  std::uint64_t bytes = 0;
  std::string sha256;  // lower-case hex of the whole file
  std::string licence;
  std::string note;                  // one sentence for people
  std::vector<CataloguePart> parts;  // joined in this order
};

// Folders a program works with; read from the environment once, in main.
struct CataloguePlaces {
  std::string cache;      // $BATON_CACHE, else ~/.cache/baton
  std::string catalogue;  // $BATON_MODELS_YAML, else configs/models.yaml near the program

  static CataloguePlaces from_environment();
  std::string models_folder() const { return cache + "/models"; }
  std::string packed_folder() const { return cache + "/packed"; }
};

Result<std::vector<CatalogueModel>> load_catalogue(const std::string& path);
// The same from text; `name` stands for the file in messages.
Result<std::vector<CatalogueModel>> parse_catalogue(const std::string& text,
                                                    const std::string& name);
// NotFound lists the names there are.
Result<CatalogueModel> find_model(const std::vector<CatalogueModel>& models,
                                  const std::string& name);
// True for a text that names a model on disk and not one of the catalogue: a path with a slash, a
// .gguf file, or a folder with a config.json.
bool is_model_path(const std::string& text);
// What to call a model on disk: its file's name without ending, or its folder's name.
std::string model_name_of(const std::string& path);
// The file or folder of a model section: its `path` when set, else the cached file of catalogue
// model `id`. Checks that the file is there and, for a catalogue model, its size.
Result<std::string> resolve_model_path(const ModelSection& model, const CataloguePlaces& places);

}  // namespace baton
