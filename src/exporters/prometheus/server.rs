//! The scrape endpoint: GET and HEAD on one path.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::config::Config;
use super::page::Pages;
use crate::net::http::start as start_http;
use crate::net::{ConnectionLimits, Listener, Server};

/// Compression of a page may not cost more than rendering it.
const GZIP_LEVEL: flate2::Compression = flate2::Compression::fast();

type Answer = Response<Full<Bytes>>;

/// Listens and answers. The error is a sentence for people.
pub(super) async fn start(config: &Config, pages: Arc<Pages>) -> Result<Server, String> {
    let listener = Listener::bind(&config.endpoint, &config.socket)
        .await
        .map_err(|error| error.to_string())?;
    let tls = config
        .tls
        .as_ref()
        .map(|tls| tls.build(&[b"h2", b"http/1.1"]))
        .transpose()
        .map_err(|error| error.to_string())?;
    let limits = ConnectionLimits {
        max_connections: config.max_connections.max(1) as usize,
        tls,
    };
    let path: Arc<str> = config.path.as_str().into();
    Ok(start_http(listener, limits, config.serving(), move |request| {
        answer(request, pages.clone(), path.clone())
    }))
}

async fn answer(request: Request<Incoming>, pages: Arc<Pages>, path: Arc<str>) -> Answer {
    if request.uri().path() != &*path {
        return plain(StatusCode::NOT_FOUND, format!("metrics are at {path}\n"));
    }
    let head = match *request.method() {
        Method::GET => false,
        Method::HEAD => true,
        _ => return not_allowed(),
    };
    let format = pages.format(header(request.headers(), ACCEPT));
    let gzip = header(request.headers(), ACCEPT_ENCODING)
        .split(',')
        .any(accepts_gzip);
    // Rendering is proportional to the number of series: not on a thread that serves others.
    let rendered = tokio::task::spawn_blocking(move || {
        let page = pages.render(format);
        if gzip {
            compress(page.as_bytes()).map(|page| (page, true))
        } else {
            Some((page.into_bytes(), false))
        }
    });
    let Ok(Some((body, gzipped))) = rendered.await else {
        return plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the scrape could not be rendered\n".to_owned(),
        );
    };
    let mut response = Response::builder()
        .header(CONTENT_TYPE, format.content_type())
        .header(CONTENT_LENGTH, body.len())
        .header(VARY, "Accept, Accept-Encoding");
    if gzipped {
        response = response.header(CONTENT_ENCODING, "gzip");
    }
    let body = if head { Bytes::new() } else { Bytes::from(body) };
    response.body(Full::new(body)).unwrap_or_default()
}

fn accepts_gzip(coding: &str) -> bool {
    let mut parts = coding.split(';').map(str::trim);
    parts.next() == Some("gzip") && !parts.any(|parameter| parameter == "q=0")
}

fn header(headers: &HeaderMap, name: HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn compress(page: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), GZIP_LEVEL);
    encoder.write_all(page).ok()?;
    encoder.finish().ok()
}

fn not_allowed() -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
    answer
        .headers_mut()
        .insert(ALLOW, http::HeaderValue::from_static("GET, HEAD"));
    answer
}

fn plain(status: StatusCode, text: String) -> Answer {
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "text/plain; charset=utf-8");
    response.body(Full::new(text.into())).unwrap_or_default()
}
