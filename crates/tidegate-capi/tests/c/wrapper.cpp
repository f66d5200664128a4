// SPDX-License-Identifier: Apache-2.0

// What tidegate.hpp adds: owners, exceptions, functions, a registry of one's own. wrapper RINGS
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>
#include <tidegate.hpp>

using namespace std::chrono_literals;
using namespace tidegate;

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::cerr << __FILE__ << ':' << __LINE__ << ": " << #condition << '\n';            \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

template <class F> tg_status refused(F act) {
  try {
    act();
    return TG_OK;
  } catch (const Error &error) {
    EXPECT(std::strlen(error.what()) > 0);
    return error.status();
  }
}

static void owners() {
  auto registry = Registry::prometheus();
  Counter kept;
  {
    auto counter = registry.counter(Description("a", "A"), {{"k", "v"}});
    counter.inc();
    kept = counter;
    auto moved = std::move(counter);
    moved.add(2);
    EXPECT(counter.raw() == nullptr);
  }
  registry = Registry::null();
  kept.inc();
  EXPECT(kept.get() == 4);
  EXPECT(kept.describe()[0].series[0].value == 4);
  EXPECT(Counter().raw() == nullptr);
  Counter().inc(); // no registry: no effect
  EXPECT(refused([] { Counter().get(); }) == TG_NULL_POINTER);
  EXPECT(refused([&] { registry.counter(Description("a b")); }) == TG_INVALID);
}

static void registries() {
  OtelOptions options{"http://127.0.0.1:1"};
  options.timeout = 1s;
  options.headers = {{"x-key", "secret"}};
  auto pushed = Registry::otel(options); // no server listens there
  pushed.counter(Description("a")).inc();
  EXPECT(refused([&] { pushed.flush(1s); }) == TG_REFUSED);
  EXPECT(pushed.push_failures().first == 1);
  EXPECT(Registry::at("null").expose().empty());
  EXPECT(Registry::otel({"http://127.0.0.1:1"}).gather().size() == 0);
  EXPECT(refused([] { Registry::otel({"no url"}); }) == TG_INVALID);
  EXPECT(refused([] { Registry::shm("/proc/no such place"); }) == TG_IO);
}

static void instruments() {
  auto registry = Registry::prometheus().scope("x").in_namespace("n").in_component("c").in_endpoint("e");
  auto floats = registry.float_counter(Description("f"));
  auto level = registry.up_down_counter(Description("l"));
  auto gauge = registry.gauge(Description("g").mode(TG_MAX));
  auto exponential = registry.exponential_histogram(Description("e"));
  floats.add(0.5);
  level.inc();
  level.dec();
  level.add(-3);
  {
    auto one = gauge.track();
    EXPECT(gauge.get() == 1);
    auto timer = exponential.start_timer();
  }
  EXPECT(gauge.get() == 0 && floats.get() == 0.5 && level.get() == -3);
  EXPECT(exponential.get().first == 1);
  auto family = registry.family<Gauge>(Description("h"), {"m"});
  family.with({"1"}).set(7);
  EXPECT(family.describe()[0].series_count == 1);
  EXPECT(family.remove({"1"}) && !family.remove({"1"}));
  std::size_t seen = 0;
  for (const tg_metric &metric : registry.gather()) {
    for (const tg_series &series : view(metric.series, metric.series_count)) {
      EXPECT(std::string(series.labels[0].value) == "n");
      seen++;
    }
  }
  EXPECT(seen == 4);
  EXPECT(registry.expose(TG_OPENMETRICS).find("# EOF\n") != std::string::npos);
  for (int i = 0; i < 500; i++) registry.counter(Description("many_" + std::to_string(i)));
  EXPECT(registry.expose().size() > 10000); // more than a first guess
  registry.flush(1s);
  registry.shutdown(1s);
  EXPECT(refused([&] { registry.fold(0s); }) == TG_INVALID);
}

static void composites() {
  auto registry = Registry::prometheus();
  auto family = registry.family<Histogram>(Description("a"), {"m"});
  auto composite = tidegate::composite("a").of(family).by({"m"}).function(TG_FUNCTION_QUANTILE, 0.5).window(1min).build();
  EXPECT(!composite.value() && !composite.get({{"m", "1"}}));
  auto watcher = composite.watch();
  std::mutex lock;
  std::map<std::string, double> told;
  auto subscription = composite.on_change(Trigger::above(0.1).min_interval(1ms), [&](const tg_change &change) {
    std::lock_guard<std::mutex> guard(lock);
    told[change.snapshot->labels[0].value] = change.value;
    throw 1; // counted
  });
  family.with({"1"}).observe(0.2);
  EXPECT(composite.value({{"m", "1"}}).value() > 0.1);
  EXPECT(composite.all().size() == 1 && composite.get()->size() == 1);
  EXPECT(watcher.wait(10s));
  while (callback_failures == 0) std::this_thread::yield();
  subscription = Subscription();
  EXPECT(told.count("1") == 1);
  EXPECT(refused([&] { composite.on_change(Trigger::above(NAN), [](const tg_change &) {}); }) == TG_INVALID);
  EXPECT(refused([&] { tidegate::composite("none").build(); }) == TG_INVALID);
  auto queue = registry.family<Gauge>(Description("queue"), {"pod"});
  queue.with({"a"}).set(100);
  queue.with({"b"}).set(0);
  auto depth = [&] { return tidegate::composite("depth").of(queue).function(TG_FUNCTION_LAST); };
  EXPECT(depth().across(TG_ACROSS_SUM).build().value() == 100.0);
  EXPECT(depth().across(TG_ACROSS_QUANTILE, 0.75).build().value() == 75.0);
  EXPECT((*depth().build().get())[0].error != nullptr);
  EXPECT(refused([&] { depth().across(TG_ACROSS_POOL).build(); }) == TG_INVALID);
}

struct Counting : Backend {
  std::map<std::string, std::uint64_t> *totals;
  std::vector<std::string> series_names;
  explicit Counting(std::map<std::string, std::uint64_t> *to) : totals(to) {}
  ~Counting() override { (*totals)["gone"] = 1; }
  std::uint64_t family(const tg_foreign_spec &spec) override {
    if (text(spec.name) == "refused") throw std::runtime_error("no");
    series_names.push_back(text(spec.name));
    return series_names.size() - 1;
  }
  std::uint64_t series(std::uint64_t family, const Texts &values) override {
    series_names.push_back(series_names[family] + (values.empty() ? "" : "/" + values[0]));
    return series_names.size() - 1;
  }
  void add(std::uint64_t series, std::uint64_t amount) override { (*totals)[series_names.at(series)] += amount; }
};

static void a_registry_of_ones_own() {
  std::map<std::string, std::uint64_t> totals;
  {
    auto registry = Registry::fanout({Registry::prometheus(), foreign(std::make_unique<Counting>(&totals))});
    auto family = registry.family<Counter>(Description("jobs"), {"queue"});
    family.with({"a"}).add(3);
    EXPECT(totals["jobs/a"] == 3);
    EXPECT(registry.expose().find("jobs_total{queue=\"a\"} 3") != std::string::npos);
    EXPECT(refused([&] { registry.counter(Description("refused")); }) == TG_REFUSED);
    EXPECT(totals.count("gone") == 0);
  }
  EXPECT(totals["gone"] == 1);
}

static void servers_spans_and_rings(const char *rings) {
  auto registry = Registry::prometheus();
  Server server(registry, "127.0.0.1:0");
  EXPECT(server.address().rfind("127.0.0.1:", 0) == 0);
  server.set_ready(false);
  server.set_endpoint("generate", true);
  server.stop();
  EXPECT(refused([&] { server.address(); }) == TG_NONE);

  Tracer tracer("http://127.0.0.1:1", {{"service.name", "test"}});
  auto parent = parse_trace_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  auto span = tracer.start("request", parent);
  span.set("k", "v");
  EXPECT(traceparent(span.context().value()).substr(3, 32) == "0af7651916cd43dd8448eb211c80319c");
  EXPECT(!parse_trace_context("nonsense"));
  EXPECT(tracer.start("another").context()->is_sampled);
  EXPECT(refused([&] { tracer.shutdown(10ms); }) != TG_OK); // no server listens there

  auto paths = Ring::find(rings);
  EXPECT(paths.size() == 1);
  Ring ring(paths[0]);
  EXPECT(std::string(ring.info().version) == "1" && ring.info().mode == TG_RING_CONSUME);
  Ring other(paths[0]);
  EXPECT(other.info().mode == TG_RING_PEEK_LOCKED && !other.try_consume());
  auto batch = ring.read();
  EXPECT(batch.status == TG_RING_EVENTS && batch.count == 3 && batch.readable == 3 && batch.full);
  EXPECT(batch.values[2] == 30 && batch.timestamps_us[2] == 33);
  EXPECT(std::string(ring.kind(batch.kinds[2]).name) == "mine");
  EXPECT(refused([&] { ring.kind(9999); }) == TG_NONE);
  EXPECT(ring.commit() && ring.read().status == TG_RING_IDLE);
  EXPECT(ring.stats().events == 3 && ring.stats().suspected_loss == 1);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  owners();
  registries();
  instruments();
  composites();
  a_registry_of_ones_own();
  servers_spans_and_rings(argv[1]);
}
