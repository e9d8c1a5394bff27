// Bytes of a TokenizerSpec: "BTS2", then in the order of the struct each string as varint length
// and bytes, each list as varint count and items, scores as little-endian binary32, kinds as bytes,
// ids as varint of id + 1, flags as one byte.
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {
namespace {

constexpr std::string_view kMagic = "BTS2";
constexpr std::uint64_t kMaxTokens = 1ULL << 22;
constexpr std::uint64_t kMaxMerges = 1ULL << 23;
constexpr std::uint64_t kMaxTokenBytes = 1ULL << 16;
constexpr std::uint64_t kMaxTemplateBytes = 1ULL << 20;
constexpr std::uint64_t kMaxNameBytes = 256;

class Writer {
 public:
  explicit Writer(std::size_t expected) { out_.reserve(expected); }

  void varint(std::uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>((value & 0x7F) | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  void text(std::string_view value) {
    varint(value.size());
    out_.append(value);
  }
  void raw(std::string_view bytes) { out_.append(bytes); }
  void byte(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void binary32(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      byte(static_cast<std::uint8_t>(bits >> shift));
    }
  }
  void id(TokenId value) {
    varint(static_cast<std::uint64_t>(static_cast<std::int64_t>(value) + 1));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Every read names its field, so that an error says what was wrong.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  Result<std::uint64_t> varint(std::string_view field, std::uint64_t limit) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) {
        return ends(field);
      }
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) {
        break;
      }
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) {
        if (value > limit) {
          return fail(ErrorCode::ProtocolError,
                      fmt::format("tokenizer data: {} is {}, more than {}", field, value, limit));
        }
        return value;
      }
    }
    return fail(ErrorCode::ProtocolError,
                fmt::format("tokenizer data: the number of {} is malformed", field));
  }

  Result<std::string> text(std::string_view field, std::uint64_t limit) {
    BATON_ASSIGN(const std::uint64_t size, varint(field, limit));
    BATON_ASSIGN(const std::string_view bytes, raw(field, size));
    return std::string(bytes);
  }

  Result<std::string_view> raw(std::string_view field, std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      return ends(field);
    }
    const std::string_view part = bytes_.substr(at_, size);
    at_ += size;
    return part;
  }

  // A count of items of at least `item_bytes` each: more than the rest can hold is refused before
  // any memory is taken for it.
  Result<std::uint64_t> count(std::string_view field, std::uint64_t limit, std::size_t item_bytes) {
    BATON_ASSIGN(const std::uint64_t n, varint(field, limit));
    if (n > (bytes_.size() - at_) / item_bytes) {
      return ends(field);
    }
    return n;
  }

  Result<TokenId> id(std::string_view field, std::size_t vocab) {
    BATON_ASSIGN(const std::uint64_t value, varint(field, vocab));
    return static_cast<TokenId>(static_cast<std::int64_t>(value) - 1);
  }

  Result<bool> flag(std::string_view field) {
    BATON_ASSIGN(const std::uint64_t value, varint(field, 1));
    return value != 0;
  }

  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::unexpected<Error> ends(std::string_view field) const {
    return fail(
        ErrorCode::ProtocolError,
        fmt::format("tokenizer data ends within {} (at byte {} of {})", field, at_, bytes_.size()));
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

Status read_vocabulary(Reader& reader, TokenizerSpec& spec) {
  BATON_ASSIGN(const std::uint64_t tokens, reader.count("tokens", kMaxTokens, 1));
  spec.tokens.reserve(tokens);
  for (std::uint64_t i = 0; i < tokens; ++i) {
    BATON_ASSIGN(std::string token, reader.text("tokens", kMaxTokenBytes));
    spec.tokens.push_back(std::move(token));
  }
  BATON_ASSIGN(const std::uint64_t scores, reader.count("scores", kMaxTokens, sizeof(float)));
  BATON_ASSIGN(const std::string_view score_bytes, reader.raw("scores", scores * sizeof(float)));
  spec.scores.reserve(scores);
  for (std::size_t i = 0; i < scores; ++i) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      bits |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(score_bytes[i * 4 + k]))
              << (8 * k);
    }
    spec.scores.push_back(std::bit_cast<float>(bits));
  }
  BATON_ASSIGN(const std::uint64_t kinds, reader.count("kinds", kMaxTokens, 1));
  BATON_ASSIGN(const std::string_view kind_bytes, reader.raw("kinds", kinds));
  spec.kinds.reserve(kinds);
  for (const char byte : kind_bytes) {
    const auto kind = static_cast<std::uint8_t>(byte);
    if (kind < 1 || kind > 6) {
      return fail(ErrorCode::ProtocolError,
                  fmt::format("tokenizer data: {} is no token kind", kind));
    }
    spec.kinds.push_back(static_cast<TokenKind>(kind));
  }
  BATON_ASSIGN(const std::uint64_t merges, reader.count("merges", kMaxMerges, 1));
  spec.merges.reserve(merges);
  for (std::uint64_t i = 0; i < merges; ++i) {
    BATON_ASSIGN(std::string merge, reader.text("merges", 2 * kMaxTokenBytes));
    spec.merges.push_back(std::move(merge));
  }
  return {};
}

// Ids of tokens: none is -1.
Result<std::vector<TokenId>> read_ids(Reader& reader, std::string_view field, std::size_t vocab) {
  BATON_ASSIGN(const std::uint64_t count, reader.count(field, vocab, 1));
  std::vector<TokenId> out;
  out.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    BATON_ASSIGN(const TokenId id, reader.id(field, vocab));
    if (id < 0) {
      return fail(ErrorCode::ProtocolError, fmt::format("tokenizer data: {} holds no id", field));
    }
    out.push_back(id);
  }
  return out;
}

}  // namespace

std::string TokenizerSpec::serialize() const {
  std::size_t expected = 1024 + chat_template.size() + scores.size() * 5 + kinds.size();
  for (const auto& token : tokens) {
    expected += token.size() + 1;
  }
  for (const auto& merge : merges) {
    expected += merge.size() + 1;
  }
  Writer writer(expected);
  writer.raw(kMagic);
  writer.text(model);
  writer.text(pre_tokenizer);
  writer.varint(tokens.size());
  for (const auto& token : tokens) {
    writer.text(token);
  }
  writer.varint(scores.size());
  for (const float score : scores) {
    writer.binary32(score);
  }
  writer.varint(kinds.size());
  for (const TokenKind kind : kinds) {
    writer.byte(static_cast<std::uint8_t>(kind));
  }
  writer.varint(merges.size());
  for (const auto& merge : merges) {
    writer.text(merge);
  }
  for (const TokenId id : {bos, eos, eot, unknown}) {
    writer.id(id);
  }
  for (const bool flag : {add_bos, add_eos, add_space_prefix, space_prefix_once}) {
    writer.byte(flag ? 1 : 0);
  }
  for (const auto* ids : {&strip_left, &strip_right, &more_stops}) {
    writer.varint(ids->size());
    for (const TokenId id : *ids) {
      writer.id(id);
    }
  }
  writer.text(chat_template);
  writer.text(architecture);
  return writer.take();
}

Result<TokenizerSpec> TokenizerSpec::parse(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return fail(ErrorCode::ProtocolError,
                "tokenizer data does not start with BTS2: another version or no tokenizer");
  }
  Reader reader(bytes.substr(kMagic.size()));
  TokenizerSpec spec;
  BATON_ASSIGN(spec.model, reader.text("model", kMaxNameBytes));
  BATON_ASSIGN(spec.pre_tokenizer, reader.text("pre_tokenizer", kMaxNameBytes));
  BATON_TRY(read_vocabulary(reader, spec));
  const std::size_t vocab = spec.tokens.size();
  BATON_ASSIGN(spec.bos, reader.id("bos", vocab));
  BATON_ASSIGN(spec.eos, reader.id("eos", vocab));
  BATON_ASSIGN(spec.eot, reader.id("eot", vocab));
  BATON_ASSIGN(spec.unknown, reader.id("unknown", vocab));
  BATON_ASSIGN(spec.add_bos, reader.flag("add_bos"));
  BATON_ASSIGN(spec.add_eos, reader.flag("add_eos"));
  BATON_ASSIGN(spec.add_space_prefix, reader.flag("add_space_prefix"));
  BATON_ASSIGN(spec.space_prefix_once, reader.flag("space_prefix_once"));
  BATON_ASSIGN(spec.strip_left, read_ids(reader, "strip_left", vocab));
  BATON_ASSIGN(spec.strip_right, read_ids(reader, "strip_right", vocab));
  BATON_ASSIGN(spec.more_stops, read_ids(reader, "more_stops", vocab));
  BATON_ASSIGN(spec.chat_template, reader.text("chat_template", kMaxTemplateBytes));
  BATON_ASSIGN(spec.architecture, reader.text("architecture", kMaxNameBytes));
  if (!reader.at_end()) {
    return fail(ErrorCode::ProtocolError, "tokenizer data has bytes after its end");
  }
  return spec;
}

std::uint64_t TokenizerSpec::hash() const {
  const std::string bytes = serialize();
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace baton::engine
