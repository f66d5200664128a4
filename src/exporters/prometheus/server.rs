// SPDX-License-Identifier: Apache-2.0

//! The content of the exporter's server: the scrape, and the list of omitted series.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};

use super::config::{DEBUG_PATH, PrometheusExporterConfig};
use super::negotiate::Agreed;
use super::page::{CODINGS, Pages};
use crate::component::Shared;
use crate::component::account::SenderKey;
use crate::component::worker::Turns;
use crate::net::accept::{self, joined};
use crate::net::headers;
use crate::net::pages::{self, Answer, Request, ServerConfig, Takes};
use crate::net::shares::{Most, NoShare, Share, Shares};

/// The exporter holds at most this many bytes of different unread pages...
const MAX_UNREAD_BYTES: usize = 64 << 20;

/// ...and no more than this part of the memory limit...
const OF_MEMORY: usize = 8;

/// ...but two of each format in any case.
const UNREAD_PAGES: usize = 2;

/// Debug pages that are made at a time.
static DEBUGGING: Turns = Turns::of(2);

/// One scraper leaves one part in this many to the others.
const LEFT_TO_OTHERS: usize = 4;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers requests.
pub(super) struct Scrapes {
    exporter: Arc<str>,
    path: String,
    with_openmetrics: bool,
    pages: Arc<Pages>,
    shared: Arc<Shared>,
    /// The unread pages of each scraper, by their uncompressed bytes.
    unread: Arc<Shares>,
}

/// An answer that counts among what its scraper has not read.
struct Unread {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Scrapes {
    pub(super) fn of(
        config: &PrometheusExporterConfig,
        exporter: Arc<str>,
        pages: Arc<Pages>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            exporter,
            path: config.path.clone(),
            with_openmetrics: config.enable_open_metrics,
            pages,
            shared,
            unread: Arc::default(),
        }
    }

    /// The most bytes of unread pages, if the newest has `page` bytes. The previous one may have been a little
    /// larger.
    fn max_unread_bytes(&self, page: usize) -> usize {
        let most = MAX_UNREAD_BYTES.min(self.shared.memory.limit() / OF_MEMORY);
        let pages = page.saturating_mul(UNREAD_PAGES).saturating_add(page / 4);
        most.max(pages.saturating_mul(self.pages.formats()))
    }

    async fn debug(&self) -> Answer {
        let pages = self.pages.clone();
        match DEBUGGING
            .in_background(move || format!("{:#}\n", pages.debug()))
            .await
        {
            Some(found) => pages::text(StatusCode::OK, "application/json", found),
            None => failed("the list of omitted series could not be made\n"),
        }
    }

    async fn scrape(&self, headers: &HeaderMap, client: Option<SenderKey>) -> Answer {
        if !self.pages.wait_until_complete().await {
            return pages::busy("the reload that began this page has failed: see the log of the gateway");
        }
        let health = &self.shared.health;
        let read = match health.begin_confirmed_read().await {
            Ok(read) => read,
            Err(why) => return pages::busy(&why),
        };
        let agreed = Agreed::on(&joined(headers, ACCEPT), self.with_openmetrics);
        let coding = accept::coding(&joined(headers, ACCEPT_ENCODING), &CODINGS);
        let unrendered = || failed("the scrape could not be rendered\n");
        let Some(page) = self.pages.page(agreed.format, agreed.escaping()).await else {
            return unrendered();
        };
        let most = self.max_unread_bytes(page.bytes());
        // Scrapers share pages: together they are counted by what is there, in `unread_bytes`.
        let of_client = Most {
            of_all: usize::MAX,
            of_one: most - most / LEFT_TO_OTHERS,
        };
        let (share, why) = match self.unread.take(page.bytes(), client, of_client) {
            Ok(share) if self.pages.unread_bytes() <= most => (Some(share), ""),
            Ok(_) | Err(NoShare::Full) => (
                None,
                "the pages that scrapers have not read take too much memory: try again later",
            ),
            Err(NoShare::OfSender) => (
                None,
                "the pages that this scraper has not read take too much memory: read them, then try again",
            ),
        };
        let Some(share) = share else {
            pages::count_refusal(&self.exporter);
            return pages::busy(why);
        };
        let Some(bytes) = page.coded(coding).await else {
            return unrendered();
        };
        // The page has values of when it was asked for. Another replica may have shown newer ones long ago.
        if read.is_outdated() {
            return pages::busy("stale: rendering the page took longer than its values may be old");
        }
        if let Err(why) = health.check_read(read) {
            return pages::busy(&why);
        }
        let body = Bytes::from_owner(Unread { bytes, _share: share });
        let mut answer = pages::bytes(TEXT, body);
        let headers = answer.headers_mut();
        if let Ok(content_type) = HeaderValue::try_from(agreed.content_type()) {
            headers.insert(CONTENT_TYPE, content_type);
        }
        headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if let Some(coding) = coding.header() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        answer
    }
}

#[async_trait]
impl pages::Pages for Scrapes {
    fn takes(&self) -> Takes {
        Takes::Paths
    }

    async fn page(&self, request: Request) -> Answer {
        match &*request.path {
            path if path == self.path => self.scrape(&request.headers, request.client).await,
            DEBUG_PATH => self.debug().await,
            "/" => pages::links(
                "tidegate: metrics for Prometheus",
                &[
                    (self.path.as_str(), "the metrics"),
                    (DEBUG_PATH, "series that the metrics omit"),
                ],
            ),
            _ => pages::text(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("metrics are at {}\n", self.path),
            ),
        }
    }
}

/// The address, the access and the limits of the exporter's server.
pub(super) fn config(config: &PrometheusExporterConfig) -> ServerConfig<'_> {
    ServerConfig {
        tls: config.tls.as_ref(),
        auth: config.auth.as_ref(),
        allowed_hosts: &config.allowed_hosts,
        max_connections: config.max_connections.max(1) as usize,
        max_connections_per_peer: config.max_connections_per_peer,
        // Scrapers share pages, which are counted once.
        max_answer_bytes: Some(usize::MAX),
        headers: headers::build(&config.response_headers),
        serving: config.serving(),
        ..ServerConfig::at(&config.endpoint, &config.socket)
    }
}

fn failed(why: &str) -> Answer {
    pages::text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tidegate_engine::{Attributes, Data, Limits, Rule, Table, Value};

    use super::*;
    use crate::component::testing::settings;
    use crate::component::unix_now;
    use crate::exporters::tables::ExporterTables;
    use crate::net::pages::Pages as _;
    use crate::prom::catalog::testing::point;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_page_whose_values_become_too_old_meanwhile_is_refused() {
        let (shared, views) = (Arc::<Shared>::default(), Arc::new(views_of(empty_table())));
        let scrapes = Arc::new(scrapes_of(views.clone(), &shared));
        let ask = || {
            let scrapes = scrapes.clone();
            tokio::spawn(async move { scrapes.page(Request::of("/metrics", Vec::new())).await })
        };
        let until = Instant::now() + Duration::from_secs(2);
        shared.health.hold_from("a", "stale", until);
        // The renderer waits for this lock.
        let held = views.live.lock();
        let asked = ask();
        std::thread::sleep(until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        // Newer values are there, but the page was asked for before.
        shared.health.hold("a", None);
        drop(held);
        assert_eq!(asked.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    }

    fn empty_table() -> Table {
        Table::new("test", vec![Rule::newest()], Limits::default())
    }

    fn views_of(table: Table) -> ExporterTables {
        let views = ExporterTables::new(Arc::new(table));
        views.show(Vec::new());
        views
    }

    fn scrapes_of(views: Arc<ExporterTables>, shared: &Arc<Shared>) -> Scrapes {
        let config = settings::<PrometheusExporterConfig>("{endpoint: '127.0.0.1:0'}")
            .get::<PrometheusExporterConfig>();
        let pages = Pages::new(config.clone(), views, "prometheus".into(), Arc::default());
        Scrapes::of(&config, "prometheus".into(), Arc::new(pages), shared.clone())
    }

    #[tokio::test]
    async fn a_scraper_that_reads_nothing_is_refused_and_others_are_served() {
        let table = empty_table();
        let text = "x".repeat(1 << 10);
        for number in 0..2_000 {
            let now = unix_now();
            let label = [("text", format!("{text}{number}"))].into_iter().collect();
            let of = (Attributes::default(), label);
            let point = point("level", Data::Gauge, of, (now, now), Value::Int(1));
            table.observe(&point, now);
        }
        let shared = Arc::<Shared>::default();
        let scrapes = scrapes_of(Arc::new(views_of(table)), &shared);
        let ask = async |client: &str| {
            let request = Request {
                client: Some(SenderKey::of(client)),
                ..Request::of("/metrics", Vec::new())
            };
            scrapes.page(request).await
        };
        let mut unread = Vec::new();
        let refused = loop {
            let answer = ask("lazy").await;
            if answer.status() != StatusCode::OK {
                break answer;
            }
            unread.push(answer);
            assert!(unread.len() < 100, "nothing is refused");
        };
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        // The page has some 2 MiB.
        assert!((16..=24).contains(&unread.len()), "{}", unread.len());
        assert_eq!(ask("reader").await.status(), StatusCode::OK);
        drop(unread);
        assert_eq!(ask("lazy").await.status(), StatusCode::OK);
        // An eighth of it is less than a page.
        shared.memory.add_limit(crate::component::Limit::of(8 << 20));
        let unread = ask("lazy").await;
        assert_eq!(unread.status(), StatusCode::OK);
        assert_eq!(ask("lazy").await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask("reader").await.status(), StatusCode::OK);
    }
}
