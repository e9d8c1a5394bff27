// Counters, gauges and histograms of one process, printed in the Prometheus text format. A module
// makes its own in a `probe` and then only adds, sets and observes.
//
// Owner: the composition root; it outlives every handle. Thread: any; increments are atomic.
// Failure: a bad name, or one name with two kinds, ends the process: names are ours.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
struct MetricFamily;
}  // namespace prometheus

namespace baton {

// Handles: cheap to copy, valid as long as the Metrics. A default one drops what it is given.
class Counter {
 public:
  Counter() = default;
  void add(double amount = 1.0) const;  // amount >= 0
  double value() const;

 private:
  friend class Metrics;
  explicit Counter(prometheus::Counter& counter) : counter_(&counter) {}
  prometheus::Counter* counter_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  void set(double value) const;
  void add(double amount) const;
  double value() const;

 private:
  friend class Metrics;
  explicit Gauge(prometheus::Gauge& gauge) : gauge_(&gauge) {}
  prometheus::Gauge* gauge_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  void observe(double value) const;

 private:
  friend class Metrics;
  explicit Histogram(prometheus::Histogram& histogram) : histogram_(&histogram) {}
  prometheus::Histogram* histogram_ = nullptr;
};

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  // The same figures under another name, as other systems' dashboards know it.
  struct Alias {
    std::string name;
    std::string of;  // series of this name
    Labels where;    // that have these labels, which are left out
    Labels labels;   // added
    bool operator==(const Alias&) const = default;
  };

  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  // The same name and labels give the same metric.
  Counter counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // `bounds`: upper bounds, rising.
  Histogram histogram(const std::string& name,
                      const std::string& help,
                      const std::vector<double>& bounds,
                      const Labels& labels = {});
  // Series of `alias.of` are printed under `alias.name`, too. Costs nothing until then. Said again
  // it changes nothing.
  void also_as(Alias alias);
  // Runs before each print, on the printing thread, to fill gauges from values that are readable
  // from any thread. Stays as long as the Metrics.
  void before_print(std::function<void()> fill);

  std::string to_text() const;

 private:
  std::vector<prometheus::MetricFamily> collect() const;

  std::shared_ptr<prometheus::Registry> registry_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::function<void()>> fills_;
  std::vector<Alias> aliases_;
};

// 1 ms to 2 min, for latencies in seconds.
std::vector<double> latency_buckets();

}  // namespace baton
