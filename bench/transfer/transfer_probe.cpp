#include "bench/transfer/transfer_probe.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "bench/transfer/raw_ucx.h"
#include "bench/transfer/transfer_arena.h"
#include "bench/transfer/transfer_turn.h"
#include "transfer/transport.h"

namespace baton::bench {
namespace {

bool has_input() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) != 0;
}

void serve_until_input(RawUcx& raw) {
  constexpr int kRounds = 64;  // a look at the input costs as much as several rounds
  while (!has_input()) {
    for (int i = 0; i < kRounds; ++i) {
      raw.progress();
    }
  }
}

void say(const std::string& line) {
  std::cout << line << std::endl;
}

class Probe {
 public:
  explicit Probe(const TransferProbeOptions& options) : options_(options) {}

  Status run() {
    if (options_.half) {
      half_.emplace(Half::Second);
    }
    BATON_ASSIGN(arena_, TransferArena::create(options_.bytes, options_.blocks, options_.layers));
    transfer::TransportOptions settings;
    settings.transport = options_.transport;
    BATON_ASSIGN(ours_, transfer::Transport::create(settings, arena_->view()));
    BATON_ASSIGN(const auto inlet, ours_->open_inlet());
    std::string addresses = to_hex(inlet->address().data(), inlet->address().size());
    if (options_.raw) {
      for (auto [make, raw] : {std::pair(&make_raw_am, &am_), std::pair(&make_raw_put, &put_)}) {
        BATON_ASSIGN(*raw, make(options_.transport, arena_->view()));
        BATON_ASSIGN(const std::string address, (*raw)->address());
        addresses += ' ' + address;
      }
    }
    say("ready " + addresses);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string verb;
      std::uint32_t number = 0;
      std::uint32_t mode = 0;
      words >> verb >> number >> mode;
      BATON_TRY(obey(verb, number, mode));
    }
    return {};
  }

 private:
  Status obey(const std::string& verb, std::uint32_t number, std::uint32_t mode) {
    const double cpu = process_cpu_seconds();
    const auto landed = [cpu] { say(fmt::format("landed {}", process_cpu_seconds() - cpu)); };
    if (verb == "ours") {
      BATON_TRY(receive_ours(number));
      landed();
    } else if (verb == "lease") {
      BATON_TRY(receive_committed(number, mode));
      landed();
    } else if (verb == "am" && am_ != nullptr) {
      say("open");
      am_->receive(number);
      landed();
      serve_until_input(*am_);
    } else if (verb == "put" && put_ != nullptr) {
      say("open");
      serve_until_input(*put_);
      std::string stop;
      std::getline(std::cin, stop);
      landed();
    } else if (verb == "clear") {
      std::memset(arena_->view().base, 0, arena_->view().bytes());
      say("cleared");
    } else if (verb == "digest") {
      say(fmt::format("digest {}", XXH3_64bits(arena_->view().base, arena_->view().bytes())));
    } else {
      return fail(ErrorCode::InvalidArgument, "unknown verb " + verb);
    }
    return {};
  }

  Status receive_ours(std::uint32_t number) {
    const auto lease =
        ours_->open_lease(LeaseId{number, 77}, Epoch{1}, {{BlockId{0}, options_.blocks}});
    const auto complete = expect(*lease, {.bytes = arena_->view().bytes()});
    say("open");
    return complete->get_future().get();
  }

  Status receive_committed(std::uint32_t number, std::uint32_t mode) {
    const auto lease =
        ours_->open_lease(LeaseId{number, 77},
                          Epoch{1},
                          {{BlockId{0}, options_.blocks}},
                          transfer::digest_mode_of(mode).value_or(transfer::DigestMode::Off));
    say("open");
    std::string line;
    std::getline(std::cin, line);
    std::istringstream words(line);
    std::string verb;
    transfer::Sent sent{.bytes = arena_->view().bytes()};
    words >> verb >> mode >> sent.digest;
    sent.digest_mode = transfer::digest_mode_of(mode).value_or(transfer::DigestMode::Off);
    return expect(*lease, sent)->get_future().get();
  }

  static std::shared_ptr<std::promise<Status>> expect(transfer::LeaseReceiver& lease,
                                                      const transfer::Sent& sent) {
    auto complete = std::make_shared<std::promise<Status>>();
    lease.expect(sent, [complete](Result<transfer::LeaseReceiver::Done> done) {
      complete->set_value(done ? Status{} : std::unexpected(done.error()));
    });
    return complete;
  }

  const TransferProbeOptions options_;
  std::optional<OnHalf> half_;
  std::unique_ptr<TransferArena> arena_;
  std::unique_ptr<transfer::Transport> ours_;
  std::unique_ptr<RawUcx> am_;
  std::unique_ptr<RawUcx> put_;
};

}  // namespace

Status run_transfer_probe(const TransferProbeOptions& options) {
  return Probe(options).run();
}

}  // namespace baton::bench
