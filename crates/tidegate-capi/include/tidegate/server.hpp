/* SPDX-License-Identifier: Apache-2.0
 *
 * /metrics, /health and /live over HTTP. Part of tidegate.hpp.
 */
#ifndef TIDEGATE_SERVER_HPP
#define TIDEGATE_SERVER_HPP

#include "registry.hpp"

namespace tidegate {

/** Serves the pages of a registry on a thread of its own, until it is stopped or its last owner goes. */
class Server : public detail::Handle<tg_server, tg_server_retain, tg_server_release> {
public:
  using Handle::Handle;
  /** "0.0.0.0:9090"; port 0: any that is free. */
  Server(const Registry &registry, const std::string &address) {
    check(tg_serve_http(registry.raw(), address.c_str(), &raw_));
  }
  /** Where it listens. */
  std::string address() const {
    char text[64];
    check(tg_server_address(raw_, text, sizeof text));
    return text;
  }
  void set_ready(bool is_ready) const { check(tg_server_set_ready(raw_, is_ready)); }
  void set_endpoint(const std::string &name, bool is_ready) const {
    check(tg_server_set_endpoint(raw_, name.c_str(), is_ready));
  }
  void stop() const { check(tg_server_stop(raw_)); }
};

} // namespace tidegate

#endif
