// The engine benchmark's report as a table for the terminal, as Markdown, and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/engine/engine_bench.h"

namespace baton::bench {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr std::size_t kBarColumns = 24;

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

// Two columns for each time the peer's speed; the first two are the peer itself.
std::string bar(double ratio) {
  const auto columns = static_cast<std::size_t>(std::lround(ratio * 2));
  std::string out(std::min(columns, kBarColumns), '#');
  return columns > kBarColumns ? out + "+" : out;
}

std::string share(double value) {
  return value > 0 ? fmt::format("{:.2f}", value) : "-";
}
std::string peak(const EngineBenchRow& row) {
  return row.peak_share > 0 ? fmt::format("{:.2f} {}",
                                          row.peak_share,
                                          row.is_bfloat  ? "BF16"
                                          : row.is_float ? "FMA"
                                                         : "int8")
                            : "-";
}
std::string peer_rate(const EngineBenchRow& row) {
  return row.peer_tokens_per_s > 0 ? fmt::format("{:.1f}{}{}",
                                                 row.peer_tokens_per_s,
                                                 row.peer_setting.empty() ? "" : " ",
                                                 row.peer_setting)
                                   : "-";
}
std::string ratio(double value, int digits = 2) {
  return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-";
}
double load_ratio(const EngineLoadRow& row) {
  return row.second_s > 0 ? row.peer_s / row.second_s : 0;
}
std::string mebibytes(std::size_t bytes) {
  return ratio(static_cast<double>(bytes) / kMiB, 0);
}
std::string roof_lines(const EngineBenchReport& report) {
  std::string out;
  if (report.float_path != "exact") {
    out += fmt::format("float path of ours: {}\n", report.float_path);
  }
  for (const Roofs& roofs : report.roofs) {
    out += fmt::format("{} thread{}: {:.1f} GB/s read, {:.0f} Gop/s 8-bit ({}), {:.0f} GFLOP/s f32",
                       roofs.threads,
                       roofs.threads == 1 ? "" : "s",
                       roofs.read_bytes_per_s * 1e-9,
                       roofs.int8_ops_per_s * 1e-9,
                       roofs.int8_instruction,
                       roofs.f32_flops_per_s * 1e-9);
    if (roofs.bf16_flops_per_s > 0) {
      out += fmt::format(", {:.0f} GFLOP/s BF16", roofs.bf16_flops_per_s * 1e-9);
    }
    out += '\n';
  }
  return out;
}

// A row's line: `write` is given its cells, the same for every kind of table.
template <class Write>
std::string line(const EngineBenchRow& row, const Write& write) {
  return write(row.phase,
               row.tokens,
               row.batch,
               row.context,
               row.threads,
               to_string(row.kv_dtype),
               row.tokens_per_s,
               peer_rate(row),
               ratio(row.ratio),
               peak(row),
               share(row.memory_share));
}
template <class Write>
std::string line(const EngineLoadRow& row, const Write& write) {
  return write(row.file,
               row.first_s,
               row.second_s,
               ratio(row.peer_s, 3),
               ratio(load_ratio(row)),
               mebibytes(row.peak_rss),
               mebibytes(row.peer_peak_rss));
}

}  // namespace

std::string to_json(const EngineBenchReport& report) {
  std::string out = fmt::format("{{\"float_path\": {}, \"roofs\": [", json_text(report.float_path));
  const auto comma = [&out] {
    if (out.back() != '[') {
      out += ", ";
    }
  };
  for (const Roofs& roofs : report.roofs) {
    comma();
    out += fmt::format(
        "{{\"threads\": {}, \"read_gb_s\": {:.3f}, \"int8_gop_s\": {:.1f}, \"f32_gflop_s\": "
        "{:.1f}, \"bf16_gflop_s\": {:.1f}}}",
        roofs.threads,
        roofs.read_bytes_per_s * 1e-9,
        roofs.int8_ops_per_s * 1e-9,
        roofs.f32_flops_per_s * 1e-9,
        roofs.bf16_flops_per_s * 1e-9);
  }
  out += "], \"rows\": [";
  for (const EngineBenchRow& row : report.rows) {
    comma();
    out += fmt::format(
        "{{\"file\": {}, \"phase\": {}, \"tokens\": {}, \"batch\": {}, \"context\": {}, "
        "\"threads\": {}, \"kv_dtype\": \"{}\", \"tokens_per_s\": {:.2f}, \"peer_tokens_per_s\": "
        "{:.2f}, "
        "\"ratio\": {:.3f}, \"peer_setting\": \"{}\", \"float_weights\": {}, \"peak_share\": "
        "{:.3f}, "
        "\"memory_share\": {:.3f}, \"attention_memory_share\": {:.3f}}}",
        json_text(row.file),
        json_text(row.phase),
        row.tokens,
        row.batch,
        row.context,
        row.threads,
        to_string(row.kv_dtype),
        row.tokens_per_s,
        row.peer_tokens_per_s,
        row.ratio,
        row.peer_setting,
        row.is_float,
        row.peak_share,
        row.memory_share,
        row.attention_memory_share);
  }
  out += "], \"loads\": [";
  for (const EngineLoadRow& row : report.loads) {
    comma();
    out += fmt::format(
        "{{\"file\": {}, \"threads\": {}, \"first_s\": {:.4f}, \"second_s\": {:.4f}, \"peer_s\": "
        "{:.4f}, \"peak_rss\": {}, \"peer_peak_rss\": {}}}",
        json_text(row.file),
        row.threads,
        row.first_s,
        row.second_s,
        row.peer_s,
        row.peak_rss,
        row.peer_peak_rss);
  }
  return out + "]}";
}

std::string to_text(const EngineBenchReport& report) {
  std::string out = roof_lines(report);
  std::string file;
  for (const EngineBenchRow& row : report.rows) {
    if (row.file != file) {
      file = row.file;
      out +=
          fmt::format("\n{}\n{:<8} {:>6} {:>5} {:>7} {:>7} {:>4} {:>9} {:>13} {:>6} {:>10} {:>6}\n",
                      file,
                      "phase",
                      "tokens",
                      "batch",
                      "context",
                      "threads",
                      "kv",
                      "tokens/s",
                      "llama.cpp",
                      "ratio",
                      "of peak",
                      "of mem");
    }
    out += line(row, [&](const auto&... cells) {
      return fmt::format(
          "{:<8} {:>6} {:>5} {:>7} {:>7} {:>4} {:>9.1f} {:>13} {:>6} {:>10} {:>6}  {}\n",
          cells...,
          bar(row.ratio));
    });
    if (row.attention_memory_share > 0) {
      out += fmt::format(
          "         attention reads its keys and values at {:.2f} of the memory's "
          "rate\n",
          row.attention_memory_share);
    }
  }
  if (!report.loads.empty()) {
    out += fmt::format("\n{:<38} {:>9} {:>9} {:>9} {:>6} {:>9} {:>9}\n",
                       "load to first token, s; memory, MiB",
                       "first",
                       "second",
                       "llama.cpp",
                       "ratio",
                       "ours",
                       "llama.cpp");
  }
  for (const EngineLoadRow& row : report.loads) {
    out += line(row, [](const auto&... cells) {
      return fmt::format("{:<38} {:>9.3f} {:>9.3f} {:>9} {:>6} {:>9} {:>9}\n", cells...);
    });
  }
  return out;
}

std::string to_markdown(const EngineBenchReport& report) {
  std::string out = roof_lines(report);
  out +=
      "\n| file | phase | tokens | batch | context | threads | kv | tokens/s | llama.cpp | ratio | "
      "of the peak | of memory |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const EngineBenchRow& row : report.rows) {
    out += line(row, [&](const auto&... cells) {
      return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.1f} | {} | {} | {} | {}{} |\n",
                         row.file,
                         cells...,
                         row.attention_memory_share > 0
                             ? fmt::format(" (attention {:.2f})", row.attention_memory_share)
                             : "");
    });
  }
  if (!report.loads.empty()) {
    out +=
        "\n| file | first start, s | second start, s | llama.cpp, s | memory, MiB | llama.cpp, "
        "MiB |\n|---|---|---|---|---|---|\n";
  }
  for (const EngineLoadRow& row : report.loads) {
    out += line(row, [](const auto&... cells) {
      return fmt::format("| {0} | {1:.3f} | {2:.3f} | {3} | {5} | {6} |\n", cells...);
    });
  }
  return out;
}

}  // namespace baton::bench
