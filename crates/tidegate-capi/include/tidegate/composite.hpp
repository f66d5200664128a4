/* SPDX-License-Identifier: Apache-2.0
 *
 * Composites: what instruments say over a window. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_COMPOSITE_HPP
#define TIDEGATE_COMPOSITE_HPP

#include <initializer_list>
#include <optional>

#include "instrument.hpp"

namespace tidegate {

/** Waits for what a composite says next. */
class Watcher : public detail::Handle<tg_watcher, tg_watcher_retain, tg_watcher_release> {
public:
  using Handle::Handle;
  /** All groups, once they say something that was not taken yet; nothing if that takes longer. */
  std::optional<Snapshots> wait(nanoseconds at_most) const {
    tg_snapshots *news = nullptr;
    if (!is_there(tg_watcher_wait(raw_, detail::ns(at_most), &news))) return std::nullopt;
    return Snapshots(news);
  }
};

/** A value derived from instruments over a window. */
class Composite : public detail::Handle<tg_composite, tg_composite_retain, tg_composite_release> {
public:
  using Handle::Handle;
  tg_any any() const { return {TG_TYPE_COMPOSITE, raw_}; }
  /** The value of the group with these labels, or of the first; nothing where there is none. */
  std::optional<double> value(const Labels &labels = {}) const {
    auto own = detail::c(labels);
    double value = 0;
    if (!is_there(tg_composite_value(raw_, own.data(), own.size(), &value))) return std::nullopt;
    return value;
  }
  /** The current state of the group with these labels, or of the first group; nothing: no group has them. */
  std::optional<Snapshots> get(const Labels &labels = {}) const {
    auto own = detail::c(labels);
    tg_snapshots *found = nullptr;
    if (!is_there(tg_composite_get(raw_, own.data(), own.size(), &found))) return std::nullopt;
    return Snapshots(found);
  }
  /** The current state of every group. */
  Snapshots all() const {
    tg_snapshots *all = nullptr;
    check(tg_composite_all(raw_, &all));
    return Snapshots(all);
  }
  Subscription on_change(const Trigger &trigger, Callback callback) const {
    return Subscription(any(), trigger, std::move(callback));
  }
  Watcher watch() const {
    tg_watcher *watcher = nullptr;
    check(tg_composite_watch(raw_, &watcher));
    return Watcher(watcher);
  }
};

/** A composite in the making: composite("ttft").of(histogram).window(10s).by({"model"}).build(). */
class CompositeBuilder {
public:
  explicit CompositeBuilder(std::string name) : name_(std::move(name)) {}
  /** Of an instrument or a family, which has to live until build(). */
  template <class I> CompositeBuilder &of(const I &instrument) {
    of_.push_back(instrument.any());
    return *this;
  }
  CompositeBuilder &window(nanoseconds window) {
    window_ = window;
    return *this;
  }
  CompositeBuilder &by(Texts labels) {
    by_ = std::move(labels);
    return *this;
  }
  CompositeBuilder &function(tg_function function, double rank = 0) {
    function_ = function;
    rank_ = rank;
    return *this;
  }
  /** How the series of a group become one value. */
  CompositeBuilder &across(tg_across across, double rank = 0) {
    across_ = across;
    across_rank_ = rank;
    return *this;
  }
  CompositeBuilder &quantiles(std::vector<double> ranks) {
    quantiles_ = std::move(ranks);
    return *this;
  }
  Composite build() const {
    auto by = detail::c(by_);
    auto options = detail::sized<tg_composite_options>();
    options.window_ns = detail::ns(window_);
    options.by = by.data();
    options.by_count = by.size();
    options.function = function_;
    options.rank = rank_;
    options.quantiles = quantiles_.data();
    options.quantile_count = quantiles_.size();
    options.across = across_;
    options.across_rank = across_rank_;
    tg_composite *composite = nullptr;
    check(tg_composite_new(name_.c_str(), of_.data(), of_.size(), &options, &composite));
    return Composite(composite);
  }

private:
  std::string name_;
  std::vector<tg_any> of_;
  nanoseconds window_{0};
  Texts by_;
  tg_function function_ = TG_FUNCTION_DEFAULT;
  double rank_ = 0;
  std::vector<double> quantiles_;
  tg_across across_ = TG_ACROSS_DEFAULT;
  double across_rank_ = 0;
};

/** Begins a composite of this name. */
inline CompositeBuilder composite(std::string name) { return CompositeBuilder(std::move(name)); }

} // namespace tidegate

#endif
