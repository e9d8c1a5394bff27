// What `baton status` says of a model's pools.
//
// Thread: pure function. Failure: empty where the gateway has nothing to say yet.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace baton::cli {

// For each model its name, and a line for each role: its nodes, how many of those there should have
// it, and how many replicas would keep the targets.
std::string pool_lines(const boost::json::object& status);

}  // namespace baton::cli
