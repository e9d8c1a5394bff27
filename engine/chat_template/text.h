// A string of which each byte knows whether it came from a request ("foreign") or from the
// template. Foreign bytes can never become a special token, whatever a template does to them:
// joining and slicing keep the mark of each byte, and everything that rewrites text marks all of
// its result when any part of its input was foreign.
//
// Copies share their bytes until one of them is appended to: a template that passes a message of
// megabytes around copies it when it is printed, not before.
//
// Thread: plain values; those that share bytes may be on different threads. Failure: none.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace baton::engine::jinja {

class Text {
 public:
  struct Run {
    std::size_t end = 0;  // bytes before this, from the run before on
    bool foreign = false;
  };
  using Runs = boost::container::small_vector<Run, 2>;

  Text() = default;
  Text(std::string bytes, bool foreign);

  const std::string& str() const;
  std::string_view view() const { return data_ ? std::string_view(data_->bytes) : ""; }
  std::size_t size() const { return data_ ? data_->bytes.size() : 0; }
  bool empty() const { return size() == 0; }
  bool any_foreign() const;
  const Runs& runs() const;

  void append(const Text& other);
  // REQUIRES: the bytes are not of this text.
  void append(std::string_view bytes, bool foreign);
  // Bytes [begin, end). REQUIRES: begin <= end <= size().
  Text slice(std::size_t begin, std::size_t end) const;

 private:
  struct Data {
    std::string bytes;
    Runs runs;  // neighbours differ in `foreign`; the last ends at bytes.size()
  };
  // For appending `more` bytes: what no copy shares, with room for them.
  Data& own(std::size_t more);

  std::shared_ptr<Data> data_;  // null: empty
};

}  // namespace baton::engine::jinja
