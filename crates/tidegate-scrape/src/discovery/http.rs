// SPDX-License-Identifier: Apache-2.0

//! `http_sd_configs`: targets that a service lists.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tidegate_runtime::USER_AGENT as OUR_NAME;

use super::group::{self, Language, Listed};
use super::{META_URL, Reporter};
use crate::client::{self, Client, FetchError};
use crate::config::discovery::HttpSdConfig;
use tidegate_pipeline::component::{Account, Ceiling, Held};
use tidegate_pipeline::delivery::response::shorten;
use tidegate_pipeline::net::TlsError;

/// An answer may take this long; Prometheus waits for the refresh interval.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct HttpDiscovery {
    client: Client,
    url: Uri,
    shown_url: String,
    headers: HeaderMap,
    refresh_interval: Duration,
}

impl HttpDiscovery {
    pub(super) fn new(config: &HttpSdConfig) -> Result<Self, TlsError> {
        let interval = config.refresh_interval.0;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
        let seconds = HeaderValue::try_from(interval.as_secs_f64().to_string());
        if let Ok(seconds) = seconds {
            let name = HeaderName::from_static("x-prometheus-refresh-interval-seconds");
            headers.insert(name, seconds);
        }
        Ok(Self {
            client: Client::new(&config.http())?,
            // The options have been checked: it is a URL.
            url: config.url.parse().unwrap_or_default(),
            shown_url: config.url.clone(),
            headers,
            refresh_interval: interval,
        })
    }

    pub(super) async fn run(self, to: Reporter) {
        let mut ticks = tokio::time::interval(self.refresh_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let timeout = self.refresh_interval.min(MAX_TIMEOUT);
        loop {
            ticks.tick().await;
            let asked = tokio::time::timeout(timeout, self.ask(timeout, &to.memory)).await;
            let answer = asked.unwrap_or_else(|_| Err(FetchError::TimedOut(timeout).to_string()));
            match answer {
                Ok(targets) => {
                    if !to.report_with(targets.labels, vec![targets.room]).await {
                        return;
                    }
                }
                Err(error) => to.failed("http", &format_args!("{}: {error}", self.shown_url)),
            }
        }
    }

    pub(super) async fn ask(&self, timeout: Duration, memory: &Arc<Account>) -> Result<Listed, String> {
        let said = |error: FetchError| error.to_string();
        let response = self.client.get(&self.url, &self.headers).await.map_err(said)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()).to_string());
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(format!(
                "unsupported content type `{}`, expected application/json",
                shorten(content_type)
            ));
        }
        let mut held = Held::new(memory.clone());
        let mut arrived = 0;
        let reserve = |bytes| {
            arrived += bytes;
            Ok(client::reserve_arrived(&mut held, arrived)?)
        };
        let packed = client::read(
            response,
            group::MAX_LIST_BYTES,
            timeout,
            (memory.clone(), Ceiling::Soft),
            reserve,
        )
        .await;
        let packed = packed.map_err(said)?;
        held.keep(arrived);
        let url = self.shown_url.clone();
        let read = tokio::task::spawn_blocking(move || {
            let text = packed.unpack(group::MAX_LIST_BYTES, &mut held).map_err(said)?;
            let listed = Listed::read((&url, &text), Language::Json, &[(META_URL, &url)], held);
            listed.map_err(|error| error.to_string())
        });
        read.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
