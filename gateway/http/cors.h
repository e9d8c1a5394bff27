// Which web pages may read replies: the header lines that say so, ready made.
//
// Owner: the HTTP server. Thread: const after building. Failure: none.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::gateway {

class Cors {
 public:
  // Origins such as https://chat.example; "*": all of them.
  explicit Cors(const std::vector<std::string>& origins);

  // Whole header lines for a reply to a page of `origin` (empty: no browser asks).
  std::string_view lines_for(std::string_view origin) const;

 private:
  bool allows_all_ = false;
  std::string all_;     // the lines when every origin is allowed
  std::string others_;  // for an origin that is not in the list
  std::vector<std::pair<std::string, std::string>> allowed_;  // origin, its lines
};

}  // namespace baton::gateway
