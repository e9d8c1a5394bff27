// The body of a request for Beast's parser: a string, appended to as bytes come, with room behind
// it for a reader that looks beyond the end (simdjson does).
//
// Thread: as the parser. Failure: the parser's, whose limit bounds what is reserved.
#pragma once

#include <simdjson.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <string>

namespace baton::gateway {

struct HttpBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>& length, boost::system::error_code& error) {
      body_.reserve(length.value_or(0) + simdjson::SIMDJSON_PADDING);
      error = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& error) {
      std::size_t bytes = 0;
      for (const boost::asio::const_buffer part : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(part.data()), part.size());
        bytes += part.size();
      }
      error = {};
      return bytes;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace baton::gateway
