/* SPDX-License-Identifier: Apache-2.0
 *
 * Registries, and what is registered there. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_REGISTRY_HPP
#define TIDEGATE_REGISTRY_HPP

#include "instrument.hpp"

namespace tidegate {

/** The name and the meaning of an instrument: Description("ttft", "Time to the first token").unit("s"). */
class Description {
public:
  explicit Description(std::string name, std::string help = "") : name_(std::move(name)), help_(std::move(help)) {}
  Description &unit(std::string unit) {
    unit_ = std::move(unit);
    return *this;
  }
  /** A histogram with the buckets of this name. */
  Description &buckets(std::string name) {
    buckets_ = std::move(name);
    return *this;
  }
  /** A histogram with these upper bounds. */
  Description &bounds(std::vector<double> bounds) {
    bounds_ = std::move(bounds);
    return *this;
  }
  Description &mode(tg_gauge_mode mode) {
    mode_ = mode;
    return *this;
  }
  Description &exemplars() {
    exemplars_ = true;
    return *this;
  }
  /** As C has it, as long as this. */
  tg_description c() const {
    auto own = detail::sized<tg_description>();
    own.name = name_.c_str();
    own.help = help_.c_str();
    own.unit = unit_.c_str();
    own.buckets = detail::c(buckets_);
    own.bounds = bounds_.data();
    own.bound_count = bounds_.size();
    own.mode = mode_;
    own.exemplars = exemplars_;
    return own;
  }

private:
  std::string name_, help_, unit_, buckets_;
  std::vector<double> bounds_;
  tg_gauge_mode mode_ = TG_MODE_DEFAULT;
  bool exemplars_ = false;
};

/** How an OpenTelemetry registry pushes; what is not said is as the environment says. */
struct OtelOptions {
  std::string endpoint = {};
  tg_otel_protocol protocol = TG_OTEL_PROTOCOL_DEFAULT;
  tg_otel_temporality temporality = TG_OTEL_TEMPORALITY_DEFAULT;
  nanoseconds interval{0};
  nanoseconds timeout{0};
  Labels headers = {};
  Labels resource = {};
};

/** Where instruments are registered. */
class Registry : public detail::Handle<tg_registry, tg_registry_retain, tg_registry_release> {
public:
  using Handle::Handle;

  /** By a word, such as "shm:/dev/shm/metrics"; without one what TIDEGATE_REGISTRY says. */
  static Registry at(const std::string &place = "") {
    Registry own;
    check(tg_registry_at(place.c_str(), &own.raw_));
    return own;
  }
  static Registry prometheus(std::size_t max_series = 0) {
    Registry own;
    check(tg_registry_prometheus(max_series, &own.raw_));
    return own;
  }
  static Registry shm(const std::string &directory, const Labels &resource = {}) {
    Registry own;
    auto labels = detail::c(resource);
    check(tg_registry_shm(directory.c_str(), labels.data(), labels.size(), &own.raw_));
    return own;
  }
  static Registry otel(const OtelOptions &given = {}) {
    auto headers = detail::c(given.headers), resource = detail::c(given.resource);
    auto options = detail::sized<tg_otel_options>();
    options.endpoint = detail::c(given.endpoint);
    options.protocol = given.protocol;
    options.temporality = given.temporality;
    options.interval_ns = detail::ns(given.interval);
    options.timeout_ns = detail::ns(given.timeout);
    options.headers = headers.data();
    options.header_count = headers.size();
    options.resource = resource.data();
    options.resource_count = resource.size();
    Registry own;
    check(tg_registry_otel(&options, &own.raw_));
    return own;
  }
  static Registry null() {
    Registry own;
    check(tg_registry_null(&own.raw_));
    return own;
  }
  static Registry fanout(const std::vector<Registry> &registries) {
    std::vector<const tg_registry *> raw;
    for (const auto &registry : registries) raw.push_back(registry.raw());
    Registry own;
    check(tg_registry_fanout(raw.data(), raw.size(), &own.raw_));
    return own;
  }
  static Registry foreign(const tg_foreign_table &table) {
    Registry own;
    check(tg_registry_foreign(&table, &own.raw_));
    return own;
  }

  /** The same with a prefix before all names and labels on all series. */
  Registry scope(const std::string &prefix, const Labels &labels = {}) const {
    auto own = detail::c(labels);
    auto scope = detail::sized<tg_scope>();
    scope.prefix = detail::c(prefix);
    scope.labels = own.data();
    scope.label_count = own.size();
    return within(scope);
  }
  /** Levels of the hierarchy. */
  Registry in_namespace(const std::string &name) const { return level(&tg_scope::level_namespace, name); }
  Registry in_component(const std::string &name) const { return level(&tg_scope::level_component, name); }
  Registry in_endpoint(const std::string &name) const { return level(&tg_scope::level_endpoint, name); }

  Counter counter(const Description &what, const Labels &labels = {}) const { return make<Counter>(what, labels); }
  FloatCounter float_counter(const Description &what, const Labels &labels = {}) const {
    return make<FloatCounter>(what, labels);
  }
  UpDownCounter up_down_counter(const Description &what, const Labels &labels = {}) const {
    return make<UpDownCounter>(what, labels);
  }
  Gauge gauge(const Description &what, const Labels &labels = {}) const { return make<Gauge>(what, labels); }
  Histogram histogram(const Description &what, const Labels &labels = {}) const {
    return make<Histogram>(what, labels);
  }
  Histogram exponential_histogram(const Description &what, const Labels &labels = {}) const {
    auto own = detail::c(labels);
    tg_description description = what.c();
    tg_histogram *raw = nullptr;
    check(tg_exponential_histogram_new(raw_, &description, own.data(), own.size(), &raw));
    return Histogram(raw);
  }
  /** A family of `I`, distinguished by the labels of these names. */
  template <class I>
  Family<I> family(const Description &what, const Texts &names, const Labels &labels = {},
                   tg_kind kind = I::kind) const {
    auto own = detail::c(labels);
    auto by = detail::c(names);
    tg_description description = what.c();
    tg_family *raw = nullptr;
    check(tg_family_new(raw_, kind, &description, own.data(), own.size(), by.data(), by.size(), &raw));
    return Family<I>(raw);
  }

  /** All values as a page. */
  std::string expose(tg_format format = TG_PROMETHEUS_TEXT) const {
    std::string page;
    std::size_t needed = 4096;
    for (;;) {
      page.resize(needed);
      tg_status status = tg_registry_expose(raw_, format, &page[0], page.size(), &needed);
      if (status == TG_TOO_SMALL) continue;
      check(status);
      page.resize(needed - 1);
      return page;
    }
  }
  /** Everything that it has, with its values. */
  Metrics gather() const {
    tg_metrics *metrics = nullptr;
    check(tg_registry_gather(raw_, &metrics));
    return Metrics(metrics);
  }
  void flush(nanoseconds within) const { check(tg_registry_flush(raw_, detail::ns(within))); }
  void shutdown(nanoseconds within) const { check(tg_registry_shutdown(raw_, detail::ns(within))); }
  /** How many pushes failed, and how many points a collector refused. */
  std::pair<std::uint64_t, std::uint64_t> push_failures() const {
    std::pair<std::uint64_t, std::uint64_t> both{0, 0};
    check(tg_registry_push_failures(raw_, &both.first, &both.second));
    return both;
  }
  void fold(nanoseconds grace) const { check(tg_registry_fold(raw_, detail::ns(grace))); }

private:
  Registry within(const tg_scope &scope) const {
    Registry own;
    check(tg_registry_scope(raw_, &scope, &own.raw_));
    return own;
  }
  Registry level(const char *tg_scope::*level, const std::string &name) const {
    auto scope = detail::sized<tg_scope>();
    scope.*level = name.c_str();
    return within(scope);
  }
  template <class I> I make(const Description &what, const Labels &labels) const {
    auto own = detail::c(labels);
    tg_description description = what.c();
    typename I::Raw *raw = nullptr;
    check(I::make(raw_, &description, own.data(), own.size(), &raw));
    return I(raw);
  }
};

/**
 * Instruments declared as a struct: derive from it, and initialise members where they are declared.
 *
 *   struct Service : tidegate::MetricSet {
 *     using MetricSet::MetricSet;
 *     Counter requests = counter(Description("requests", "Requests processed"));
 *   };
 *   Service service(registry.scope("service", {{"model", "llama"}}));
 */
class MetricSet {
public:
  explicit MetricSet(Registry registry) : registry_(std::move(registry)) {}

protected:
  Counter counter(const Description &what, const Labels &labels = {}) const { return registry_.counter(what, labels); }
  FloatCounter float_counter(const Description &what, const Labels &labels = {}) const {
    return registry_.float_counter(what, labels);
  }
  UpDownCounter up_down_counter(const Description &what, const Labels &labels = {}) const {
    return registry_.up_down_counter(what, labels);
  }
  Gauge gauge(const Description &what, const Labels &labels = {}) const { return registry_.gauge(what, labels); }
  Histogram histogram(const Description &what, const Labels &labels = {}) const {
    return registry_.histogram(what, labels);
  }
  Histogram exponential_histogram(const Description &what, const Labels &labels = {}) const {
    return registry_.exponential_histogram(what, labels);
  }
  template <class I>
  Family<I> family(const Description &what, const Texts &names, const Labels &labels = {},
                   tg_kind kind = I::kind) const {
    return registry_.family<I>(what, names, labels, kind);
  }

private:
  Registry registry_;
};

} // namespace tidegate

#endif
