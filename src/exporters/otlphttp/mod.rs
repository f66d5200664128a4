// SPDX-License-Identifier: Apache-2.0

//! `otlphttp`: sends metrics, traces and logs by OTLP/HTTP, protobuf or JSON.

mod body;
mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, StatusCode, Uri};
use tidegate_runtime::USER_AGENT;

use crate::batch::Signal;
use crate::component::{
    ComponentError, ConfigType, Context, ExporterFactory, Factory, Held, PeerLabels, Settings, Shared,
    Stability,
};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::http::{Connections, HttpAnswer, HttpClient, HttpOptions, Pieces};
use crate::delivery::response::{address, of_http, quote};
use crate::delivery::{Attempt, Delivery, Destination, EncodingPermit, ExportRequest, Outcome, RetryConfig};
use crate::net::url::Url;
use crate::net::{BodyError, headers};
use body::{Compression, Encoding};
use config::OtlpHttpExporterConfig;

/// The factory of `otlphttp`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "otlphttp",
    aliases: &["otlp_http"],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "sends metrics, traces and logs by OTLP over HTTP",
    errors: &[DELIVERY_ERRORS],
    config: ConfigType::of::<OtlpHttpExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<OtlpHttpExporterConfig>();
        for (signal, _) in cx.ledgers.iter().enumerate().filter(|(_, used)| used.is_some()) {
            if config.url(Signal::ALL[signal]).is_none() {
                return Err(cx
                    .base
                    .error(format!("no endpoint for {}", Signal::ALL[signal].name())));
            }
        }
        for (signal, ledger) in Signal::ALL.into_iter().zip(&cx.ledgers) {
            let ledger = ledger.as_ref();
            ledger
                .into_iter()
                .for_each(|ledger| ledger.goes_to(peer(&config, signal)));
        }
        let client = OtlpHttpClient::new(&config, &cx.base)?;
        let destination = Destination::new(cx, &config.delivery(), client);
        Ok(Arc::new(destination.only_leader(config.only_leader.as_deref())?))
    },
};

/// The delivery options of an exporter with these settings.
pub fn delivery(settings: &Settings) -> Delivery {
    settings.get::<OtlpHttpExporterConfig>().delivery()
}

struct OtlpHttpClient {
    shared: Arc<Shared>,
    http: HttpClient,
    urls: [Option<Uri>; 3],
    headers: HeaderMap,
    encoding: Encoding,
    compression: Compression,
    retry: RetryConfig,
    /// The address, for people.
    shown: String,
    level: Option<u32>,
}

impl OtlpHttpClient {
    fn new(config: &OtlpHttpExporterConfig, cx: &Context) -> Result<Self, ComponentError> {
        let options = HttpOptions {
            endpoint: config.endpoint.as_ref(),
            tls: &config.tls,
            auth: config.auth.as_ref(),
            max_idle_conns: config.max_idle_conns,
            idle_conn_timeout: config.idle_conn_timeout,
            connections: Connections {
                proxy: config.proxy_url.as_ref(),
                max: config.max_conns_per_host,
                are_kept: !config.disable_keep_alives,
                http2: config.force_attempt_http2,
                ping_interval: config.http2_read_idle_timeout,
                ping_timeout: config.http2_ping_timeout,
            },
        };
        Ok(Self {
            shared: cx.shared.clone(),
            http: HttpClient::new(options, cx)?,
            urls: Signal::ALL.map(|signal| config.url(signal)),
            headers: request_headers(config),
            encoding: config.encoding,
            compression: config.compression(),
            retry: config.retry_on_failure.clone(),
            shown: shown(config),
            level: config.compression_params.level(),
        })
    }

    /// The body of an export request, the request itself, and the memory of the body. An error says why there
    /// is none.
    async fn body(&self, export: ExportRequest) -> Result<(Pieces, ExportRequest, Held), Outcome> {
        let (encoding, compression, level) = (self.encoding, self.compression, self.level);
        let weigh: fn(&ExportRequest) -> usize = match (encoding, compression) {
            (Encoding::Proto, Compression::None) => ExportRequest::message_bytes,
            (Encoding::Proto, _) => ExportRequest::joined_bytes,
            (Encoding::Json, _) => ExportRequest::json_bytes,
        };
        let (export, bytes) = export.weighed(weigh).await.map_err(Outcome::permanent)?;
        let permit = EncodingPermit::reserve(&self.shared, bytes).await;
        let make = move || (encoding.body(export.encoded(), compression, level), export);
        let ((body, export), held) = permit.make(make).await.map_err(Outcome::permanent)?;
        let body = body.map_err(Outcome::permanent)?;
        Ok((body, export, held))
    }

    fn outcome(&self, answer: HttpAnswer) -> Outcome {
        let HttpAnswer {
            status,
            headers,
            after,
            body,
            ..
        } = answer;
        let body = match body {
            Ok(body) => body,
            Err(error) => return unreadable(status, after, &error),
        };
        let encoding = Encoding::of_answer(&headers).unwrap_or(self.encoding);
        if status.is_success() {
            encoding.outcome(&body)
        } else {
            of_http(status, after, &body::error_message(&body, &headers))
        }
    }
}

/// The labels of the server of a signal.
fn peer(config: &OtlpHttpExporterConfig, signal: Signal) -> PeerLabels {
    let url = config.url(signal);
    let (host, port) = match (config.unix_path(), &url) {
        (Some(path), _) => (path.display().to_string(), None),
        (None, Some(url)) => (url.host().unwrap_or_default().to_owned(), url.port_u16()),
        (None, None) => return PeerLabels::new(),
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.map(|port| ("server.port", port.to_string()));
    let path = url.map(|url| ("url.path", url.path().to_owned()));
    let labels = [Some(("server.address", address)), port, path];
    labels.into_iter().flatten().collect()
}

fn shown(config: &OtlpHttpExporterConfig) -> String {
    if let Some(path) = config.unix_path() {
        return format!("unix:{}", path.display());
    }
    let base = config.endpoint.as_ref().map(Url::exact);
    let first = || Signal::ALL.iter().find_map(|signal| config.url(*signal));
    base.or_else(first).map_or_else(String::new, |uri| address(&uri))
}

/// The answer broke off or was too large. The status decides, except that a peer that broke off a success may
/// have failed half way.
fn unreadable(status: StatusCode, after: Option<std::time::Duration>, error: &BodyError) -> Outcome {
    match (status.is_success(), error) {
        (true, BodyError::TooLarge { .. }) => Outcome::Accepted {
            note: body::UNREAD.to_owned(),
        },
        (true, BodyError::Broken(why)) => Outcome::retry(format!("the answer broke off: {why}")),
        (true, error) => Outcome::retry(error.to_string()),
        (false, error) => of_http(status, after, &error.to_string()),
    }
}

fn request_headers(config: &OtlpHttpExporterConfig) -> HeaderMap {
    let mut all = HeaderMap::new();
    all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
    all.extend(headers::build(&config.chosen().headers(&config.headers)));
    let content_type = HeaderValue::from_static(config.encoding.content_type());
    all.insert(ACCEPT, content_type.clone());
    all.insert(CONTENT_TYPE, content_type);
    if let Some(coding) = config.compression().content_coding() {
        all.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    all
}

#[async_trait]
impl Attempt for OtlpHttpClient {
    fn endpoint(&self) -> String {
        self.shown.clone()
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let Some(url) = &self.urls[export.signal() as usize] else {
            return Outcome::permanent("no endpoint for this signal");
        };
        let (body, export, _held) = match self.body(export).await {
            Ok(made) => made,
            Err(outcome) => return outcome,
        };
        let headers = self.headers.clone();
        match self.http.post(url, headers, body, export.client()).await {
            Ok(answer) => {
                let status = answer.status;
                let outcome = self.retry.of_http(status, self.outcome(answer));
                let headers = || self.http.with_credentials(&self.headers, export.client());
                outcome.reworded(|why| quote(why, &headers()))
            }
            Err(outcome) => outcome,
        }
    }
}
