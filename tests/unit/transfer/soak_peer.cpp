// The sending process of the soak. Told by lines on stdin, answers by lines on stdout, numbers and
// addresses in hexadecimal:
//   soak_peer TRANSPORT                prints "address 00" when it is ready
//   connect HEX                        prints "connected" or "refused CODE MESSAGE"
//   send HIGH LOW EPOCH BLOCK          sends one block of two layers there with a digest of all,
//                                      prints "flushed BYTES DIGEST" or "failed CODE"
#include <fmt/format.h>

#include <iostream>
#include <sstream>

#include "tests/unit/transfer/arena.h"
#include "tests/unit/transfer/peer_lines.h"
#include "transfer/transport.h"

namespace {

using namespace baton;
using testing::from_hex;

testing::LineWriter say;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: soak_peer TRANSPORT\n";
    return 2;
  }
  testing::TestArena arena(testing::small_layout(2, 16), 64);
  arena.fill(7);
  transfer::TransportOptions options;
  options.transport = argv[1];
  auto made = transfer::Transport::create(options, arena.view());
  if (!made) {
    std::cerr << made.error().message << "\n";
    return 1;
  }
  const auto transport = std::move(made).value();
  say("address 00");
  std::shared_ptr<transfer::Peer> peer;
  std::unique_ptr<transfer::LeaseSender> sender;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb >> std::hex;
    if (verb == "connect") {
      std::string hex;
      words >> hex;
      auto connected = transport->connect(from_hex(hex), [](const Error&) { say("lost"); });
      peer = connected ? std::move(*connected) : nullptr;
      say(connected
              ? "connected"
              : fmt::format(
                    "refused {} {}", to_string(connected.error().code), connected.error().message));
      continue;
    }
    KvGrant grant;
    grant.layout_hash = arena.view().layout.hash();
    grant.runs = {{BlockId{}, 1}};
    words >> grant.lease.high >> grant.lease.low >> grant.epoch.value >> grant.runs[0].first.value;
    sender = transport->begin(peer, grant, transfer::DigestMode::All).value();
    for (std::uint32_t layer = 0; layer < arena.view().layout.layers; ++layer) {
      sender->send_layer(layer, 0, {BlockId{0}});
    }
    sender->finish([](Result<transfer::Sent> sent) {
      say(sent ? fmt::format("flushed {:x} {:x}", sent->bytes, sent->digest)
               : fmt::format("failed {}", to_string(sent.error().code)));
    });
  }
  return 0;
}
