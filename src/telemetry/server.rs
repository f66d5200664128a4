// SPDX-License-Identifier: Apache-2.0

//! The pages of tidegate's own metrics. They are separate from every receiver, so that they answer if a receiver
//! fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use tidegate_engine::AttributeRef;
use tokio::sync::Semaphore;

use super::config::Metrics;
use super::graph_metrics::MetricsPublisher;
use super::recorder::Rendering;
use crate::component::Account;
use crate::component::worker::in_background;
use crate::net::pages::{self, Answer, Pages, Request, ServerConfig, StartError, Takes};
use crate::net::{Endpoint, SocketFileConfig};
use crate::prom::labels::PrometheusLabels;

/// The time limit for a running scrape at the stop.
const FINISH: Duration = Duration::from_millis(200);

/// The limit of connections, for scrapers and people.
const MAX_CONNECTIONS: usize = 64;

/// The limit of concurrent requests on one connection.
const MAX_STREAMS: u32 = 4;

/// A page without its values.
pub(super) struct MetricsPage {
    rendering: Rendering,
    /// The rendered `target_info`.
    target: String,
    /// The last page: the start of its rendering, and its text.
    last: Mutex<Option<(Instant, Bytes)>>,
    /// The permit to render. Only one page is rendered at a time.
    turn: Arc<Semaphore>,
}

impl MetricsPage {
    pub(super) fn new(rendering: Rendering, attributes: &[(String, String)]) -> Self {
        let mut labels = PrometheusLabels::default();
        for (key, value) in attributes {
            labels.add(key, AttributeRef::Str(value));
        }
        Self {
            rendering,
            last: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            target: format!(
                "# HELP target_info Attributes of the gateway itself.\n# TYPE target_info gauge\ntarget_info{{{}}} 1\n",
                labels.render()
            ),
        }
    }

    pub(super) fn rendering(&self) -> Rendering {
        self.rendering.clone()
    }

    /// The current page. Requests during a rendering share the next one.
    async fn text(self: &Arc<Self>, publisher: &Arc<MetricsPublisher>) -> Bytes {
        let asked = Instant::now();
        // The semaphore is never closed.
        let turn = self.turn.clone().acquire_owned().await;
        if let Some((begun, text)) = self.last()
            && begun >= asked
        {
            return text;
        }
        let (page, publisher) = (self.clone(), publisher.clone());
        let render = move || {
            // The permit is held to the end, even if the client disconnects.
            let _turn = turn;
            page.render(&publisher)
        };
        in_background(render).await.unwrap_or_default()
    }

    fn render(&self, publisher: &MetricsPublisher) -> Bytes {
        let begun = Instant::now();
        publisher.publish();
        let text = Bytes::from(self.target.clone() + &self.rendering.text());
        let mut last = self.last.lock();
        *last = Some((begun, text.clone()));
        text
    }

    fn last(&self) -> Option<(Instant, Bytes)> {
        self.last.lock().clone()
    }
}

/// The content of the server.
struct Answers {
    page: Arc<MetricsPage>,
    publisher: Arc<MetricsPublisher>,
}

#[async_trait]
impl Pages for Answers {
    fn takes(&self) -> Takes {
        Takes::Paths
    }

    fn max_streams(&self) -> u32 {
        MAX_STREAMS
    }

    async fn page(&self, request: Request) -> Answer {
        match &*request.path {
            "/metrics" => pages::bytes(
                "text/plain; version=0.0.4; charset=utf-8",
                self.page.text(&self.publisher).await,
            ),
            "/" => pages::links(
                "tidegate: own metrics",
                &[("/metrics", "the gateway's own metrics")],
            ),
            _ => pages::text(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "the gateway's own metrics are at /metrics\n".to_owned(),
            ),
        }
    }
}

/// A running server.
pub(super) struct MetricsServer(crate::net::Server);

impl MetricsServer {
    pub(super) async fn start(
        endpoint: &Endpoint,
        config: &Metrics,
        page: MetricsPage,
        publisher: Arc<MetricsPublisher>,
        memory: Arc<Account>,
    ) -> Result<Self, StartError> {
        let socket = SocketFileConfig::default();
        let server = ServerConfig {
            allowed_hosts: &config.allowed_hosts,
            max_connections: MAX_CONNECTIONS,
            max_connections_per_peer: config.max_connections_per_peer,
            ..ServerConfig::at(endpoint, &socket)
        };
        let page = Arc::new(page);
        let answers = Arc::new(Answers { page, publisher });
        let server = pages::serve(&"telemetry".into(), server, memory, answers).await?;
        tracing::info!(endpoint = %server.local(), "serving own metrics");
        Ok(Self(server))
    }

    pub(super) async fn stop(self) {
        self.0.stop(Instant::now() + FINISH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Listen;
    use super::super::recorder::Renaming;
    use super::*;
    use crate::component::graph_metrics::GraphMetrics;

    fn page() -> (Arc<MetricsPage>, Arc<MetricsPublisher>) {
        let (_, rendering) = Renaming::new(&Listen::default(), &[]);
        let page = MetricsPage::new(rendering, &[("service.name".to_owned(), "tidegate".to_owned())]);
        (
            Arc::new(page),
            Arc::new(MetricsPublisher::new(GraphMetrics::default())),
        )
    }

    #[tokio::test]
    async fn concurrent_requests_share_a_page_and_a_later_one_gets_a_new_page() {
        let (page, publisher) = page();
        let turn = page.turn.clone().acquire_owned().await.unwrap();
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (page, publisher) = (page.clone(), publisher.clone());
            asking.spawn(async move { page.text(&publisher).await });
        }
        tokio::task::yield_now().await;
        drop(turn);
        let texts = asking.join_all().await;
        assert!(std::str::from_utf8(&texts[0]).unwrap().contains("target_info{"));
        let first = texts[0].as_ptr();
        assert!(
            texts.iter().all(|text| text.as_ptr() == first),
            "one page for all"
        );
        assert_ne!(page.text(&publisher).await.as_ptr(), first);
    }
}
