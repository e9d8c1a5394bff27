// What a hostile writer can do to one lease: any data messages in any order, ends of receives, a
// commit. Only blocks of the lease are admitted, each byte once, and none after the fence.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transfer/receiver_session.h"

namespace baton::fuzz {

struct LeaseFuzz {
  static constexpr std::string_view kName = "lease";
  static constexpr Epoch kEpoch{2};
  static constexpr std::uint32_t kBlocks = 32;

  // The bytes are steps: one byte that says which, one for a length, then that many for the step.
  static void run(std::span<const std::uint8_t> bytes) {
    Arena arena;
    const std::vector<BlockRun> runs{{BlockId{20}, 2}, {BlockId{4}, 4}};
    transfer::ReceiverSession session(
        LeaseId{5, 6}, kEpoch, arena.view, runs, transfer::DigestMode::All);
    const std::uint64_t block_bytes = arena.view.layout.block_bytes();
    std::deque<transfer::MessageHeader> landing;
    std::uint64_t landed = 0;
    while (bytes.size() >= 2) {
      const std::uint8_t step = bytes[0];
      const auto argument = bytes.subspan(2, std::min<std::size_t>(bytes[1], bytes.size() - 2));
      bytes = bytes.subspan(2 + argument.size());
      const bool was_fenced = session.is_fenced();
      if (step % 8 < 4) {
        transfer::MessageHeader header;
        if (!transfer::decode(std::as_bytes(argument), header)) {
          continue;
        }
        const std::uint64_t length = header.num_blocks() * block_bytes + (step >= 0xf0 ? 1 : 0);
        if (session.admit(header, length) == transfer::DropReason::None) {
          fuzz_check(!was_fenced && step < 0xf0 && header.epoch == kEpoch);
          fuzz_check(header.layer < arena.view.layout.layers);
          for (const BlockRun& run : header.runs()) {
            fuzz_check(std::ranges::any_of(runs, [&](const BlockRun& held) {
              return run.first >= held.first && run.count <= held.count &&
                     run.first.value - held.first.value <= held.count - run.count;
            }));
          }
          landing.push_back(header);
        }
      } else if (step % 8 < 6 && !landing.empty()) {
        if (step % 8 == 4) {
          landed += landing.front().num_blocks() * block_bytes;
          session.landed(landing.front());
        } else {
          session.failed(landing.front());
        }
        landing.pop_front();
      } else if (step % 8 == 6) {
        transfer::Sent sent;
        for (const std::uint8_t byte : argument) {
          sent.bytes = sent.bytes << 8U | byte;
        }
        sent.digest = step;
        sent.digest_mode = static_cast<transfer::DigestMode>(step / 8 % 3);
        session.expect(sent);
      } else if (step == 7) {
        session.revoke();
      }
      fuzz_check(session.bytes_landed() == landed && session.receiving() == landing.size());
      fuzz_check(landed <= 6 * 2 * block_bytes);
      fuzz_check(!was_fenced || session.is_fenced());
      // The digest is a guess, so nothing but an empty lease can be right.
      fuzz_check(session.state() != transfer::ReceiverState::Complete || landed == 0);
    }
  }

  static std::vector<std::string> seeds() {
    const auto message = [](std::uint32_t layer, std::initializer_list<BlockRun> runs) {
      transfer::MessageHeader header;
      header.lease = LeaseId{5, 6};
      header.epoch = kEpoch;
      header.layer = layer;
      for (const BlockRun& run : runs) {
        header.add_run(run);
      }
      transfer::EncodedHeader encoded;
      transfer::encode(header, encoded);
      std::string step{'\0', static_cast<char>(encoded.size)};
      return step.append(reinterpret_cast<const char*>(encoded.bytes.data()), encoded.size);
    };
    const std::string whole = message(0, {{BlockId{4}, 4}, {BlockId{20}, 2}});
    const std::string part = message(1, {{BlockId{5}, 2}});
    const std::string end{'\4', '\0'};
    const std::string gone{'\5', '\0'};
    const std::string commit{'\x16', '\2', '\x30', '\0'};  // of all bytes, digest of all
    const std::string revoke{'\7', '\0'};
    return {whole + part + end + end + commit,
            commit + whole + end + message(1, {{BlockId{4}, 4}, {BlockId{20}, 2}}) + end,
            part + gone + part + revoke + end + whole,
            whole + whole + end + revoke + commit};
  }

 private:
  struct Arena {
    Arena() {
      view.layout.layers = 2;
      view.layout.kv_heads = 1;
      view.layout.head_dim = 16;
      view.layout.block_tokens = 16;
      view.num_blocks = kBlocks;
      memory.resize(view.bytes());
      view.base = memory.data();
    }
    std::vector<std::byte> memory;
    KvArenaView view;
  };
};

}  // namespace baton::fuzz
