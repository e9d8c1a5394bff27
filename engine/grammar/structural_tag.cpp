#include "engine/grammar/structural_tag.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/json/json_escape.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/text_check.h"

namespace baton::engine {
namespace {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kBytes = std::size_t{512} << 10;
constexpr std::size_t kTagDepth = 64;

class TagWriter {
 public:
  Status value(const element& value);
  NormalSchema take() { return {.text = std::move(out_), .patterns = std::move(patterns_)}; }

 private:
  Status format(const Fields& fields);
  Status schema(const element& value);

  std::string out_;
  std::vector<std::string> patterns_;
};

// Schemas of the whole tag together are bounded by its size alone.
Status TagWriter::schema(const element& value) {
  BATON_ASSIGN(NormalSchema schema, normalise_schema(simdjson::minify(value)));
  out_ += schema.text;
  std::ranges::move(schema.patterns, std::back_inserter(patterns_));
  return {};
}

Status TagWriter::format(const Fields& fields) {
  std::string_view type;
  std::string_view text;
  const auto named = fields.get("type");
  const bool is_format = named && named->get(type) == SUCCESS;
  bool has_white_space = false;
  out_ += '{';
  for (const auto& [key, member] : fields) {
    out_ += out_.back() == '{' ? "" : ",";
    append_json_string(out_, key);
    out_ += ':';
    if (is_format && type == "regex" && key == "pattern" && member.get(text) == SUCCESS) {
      BATON_TRY(
          check_regex(text, TextLimits::kRegexExpanded, "an expression of the structural tag"));
    } else if (is_format && type == "grammar" && key == "grammar" && member.get(text) == SUCCESS) {
      BATON_TRY(check_rules(text));
    }
    has_white_space = has_white_space || key == "max_whitespace_cnt";
    if (key == "json_schema") {
      BATON_TRY(schema(member));
    } else {
      BATON_TRY(value(member));
    }
  }
  if (is_format && type == "json_schema" && !has_white_space) {
    out_ += ",\"max_whitespace_cnt\":1";
  }
  out_ += '}';
  return {};
}

Status TagWriter::value(const element& value) {
  object fields;
  array items;
  if (value.get(fields) == SUCCESS) {
    return format(Fields(fields));
  }
  if (value.get(items) != SUCCESS) {
    out_ += simdjson::minify(value);
    return {};
  }
  out_ += '[';
  for (const element item : items) {
    out_ += out_.back() == '[' ? "" : ",";
    BATON_TRY(this->value(item));
  }
  out_ += ']';
  return {};
}

}  // namespace

Result<NormalSchema> normalise_structural_tag(std::string_view text) {
  if (text.size() > kBytes) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("the structural tag has {} bytes; the limit is {}", text.size(), kBytes));
  }
  simdjson::dom::parser parser;
  element root;
  if (const auto code = parser.allocate(std::max<std::size_t>(text.size(), 64), kTagDepth)) {
    return fail(ErrorCode::OutOfMemory, simdjson::error_message(code));
  }
  if (const auto code = parser.parse(text.data(), text.size()).get(root)) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("the structural tag is not JSON: {}", simdjson::error_message(code)));
  }
  TagWriter writer;
  BATON_TRY(writer.value(root));
  return writer.take();
}

}  // namespace baton::engine
