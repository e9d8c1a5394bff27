// The page of a run: figures as text, and a curve of each time's distribution as SVG.
#include <fmt/format.h>

#include <algorithm>

#include "bench/serve/figures.h"

namespace baton::bench {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 200;
constexpr std::size_t kPoints = 400;  // of a curve

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

// The part of `values` that is not above each time; `target_s` as a line, 0: none.
std::string curve(const char* name, std::vector<double> values, double target_s) {
  if (values.empty()) {
    return {};
  }
  std::ranges::sort(values);
  const double most = std::max({values.back(), target_s * 1.05, 1e-6});
  const auto x = [&](double seconds) { return seconds / most * kWidth; };
  std::string points;
  const std::size_t step = std::max<std::size_t>(1, values.size() / kPoints);
  for (std::size_t i = 0; i < values.size(); i += step) {
    const double part = static_cast<double>(i + 1) / static_cast<double>(values.size());
    points += fmt::format("{:.1f},{:.1f} ", x(values[i]), kHeight * (1 - part));
  }
  points += fmt::format("{:.1f},0", x(values.back()));
  std::string lines;
  for (const double part : {0.5, 0.9, 0.99}) {
    lines += fmt::format(R"(<line x1="0" x2="{0}" y1="{1:.1f}" y2="{1:.1f}" class="grid"/>)"
                         R"(<text x="{0}" y="{1:.1f}" dx="4" dy="4">p{2:.0f}</text>)",
                         kWidth,
                         kHeight * (1 - part),
                         part * 100);
  }
  if (target_s > 0) {
    lines += fmt::format(R"(<line x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}" class="target"/>)",
                         x(target_s),
                         kHeight);
  }
  return fmt::format(
      "<h2>{0}</h2>\n<svg viewBox=\"0 -10 {1} {2}\" role=\"img\" aria-label=\"{0}: share of values "
      "up to a time\">{3}<polyline points=\"0,{4} {5}\"/>"
      "<text x=\"0\" y=\"{6}\">0</text><text x=\"{7}\" y=\"{6}\" text-anchor=\"end\">{8:.1f} "
      "ms</text></svg>\n",
      name,
      kWidth + 40,
      kHeight + 40,
      lines,
      kHeight,
      points,
      kHeight + 18,
      kWidth,
      most * 1e3);
}

}  // namespace

std::string to_html(const ServeFigures& figures,
                    const std::vector<Served>& served,
                    const std::string& title) {
  std::vector<double> ttft;
  std::vector<double> itl;
  std::vector<double> e2e;
  for (const Served& one : served) {
    if (one.is_whole) {
      ttft.push_back(one.ttft_s);
      e2e.push_back(one.e2e_s);
      itl.insert(itl.end(), one.gaps_s.begin(), one.gaps_s.end());
    }
  }
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
             "<meta name=\"color-scheme\" content=\"light dark\"><title>{0}</title>\n<style>"
             "body{{font:15px sans-serif;max-width:46em;margin:2em auto;padding:0 1em}}"
             "pre{{overflow-x:auto}}svg{{width:100%}}svg text{{font-size:11px;fill:currentColor}}"
             "polyline{{fill:none;stroke:#3b7dd8;stroke-width:2}}.grid{{stroke:#8886}}"
             ".target{{stroke:#d33;stroke-dasharray:4 3}}</style></head>\n<body><h1>{0}</h1>\n"
             "<pre>{1}</pre>\n<p>Curves: the share of values up to a time; dashed: the "
             "target.</p>\n",
             escaped(title),
             escaped(to_text(figures))) +
         curve("Time to first token", std::move(ttft), figures.targets.ttft_s) +
         curve("Between tokens", std::move(itl), figures.targets.itl_s) +
         curve("End to end", std::move(e2e), 0) + "</body></html>\n";
}

}  // namespace baton::bench
