//! What a scrape gets: one snapshot of all tables in the format asked for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Views;
use super::config::Config;
use crate::component::unix_now;
use crate::prom::{Conflict, Format, Renderer};
use crate::telemetry::Every;

/// Renders scrapes. Scrapes of one format wait for each other; ingest waits for none of them.
pub(super) struct Pages {
    views: Arc<Views>,
    exporter: Arc<str>,
    text: Mutex<Renderer>,
    openmetrics: Option<Mutex<Renderer>>,
    complaints: Every,
}

impl Pages {
    pub(super) fn new(config: &Config, views: Arc<Views>, exporter: Arc<str>) -> Self {
        let style = config.style(crate::prom::Escaping::default());
        let openmetrics = config
            .enable_open_metrics
            .then(|| Mutex::new(Renderer::new(Format::OpenMetrics, style.clone())));
        Self {
            views,
            exporter,
            text: Mutex::new(Renderer::new(Format::Text, style)),
            openmetrics,
            complaints: Every::new(Duration::from_secs(10)),
        }
    }

    /// Which format an `Accept` header gets.
    pub(super) fn format(&self, accept: &str) -> Format {
        match self.openmetrics {
            Some(_) if prefers_openmetrics(accept) => Format::OpenMetrics,
            _ => Format::Text,
        }
    }

    /// The exposition of this moment.
    pub(super) fn render(&self, format: Format) -> String {
        let renderer = match (&self.openmetrics, format) {
            (Some(openmetrics), Format::OpenMetrics) => openmetrics,
            _ => &self.text,
        };
        let mut renderer = renderer.lock().unwrap_or_else(PoisonError::into_inner);
        renderer.begin();
        let now = unix_now();
        for table in self.views.all() {
            table.read(now, &mut |reading| renderer.add(table.owner(), reading));
        }
        let page = renderer.finish();
        let conflicts = renderer.take_conflicts();
        drop(renderer);
        self.complain(&conflicts);
        page
    }

    fn complain(&self, conflicts: &[Conflict]) {
        let Some(first) = conflicts.first() else { return };
        metrics::counter!("tidegate_prometheus_conflicting_series_total", "exporter" => self.exporter.clone())
            .increment(conflicts.len() as u64);
        if let Some(held_back) = self.complaints.ready() {
            tracing::warn!(
                exporter = %self.exporter,
                metric = %first.metric,
                owner = %first.owner,
                others = conflicts.len() - 1,
                held_back,
                "left out of the exposition: {}",
                first.why
            );
        }
    }
}

/// Whether an `Accept` header ranks OpenMetrics at least as high as plain text.
fn prefers_openmetrics(accept: &str) -> bool {
    let rank = |wanted: &str| {
        let of_type = |range: &&str| range.split(';').next().is_some_and(|name| name.trim() == wanted);
        accept.split(',').filter(of_type).map(quality).fold(0.0, f64::max)
    };
    let openmetrics = rank("application/openmetrics-text");
    openmetrics > 0.0 && openmetrics >= rank("text/plain")
}

/// The `q` of a media range, 1 where there is none.
fn quality(range: &str) -> f64 {
    let q = range
        .split(';')
        .skip(1)
        .find_map(|parameter| parameter.trim().strip_prefix("q="));
    q.map_or(1.0, |q| q.trim().parse().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_decides_by_rank() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert!(prefers_openmetrics(prometheus));
        assert!(prefers_openmetrics("application/openmetrics-text"));
        assert!(!prefers_openmetrics(
            "application/openmetrics-text;q=0.1,text/plain"
        ));
        assert!(!prefers_openmetrics("*/*"));
        assert!(!prefers_openmetrics(""));
        assert!(!prefers_openmetrics("application/openmetrics-text;q=no"));
    }
}
