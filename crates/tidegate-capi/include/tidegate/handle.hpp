/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors, owners of handles, lists. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_HANDLE_HPP
#define TIDEGATE_HANDLE_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../tidegate.h"

namespace tidegate {

using std::chrono::nanoseconds;

/** A call that failed: what() says why. */
class Error : public std::runtime_error {
public:
  explicit Error(tg_status status) : std::runtime_error(tg_error_text()), status_(status) {}
  tg_status status() const noexcept { return status_; }

private:
  tg_status status_;
};

inline void check(tg_status status) {
  if (status != TG_OK) throw Error(status);
}

/** False for TG_NONE and TG_TIMEOUT: nothing there, nothing new. */
inline bool is_there(tg_status status) {
  if (status == TG_NONE || status == TG_TIMEOUT) return false;
  check(status);
  return true;
}

/** Labels with their values, or attributes of a resource. */
using Labels = std::vector<std::pair<std::string, std::string>>;
using Texts = std::vector<std::string>;

namespace detail {

inline std::uint64_t ns(nanoseconds duration) {
  return duration.count() > 0 ? static_cast<std::uint64_t>(duration.count()) : 0;
}

/** As C has them, as long as what they are of. */
inline std::vector<tg_label> c(const Labels &labels) {
  std::vector<tg_label> all;
  for (const auto &label : labels) all.push_back({label.first.c_str(), label.second.c_str()});
  return all;
}

inline std::vector<const char *> c(const Texts &texts) {
  std::vector<const char *> all;
  for (const auto &text : texts) all.push_back(text.c_str());
  return all;
}

inline const char *c(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }

template <class T> T sized() {
  T zero{};
  zero.size = sizeof(T);
  return zero;
}

/** An owner of a handle: copies are owners, too. */
template <class T, tg_status (*Retain)(const T *), tg_status (*Release)(const T *)> class Handle {
public:
  using Raw = T;
  Handle() = default;
  /** Takes over an owner. */
  explicit Handle(T *raw) noexcept : raw_(raw) {}
  Handle(const Handle &other) noexcept : raw_(other.raw_) {
    if (raw_) Retain(raw_);
  }
  Handle(Handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle &operator=(Handle other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Handle() { Release(raw_); }
  /** For calls of tidegate.h. */
  T *raw() const noexcept { return raw_; }

protected:
  T *raw_ = nullptr;
};

/** A list whose elements can be read one by one. */
template <class List> class Iterator {
public:
  Iterator(const List &list, std::size_t at) : list_(&list), at_(at) {}
  decltype(auto) operator*() const { return (*list_)[at_]; }
  Iterator &operator++() {
    ++at_;
    return *this;
  }
  bool operator!=(const Iterator &other) const { return at_ != other.at_; }

private:
  const List *list_;
  std::size_t at_;
};

} // namespace detail

/** A plain array of C, with its length: for (const tg_label &label : view(series.labels, series.label_count)). */
template <class T> struct View {
  const T *first;
  std::size_t count;
  const T *begin() const { return first; }
  const T *end() const { return first + count; }
};
template <class T> View<T> view(const T *first, std::size_t count) { return {first, count}; }

/** Metrics with their values at one instant. */
class Metrics : public detail::Handle<tg_metrics, tg_metrics_retain, tg_metrics_release> {
public:
  using Handle::Handle;
  std::size_t size() const {
    std::size_t count = 0;
    check(tg_metrics_count(raw_, &count));
    return count;
  }
  const tg_metric &operator[](std::size_t at) const {
    const tg_metric *metric = nullptr;
    check(tg_metrics_at(raw_, at, &metric));
    return *metric;
  }
  detail::Iterator<Metrics> begin() const { return {*this, 0}; }
  detail::Iterator<Metrics> end() const { return {*this, size()}; }
};

/** Snapshots of the groups of a composite. */
class Snapshots : public detail::Handle<tg_snapshots, tg_snapshots_retain, tg_snapshots_release> {
public:
  using Handle::Handle;
  std::size_t size() const {
    std::size_t count = 0;
    check(tg_snapshots_count(raw_, &count));
    return count;
  }
  const tg_snapshot &operator[](std::size_t at) const {
    const tg_snapshot *snapshot = nullptr;
    check(tg_snapshots_at(raw_, at, &snapshot));
    return *snapshot;
  }
  detail::Iterator<Snapshots> begin() const { return {*this, 0}; }
  detail::Iterator<Snapshots> end() const { return {*this, size()}; }
};

} // namespace tidegate

#endif
