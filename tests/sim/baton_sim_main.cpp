// baton-sim: runs simulated clusters, one for each seed, until an invariant breaks.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/sim/simulation.h"

namespace {

// A broken promise of our own ends the process: say which seed it was.
std::array<char, 128> last_words{};

void on_abort(int) {
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data()));
}

std::string replay(std::uint64_t seed) {
  return fmt::format("replay: baton-sim --seed {} --verbose", seed);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Simulated clusters, one for each seed", "baton-sim"};
  std::string range = "1..200";
  std::uint64_t single = 0;
  bool verbose = false;
  bool twice = false;
  bool keep_going = false;
  double minutes = 10;
  app.add_option("--seeds", range, "first..last")->capture_default_str();
  app.add_option("--seed", single, "one seed");
  app.add_flag("--verbose", verbose, "print the trace of events");
  app.add_flag("--twice", twice, "run each seed twice: both must do the same");
  app.add_flag("--keep-going", keep_going, "go on after a seed that fails");
  app.add_option("--minutes", minutes, "stop after so long, wherever it is")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::uint64_t first = single;
  std::uint64_t last = single;
  if (single == 0) {
    unsigned long long low = 0;
    unsigned long long high = 0;
    if (std::sscanf(range.c_str(), "%llu..%llu", &low, &high) != 2 || low == 0 || high < low) {
      fmt::print(stderr, "baton-sim: --seeds wants first..last, as 1..200\n");
      return 2;
    }
    first = low;
    last = high;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ::signal(SIGABRT, on_abort);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  baton::sim::SimCounts counts;
  double printed = 0;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    if (seconds() > minutes * 60) {
      fmt::print("stopped before seed {}: {:.1f} minutes are over\n", seed, minutes);
      break;
    }
    std::snprintf(last_words.data(),
                  last_words.size(),
                  "\nseed %llu ended the process; %s\n",
                  static_cast<unsigned long long>(seed),
                  replay(seed).c_str());
    baton::sim::Simulation simulation(baton::sim::make_plan(seed), verbose);
    bool ok = simulation.run();
    if (!ok) {
      fmt::print("seed {} FAILED: {}\n  {}\n", seed, simulation.failure(), replay(seed));
    } else if (twice) {
      baton::sim::Simulation again(baton::sim::make_plan(seed), false);
      again.run();
      if (again.trace_hash() != simulation.trace_hash()) {
        fmt::print("seed {} FAILED: two runs differ\n  {}\n", seed, replay(seed));
        ok = false;
      }
    }
    counts.add(simulation.counts());
    if (!ok) {
      std::fflush(stdout);
      ++failed;
      if (!keep_going) {
        break;
      }
    }
    if (seconds() - printed > 10) {
      printed = seconds();
      fmt::print("{:.0f} s: seed {} of {}..{}\n", printed, seed, first, last);
      std::fflush(stdout);
    }
  }
  fmt::print("{}\n{} seeds failed; {:.1f} s ({:.3f} s a seed)\n",
             counts.to_string(),
             failed,
             seconds(),
             seconds() / static_cast<double>(std::max<std::uint64_t>(counts.seeds, 1)));
  return failed == 0 ? 0 : 1;
}
