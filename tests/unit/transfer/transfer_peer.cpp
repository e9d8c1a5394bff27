// A process of its own for tests that kill one. It is told what to do by lines on stdin and answers
// by lines on stdout, hexadecimal numbers and addresses alike:
//   transfer_peer TRANSPORT PATH       prints "address HEX"
//   inlet                              a new inlet in place of the old, prints "address HEX"
//   open HIGH LOW EPOCH FIRST COUNT    opens a lease, prints "opened"
//   expect BYTES                       prints "landed BYTES LANE" or "failed CODE" when it is over
//   connect HEX                        prints "connected"
//   send HIGH LOW EPOCH FIRST COUNT    sends all layers of blocks 0.. there, prints "flushed BYTES"
//                                      or "failed CODE" when it is over
//   keep HIGH LOW EPOCH FIRST COUNT    the same again and again without an end, prints "keeping"
//   abort                              ends that, prints "quiesced"
//   quit
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <thread>

#include "tests/unit/transfer/arena.h"
#include "tests/unit/transfer/peer_lines.h"
#include "transfer/transport.h"

namespace {

using namespace baton;
using testing::from_hex;
using testing::to_hex;

testing::LineWriter say;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: transfer_peer TRANSPORT PATH\n";
    return 2;
  }
  testing::TestArena arena(testing::small_layout(4, 256), 64);
  arena.fill(7);
  transfer::TransportOptions options;
  options.transport = argv[1];
  options.path = argv[2];
  auto made = transfer::Transport::create(options, arena.view());
  if (!made) {
    std::cerr << made.error().message << "\n";
    return 1;
  }
  const auto transport = std::move(made).value();
  // A new way in for each writer.
  auto inlet = std::move(transport->open_inlet()).value();
  say("address " + to_hex(inlet->address()));
  std::unique_ptr<transfer::LeaseReceiver> lease;
  std::shared_ptr<transfer::Peer> peer;
  std::unique_ptr<transfer::LeaseSender> sender;
  std::jthread keeper;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb >> std::hex;
    if (verb == "connect") {
      std::string hex;
      words >> hex;
      peer = transport->connect(from_hex(hex), [](const Error&) { say("lost"); }).value();
      say("connected");
      continue;
    }
    if (verb == "expect") {
      std::uint64_t bytes = 0;
      words >> bytes;
      lease->expect({.bytes = bytes}, [](Result<transfer::LeaseReceiver::Done> done) {
        say(done ? fmt::format("landed {:x} {}", done->bytes, done->transport)
                 : fmt::format("failed {}", to_string(done.error().code)));
      });
      continue;
    }
    if (verb == "inlet") {
      inlet = std::move(transport->open_inlet()).value();
      say("address " + to_hex(inlet->address()));
      continue;
    }
    if (verb == "disconnect") {
      peer->disconnect();
      sender->abort([] { say("quiesced"); });
      continue;
    }
    if (verb == "abort") {
      keeper = std::jthread();  // asks it to end and waits for that
      sender->abort([] { say("quiesced"); });
      continue;
    }
    if (verb == "quit") {
      break;
    }
    LeaseId id;
    std::uint32_t epoch = 0;
    BlockRun run;
    words >> id.high >> id.low >> epoch >> run.first.value >> run.count;
    if (verb == "open") {
      lease = transport->open_lease(id, Epoch{epoch}, {run});
      say("opened");
    } else if (verb == "send" || verb == "keep") {
      KvGrant grant;
      grant.lease = id;
      grant.epoch = Epoch{epoch};
      grant.layout_hash = arena.view().layout.hash();
      grant.runs = {run};
      sender = transport->begin(peer, grant).value();
      std::vector<BlockId> blocks;
      for (std::uint32_t i = 0; i < run.count; ++i) {
        blocks.emplace_back(i);
      }
      const auto send_all = [&arena, &sender, blocks] {
        for (std::uint32_t layer = 0; layer < arena.view().layout.layers; ++layer) {
          sender->send_layer(layer, 0, blocks);
        }
      };
      if (verb == "keep") {
        keeper = std::jthread([send_all, &transport](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            const auto before = transport->stats().bytes_sent;
            send_all();
            while (transport->stats().bytes_sent == before && !stop.stop_requested()) {
              std::this_thread::yield();
            }
          }
        });
        say("keeping");
        continue;
      }
      send_all();
      sender->finish([](Result<transfer::Sent> sent) {
        say(sent ? fmt::format("flushed {:x}", sent->bytes)
                 : fmt::format("failed {}", to_string(sent.error().code)));
      });
    }
  }
  return 0;
}
