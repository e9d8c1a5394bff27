// Bodies of chat requests for benchmarks: streamed, of a given size, no two alike from the first
// word on, so that nothing is found in a cache.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::bench {

// `bytes`: of the whole body, at least 300. `number` makes it unique. `tier`: its service_tier.
std::string chat_body(std::size_t bytes,
                      std::uint64_t number,
                      unsigned max_tokens,
                      std::string_view tier = "default");

}  // namespace baton::bench
