//! What the exporter serves: the scrape, and what is left out of it.

use std::sync::Arc;

use async_trait::async_trait;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};

use super::config::{Config, DEBUG_PATH};
use super::negotiate::Agreed;
use super::page::{CODINGS, Pages};
use crate::component::worker::in_background;
use crate::net::accept::{self, joined};
use crate::net::headers;
use crate::net::pages::{self, Answer, Request, ServerConfig, Takes};

/// The exporter holds at most this many bytes of different unread pages, or this many times the newest page, whichever is more.
const MAX_UNREAD_BYTES: usize = 64 << 20;
const MAX_UNREAD_PAGES: usize = 8;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers requests.
pub(super) struct Scrapes {
    exporter: Arc<str>,
    path: String,
    with_openmetrics: bool,
    pages: Arc<Pages>,
}

impl Scrapes {
    pub(super) fn of(config: &Config, exporter: Arc<str>, pages: Arc<Pages>) -> Self {
        Self {
            exporter,
            path: config.path.clone(),
            with_openmetrics: config.enable_open_metrics,
            pages,
        }
    }

    async fn debug(&self) -> Answer {
        let pages = self.pages.clone();
        match in_background(move || format!("{:#}\n", pages.debug())).await {
            Ok(found) => pages::text(StatusCode::OK, "application/json", found),
            Err(_) => failed("what is left out could not be found out\n"),
        }
    }

    async fn scrape(&self, headers: &HeaderMap) -> Answer {
        let agreed = Agreed::on(&joined(headers, ACCEPT), self.with_openmetrics);
        let coding = accept::coding(&joined(headers, ACCEPT_ENCODING), &CODINGS);
        let unrendered = || failed("the scrape could not be rendered\n");
        let Some(page) = self.pages.page(agreed.format, agreed.escaping()).await else {
            return unrendered();
        };
        if self.pages.unread_bytes() > MAX_UNREAD_BYTES.max(page.bytes().saturating_mul(MAX_UNREAD_PAGES)) {
            pages::count_refusal(&self.exporter);
            return pages::busy(
                "the pages that scrapers have not read take too much memory: try again later",
            );
        }
        let Some(body) = page.coded(coding).await else {
            return unrendered();
        };
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
            path if path == self.path => self.scrape(&request.headers).await,
            DEBUG_PATH => self.debug().await,
            _ => pages::text(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("metrics are at {}\n", self.path),
            ),
        }
    }
}

/// Where the exporter listens, who may scrape, and how much.
pub(super) fn config(config: &Config) -> ServerConfig<'_> {
    ServerConfig {
        tls: config.tls.as_ref(),
        auth: config.auth.as_ref(),
        allowed_hosts: &config.allowed_hosts,
        max_connections: config.max_connections.max(1) as usize,
        max_connections_per_peer: config.max_connections_per_peer,
        // Scrapers share pages, which are counted once.
        max_answer_bytes: usize::MAX,
        headers: headers::build(&config.response_headers),
        serving: config.serving(),
        ..ServerConfig::at(&config.endpoint, &config.socket)
    }
}

fn failed(why: &str) -> Answer {
    pages::text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, why.to_owned())
}
