/* SPDX-License-Identifier: Apache-2.0
 *
 * A registry that is written in C++. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_FOREIGN_HPP
#define TIDEGATE_FOREIGN_HPP

#include <memory>

#include "registry.hpp"

namespace tidegate {

inline std::string text(const tg_foreign_text &text) { return std::string(text.bytes, text.length); }

/** The interface of a registry of one's own. All functions may be called from several threads at once, and should not
 * block: they run where the program records. Exceptions are counted and go no further. */
class Backend {
public:
  virtual ~Backend() = default;
  /** A number for a family. To throw refuses it. */
  virtual std::uint64_t family(const tg_foreign_spec &spec) = 0;
  /** A number for the series with these values of the spec's labels; the same for the same values. */
  virtual std::uint64_t series(std::uint64_t family, const Texts &values) = 0;
  virtual void add(std::uint64_t, std::uint64_t) {}
  virtual void add(std::uint64_t, std::int64_t) {}
  virtual void add(std::uint64_t, double) {}
  virtual void set(std::uint64_t, double) {}
  virtual void observe(std::uint64_t, double) {}
  virtual void remove(std::uint64_t) {}
};

/** Passes everything on to `backend`, which lives until the registry and its instruments are gone. */
inline Registry foreign(std::unique_ptr<Backend> backend) {
  auto table = detail::sized<tg_foreign_table>();
  table.register_ = [](void *context, const tg_foreign_spec *spec, std::uint64_t *family) noexcept -> std::int32_t {
    try {
      *family = static_cast<Backend *>(context)->family(*spec);
      return 0;
    } catch (...) {
      return 1;
    }
  };
  table.series = [](void *context, std::uint64_t family, const tg_foreign_text *values,
                    std::size_t count) noexcept -> std::uint64_t {
    try {
      Texts texts;
      for (const auto &value : view(values, count)) texts.push_back(text(value));
      return static_cast<Backend *>(context)->series(family, texts);
    } catch (...) {
      ++callback_failures;
      return 0;
    }
  };
  table.add_u64 = [](void *context, std::uint64_t series, std::uint64_t amount) noexcept {
    detail::quietly([&] { static_cast<Backend *>(context)->add(series, amount); });
  };
  table.add_i64 = [](void *context, std::uint64_t series, std::int64_t amount) noexcept {
    detail::quietly([&] { static_cast<Backend *>(context)->add(series, amount); });
  };
  table.add_f64 = [](void *context, std::uint64_t series, double amount) noexcept {
    detail::quietly([&] { static_cast<Backend *>(context)->add(series, amount); });
  };
  table.set = [](void *context, std::uint64_t series, double value) noexcept {
    detail::quietly([&] { static_cast<Backend *>(context)->set(series, value); });
  };
  table.observe = [](void *context, std::uint64_t series, double value) noexcept {
    detail::quietly([&] { static_cast<Backend *>(context)->observe(series, value); });
  };
  table.remove = [](void *context, std::uint64_t series) noexcept {
    detail::quietly([&] { static_cast<Backend *>(context)->remove(series); });
  };
  table.release = [](void *context) noexcept { delete static_cast<Backend *>(context); };
  table.context = backend.get();
  Registry registry = Registry::foreign(table);
  backend.release();
  return registry;
}

} // namespace tidegate

#endif
