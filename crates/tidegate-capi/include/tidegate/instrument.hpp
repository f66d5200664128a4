/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruments and families of them. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_INSTRUMENT_HPP
#define TIDEGATE_INSTRUMENT_HPP

#include "watch.hpp"

namespace tidegate {

/** The common part of all instruments; `Self` is one of them. */
template <class Self, class T, tg_type Type, tg_status (*Retain)(const T *), tg_status (*Release)(const T *)>
class Instrument : public detail::Handle<T, Retain, Release> {
public:
  using detail::Handle<T, Retain, Release>::Handle;
  tg_any any() const { return {Type, this->raw_}; }
  /** Name, kind, unit, description, labels, value: one metric with one series. */
  Metrics describe() const {
    tg_metrics *metrics = nullptr;
    check(tg_describe(any(), &metrics));
    return Metrics(metrics);
  }
  Subscription on_change(const Trigger &trigger, Callback callback) const {
    return Subscription(any(), trigger, std::move(callback));
  }
};

class Counter
    : public Instrument<Counter, tg_counter, TG_TYPE_COUNTER, tg_counter_retain, tg_counter_release> {
public:
  using Instrument::Instrument;
  static constexpr tg_kind kind = TG_COUNTER;
  static constexpr auto make = tg_counter_new;
  static constexpr auto with = tg_family_counter;
  void inc() const noexcept { tg_counter_inc(raw_); }
  void add(std::uint64_t amount) const noexcept { tg_counter_add(raw_, amount); }
  void add_in(std::uint64_t amount, const tg_trace_context &span) const noexcept {
    tg_counter_add_in(raw_, amount, &span);
  }
  std::uint64_t get() const {
    std::uint64_t value = 0;
    check(tg_counter_get(raw_, &value));
    return value;
  }
};

class FloatCounter : public Instrument<FloatCounter, tg_float_counter, TG_TYPE_FLOAT_COUNTER,
                                       tg_float_counter_retain, tg_float_counter_release> {
public:
  using Instrument::Instrument;
  static constexpr tg_kind kind = TG_FLOAT_COUNTER;
  static constexpr auto make = tg_float_counter_new;
  static constexpr auto with = tg_family_float_counter;
  void add(double amount) const noexcept { tg_float_counter_add(raw_, amount); }
  double get() const {
    double value = 0;
    check(tg_float_counter_get(raw_, &value));
    return value;
  }
};

class UpDownCounter : public Instrument<UpDownCounter, tg_up_down_counter, TG_TYPE_UP_DOWN_COUNTER,
                                        tg_up_down_counter_retain, tg_up_down_counter_release> {
public:
  using Instrument::Instrument;
  static constexpr tg_kind kind = TG_UP_DOWN_COUNTER;
  static constexpr auto make = tg_up_down_counter_new;
  static constexpr auto with = tg_family_up_down_counter;
  void inc() const noexcept { add(1); }
  void dec() const noexcept { add(-1); }
  void add(std::int64_t amount) const noexcept { tg_up_down_counter_add(raw_, amount); }
  std::int64_t get() const {
    std::int64_t value = 0;
    check(tg_up_down_counter_get(raw_, &value));
    return value;
  }
};

class Gauge : public Instrument<Gauge, tg_gauge, TG_TYPE_GAUGE, tg_gauge_retain, tg_gauge_release> {
public:
  using Instrument::Instrument;
  static constexpr tg_kind kind = TG_GAUGE;
  static constexpr auto make = tg_gauge_new;
  static constexpr auto with = tg_family_gauge;
  void set(double value) const noexcept { tg_gauge_set(raw_, value); }
  void add(double amount) const noexcept { tg_gauge_add(raw_, amount); }
  void inc() const noexcept { add(1); }
  void dec() const noexcept { add(-1); }
  double get() const {
    double value = 0;
    check(tg_gauge_get(raw_, &value));
    return value;
  }
  /** One more until what it returns goes. */
  auto track() const {
    struct Less {
      Gauge gauge;
      explicit Less(const Gauge &of) : gauge(of) { gauge.inc(); }
      Less(Less &&other) noexcept : gauge(std::move(other.gauge)) {}
      ~Less() {
        if (gauge.raw()) gauge.dec();
      }
    };
    return Less(*this);
  }
};

class Histogram : public Instrument<Histogram, tg_histogram, TG_TYPE_HISTOGRAM, tg_histogram_retain,
                                    tg_histogram_release> {
public:
  using Instrument::Instrument;
  static constexpr tg_kind kind = TG_HISTOGRAM;
  static constexpr auto make = tg_histogram_new;
  static constexpr auto with = tg_family_histogram;
  void observe(double value) const noexcept { tg_histogram_observe(raw_, value); }
  void observe_in(double value, const tg_trace_context &span) const noexcept {
    tg_histogram_observe_in(raw_, value, &span);
  }
  /** How many values, and their sum. */
  std::pair<std::uint64_t, double> get() const {
    std::pair<std::uint64_t, double> both{0, 0};
    check(tg_histogram_get(raw_, &both.first, &both.second));
    return both;
  }
  /** Observes the seconds until what it returns goes. */
  auto start_timer() const {
    struct Timer {
      Histogram histogram;
      std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
      explicit Timer(const Histogram &of) : histogram(of) {}
      Timer(Timer &&other) noexcept : histogram(std::move(other.histogram)), start(other.start) {}
      ~Timer() {
        std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        if (histogram.raw()) histogram.observe(passed.count());
      }
    };
    return Timer(*this);
  }
};

/** The instruments of one name, distinguished by the values of their labels. */
template <class I> class Family : public detail::Handle<tg_family, tg_family_retain, tg_family_release> {
public:
  using Handle::Handle;
  tg_any any() const { return {TG_TYPE_FAMILY, raw_}; }
  /** Keep what it gives where the values stay the same. */
  I with(const Texts &values) const {
    auto texts = detail::c(values);
    typename I::Raw *raw = nullptr;
    check(I::with(raw_, texts.data(), texts.size(), &raw));
    return I(raw);
  }
  /** False: there was no such series. */
  bool remove(const Texts &values) const {
    auto texts = detail::c(values);
    return is_there(tg_family_remove(raw_, texts.data(), texts.size()));
  }
  Metrics describe() const {
    tg_metrics *metrics = nullptr;
    check(tg_describe(any(), &metrics));
    return Metrics(metrics);
  }
};

} // namespace tidegate

#endif
