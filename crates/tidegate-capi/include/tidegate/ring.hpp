/* SPDX-License-Identifier: Apache-2.0
 *
 * NIXL's telemetry rings. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_RING_HPP
#define TIDEGATE_RING_HPP

#include <vector>

#include "handle.hpp"

namespace tidegate {

/** A ring, open for reading. The result of a read is valid until the next one. */
class Ring : public detail::Handle<tg_ring, tg_ring_retain, tg_ring_release> {
public:
  using Handle::Handle;
  explicit Ring(const std::string &path, bool consume = true, std::size_t max_events = 0) {
    check(tg_ring_open(path.c_str(), consume, max_events, &raw_));
  }
  /** The paths of all rings in a directory. */
  static std::vector<std::string> find(const std::string &directory) {
    Texts paths;
    auto found = [](const char *path, const tg_ring_info *, void *context) noexcept {
      static_cast<Texts *>(context)->push_back(path);
    };
    check(tg_ring_find(directory.c_str(), found, &paths));
    return paths;
  }
  tg_ring_batch read() const {
    tg_ring_batch batch;
    check(tg_ring_read(raw_, &batch));
    return batch;
  }
  /** False: it was restarted meanwhile. */
  bool commit() const { return is_there(tg_ring_commit(raw_)); }
  bool try_consume() const { return is_there(tg_ring_try_consume(raw_)); }
  tg_ring_kind kind(std::uint16_t number) const {
    tg_ring_kind kind;
    check(tg_ring_kind_of(raw_, number, &kind));
    return kind;
  }
  tg_ring_stats stats() const {
    tg_ring_stats stats;
    check(tg_ring_get_stats(raw_, &stats));
    return stats;
  }
  tg_ring_info info() const {
    tg_ring_info info;
    check(tg_ring_get_info(raw_, &info));
    return info;
  }
};

} // namespace tidegate

#endif
