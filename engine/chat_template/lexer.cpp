#include "engine/chat_template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/tokenizer/utf8.h"

namespace baton::engine::jinja {
namespace {

constexpr std::size_t kMaxTokens = 200000;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Newlines become "\n"; one at the very end is dropped.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') {
      ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : owned_(normalize(source)), source_(owned_) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      BATON_TRY(outside());
      if (tokens_.size() > kMaxTokens) {
        return error(fmt::format("the template has more than {} tokens", kMaxTokens));
      }
    }
    emit(TokenType::End);
    return std::move(tokens_);
  }

 private:
  std::unexpected<Error> error(std::string_view what) const {
    return fail(ErrorCode::InvalidArgument, fmt::format("chat template, line {}: {}", line_, what));
  }
  bool sees(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
  }
  void emit(TokenType type, std::string text = {}) {
    tokens_.push_back({type, line_, std::move(text)});
  }
  void skip_spaces() {
    std::size_t end = at_;
    while (end < source_.size() && is_space(source_[end])) {
      ++end;
    }
    advance(end - at_);
  }

  // Text up to the next tag, cut as the tag's first sign says.
  void emit_data(std::size_t end, char sign, bool block) {
    const std::size_t begin = at_;
    std::size_t stop = end;
    if (sign == '-') {
      while (stop > begin && is_space(source_[stop - 1])) {
        --stop;
      }
    } else if (sign != '+' && block) {
      std::size_t line_start = stop;
      while (line_start > begin && source_[line_start - 1] != '\n') {
        --line_start;
      }
      const bool at_line_start = line_start > begin || begin == 0 || source_[begin - 1] == '\n';
      const bool blank = std::all_of(source_.begin() + static_cast<std::ptrdiff_t>(line_start),
                                     source_.begin() + static_cast<std::ptrdiff_t>(stop),
                                     is_space);
      if (at_line_start && blank) {
        stop = line_start;
      }
    }
    if (stop > begin) {
      emit(TokenType::Data, std::string(source_.substr(begin, stop - begin)));
    }
    advance(end - begin);
  }

  // After the closing delimiter: what of the following text belongs to the tag.
  void after_close(char sign, bool block) {
    if (sign == '-') {
      skip_spaces();
    } else if (sign != '+' && block && sees("\n")) {
      advance(1);
    }
  }

  Status outside() {
    std::size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        emit(TokenType::Data, std::string(source_.substr(at_)));
        advance(source_.size() - at_);
        return {};
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') {
        break;
      }
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    emit_data(tag, signed_tag ? sign : '\0', kind != '{');
    advance(signed_tag ? 3 : 2);
    if (kind == '#') {
      return comment();
    }
    if (kind == '%') {
      BATON_ASSIGN(const bool raw, raw_block());
      if (raw) {
        return {};
      }
    }
    emit(kind == '%' ? TokenType::BlockBegin : TokenType::VariableBegin);
    return inside(kind == '%');
  }

  Status comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) {
      return error("a comment {# is not closed");
    }
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_close(sign, true);
    return {};
  }

  // `{% raw %}` … `{% endraw %}` after its "{%": true when there was one.
  Result<bool> raw_block() {
    std::size_t look = at_;
    const auto skip = [&] {
      while (look < source_.size() && is_space(source_[look])) {
        ++look;
      }
    };
    // "word" and the closing delimiter; gives the closing sign in `sign`.
    char sign = '\0';
    const auto closes_after = [&](std::string_view word) {
      skip();
      if (!source_.substr(look).starts_with(word)) {
        return false;
      }
      look += word.size();
      skip();
      sign = look < source_.size() ? source_[look] : '\0';
      look += sign == '-' || sign == '+' ? 1 : 0;
      if (!source_.substr(look).starts_with("%}")) {
        return false;
      }
      look += 2;
      return true;
    };
    if (!closes_after("raw")) {
      return false;
    }
    advance(look - at_);
    after_close(sign, false);  // a newline after {% raw %} stays, unlike after other tags
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      look = tag + 2;
      const char open = look < source_.size() ? source_[look] : '\0';
      look += open == '-' || open == '+' ? 1 : 0;
      if (closes_after("endraw")) {
        const std::size_t end = look;
        const char close = sign;
        emit_data(tag, open, true);
        advance(end - at_);
        after_close(close, true);
        return true;
      }
    }
    return error("{% raw %} is not closed");
  }

  Status inside(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    std::string open;  // brackets that wait for their partner
    while (true) {
      skip_spaces();
      if (at_ >= source_.size()) {
        return error(block ? "{% is not closed" : "{{ is not closed");
      }
      const char c = source_[at_];
      const bool signed_close =
          (c == '-' || (c == '+' && block)) && source_.substr(at_ + 1).starts_with(close);
      if (open.empty() && (signed_close || sees(close))) {
        emit(block ? TokenType::BlockEnd : TokenType::VariableEnd);
        advance(signed_close ? 3 : 2);
        after_close(signed_close ? c : '\0', block);
        return {};
      }
      if (tokens_.size() > kMaxTokens) {
        return error(fmt::format("the template has more than {} tokens", kMaxTokens));
      }
      if (is_name_start(c)) {
        name();
      } else if (is_digit(c)) {
        BATON_TRY(number());
      } else if (c == '\'' || c == '"') {
        BATON_TRY(string(c));
      } else {
        BATON_TRY(op(open));
      }
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) {
      ++end;
    }
    emit(TokenType::Name, std::string(source_.substr(at_, end - at_)));
    advance(end - at_);
  }

  Status number() {
    std::string digits;
    std::size_t end = at_;
    const auto take_digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) {
        if (source_[end] != '_') {
          digits.push_back(source_[end]);
        }
        ++end;
      }
    };
    take_digits();
    bool real = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      digits.push_back('.');
      ++end;
      take_digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t look = end + 1;
      look += look < source_.size() && (source_[look] == '+' || source_[look] == '-') ? 1 : 0;
      if (look < source_.size() && is_digit(source_[look])) {
        real = true;
        digits.push_back('e');
        if (source_[look - 1] == '-') {
          digits.push_back('-');
        }
        end = look;
        take_digits();
      }
    }
    Token token{real ? TokenType::Float : TokenType::Integer, line_, digits};
    const char* last = digits.data() + digits.size();
    const auto done = real ? std::from_chars(digits.data(), last, token.real)
                           : std::from_chars(digits.data(), last, token.integer);
    if (done.ec != std::errc() || done.ptr != last) {
      return error(fmt::format("the number {} is too large", digits));
    }
    tokens_.push_back(std::move(token));
    advance(end - at_);
    return {};
  }

  Status string(char quote) {
    std::string out;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        out.push_back(source_[i++]);
        continue;
      }
      i = escape(i + 1, out);
    }
    if (i >= source_.size()) {
      return error("a string is not closed");
    }
    emit(TokenType::String, std::move(out));
    advance(i + 1 - at_);
    return {};
  }

  // Python's escapes; `i` is at the character after the backslash. Gives the place behind.
  std::size_t escape(std::size_t i, std::string& out) const {
    const char c = source_[i];
    constexpr std::string_view kFrom = "abfnrtv\\'\"";
    constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t known = kFrom.find(c); known != std::string_view::npos) {
      out.push_back(kTo[known]);
      return i + 1;
    }
    if (c == '\n') {
      return i + 1;
    }
    const std::size_t size = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const bool octal = c >= '0' && c <= '7';
    if (size > 0 || octal) {
      std::uint32_t code = 0;
      const char* first = source_.data() + i + (octal ? 0 : 1);
      const auto rest = static_cast<std::size_t>(source_.data() + source_.size() - first);
      const char* last = first + std::min(rest, octal ? 3 : size);
      const auto done = std::from_chars(first, last, code, octal ? 8 : 16);
      if (done.ec == std::errc() && (octal || done.ptr == first + size)) {
        append_utf8(out, code);
        return static_cast<std::size_t>(done.ptr - source_.data());
      }
    }
    out.push_back('\\');
    out.push_back(c);
    return i + 1;
  }

  Status op(std::string& open) {
    constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                               "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                               ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view candidate : kOperators) {
      if (!sees(candidate)) {
        continue;
      }
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') {
        open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) {
          return error(fmt::format("'{}' has no partner", c));
        }
        open.pop_back();
      }
      emit(TokenType::Operator, std::string(candidate));
      advance(candidate.size());
      return {};
    }
    return error(fmt::format("unexpected character '{}'", source_[at_]));
  }

  std::string owned_;
  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace baton::engine::jinja
