// SPDX-License-Identifier: Apache-2.0

// set.c in C++.
//
//   c++ -std=c++17 set.cpp $(pkg-config --cflags --libs tidegate) -o set
#include <cstdio>
#include <iostream>
#include <tidegate.hpp>

using tidegate::Counter, tidegate::Description, tidegate::Family, tidegate::Gauge, tidegate::Histogram;

struct Service : tidegate::MetricSet {
  using MetricSet::MetricSet;

  Family<Counter> requests = family<Counter>(Description("requests", "Requests processed"), {"status"});
  Gauge inflight = gauge(Description("inflight", "Requests in flight"));
  Histogram ttft = histogram(Description("ttft", "Time to the first token").unit("s").buckets("latency"));
};

int main() try {
  auto registry = tidegate::Registry::prometheus();
  Service service(registry.scope("service", {{"model", "llama"}}));

  service.requests.with({"200"}).add(3);
  service.inflight.set(2);
  service.ttft.observe(0.4);
  std::fputs(registry.expose().c_str(), stdout);
} catch (const tidegate::Error &error) {
  std::cerr << tg_status_name(error.status()) << ": " << error.what() << '\n';
  return 1;
}
