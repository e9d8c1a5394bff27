#include "engine/chat_template/text.h"

#include <algorithm>
#include <utility>

namespace baton::engine::jinja {
namespace {

constexpr std::size_t kSmall = 1024;

// A long text mostly gets a short end behind it, a short one more of its like.
std::size_t room_for(std::size_t bytes) {
  return bytes + std::max(bytes / 8, std::min(bytes, kSmall));
}

}  // namespace

Text::Text(std::string bytes, bool foreign) {
  if (!bytes.empty()) {
    data_ = std::make_shared<Data>();
    data_->runs.push_back({bytes.size(), foreign});
    data_->bytes = std::move(bytes);
  }
}

const std::string& Text::str() const {
  static const std::string kNothing;
  return data_ ? data_->bytes : kNothing;
}

const Text::Runs& Text::runs() const {
  static const Runs kNone;
  return data_ ? data_->runs : kNone;
}

bool Text::any_foreign() const {
  return std::any_of(runs().begin(), runs().end(), [](const Run& run) { return run.foreign; });
}

Text::Data& Text::own(std::size_t more) {
  const std::size_t needed = size() + more;
  if (data_ == nullptr || data_.use_count() > 1) {
    auto mine = std::make_shared<Data>();
    mine->bytes.reserve(room_for(needed));
    if (data_ != nullptr) {
      mine->bytes.append(data_->bytes);
      mine->runs = data_->runs;
    }
    data_ = std::move(mine);
  } else if (needed > data_->bytes.capacity()) {
    data_->bytes.reserve(room_for(needed));
  }
  return *data_;
}

void Text::append(std::string_view bytes, bool foreign) {
  if (bytes.empty()) {
    return;
  }
  Data& data = own(bytes.size());
  data.bytes.append(bytes);
  if (!data.runs.empty() && data.runs.back().foreign == foreign) {
    data.runs.back().end = data.bytes.size();
  } else {
    data.runs.push_back({data.bytes.size(), foreign});
  }
}

void Text::append(const Text& other) {
  if (empty()) {
    data_ = other.data_;
    return;
  }
  const Text held = data_ == other.data_ ? other : Text();  // it may be this one
  const Text& added = data_ == other.data_ ? held : other;
  std::size_t begin = 0;
  for (const Run& run : added.runs()) {
    append(added.view().substr(begin, run.end - begin), run.foreign);
    begin = run.end;
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  const Runs& all = runs();
  auto run = std::upper_bound(
      all.begin(), all.end(), begin, [](std::size_t at, const Run& r) { return at < r.end; });
  while (begin < end) {
    const std::size_t stop = std::min(end, run->end);
    out.append(view().substr(begin, stop - begin), run->foreign);
    begin = stop;
    ++run;
  }
  return out;
}

}  // namespace baton::engine::jinja
