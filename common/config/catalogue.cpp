#include "common/config/catalogue.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): only main asks
  return value == nullptr ? std::string() : std::string(value);
}

std::string catalogue_near_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    // build/<preset>/bin/<program> in a source tree, bin/<program> when installed.
    const fs::path bin = program.parent_path();
    for (const fs::path& place : {bin / "../../../configs/models.yaml",
                                  bin / "../share/baton/models.yaml",
                                  bin / "../../../../configs/models.yaml"}) {
      if (fs::exists(place, error)) {
        return fs::weakly_canonical(place, error).string();
      }
    }
  }
  return "configs/models.yaml";
}

// Reads scalars of one YAML mapping and remembers the first thing that is wrong.
class Fields {
 public:
  Fields(const YAML::Node& node, const std::string& file, std::string what)
      : node_(node), file_(file), what_(std::move(what)) {}

  std::string text(const char* key) {
    asked_.insert(key);
    const YAML::Node value = node_[key];
    if (!value || !value.IsScalar() || value.Scalar().empty()) {
      note(value ? value : node_, fmt::format("{} needs a text `{}`", what_, key));
      return {};
    }
    return value.Scalar();
  }

  std::uint64_t number(const char* key) {
    const std::string digits = text(key);
    try {
      std::size_t used = 0;
      const std::uint64_t value = std::stoull(digits, &used);
      if (used == digits.size()) {
        return value;
      }
    } catch (const std::exception&) {  // reported below, like a number with a tail
    }
    note(node_, fmt::format("{}: `{}` must be a whole number", what_, key));
    return 0;
  }

  void also(const char* key) { asked_.insert(key); }

  Status done() {
    for (const auto& entry : node_) {
      if (!asked_.contains(entry.first.Scalar())) {
        note(entry.first, fmt::format("{}: unknown key `{}`", what_, entry.first.Scalar()));
      }
    }
    if (!error_.empty()) {
      return fail(ErrorCode::InvalidConfig, error_);
    }
    return {};
  }

  void note(const YAML::Node& place, const std::string& sentence) {
    if (error_.empty()) {
      error_ = fmt::format("{}:{}: {}", file_, place.Mark().line + 1, sentence);
    }
  }

 private:
  YAML::Node node_;
  const std::string& file_;
  std::string what_;
  std::set<std::string> asked_;
  std::string error_;
};

bool is_sha256(const std::string& text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Package names, versions and paths reach command lines and the file system.
bool is_plain(const std::string& text, bool slash_allowed) {
  return !text.empty() && text[0] != '-' && text[0] != '/' &&
         text.find("..") == std::string::npos && std::ranges::all_of(text, [&](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-' || c == '+' || (slash_allowed && c == '/');
         });
}

Result<CatalogueModel> read_model(const std::string& name,
                                  const YAML::Node& node,
                                  const std::string& file) {
  if (!node.IsMap()) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("{}:{}: model {} must be a mapping", file, node.Mark().line + 1, name));
  }
  Fields fields(node, file, "model " + name);
  CatalogueModel model;
  model.name = name;
  model.file_name = fields.text("file");
  model.bytes = fields.number("bytes");
  model.sha256 = fields.text("sha256");
  model.licence = fields.text("licence");
  model.note = fields.text("note");
  fields.also("parts");
  if (!model.sha256.empty() && !is_sha256(model.sha256)) {
    fields.note(node["sha256"], "sha256 must be 64 lower-case hexadecimal digits");
  }
  if (!model.file_name.empty() && !is_plain(model.file_name, false)) {
    fields.note(node["file"], "file must be a plain file name");
  }
  const YAML::Node parts = node["parts"];
  if (!parts || !parts.IsSequence() || parts.size() == 0) {
    fields.note(node, fmt::format("model {} needs a list `parts`", name));
  } else {
    for (const YAML::Node& entry : parts) {
      if (!entry.IsMap()) {
        fields.note(entry, "a part must be a mapping with package, version and member");
        continue;
      }
      Fields part_fields(entry, file, "a part of model " + name);
      CataloguePart part;
      part.package = part_fields.text("package");
      part.version = part_fields.text("version");
      part.member = part_fields.text("member");
      if (!is_plain(part.package, false) || !is_plain(part.version, false) ||
          !is_plain(part.member, true)) {
        part_fields.note(entry, "package, version and member must be plain names");
      }
      BATON_TRY(part_fields.done());
      model.parts.push_back(std::move(part));
    }
  }
  BATON_TRY(fields.done());
  return model;
}

}  // namespace

CataloguePlaces CataloguePlaces::from_environment() {
  CataloguePlaces places;
  places.cache = variable("BATON_CACHE");
  if (places.cache.empty()) {
    const std::string home = variable("HOME");
    places.cache = (home.empty() ? std::string("/tmp") : home) + "/.cache/baton";
  }
  places.catalogue = variable("BATON_MODELS_YAML");
  if (places.catalogue.empty()) {
    places.catalogue = catalogue_near_program();
  }
  return places;
}

Result<std::vector<CatalogueModel>> load_catalogue(const std::string& path) {
  std::ifstream in(path);
  if (!in) {
    return fail(ErrorCode::NotFound, fmt::format("cannot read the model catalogue {}", path));
  }
  std::ostringstream text;
  text << in.rdbuf();
  return parse_catalogue(text.str(), path);
}

Result<std::vector<CatalogueModel>> parse_catalogue(const std::string& text,
                                                    const std::string& name) {
  try {
    const YAML::Node root = YAML::Load(text);
    const YAML::Node list = root.IsMap() ? root["models"] : YAML::Node();
    if (!list || !list.IsMap()) {
      return fail(ErrorCode::InvalidConfig, fmt::format("{}:1: needs a mapping `models`", name));
    }
    std::vector<CatalogueModel> models;
    for (const auto& entry : list) {
      BATON_ASSIGN(CatalogueModel model, read_model(entry.first.Scalar(), entry.second, name));
      models.push_back(std::move(model));
    }
    return models;
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("{}:{}: {}", name, error.mark.line + 1, error.msg));
  }
}

Result<CatalogueModel> find_model(const std::vector<CatalogueModel>& models,
                                  const std::string& name) {
  std::string names;
  for (const CatalogueModel& model : models) {
    if (model.name == name) {
      return model;
    }
    names += (names.empty() ? "" : ", ") + model.name;
  }
  return fail(ErrorCode::NotFound,
              fmt::format("no model `{}` in the catalogue; there are: {}", name, names));
}

bool is_model_path(const std::string& text) {
  std::error_code error;
  return text.ends_with(".gguf") || text.find('/') != std::string::npos ||
         fs::exists(text + "/config.json", error);
}

std::string model_name_of(const std::string& path) {
  std::error_code error;
  fs::path full = fs::absolute(path, error).lexically_normal();
  full = full.has_filename() ? full : full.parent_path();
  return (fs::is_directory(full, error) ? full.filename() : full.stem()).string();
}

Result<std::string> resolve_model_path(const ModelSection& model, const CataloguePlaces& places) {
  std::error_code error;
  if (!model.path.empty()) {
    if (!fs::exists(model.path, error)) {
      return fail(ErrorCode::NotFound, fmt::format("model.path: no file or folder {}", model.path));
    }
    return model.path;
  }
  BATON_ASSIGN(const std::vector<CatalogueModel> models, load_catalogue(places.catalogue));
  BATON_ASSIGN(const CatalogueModel entry, find_model(models, model.id));
  const std::string path = places.models_folder() + "/" + entry.file_name;
  const std::uint64_t size = fs::exists(path, error) ? fs::file_size(path, error) : 0;
  if (size == 0 || error) {
    return fail(
        ErrorCode::NotFound,
        fmt::format(
            "model {} is not at {}; fetch it with `baton pull {}`", model.id, path, model.id));
  }
  if (size != entry.bytes) {
    return fail(
        ErrorCode::InvalidModel,
        fmt::format("{} has {} bytes, the catalogue says {}; fetch it again with `baton pull {}`",
                    path,
                    size,
                    entry.bytes,
                    model.id));
  }
  return path;
}

}  // namespace baton
