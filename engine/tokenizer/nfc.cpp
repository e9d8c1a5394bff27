#include "engine/tokenizer/nfc.h"

#include <algorithm>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

constexpr std::uint32_t kSuspect = 256;

// Hangul syllables are made of a leading consonant, a vowel and perhaps a trailing consonant.
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeading = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTrailing = 0x11A7;  // one before the first
constexpr char32_t kLeadingCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

std::uint64_t pair_key(char32_t first, char32_t second) {
  return (std::uint64_t{first} << 32) | second;
}

}  // namespace

Nfc::Nfc() {
  plain_.fill(true);
  const auto runs = nfc_class_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if ((runs[i] & 511) != 0) {
      const std::uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> 9 : 0x110000;
      for (std::uint32_t code = runs[i] >> 9; code < end; ++code) {
        plain_[code >> 8] = false;
      }
    }
  }
  for (const Decomposition& parts : decompositions()) {
    if (parts.composes) {
      pairs_.emplace_back(pair_key(parts.first, parts.second), parts.code);
    }
  }
  std::sort(pairs_.begin(), pairs_.end());
}

std::uint32_t Nfc::class_of(char32_t code) const {
  if (plain_[code >> 8]) {
    return 0;
  }
  const auto runs = nfc_class_runs();
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), (static_cast<std::uint32_t>(code) << 9) | 511);
  return *(after - 1) & 511;
}

bool Nfc::is_normalized(std::string_view text) const {
  std::uint32_t last = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0xCC) {  // nothing below U+0300 combines or changes
      last = 0;
      at += byte < 0x80 ? 1 : 2;
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    const std::uint32_t found = class_of(c.code);
    if (found >= kSuspect || (found != 0 && last > found)) {
      return false;
    }
    last = found;
    at += c.size;
  }
  return true;
}

void Nfc::decompose(char32_t code, std::vector<Char>& out) const {
  if (code >= kSyllables && code < kSyllables + kSyllableCount) {
    const char32_t index = code - kSyllables;
    out.push_back({kLeading + index / (kVowelCount * kTrailingCount), 0});
    out.push_back({kVowels + index / kTrailingCount % kVowelCount, 0});
    if (index % kTrailingCount != 0) {
      out.push_back({kTrailing + index % kTrailingCount, 0});
    }
    return;
  }
  const auto all = decompositions();
  const auto found = std::lower_bound(
      all.begin(), all.end(), code, [](const Decomposition& parts, char32_t wanted) {
        return parts.code < wanted;
      });
  if (code < 0xC0 || found == all.end() || found->code != code) {
    out.push_back({code, class_of(code) & 255});
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) {
    decompose(found->second, out);
  }
}

char32_t Nfc::compose(char32_t first, char32_t second) const {
  if (first >= kLeading && first < kLeading + kLeadingCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeading) * kVowelCount + (second - kVowels)) * kTrailingCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount &&
      (first - kSyllables) % kTrailingCount == 0 && second > kTrailing &&
      second < kTrailing + kTrailingCount) {
    return first + (second - kTrailing);
  }
  const std::uint64_t key = pair_key(first, second);
  const auto found = std::lower_bound(pairs_.begin(), pairs_.end(), std::pair(key, char32_t{0}));
  return found != pairs_.end() && found->first == key ? found->second : 0;
}

std::string Nfc::normalize(std::string_view text) const {
  std::vector<Char> parts;
  parts.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    decompose(c.code, parts);
    at += c.size;
  }
  // Marks in a row go by their class.
  const auto is_mark = [](const Char& c) { return c.combining != 0; };
  for (auto begin = parts.begin(); begin != parts.end();) {
    begin = std::find_if(begin, parts.end(), is_mark);
    const auto end = std::find_if_not(begin, parts.end(), is_mark);
    std::stable_sort(
        begin, end, [](const Char& a, const Char& b) { return a.combining < b.combining; });
    begin = end;
  }
  // A character joins the last one of class 0 unless one between the two has its class or a higher.
  std::vector<char32_t> composed;
  composed.reserve(parts.size());
  constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t starter = kNone;
  std::int64_t last = -1;  // highest class since the starter; -1: nothing between
  for (const Char& c : parts) {
    if (starter != kNone && last < static_cast<std::int64_t>(c.combining)) {
      if (const char32_t joined = compose(composed[starter], c.code)) {
        composed[starter] = joined;
        continue;
      }
    }
    if (c.combining == 0) {
      starter = composed.size();
      last = -1;
    } else {
      last = c.combining;
    }
    composed.push_back(c.code);
  }
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : composed) {
    append_utf8(out, code);
  }
  return out;
}

}  // namespace baton::engine
