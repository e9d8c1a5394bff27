#include "common/types/kv_layout.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <utility>

namespace baton {
namespace {

constexpr std::array<std::pair<KvDType, std::string_view>, 5> kNames{{{KvDType::I16, "i16"},
                                                                      {KvDType::F16, "f16"},
                                                                      {KvDType::F32, "f32"},
                                                                      {KvDType::I8, "i8"},
                                                                      {KvDType::F8, "f8"}}};

}  // namespace

std::string_view to_string(KvDType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) {
      return name;
    }
  }
  return "unknown dtype";
}

std::optional<KvDType> kv_dtype_named(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) {
      return dtype;
    }
  }
  return std::nullopt;
}

std::uint64_t KvLayout::hash() const {
  const std::array<std::uint32_t, 6> fields{layers,
                                            kv_heads,
                                            head_dim,
                                            block_tokens,
                                            static_cast<std::uint32_t>(dtype),
                                            static_cast<std::uint32_t>(order)};
  return XXH3_64bits(fields.data(), sizeof(fields));
}

std::uint64_t KvLayout::content_hash() const {
  const std::array<std::uint32_t, 4> fields{
      layers, kv_heads, head_dim, static_cast<std::uint32_t>(dtype)};
  return XXH3_64bits(fields.data(), sizeof(fields));
}

bool is_convertible(const KvLayout& a, const KvLayout& b) {
  return a.layers == b.layers && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
         a.dtype == b.dtype;
}

std::string KvLayout::to_string() const {
  return fmt::format("{} layers, {} kv heads of {}, {} tokens a block, {}, order {}",
                     layers,
                     kv_heads,
                     head_dim,
                     block_tokens,
                     baton::to_string(dtype),
                     static_cast<int>(order));
}

Status validate(const KvLayout& layout) {
  const auto bounded = [](std::uint32_t value, std::uint32_t high) {
    return value >= 1 && value <= high;
  };
  if (!bounded(layout.layers, 1024) || !bounded(layout.kv_heads, 1024) ||
      !bounded(layout.head_dim, 1024) || !bounded(layout.block_tokens, 256)) {
    return fail(ErrorCode::InvalidArgument, "impossible KV layout: " + layout.to_string());
  }
  if (layout.block_tokens % 16 != 0) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("block_tokens must be a multiple of 16, got {}", layout.block_tokens));
  }
  if (layout.dtype < KvDType::F16 || layout.dtype > KvDType::I16) {
    return fail(ErrorCode::InvalidArgument, "unknown KV dtype");
  }
  if (layout.order < KvOrder::KeysByDimValuesByToken || layout.order > KvOrder::ByTokenAndHead) {
    return fail(ErrorCode::InvalidArgument, "unknown KV element order");
  }
  return {};
}

}  // namespace baton
