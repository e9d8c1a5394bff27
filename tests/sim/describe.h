// A control frame as one short line of a trace.
#pragma once

#include <string>

#include "common/wire/control.pb.h"

namespace baton::sim {

std::string describe(const wire::Frame& frame);

}  // namespace baton::sim
