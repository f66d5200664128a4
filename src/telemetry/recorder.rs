// SPDX-License-Identifier: Apache-2.0

//! The recorder for the counts of components. A fan-out passes them to one recorder for every reader. Each
//! recorder has its own values, with the names for its reader.

use std::borrow::Cow;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::layers::FanoutBuilder;

use super::catalogue::{CATALOGUE, Described, MetricKind, find};
use super::config::{Detail, Listen};
use super::instruments::Instruments;
use super::old_names::OldNames;
use super::views::Views;
use crate::component::shared::OwnMetrics;

/// Passes the metrics of a level, changed by the views.
struct Levelled<R> {
    level: Detail,
    views: Views,
    inner: R,
}

/// Creates a recorder for `pages` and `pushes`.
pub(super) fn fan_out(
    level: Detail,
    views: Views,
    pages: Vec<Renaming>,
    pushes: Vec<Instruments>,
) -> impl Recorder + Sync + 'static {
    let mut recorders = FanoutBuilder::default();
    for page in pages {
        recorders = recorders.add_recorder(page);
    }
    for push in pushes {
        recorders = recorders.add_recorder(push);
    }
    // Levels and views apply to each name by itself.
    OldNames(Levelled {
        level,
        views,
        inner: recorders.build(),
    })
}

impl<R> Levelled<R> {
    /// Metrics outside of the catalogue are shown.
    fn shows(&self, key: &Key) -> bool {
        let is_of_level = |described: &Described| described.level as u8 <= self.level as u8;
        find(key.name()).is_none_or(is_of_level) && !self.views.drops(key.name())
    }
}

impl<R: Recorder> Recorder for Levelled<R> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        if !self.shows(key) {
            return Counter::noop();
        }
        let inner = |key: &Key| self.inner.register_counter(key, metadata);
        match self.views.reduced(key) {
            Some(reduced) => self.views.counter(key, || inner(&reduced)),
            None => inner(key),
        }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        if !self.shows(key) {
            return Gauge::noop();
        }
        let inner = |key: &Key| self.inner.register_gauge(key, metadata);
        match self.views.reduced(key) {
            Some(reduced) => self.views.gauge(key, reduced, inner),
            None => inner(key),
        }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        match (self.shows(key), self.views.reduced(key)) {
            (false, _) => Histogram::noop(),
            (true, Some(reduced)) => self.inner.register_histogram(&reduced, metadata),
            (true, None) => self.inner.register_histogram(key, metadata),
        }
    }
}

/// The suffixes that a page appends to the names of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    units: bool,
    types: bool,
}

impl Naming {
    fn of(listen: &Listen) -> Self {
        Self {
            units: !listen.without_units,
            types: !listen.without_type_suffix,
        }
    }

    /// The name on the page, as from the Collector's Prometheus exporter.
    pub(super) fn name(self, described: &Described) -> Cow<'static, str> {
        let is_counter = matches!(described.kind, MetricKind::Counter | MetricKind::FractionCounter);
        let stem = described.name.strip_suffix("_total").unwrap_or(described.name);
        let unit = match described.unit {
            "By" => "bytes",
            "s" => "seconds",
            "1" if described.kind == MetricKind::Gauge => "ratio",
            _ => "",
        };
        let add_unit = self.units && !unit.is_empty() && !stem.split(['_', '.']).any(|part| part == unit);
        let add_total = self.types && is_counter || stem.len() < described.name.len();
        let name: Cow<'static, str> = match (add_unit, add_total) {
            (false, false) => stem.into(),
            (false, true) if stem.len() < described.name.len() => described.name.into(),
            (false, true) => format!("{stem}_total").into(),
            (true, false) => format!("{stem}_{unit}").into(),
            (true, true) => format!("{stem}_{unit}_total").into(),
        };
        if name.contains('.') {
            name.replace('.', "_").into()
        } else {
            name
        }
    }
}

/// The recorder of a page, with the names of the page.
pub(super) struct Renaming {
    naming: Naming,
    /// The metrics of [`OwnMetrics`]. Their own recorder renders them without the others.
    live: PrometheusRecorder,
    others: PrometheusRecorder,
}

impl Renaming {
    /// The recorder of a page with its descriptions, and its renderer.
    pub(super) fn new(listen: &Listen, attributes: &[(String, String)]) -> (Self, Rendering) {
        let naming = Naming::of(listen);
        let live = recorder(naming, listen, attributes, OwnMetrics::has);
        let others = recorder(naming, listen, attributes, |name| !OwnMetrics::has(name));
        let rendering = Rendering {
            naming,
            live: live.handle(),
            others: others.handle(),
        };
        let renaming = Self { naming, live, others };
        (renaming, rendering)
    }

    /// The recorder of a metric.
    fn recorder(&self, key: &Key) -> &PrometheusRecorder {
        if OwnMetrics::has(key.name()) {
            &self.live
        } else {
            &self.others
        }
    }

    fn key(&self, key: &Key) -> Key {
        match find(key.name()).map(|described| self.naming.name(described)) {
            Some(name) if name != key.name() => {
                let labels: Vec<_> = key.labels().cloned().collect();
                Key::from_parts(name.into_owned(), labels)
            }
            _ => key.clone(),
        }
    }
}

impl Recorder for Renaming {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.recorder(key).register_counter(&self.key(key), metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.recorder(key).register_gauge(&self.key(key), metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.recorder(key).register_histogram(&self.key(key), metadata)
    }
}

/// A recorder of the metrics that `has` selects by their names in the catalogue, with their descriptions.
fn recorder(
    naming: Naming,
    listen: &Listen,
    attributes: &[(String, String)],
    has: impl Fn(&str) -> bool,
) -> PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    let constant = listen.with_resource_constant_labels.as_ref();
    let is_constant = |name: &str| constant.is_some_and(|selected| selected.has(name));
    for (name, value) in attributes.iter().filter(|(name, _)| is_constant(name)) {
        builder = builder.add_global_label(name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"), value);
    }
    if !listen.without_scope_info {
        builder = builder
            .add_global_label("otel_scope_name", super::SCOPE)
            .add_global_label("otel_scope_schema_url", "")
            .add_global_label("otel_scope_version", env!("CARGO_PKG_VERSION"));
    }
    let described = || CATALOGUE.iter().filter(|described| has(described.name));
    for described in described() {
        if let MetricKind::Histogram(bounds) = described.kind {
            let name = Matcher::Full(naming.name(described).into_owned());
            // It fails only without bounds, and then the metric would be a summary.
            builder = match builder.set_buckets_for_metric(name, bounds) {
                Ok(builder) => builder,
                Err(_) => unreachable!("the catalogue has bounds for every histogram"),
            };
        }
    }
    let recorder = builder.build_recorder();
    for described in described() {
        let name = KeyName::from(naming.name(described).into_owned());
        recorder.describe_gauge(name, None, described.help.into());
    }
    recorder
}

/// Renders a page.
#[derive(Clone)]
pub(super) struct Rendering {
    naming: Naming,
    live: PrometheusHandle,
    others: PrometheusHandle,
}

impl Rendering {
    /// All metrics.
    pub(super) fn text(&self) -> String {
        let mut page = self.others.render();
        page.push_str(&self.live.render());
        let fractions = CATALOGUE
            .iter()
            .filter(|described| described.kind == MetricKind::FractionCounter);
        for described in fractions {
            let declared = format!("# TYPE {} ", self.naming.name(described));
            page = page.replace(&format!("{declared}gauge\n"), &format!("{declared}counter\n"));
        }
        without_absent(page)
    }

    /// The metrics of [`OwnMetrics`].
    pub(super) fn live_text(&self) -> String {
        without_absent(self.live.render())
    }

    /// Sorts recorded values into buckets. Until then the recorder keeps each value.
    pub(super) fn tidy(&self) {
        self.live.run_upkeep();
        self.others.run_upkeep();
    }
}

/// A page without the gauges that have no value.
fn without_absent(page: String) -> String {
    let is_shown = |line: &&str| line.starts_with('#') || !line.ends_with(" NaN\n");
    if page.contains(" NaN\n") {
        page.split_inclusive('\n').filter(is_shown).collect()
    } else {
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(suffixes: bool) -> Listen {
        Listen {
            without_units: !suffixes,
            without_type_suffix: !suffixes,
            ..Listen::default()
        }
    }

    #[test]
    fn names_get_the_suffixes_that_a_reader_wants() {
        let name = |name: &str, suffixes| {
            Naming::of(&listen(suffixes))
                .name(find(name).unwrap())
                .into_owned()
        };
        for (plain, full) in [
            ("otelcol_process_uptime", "otelcol_process_uptime_seconds_total"),
            ("otelcol_process_cpu_seconds", "otelcol_process_cpu_seconds_total"),
            ("otelcol_process_memory_rss", "otelcol_process_memory_rss_bytes"),
            ("otelcol_exporter_sent_spans", "otelcol_exporter_sent_spans_total"),
            ("tidegate_dropped_items_total", "tidegate_dropped_items_total"),
            ("tidegate_nixl_ring_fill_ratio", "tidegate_nixl_ring_fill_ratio"),
            ("otelcol_exporter_queue_size", "otelcol_exporter_queue_size"),
            (
                "http.server.request.duration",
                "http_server_request_duration_seconds",
            ),
        ] {
            let short = plain.replace('.', "_");
            assert_eq!((name(plain, false), name(plain, true)), (short, full.to_owned()));
        }
    }

    #[test]
    fn two_pages_show_the_same_values_under_their_own_names() {
        let (short, short_page) = Renaming::new(&listen(false), &[]);
        let (long, long_page) = Renaming::new(
            &Listen {
                without_scope_info: false,
                ..listen(true)
            },
            &[],
        );
        let recorder = fan_out(Detail::Detailed, Views::default(), vec![short, long], Vec::new());
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("otelcol_exporter_sent_spans", "exporter" => "a\"b").increment(7);
            metrics::gauge!("otelcol_process_uptime").set(0.25);
            metrics::histogram!("otelcol_exporter_queue_batch_send_size").record(20.0);
        });
        let (short, long) = (short_page.text(), long_page.text());
        assert!(
            short.contains("# TYPE otelcol_process_uptime counter\notelcol_process_uptime 0.25\n"),
            "{short}"
        );
        assert!(
            short.contains("# HELP otelcol_exporter_sent_spans Spans that"),
            "{short}"
        );
        assert!(
            short.contains("otelcol_exporter_sent_spans{exporter=\"a\\\"b\"} 7\n"),
            "{short}"
        );
        assert!(
            short.contains("otelcol_exporter_queue_batch_send_size_bucket{le=\"25\"} 1\n"),
            "{short}"
        );
        assert!(
            long.contains("# TYPE otelcol_process_uptime_seconds_total counter\n"),
            "{long}"
        );
        assert!(
            long.contains("# HELP otelcol_exporter_sent_spans_total Spans that"),
            "{long}"
        );
        let sent = long
            .lines()
            .find(|line| line.starts_with("otelcol_exporter_sent_spans_total{"))
            .unwrap();
        assert!(
            sent.contains("otel_scope_name=\"tidegate\"") && sent.ends_with(" 7"),
            "{sent}"
        );
    }

    #[test]
    fn live_metrics_are_rendered_without_the_others() {
        let (page, rendering) = Renaming::new(&listen(true), &[]);
        let recorder = fan_out(Detail::Detailed, Views::default(), vec![page], Vec::new());
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("otelcol_exporter_sent_spans").increment(7);
            metrics::counter!("tidegate_nixl_ring_events_total", "ring" => "rank_0").increment(3);
            metrics::gauge!("tidegate_shm_series").set(f64::NAN);
            metrics::histogram!("otelcol_processor_internal_duration").record(0.5);
        });
        let (all, live) = (rendering.text(), rendering.live_text());
        let declared = |text: &str| {
            let mut names: Vec<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
                .map(str::to_owned)
                .collect();
            names.sort_unstable();
            names
        };
        let shown_live = [
            "otelcol_processor_internal_duration_seconds",
            "tidegate_nixl_ring_events_total",
            "tidegate_shm_series",
        ];
        assert_eq!(declared(&live), shown_live);
        let shown = [&["otelcol_exporter_sent_spans_total"][..], &shown_live].concat();
        assert_eq!(declared(&all), shown);
        for text in [&all, &live] {
            assert!(
                text.contains("tidegate_nixl_ring_events_total{ring=\"rank_0\"} 3\n"),
                "{text}"
            );
            assert!(
                text.contains("otelcol_processor_internal_duration_seconds_count 1\n"),
                "{text}"
            );
            assert!(!text.contains(" NaN"), "{text}");
        }
    }

    #[test]
    fn a_level_chooses_what_exists() {
        let shown = |level| {
            let (page, rendering) = Renaming::new(&listen(false), &[]);
            let recorder = fan_out(level, Views::default(), vec![page], Vec::new());
            metrics::with_local_recorder(&recorder, || {
                metrics::counter!("otelcol_exporter_sent_spans").increment(1);
                metrics::gauge!("tidegate_held_items").set(1.0);
                metrics::histogram!("otelcol_exporter_queue_batch_send_size").record(1.0);
            });
            rendering
                .text()
                .lines()
                .filter(|line| line.starts_with("# TYPE"))
                .count()
        };
        assert_eq!(
            [
                shown(Detail::Basic),
                shown(Detail::Normal),
                shown(Detail::Detailed)
            ],
            [1, 2, 3]
        );
    }
}
