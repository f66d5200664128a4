// SPDX-License-Identifier: Apache-2.0

//! Renamed metrics: the gateway shows each under its old name too, until the next release.

use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use super::catalogue::old_name;

/// Passes metrics on, and counters and gauges with an old name under both names.
pub(super) struct OldNames<R>(pub(super) R);

impl<R: Recorder> Recorder for OldNames<R> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let new = self.0.register_counter(key, metadata);
        let Some(old_key) = old_key(key) else { return new };
        let old = self.0.register_counter(&old_key, metadata);
        Counter::from_arc(Arc::new(Both { new, old }))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let new = self.0.register_gauge(key, metadata);
        let Some(old_key) = old_key(key) else { return new };
        let old = self.0.register_gauge(&old_key, metadata);
        Gauge::from_arc(Arc::new(Both { new, old }))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.0.register_histogram(key, metadata)
    }
}

fn old_key(key: &Key) -> Option<Key> {
    let name = old_name(key.name())?;
    let labels: Vec<_> = key.labels().cloned().collect();
    Some(Key::from_parts(name, labels))
}

/// The handles of a series under the new name and under the old one.
struct Both<H> {
    new: H,
    old: H,
}

impl CounterFn for Both<Counter> {
    fn increment(&self, value: u64) {
        self.new.increment(value);
        self.old.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.new.absolute(value);
        self.old.absolute(value);
    }
}

impl GaugeFn for Both<Gauge> {
    fn increment(&self, value: f64) {
        self.new.increment(value);
        self.old.increment(value);
    }

    fn decrement(&self, value: f64) {
        self.new.decrement(value);
        self.old.decrement(value);
    }

    fn set(&self, value: f64) {
        self.new.set(value);
        self.old.set(value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::RENAMED;
    use super::super::testing::{Page, recorder};

    /// A page with all renamed metrics, changed by these views.
    fn page(views: &str) -> Page {
        let (recorder, page) = recorder(views);
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("tidegate_connections_refused_total", "endpoint" => "a").increment(1);
            metrics::counter!("tidegate_socket_rejected_connections_total", "socket" => "a").increment(2);
            let gauge = metrics::gauge!("tidegate_prometheus_omitted_series", "reason" => "a");
            gauge.set(5.0);
            gauge.increment(3.0);
            gauge.decrement(1.0);
        });
        page
    }

    fn values(page: &Page, name: &str) -> Vec<f64> {
        page.series(name).into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn a_renamed_metric_has_the_same_series_under_both_names() {
        let page = page("[]");
        for (new, old) in RENAMED {
            assert_eq!(page.series(new), page.series(old));
            let help = format!("# HELP {old} Renamed to `{new}`; this name goes with the next release.\n");
            assert!(page.text().contains(&help), "{}", page.text());
        }
        assert_eq!(values(&page, "tidegate_socket_rejected_connections_total"), [2.0]);
        assert_eq!(values(&page, "tidegate_prometheus_omitted_series"), [7.0]);
    }

    #[test]
    fn a_view_that_selects_the_old_name_changes_that_one_only() {
        let page = page(
            "[{selector: {instrument_name: tidegate_socket_turned_away_total}, stream: {aggregation: {drop: {}}}}]",
        );
        assert!(values(&page, "tidegate_socket_turned_away_total").is_empty());
        assert_eq!(values(&page, "tidegate_socket_rejected_connections_total"), [2.0]);
    }
}
