// Takes the JSON body of a POST and works on it where that belongs: short ones on the I/O thread,
// long ones on the pool, since reading and tokenizing them would hold up every other connection,
// and those that seem to bring a grammar, which is to be checked.
//
// Thread: called on the exchange's I/O thread. Failure: 415 for another content type.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/base/random.h"
#include "gateway/http/http_exchange.h"
#include "gateway/work_pool.h"

namespace baton::gateway {

inline constexpr std::size_t kInlineBodyBytes = 4096;

// `work` runs on either thread and must not touch the exchange; what it returns runs on the I/O
// thread. `random`: for the refusal's request id.
void take_json_body(const std::shared_ptr<HttpExchange>& exchange,
                    WorkPool& pool,
                    const RandomSource& random,
                    std::function<Task(const std::string& body)> work);

}  // namespace baton::gateway
