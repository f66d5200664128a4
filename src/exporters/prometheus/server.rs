//! The exporter's server: GET and HEAD of the scrape and of what is left out of it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
    VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::config::{Config, DEBUG_PATH};
use super::negotiate::Agreed;
use super::page::{CODINGS, Pages};
use crate::component::worker::in_background;
use crate::component::{ComponentError, Context};
use crate::net::accept::joined;
use crate::net::auth::Door;
use crate::net::{ConnectionLimits, Listener, Server, accept, headers, http::start as serve, tls};

type Answer = Response<Full<Bytes>>;

/// What answers requests.
struct Counter {
    door: Door,
    path: String,
    with_openmetrics: bool,
    headers: HeaderMap,
    pages: Arc<Pages>,
}

/// Listens and answers.
pub(super) async fn start(
    config: &Config,
    base: &Context,
    pages: Arc<Pages>,
) -> Result<Server, ComponentError> {
    let counter = Arc::new(Counter {
        door: Door::of(config.auth.as_ref(), base)?,
        path: config.path.clone(),
        with_openmetrics: config.enable_open_metrics,
        headers: headers::build(&config.response_headers),
        pages,
    });
    let listener = Listener::bind(&config.endpoint, &config.socket).await;
    let listener = listener.map_err(|error| base.error(error.to_string()))?;
    let tls = config
        .tls
        .as_ref()
        .map(|tls| tls.build(tls::ALPN_HTTP))
        .transpose();
    let most = config.max_connections.max(1) as usize;
    let limits = ConnectionLimits::new(most, config.max_connections_per_peer)
        .over(tls.map_err(|error| base.error(error.to_string()))?);
    let serving = config.serving().guarded(&listener, &config.allowed_hosts);
    let server = serve(listener, limits, serving, move |request| {
        let counter = counter.clone();
        async move { counter.answer(request).await }
    });
    tracing::info!(exporter = %base.id, endpoint = %server.local(), "answering scrapes");
    Ok(server)
}

impl Counter {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let mut answer = match self.door.admit(&request).await {
            Ok(_) => self.admitted(&request).await,
            Err(not) if not.retry_after().is_some() => {
                let mut answer = plain(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", not.why));
                answer
                    .headers_mut()
                    .insert(RETRY_AFTER, HeaderValue::from_static("1"));
                answer
            }
            Err(not) => {
                let mut answer = plain(StatusCode::UNAUTHORIZED, format!("{}\n", not.why));
                answer.headers_mut().insert(WWW_AUTHENTICATE, not.challenge);
                answer
            }
        };
        answer.headers_mut().extend(self.headers.clone());
        match *request.method() {
            Method::HEAD => answer.map(|_| Full::default()),
            _ => answer,
        }
    }

    async fn admitted(&self, request: &Request<Incoming>) -> Answer {
        let path = request.uri().path();
        let is_scrape = path == self.path;
        match *request.method() {
            _ if !is_scrape && path != DEBUG_PATH => {
                plain(StatusCode::NOT_FOUND, format!("metrics are at {}\n", self.path))
            }
            Method::GET | Method::HEAD if is_scrape => self.scrape(request.headers()).await,
            Method::GET | Method::HEAD => self.debug().await,
            _ => not_allowed(),
        }
    }

    async fn debug(&self) -> Answer {
        let pages = self.pages.clone();
        let Ok(found) = in_background(move || format!("{:#}\n", pages.debug())).await else {
            let why = "what is left out could not be found out\n".to_owned();
            return plain(StatusCode::INTERNAL_SERVER_ERROR, why);
        };
        let mut answer = plain(StatusCode::OK, found);
        let json = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(CONTENT_TYPE, json);
        answer
    }

    async fn scrape(&self, headers: &HeaderMap) -> Answer {
        let agreed = Agreed::on(&joined(headers, ACCEPT), self.with_openmetrics);
        let coding = accept::coding(&joined(headers, ACCEPT_ENCODING), &CODINGS);
        let page = self.pages.page(agreed.format, agreed.escaping()).await;
        let body = match page {
            Some(page) => page.coded(coding).await,
            None => None,
        };
        let Some(body) = body else {
            let why = "the scrape could not be rendered\n".to_owned();
            return plain(StatusCode::INTERNAL_SERVER_ERROR, why);
        };
        let mut response = Response::builder()
            .header(CONTENT_TYPE, agreed.content_type())
            .header(CONTENT_LENGTH, body.len())
            .header(VARY, "Accept, Accept-Encoding");
        if let Some(coding) = coding.header() {
            response = response.header(CONTENT_ENCODING, coding);
        }
        response.body(Full::new(body)).unwrap_or_default()
    }
}

fn not_allowed() -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}

fn plain(status: StatusCode, text: String) -> Answer {
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(CONTENT_LENGTH, text.len());
    response.body(Full::new(text.into())).unwrap_or_default()
}
