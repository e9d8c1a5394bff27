#include "tests/sim/describe.h"

#include <fmt/format.h>

#include "common/types/token_event.h"

namespace baton::sim {
namespace {

std::string body_name(const wire::Frame& frame) {
  const auto* field = frame.GetDescriptor()->FindFieldByNumber(static_cast<int>(frame.body_case()));
  return field == nullptr ? "nothing" : field->name();
}

std::string details(const wire::Frame& frame) {
  switch (frame.body_case()) {
    case wire::Frame::kReserve:
      return fmt::format("{}.{}{}",
                         frame.reserve().request().id(),
                         frame.reserve().request().attempt(),
                         frame.reserve().local() ? " local" : "");
    case wire::Frame::kPrefill:
      return fmt::format("{}.{} lease {:x}",
                         frame.prefill().request().id(),
                         frame.prefill().request().attempt(),
                         frame.prefill().grant().lease_low());
    case wire::Frame::kGranted:
      return fmt::format("lease {:x}", frame.granted().grant().lease_low());
    case wire::Frame::kCancel:
      return fmt::format(
          "{}.{}: {}", frame.cancel().request(), frame.cancel().attempt(), frame.cancel().reason());
    case wire::Frame::kCommit:
      return fmt::format("lease {:x}", frame.commit().lease_low());
    case wire::Frame::kAbort:
      return fmt::format("lease {:x}: {}", frame.abort().lease_low(), frame.abort().reason());
    case wire::Frame::kQuiesced:
      return fmt::format("lease {:x}", frame.quiesced().lease_low());
    case wire::Frame::kRefusal:
      return fmt::format("{}: {}", frame.refusal().code(), frame.refusal().message());
    case wire::Frame::kTokens: {
      std::string all;
      for (const wire::TokenEvent& event : frame.tokens().events()) {
        all += fmt::format(
            " {}.{}[{}+{}]{}",
            event.request(),
            event.attempt(),
            event.index(),
            event.tokens_size(),
            event.finish() == 0 ? "" : fmt::format(" end {}", static_cast<int>(event.finish())));
      }
      return all;
    }
    default:
      return "";
  }
}

}  // namespace

std::string describe(const wire::Frame& frame) {
  return fmt::format("{} {}", body_name(frame), details(frame));
}

}  // namespace baton::sim
