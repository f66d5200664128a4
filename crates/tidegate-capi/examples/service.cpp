// SPDX-License-Identifier: Apache-2.0

// service.c in C++.
//
//   c++ -std=c++17 service.cpp $(pkg-config --cflags --libs tidegate) -o service
#include <atomic>
#include <cstdio>
#include <iostream>
#include <thread>
#include <tidegate.hpp>

using namespace std::chrono_literals;
using tidegate::Counter, tidegate::Description, tidegate::Trigger;

int main() try {
  // The one line that knows where values go.
  auto registry = tidegate::Registry::prometheus();
  tidegate::Server server(registry, "127.0.0.1:0");
  std::cerr << "http://" << server.address() << "/metrics\n";

  // Everything below is called service_... and has a label.
  auto service = registry.scope("service", {{"model", "llama"}});
  auto requests = service.family<Counter>(Description("requests", "Requests processed"), {"status"});
  auto ok = requests.with({"200"});
  auto inflight = service.gauge(Description("inflight", "Requests in flight"));
  auto ttft = service.histogram(Description("ttft", "Time to the first token").unit("s").buckets("latency"));

  // The mean of the last ten seconds, with a quantile beside it, and an alarm.
  auto recent = tidegate::composite("recent_ttft").of(ttft).window(10s).quantiles({0.5}).build();
  std::atomic<bool> is_slow{false};
  auto alarm = recent.on_change(Trigger::above(0.5).hysteresis(0.1),
                                [&](const tg_change &change) { is_slow = change.is_crossed; });

  auto one = inflight.track(), another = inflight.track(); // until they go
  for (int i = 1; i <= 3; i++) {
    ttft.observe(0.4 * i); // or auto timer = ttft.start_timer();
    ok.inc();
  }

  std::printf("mean %.1f s\n", recent.value().value());
  while (!is_slow) std::this_thread::yield(); // some milliseconds
  std::printf("slow\n");
  std::fputs(registry.expose().c_str(), stdout);
} catch (const tidegate::Error &error) {
  std::cerr << tg_status_name(error.status()) << ": " << error.what() << '\n';
  return 1;
}
