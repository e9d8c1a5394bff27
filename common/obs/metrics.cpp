#include "common/obs/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "common/base/check.h"

namespace baton {
namespace {

// The library throws on a bad or doubly used name; both are mistakes of ours.
template <class Make>
auto& made(const std::string& name, const Make& make) {
  try {
    return make();
  } catch (const std::exception& e) {
    check_failed(__FILE__, __LINE__, name.c_str(), e.what());
  }
}

prometheus::MetricFamily under_alias(const prometheus::MetricFamily& family,
                                     const Metrics::Alias& alias) {
  prometheus::MetricFamily copy = family;
  copy.name = alias.name;
  std::erase_if(copy.metric, [&](const prometheus::ClientMetric& metric) {
    return std::ranges::any_of(alias.where, [&](const auto& wanted) {
      return std::ranges::none_of(metric.label, [&](const auto& label) {
        return label.name == wanted.first && label.value == wanted.second;
      });
    });
  });
  for (prometheus::ClientMetric& metric : copy.metric) {
    std::erase_if(metric.label,
                  [&](const auto& label) { return alias.where.contains(label.name); });
    for (const auto& [name, value] : alias.labels) {
      metric.label.push_back({name, value});
    }
  }
  return copy;
}

}  // namespace

void Counter::add(double amount) const {
  if (counter_ != nullptr) {
    counter_->Increment(amount);
  }
}
double Counter::value() const {
  return counter_ != nullptr ? counter_->Value() : 0;
}

void Gauge::set(double value) const {
  if (gauge_ != nullptr) {
    gauge_->Set(value);
  }
}
void Gauge::add(double amount) const {
  if (gauge_ != nullptr) {
    gauge_->Increment(amount);
  }
}
double Gauge::value() const {
  return gauge_ != nullptr ? gauge_->Value() : 0;
}

void Histogram::observe(double value) const {
  if (histogram_ != nullptr) {
    histogram_->Observe(value);
  }
}

Metrics::Metrics()
    : registry_(
          std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)) {}

Metrics::~Metrics() = default;

Counter Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return Counter(made(name, [&]() -> prometheus::Counter& {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
  }));
}

Gauge Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return Gauge(made(name, [&]() -> prometheus::Gauge& {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
  }));
}

Histogram Metrics::histogram(const std::string& name,
                             const std::string& help,
                             const std::vector<double>& bounds,
                             const Labels& labels) {
  return Histogram(made(name, [&]() -> prometheus::Histogram& {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Register(*registry_)
        .Add(labels, bounds);
  }));
}

void Metrics::before_print(std::function<void()> fill) {
  const std::lock_guard lock(mutex_);
  fills_.push_back(std::move(fill));
}

void Metrics::also_as(Alias alias) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(aliases_, alias) == aliases_.end()) {
    aliases_.push_back(std::move(alias));
  }
}

std::vector<prometheus::MetricFamily> Metrics::collect() const {
  const std::lock_guard lock(mutex_);
  for (const auto& fill : fills_) {
    fill();
  }
  std::vector<prometheus::MetricFamily> printed = registry_->Collect();
  for (const Alias& alias : aliases_) {
    const auto source = std::ranges::find(printed, alias.of, &prometheus::MetricFamily::name);
    if (source == printed.end()) {
      continue;
    }
    prometheus::MetricFamily copy = under_alias(*source, alias);
    const auto known = std::ranges::find(printed, alias.name, &prometheus::MetricFamily::name);
    if (known == printed.end()) {
      printed.push_back(std::move(copy));
    } else {
      known->metric.insert(known->metric.end(), copy.metric.begin(), copy.metric.end());
    }
  }
  return printed;
}

std::string Metrics::to_text() const {
  return prometheus::TextSerializer().Serialize(collect());
}

std::vector<double> latency_buckets() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120};
}

}  // namespace baton
