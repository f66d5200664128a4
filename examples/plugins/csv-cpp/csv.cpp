/* SPDX-License-Identifier: Apache-2.0
 *
 * An exporter plugin of tidegate: events as CSV, in C++17. Its configuration is the path of the file.
 *
 *   c++ -std=c++17 -O2 -shared -fPIC -I crates/tidegate-plugin/include -o libtidegate_exporter_csv_cpp.so csv.cpp
 */
#include "tidegate_plugin.h"

#include <charconv>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

std::string_view view(tidegate_text text) { return {text.data, text.length}; }

/* RFC 4180: quoted where it has to be. */
std::string field(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == text.npos) {
        return std::string(text);
    }
    std::string quoted = "\"";
    for (char c : text) {
        quoted.append(c == '"' ? 2 : 1, c);
    }
    return quoted + '"';
}

/* The shortest digits that give the same number. */
template <typename Number> std::string digits(Number number) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

class Csv {
  public:
    explicit Csv(std::string path) : file(path, std::ios::app) {
        if (!file) {
            throw std::runtime_error("can't write " + path);
        }
        if (file.seekp(0, std::ios::end).tellp() == std::streampos(0)) {
            file << "timestamp_us,category,event_name,value\n";
        }
    }

    void put(const tidegate_events &events) {
        for (size_t i = 0; i < events.count; i++) {
            const tidegate_kind &kind = events.kinds[events.kind[i]];
            file << events.times_ns[i] / 1000 << ',' << field(view(kind.category)) << ',' << field(view(kind.name))
                 << ',' << (events.values_u64 ? digits(events.values_u64[i]) : digits(events.values_f64[i])) << '\n';
        }
    }

    bool flush() {
        bool done = static_cast<bool>(file.flush());
        file.clear();
        return done;
    }

  private:
    std::ofstream file;
};

/* Nothing may be thrown out of the plugin. */
template <typename Call> tidegate_status guarded(tidegate_answer *answer, Call call) noexcept {
    try {
        return call();
    } catch (const std::exception &error) {
        tidegate_say(answer, error.what());
    } catch (...) {
        tidegate_say(answer, "an unknown exception");
    }
    return TIDEGATE_REFUSED;
}

tidegate_status create(const tidegate_setup *setup, void **instance, tidegate_answer *answer) noexcept {
    return guarded(answer, [&] {
        *instance = std::make_unique<Csv>(std::string(view(setup->config))).release();
        return TIDEGATE_OK;
    });
}

tidegate_status flush(void *instance, tidegate_answer *answer) noexcept {
    return guarded(answer, [&] {
        if (static_cast<Csv *>(instance)->flush()) {
            return TIDEGATE_OK;
        }
        tidegate_say(answer, "the file can't be written");
        return TIDEGATE_RETRY;
    });
}

/* TIDEGATE_OK means that the gateway may forget the batch, so the lines must have left this process by then. */
tidegate_status export_batch(void *instance, const tidegate_batch *batch, tidegate_answer *answer) noexcept {
    return guarded(answer, [&] {
        for (size_t i = 0; i < batch->events_count; i++) {
            static_cast<Csv *>(instance)->put(batch->events[i]);
        }
        return flush(instance, answer);
    });
}

void destroy(void *instance) noexcept { delete static_cast<Csv *>(instance); }

const tidegate_exporter_table table = {
    TIDEGATE_PLUGIN_ABI_VERSION,
    TIDEGATE_TAKES_EVENTS,
    sizeof(tidegate_exporter_table),
    "csv_cpp",
    "1.0.0",
    create,
    export_batch,
    flush,
    destroy,
};

} // namespace

const tidegate_exporter_table *tidegate_exporter_plugin() noexcept { return &table; }
