#include "engine/model/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "common/json/json_doc.h"
#include "engine/model/gguf.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20U;
constexpr std::size_t kMaxShards = 4096;
constexpr std::size_t kMaxShown = 8;

// A shard lies beside its index: no path leads out of the folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace

const ShardTensor* Shards::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Status Shards::add(const std::string& path) {
  BATON_ASSIGN(auto mapping, Mapping::open(path));
  BATON_ASSIGN(auto tensors, parse_safetensors(mapping.bytes(), path));
  mappings_.push_back(std::move(mapping));
  for (auto& [name, tensor] : tensors) {
    const auto [it, fresh] = tensors_.try_emplace(name, ShardTensor{std::move(tensor), path});
    if (!fresh) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format("{}: tensor {} is in {} too", path, engine::quoted(name), it->second.file));
    }
  }
  return {};
}

Result<Shards> Shards::open(const std::string& folder) {
  Shards out;
  const std::string single = folder + "/" + kSingle;
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    BATON_TRY(out.add(single));
    return out;
  }
  const std::string index = folder + "/" + kIndex;
  BATON_ASSIGN(const auto doc, JsonDoc::load(index, kMaxIndexBytes));
  BATON_ASSIGN(const auto weight_map, doc.root().at("weight_map"));
  BATON_ASSIGN(const auto entries, weight_map.to_object());
  std::map<std::string, std::string, std::less<>> file_of;
  std::set<std::string, std::less<>> files;
  for (const auto entry : entries) {
    std::string_view file;
    if (entry.value.get(file) != simdjson::SUCCESS || !is_plain_file_name(file)) {
      return weight_map.bad(fmt::format("the file of {} must be the name of a file in the folder",
                                        engine::quoted(entry.key)));
    }
    if (!file_of.emplace(entry.key, file).second) {
      return weight_map.bad(fmt::format("{} occurs twice", engine::quoted(entry.key)));
    }
    files.emplace(file);
  }
  if (files.empty() || files.size() > kMaxShards) {
    return weight_map.bad(
        fmt::format("names {} files; 1 to {} are allowed", files.size(), kMaxShards));
  }
  std::vector<std::string> missing;
  for (const std::string& file : files) {
    if (!fs::exists(folder + "/" + file, ignored)) {
      missing.push_back(engine::quoted(file));
    }
  }
  if (!missing.empty()) {
    const std::size_t shown = std::min(missing.size(), kMaxShown);
    return fail(
        ErrorCode::NotFound,
        fmt::format(
            "{}: the folder lacks {} of {} shards: {}{}",
            index,
            missing.size(),
            files.size(),
            fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
            shown < missing.size() ? ", …" : ""));
  }
  for (const std::string& file : files) {
    BATON_TRY(out.add(folder + "/" + file));
  }
  for (const auto& [name, file] : file_of) {
    const ShardTensor* found = out.find(name);
    if (found == nullptr || found->file != folder + "/" + file) {
      return weight_map.bad(
          fmt::format("{} is not in {}", engine::quoted(name), engine::quoted(file)));
    }
  }
  return out;
}

}  // namespace baton::engine
