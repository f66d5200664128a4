/* SPDX-License-Identifier: Apache-2.0
 *
 * Triggers and callbacks. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_WATCH_HPP
#define TIDEGATE_WATCH_HPP

#include <atomic>
#include <functional>
#include <memory>

#include "handle.hpp"

namespace tidegate {

/** When a callback is due: Trigger::above(0.5).hysteresis(0.1). */
class Trigger {
public:
  static Trigger changed() { return Trigger(TG_CHANGED, 0); }
  static Trigger above(double at) { return Trigger(TG_ABOVE, at); }
  static Trigger below(double at) { return Trigger(TG_BELOW, at); }
  static Trigger moved(double by) { return Trigger(TG_MOVED, by); }
  Trigger hysteresis(double by) const {
    Trigger own = *this;
    own.c_.hysteresis = by;
    return own;
  }
  Trigger min_interval(nanoseconds time) const {
    Trigger own = *this;
    own.c_.min_interval_ns = detail::ns(time);
    return own;
  }
  const tg_trigger *c() const { return &c_; }

private:
  Trigger(tg_when when, double at) : c_(detail::sized<tg_trigger>()) {
    c_.when = when;
    c_.at = at;
  }
  tg_trigger c_;
};

using Callback = std::function<void(const tg_change &)>;

/** How many callbacks of this process threw. */
inline std::atomic<std::uint64_t> callback_failures{0};

namespace detail {

/** Runs what C calls: nothing may unwind out of it. */
template <class F> void quietly(F act) noexcept {
  try {
    act();
  } catch (...) {
    ++callback_failures;
  }
}

} // namespace detail

/** Keeps a callback in place. When the last owner goes, calls end: one that runs is waited for. */
class Subscription : public detail::Handle<tg_subscription, tg_subscription_retain, tg_subscription_release> {
public:
  using Handle::Handle;
  Subscription(tg_any of, const Trigger &trigger, Callback callback) {
    auto call = [](const tg_change *change, void *context) noexcept {
      detail::quietly([&] { (*static_cast<Callback *>(context))(*change); });
    };
    auto done = [](void *context) noexcept { delete static_cast<Callback *>(context); };
    auto *context = new Callback(std::move(callback));
    check(tg_on_change(of, trigger.c(), call, context, done, &raw_));
  }
};

} // namespace tidegate

#endif
