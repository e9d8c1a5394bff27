#include "bench/transfer_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iostream>
#include <mutex>
#include <sstream>

#include "bench/raw_ucx.h"
#include "transfer/transport.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  }
  return out;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return out;
}

// One layer whose blocks are of `bytes` bytes; touched, so that no page is faulted in while timed.
class Arena {
 public:
  static Result<std::unique_ptr<Arena>> create(std::size_t bytes, std::uint32_t blocks) {
    KvArenaView view;
    view.layout.layers = 1;
    view.layout.block_tokens = 32;
    const std::size_t elements = bytes / 128;  // keys and values of 32 tokens, two bytes each
    view.layout.head_dim = static_cast<std::uint32_t>(std::clamp<std::size_t>(elements, 1, 1024));
    view.layout.kv_heads = static_cast<std::uint32_t>(elements / view.layout.head_dim);
    view.num_blocks = blocks;
    if (view.layout.block_bytes() != bytes || blocks == 0) {
      return fail(
          ErrorCode::InvalidArgument,
          fmt::format("{} blocks of {} bytes: a power of two from 128 is needed", blocks, bytes));
    }
    void* memory = ::mmap(nullptr,
                          view.bytes(),
                          PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                          -1,
                          0);
    if (memory == MAP_FAILED) {
      return fail(ErrorCode::OutOfMemory, fmt::format("{} bytes of blocks", view.bytes()));
    }
    view.base = static_cast<std::byte*>(memory);
    return std::unique_ptr<Arena>(new Arena(view));
  }
  ~Arena() { ::munmap(view_.base, view_.bytes()); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  const KvArenaView& view() const { return view_; }

 private:
  explicit Arena(KvArenaView view) : view_(view) {}
  KvArenaView view_;
};

// The child, spoken to by lines.
class Probe {
 public:
  static Result<std::unique_ptr<Probe>> start(const std::string& program,
                                              const std::string& transport,
                                              std::size_t bytes,
                                              std::uint32_t blocks) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
      return fail(ErrorCode::IoError, "no pipe");
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::array<std::string, 4> words{
        program, transport, std::to_string(bytes), std::to_string(blocks)};
    std::array<char*, 5> argv{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      argv[i] = words[i].data();
    }
    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    if (error != 0) {
      ::close(in[1]);
      ::close(out[0]);
      return fail(ErrorCode::IoError, fmt::format("cannot start {}", program));
    }
    return std::unique_ptr<Probe>(new Probe(pid, ::fdopen(in[1], "w"), ::fdopen(out[0], "r")));
  }
  ~Probe() {
    std::fclose(to_);  // the child ends at the end of its input
    std::fclose(from_);
    ::waitpid(pid_, nullptr, 0);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void say(const std::string& line) {
    fmt::print(to_, "{}\n", line);
    std::fflush(to_);
  }
  Result<std::istringstream> hear(const std::string& word) {
    std::string line;
    for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
      if (c == EOF) {
        return fail(ErrorCode::IoError, "the probe process has died");
      }
      line.push_back(static_cast<char>(c));
    }
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first != word) {
      return fail(ErrorCode::IoError, fmt::format("the probe says \"{}\"", line));
    }
    return words;
  }

 private:
  Probe(pid_t pid, std::FILE* to, std::FILE* from) : pid_(pid), to_(to), from_(from) {}
  pid_t pid_;
  std::FILE* to_;
  std::FILE* from_;
};

struct Turn {
  double seconds = 0;
  double cpu_seconds = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Row {
 public:
  Row(const TransferBenchOptions& options,
      std::string transport,
      std::size_t bytes,
      std::uint32_t descriptors)
      : options_(options),
        transport_(std::move(transport)),
        bytes_(bytes),
        descriptors_(descriptors) {}

  Result<TransferBenchRow> run(const std::string& program) {
    BATON_ASSIGN(arena_, Arena::create(bytes_, descriptors_));
    BATON_ASSIGN(probe_, Probe::start(program, transport_, bytes_, descriptors_));
    transfer::TransportOptions settings;
    settings.transport = transport_;
    settings.window_bytes = options_.window_bytes;
    BATON_ASSIGN(ours_, transfer::Transport::create(settings, arena_->view()));
    BATON_ASSIGN(raw_, RawUcx::create(transport_, arena_->view()));
    BATON_ASSIGN(std::istringstream ready, probe_->hear("ready"));
    std::string ours_address;
    std::string raw_address;
    ready >> ours_address >> raw_address;
    BATON_ASSIGN(peer_, ours_->connect(from_hex(ours_address), nullptr));
    BATON_TRY(raw_->connect(from_hex(raw_address)));
    std::vector<Turn> ours;
    std::vector<Turn> raw;
    for (std::uint32_t i = 0; i <= options_.repetitions; ++i) {  // the first turn warms up
      BATON_ASSIGN(const Turn our_turn, turn_ours(i));
      BATON_ASSIGN(const Turn raw_turn, turn_raw());
      if (i > 0) {
        ours.push_back(our_turn);
        raw.push_back(raw_turn);
      }
    }
    return summary(ours, raw);
  }

 private:
  Result<Turn> turn_ours(std::uint32_t number) {
    KvGrant grant;
    grant.lease = {number + 1, 77};
    grant.epoch = Epoch{1};
    grant.layout_hash = arena_->view().layout.hash();
    // Backwards there, forwards here: no two descriptors merge.
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < descriptors_; ++i) {
      grant.runs.push_back({BlockId{descriptors_ - 1 - i}, 1});
      blocks.emplace_back(i);
    }
    probe_->say(fmt::format("ours {}", number + 1));
    BATON_ASSIGN([[maybe_unused]] const auto opened, probe_->hear("open"));
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    BATON_ASSIGN(const auto sender, ours_->begin(peer_, grant));
    sender->send_layer(0, 0, std::move(blocks));
    std::promise<Result<transfer::Sent>> flushed;
    sender->finish([&](Result<transfer::Sent> sent) { flushed.set_value(std::move(sent)); });
    BATON_ASSIGN([[maybe_unused]] const auto sent, flushed.get_future().get());
    return landed(begin, cpu);
  }

  Result<Turn> turn_raw() {
    probe_->say(fmt::format("raw {}", descriptors_));
    BATON_ASSIGN([[maybe_unused]] const auto opened, probe_->hear("open"));
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    BATON_TRY(raw_->send(descriptors_, options_.window_bytes));
    return landed(begin, cpu);
  }

  Result<Turn> landed(Clock::time_point begin, double cpu) {
    BATON_ASSIGN(std::istringstream words, probe_->hear("landed"));
    Turn turn;
    turn.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    words >> turn.cpu_seconds;
    turn.cpu_seconds += cpu_seconds() - cpu;
    return turn;
  }

  TransferBenchRow summary(const std::vector<Turn>& ours, const std::vector<Turn>& raw) const {
    const double total = static_cast<double>(bytes_) * descriptors_;
    const auto seconds = [](const std::vector<Turn>& turns) {
      std::vector<double> values;
      for (const Turn& turn : turns) {
        values.push_back(turn.seconds);
      }
      return median(values);
    };
    const auto cpu = [&](const std::vector<Turn>& turns) {
      double sum = 0;
      for (const Turn& turn : turns) {
        sum += turn.cpu_seconds;
      }
      return sum / static_cast<double>(turns.size()) / (total / static_cast<double>(1 << 30));
    };
    TransferBenchRow row;
    row.transport = transport_;
    row.bytes = bytes_;
    row.descriptors = descriptors_;
    row.gb_per_s = total / seconds(ours) * 1e-9;
    row.raw_gb_per_s = total / seconds(raw) * 1e-9;
    row.ratio_to_raw = row.gb_per_s / row.raw_gb_per_s;
    row.us_per_op = seconds(ours) * 1e6 / descriptors_;
    row.cpu_s_per_gib = cpu(ours);
    row.raw_cpu_s_per_gib = cpu(raw);
    return row;
  }

  const TransferBenchOptions& options_;
  const std::string transport_;
  const std::size_t bytes_;
  const std::uint32_t descriptors_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Probe> probe_;
  std::unique_ptr<transfer::Transport> ours_;
  std::unique_ptr<RawUcx> raw_;
  std::shared_ptr<transfer::Peer> peer_;
};

}  // namespace

Result<std::vector<TransferBenchRow>> run_transfer_bench(const TransferBenchOptions& options) {
  std::string program = options.probe;
  if (program.empty()) {
    std::error_code error;
    program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() /
              "baton-transfer-probe";
  }
  if (options.repetitions == 0) {
    return fail(ErrorCode::InvalidArgument, "at least one repetition is needed");
  }
  std::vector<TransferBenchRow> rows;
  for (const std::string& transport : options.transports) {
    for (const std::size_t bytes : options.sizes) {
      std::vector<std::uint32_t> counts = options.descriptors;
      if (counts.empty() && bytes > 0) {
        const std::size_t fitting = (std::size_t{64} << 20) / bytes;
        counts.push_back(static_cast<std::uint32_t>(std::clamp<std::size_t>(fitting, 1, 4096)));
      }
      for (const std::uint32_t count : counts) {
        Row row(options, transport, bytes, count);
        BATON_ASSIGN(TransferBenchRow result, row.run(program));
        if (options.progress) {
          options.progress(fmt::format("{} {} x {}: {:.2f} GB/s, raw {:.2f}",
                                       transport,
                                       count,
                                       bytes,
                                       result.gb_per_s,
                                       result.raw_gb_per_s));
        }
        rows.push_back(std::move(result));
      }
    }
  }
  return rows;
}

std::string to_json(const std::vector<TransferBenchRow>& rows) {
  std::string out = "{\"rows\": [";
  for (const TransferBenchRow& row : rows) {
    out += fmt::format(
        "{}{{\"transport\": \"{}\", \"bytes\": {}, \"descriptors\": {}, \"gb_per_s\": {:.4f}, "
        "\"raw_gb_per_s\": {:.4f}, \"ratio_to_raw\": {:.4f}, \"us_per_op\": {:.4f}, "
        "\"cpu_s_per_gib\": {:.4f}}}",
        &row == rows.data() ? "" : ", ",
        row.transport,
        row.bytes,
        row.descriptors,
        row.gb_per_s,
        row.raw_gb_per_s,
        row.ratio_to_raw,
        row.us_per_op,
        row.cpu_s_per_gib);
  }
  return out + "]}";
}

int run_transfer_probe(const std::string& transport, std::size_t bytes, std::uint32_t blocks) {
  const auto serve = [&]() -> Status {
    BATON_ASSIGN(const auto arena, Arena::create(bytes, blocks));
    transfer::TransportOptions settings;
    settings.transport = transport;
    BATON_ASSIGN(const auto ours, transfer::Transport::create(settings, arena->view()));
    BATON_ASSIGN(const auto inlet, ours->open_inlet());
    BATON_ASSIGN(const auto raw, RawUcx::create(transport, arena->view()));
    std::cout << "ready " << to_hex(inlet->address()) << ' ' << to_hex(raw->address()) << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string verb;
      std::uint32_t number = 0;
      words >> verb >> number;
      const double cpu = cpu_seconds();
      if (verb == "raw") {
        std::cout << "open" << std::endl;
        raw->receive(number);
      } else {
        const auto lease = ours->open_lease(LeaseId{number, 77}, Epoch{1}, {{BlockId{0}, blocks}});
        std::promise<Status> complete;
        lease->expect({.bytes = arena->view().bytes()},
                      [&](Result<transfer::LeaseReceiver::Done> done) {
                        complete.set_value(done ? Status{} : std::unexpected(done.error()));
                      });
        std::cout << "open" << std::endl;
        BATON_TRY(complete.get_future().get());
      }
      std::cout << "landed " << cpu_seconds() - cpu << std::endl;
      if (verb == "raw") {
        for (pollfd input{STDIN_FILENO, POLLIN, 0}; ::poll(&input, 1, 0) == 0;) {
          raw->progress();
        }
      }
    }
    return {};
  };
  const Status status = serve();
  if (!status) {
    fmt::print(stderr, "baton-transfer-probe: {}\n", status.error().message);
    return 1;
  }
  return 0;
}

}  // namespace baton::bench
