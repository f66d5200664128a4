// SPDX-License-Identifier: Apache-2.0

//! `history::peers`: a replica of a cluster that has started gets the recent past of merged series from another replica, once.

mod config;
mod error;
mod peers;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use tidegate_engine::clock;
use tidegate_promql::{HistoryLimits, Millis};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub(super) use self::config::PeersConfig;
use self::error::FetchError;
use self::peers::{Peer, addresses, host_of};
use super::AdminConfig;
use super::sampler::spread;
use crate::component::{ComponentError, Context, Held, Shared, unix_now};
use crate::delivery::Outcome;
use crate::delivery::http::{Connections, HttpAnswer, HttpClient, HttpOptions};
use crate::net::headers;
use crate::net::{BodyError, Coding, DecompressError, unpack};
use crate::prom::catalog::{Borrowed, LOAN_SAMPLES, MergedTables, SeriesPosition, View, millis};
use crate::prom::remote::Version;

/// The path of the history at a peer.
const PATH: &str = "/api/v1/history";

/// The header with the random name of a process.
pub(super) const INSTANCE: HeaderName = HeaderName::from_static("x-tidegate-instance");
/// The header with the position where the next page begins.
pub(super) const NEXT: HeaderName = HeaderName::from_static("x-tidegate-history-next");
/// The header with the time at which the history of a peer begins, in milliseconds since 1970.
pub(super) const BEGINS: HeaderName = HeaderName::from_static("x-tidegate-history-begins");

/// The largest page, in bytes before compression. Peers make pages of up to 1 MiB, and further series of 8 MiB at most.
const MAX_PAGE_BYTES: usize = 16 << 20;

/// The largest page as it comes, in bytes.
const MAX_PACKED_BYTES: usize = 8 << 20;

/// Interval between two looks whether the gateway is ready.
const READY_INTERVAL: Duration = Duration::from_millis(100);

/// A peer that is not ready, or is short of memory, is asked again after this time.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);

/// A history that begins this much later than the wanted time is that of a peer which has started too.
const YOUNG: Duration = Duration::from_secs(10);

/// The tables that all replicas have, and the most by which they differ in age; `None`: there are none.
pub(super) fn merged_tables(shared: &Shared) -> Option<(MergedTables, Duration)> {
    let clusters = shared.services.clusters().into_iter();
    let merged: Vec<_> = clusters.flat_map(|(_, cluster)| cluster.merged()).collect();
    let lag = merged.iter().map(|(_, max_lag)| *max_lag).max()?;
    let tables: Vec<_> = merged.into_iter().map(|(table, _)| table).collect();
    Some((MergedTables::of(&tables), lag))
}

/// A page of a peer, whose memory is reserved.
struct PeerPage {
    instance: Option<HeaderValue>,
    next: Option<SeriesPosition>,
    begins: Option<Millis>,
    request: bytes::Bytes,
    held: Held,
}

/// What a peer has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerHistory {
    /// All of the wanted time.
    Long,
    /// A part of it: another peer may have more.
    Short,
    /// It is this gateway.
    Own,
}

/// Fetches the history.
pub(super) struct HistoryFetch {
    base: Context,
    view: Arc<View>,
    peers: PeersConfig,
    limits: HistoryLimits,
    /// The random name of this process.
    instance: String,
    /// A client for each endpoint.
    clients: Vec<HttpClient>,
}

impl HistoryFetch {
    /// A fetch for these options, as far back as the history reaches; `None`: they name no peers, or no past is kept.
    ///
    /// # Errors
    /// The TLS files or the authenticator can't be used.
    pub(super) fn of(
        config: &AdminConfig,
        base: &Context,
        view: &Arc<View>,
        instance: &str,
    ) -> Result<Option<Self>, ComponentError> {
        let (Some(peers), Some(limits)) = (config.history.peers.clone(), view.past_limits()) else {
            return Ok(None);
        };
        let clients = peers.endpoints.iter().map(|endpoint| {
            let mut tls = peers.tls.clone();
            // Connections go to addresses, and certificates have names.
            tls.server_name_override = tls.server_name_override.or_else(|| host_of(endpoint));
            let options = HttpOptions {
                endpoint: Some(endpoint),
                tls: &tls,
                auth: peers.auth.as_ref(),
                max_idle_conns: 1,
                idle_conn_timeout: peers.timeout,
                connections: Connections::default(),
            };
            Ok(HttpClient::new(options, base)?.with_answers_up_to(MAX_PACKED_BYTES))
        });
        Ok(Some(Self {
            clients: clients.collect::<Result<_, ComponentError>>()?,
            base: base.clone(),
            view: view.clone(),
            limits,
            peers,
            instance: instance.to_owned(),
        }))
    }

    /// Waits until the values of this gateway may be read, and fetches the history from the first peer that gives it.
    pub(super) async fn run(self) {
        while !self.base.shared.health.is_readable() {
            sleep(READY_INTERVAL).await;
        }
        let Some((merged, lag)) = merged_tables(&self.base.shared) else {
            tracing::warn!(extension = %self.base.id, "`history::peers` has no effect without a `partials` receiver: remove it");
            return;
        };
        // Each series has a first sample, and a place in the history, before those of the peer fill it.
        let view = self.view.clone();
        let _ = spawn_blocking(move || view.record(unix_now(), Duration::ZERO, &mut |_| true)).await;
        self.fetch(&merged, lag).await;
    }

    async fn fetch(&self, merged: &MergedTables, lag: Duration) {
        let deadline = Instant::now() + self.peers.timeout;
        let failures = loop {
            let Err(failures) = self.round(deadline, merged, lag).await else {
                return;
            };
            let is_busy = failures
                .iter()
                .any(|(_, error)| matches!(error, FetchError::Busy(_)));
            if !is_busy || Instant::now() + BUSY_INTERVAL >= deadline {
                break failures;
            }
            sleep(BUSY_INTERVAL).await;
        };
        failures.iter().for_each(|(_, error)| error.count());
        if !failures.is_empty() {
            let peers = failures.iter().map(|(peer, error)| format!("{peer}: {error}"));
            tracing::warn!(
                extension = %self.base.id,
                peers = peers.collect::<Vec<_>>().join("; "),
                "no peer gives its history, so that of this gateway begins at its start: check `history::peers` and the peers"
            );
        }
    }

    /// Asks the peers in turn until one has given the wanted history.
    ///
    /// # Errors
    /// Those that gave none, with the reasons.
    async fn round(
        &self,
        deadline: Instant,
        merged: &MergedTables,
        lag: Duration,
    ) -> Result<(), Vec<(String, FetchError)>> {
        let (mut failures, mut has_some) = (Vec::new(), false);
        for (endpoint, client) in self.peers.endpoints.iter().zip(&self.clients) {
            let found = timeout_at(deadline, addresses(endpoint, PATH)).await;
            let peers = match found.unwrap_or(Err(FetchError::Timeout)) {
                Ok(peers) => peers,
                Err(error) => {
                    failures.push((endpoint.to_string(), error));
                    continue;
                }
            };
            for peer in peers {
                let fetched = timeout_at(deadline, self.fetch_all(client, &peer, merged, lag)).await;
                match fetched.unwrap_or(Err(FetchError::Timeout)) {
                    Ok(PeerHistory::Long) => return Ok(()),
                    Ok(PeerHistory::Short) => has_some = true,
                    Ok(PeerHistory::Own) => {}
                    Err(error) => failures.push((peer.name, error)),
                }
            }
        }
        if has_some { Ok(()) } else { Err(failures) }
    }

    /// Fetches all pages of a peer.
    async fn fetch_all(
        &self,
        client: &HttpClient,
        peer: &Peer,
        merged: &MergedTables,
        lag: Duration,
    ) -> Result<PeerHistory, FetchError> {
        // A pass of the sampler reads values up to its spread later than it says.
        let interval = Duration::from_millis(self.limits.interval_ms.unsigned_abs());
        let lag_ms = super::millis(lag + spread(interval));
        let most = Millis::try_from(LOAN_SAMPLES).unwrap_or(Millis::MAX);
        let span = self
            .limits
            .span_ms
            .min(self.limits.interval_ms.saturating_mul(most));
        let from = millis(clock::wall(unix_now())).saturating_sub(span);
        let (mut at, mut begins) = (SeriesPosition::default(), None);
        let mut all = Borrowed::default();
        loop {
            let page = timeout(self.peers.timeout / 3, self.page(client, peer, from, at)).await;
            let page = page.unwrap_or(Err(FetchError::Timeout))?;
            if page.instance.is_some_and(|instance| instance == self.instance) {
                return Ok(PeerHistory::Own);
            }
            let (view, merged) = (self.view.clone(), merged.clone());
            let borrowed = spawn_blocking(move || {
                let now = millis(clock::wall(unix_now()));
                let borrowed = view.borrow_page(&merged, now, lag_ms, &page.request);
                drop(page.held);
                borrowed
            });
            let borrowed = borrowed.await.map_err(malformed)?.map_err(malformed)?;
            count(borrowed);
            all += borrowed;
            begins = begins.or(page.begins);
            match page.next {
                None => break,
                Some(next) if next > at => at = next,
                Some(next) => return Err(malformed(format!("position {next} follows {at}"))),
            }
        }
        // Without room for all samples, queries keep their warning.
        if let Some(begins) = begins.filter(|_| all.omitted_samples == 0) {
            self.view.extend_history(merged.clone(), begins.max(from));
        }
        tracing::info!(
            extension = %self.base.id,
            peer = peer.name,
            series = all.series,
            samples = all.samples,
            omitted_series = all.omitted_series,
            omitted_samples = all.omitted_samples,
            "fetched the history of a peer"
        );
        let is_long = begins.is_some_and(|begins| begins <= from + super::millis(YOUNG));
        Ok(if is_long {
            PeerHistory::Long
        } else {
            PeerHistory::Short
        })
    }

    async fn page(
        &self,
        client: &HttpClient,
        peer: &Peer,
        from: Millis,
        at: SeriesPosition,
    ) -> Result<PeerPage, FetchError> {
        let mut headers = headers::build(&self.peers.headers);
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        let body = bytes::Bytes::from(format!("from={from}&at={at}"));
        let answer = client.post(&peer.url, headers, body, None).await;
        let answer = answer.map_err(unreachable)?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE {
            return Err(FetchError::Busy(answer.text()));
        }
        if !answer.status.is_success() {
            return Err(FetchError::Refused(answer.text()));
        }
        let mut held = Held::new(self.base.shared.memory.clone());
        let packed = match &answer.body {
            Ok(packed) => packed.clone(),
            Err(BodyError::Broken(why)) => return Err(FetchError::Unreachable(why.clone())),
            Err(error) => return Err(malformed(error)),
        };
        if header(&answer, &CONTENT_ENCODING) != Some("zstd") {
            return Err(malformed("it is not compressed with zstd"));
        }
        let request = unpack(Coding::Zstd, packed, MAX_PAGE_BYTES, &mut held, &mut None).await;
        let request = request.map_err(|error| match error {
            DecompressError::TooLarge { .. } | DecompressError::Corrupt(_) => malformed(error),
            _ => FetchError::Memory,
        })?;
        held.try_grow(Version::One.weight(&request))
            .map_err(|_| FetchError::Memory)?;
        let next = header(&answer, &NEXT).map(str::parse).transpose();
        let begins = header(&answer, &BEGINS).map(str::parse).transpose();
        Ok(PeerPage {
            next: next.map_err(malformed)?,
            begins: begins.map_err(malformed)?,
            instance: answer.headers.get(INSTANCE).cloned(),
            request,
            held,
        })
    }
}

fn header<'a>(answer: &'a HttpAnswer, name: &HeaderName) -> Option<&'a str> {
    answer.headers.get(name)?.to_str().ok()
}

fn malformed(why: impl std::fmt::Display) -> FetchError {
    FetchError::Malformed(why.to_string())
}

fn unreachable(outcome: Outcome) -> FetchError {
    match outcome {
        Outcome::Retry { why, .. } | Outcome::TimedOut { why } | Outcome::Permanent { why } => {
            FetchError::Unreachable(why)
        }
        _ => FetchError::Unreachable("no answer".to_owned()),
    }
}

fn count(borrowed: Borrowed) {
    metrics::counter!("tidegate_history_fetched_series_total").increment(borrowed.series);
    metrics::counter!("tidegate_history_fetched_samples_total").increment(borrowed.samples);
    metrics::counter!("tidegate_history_fetch_omitted_series_total").increment(borrowed.omitted_series);
    metrics::counter!("tidegate_history_fetch_omitted_samples_total").increment(borrowed.omitted_samples);
}
