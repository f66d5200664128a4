// SPDX-License-Identifier: Apache-2.0

//! The queue of alerts for one Alertmanager, and the task that posts them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Uri};
use parking_lot::Mutex;
use tidegate_promql::Labels;
use tidegate_runtime::USER_AGENT;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::config::AlertmanagerConfig;
use super::metrics::{AlertLoss, AlertmanagerMetrics};
use crate::component::{ComponentError, Context};
use crate::delivery::http::{Connections, HttpClient, HttpOptions};
use crate::delivery::response::quote;
use crate::net::headers;
use crate::prom::relabel::Rule as RelabelRule;

/// The most alerts of one request, as in Prometheus.
const BATCH: usize = 64;

/// The most bytes of the alerts that wait for one Alertmanager. Their texts come from the data.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// The pause after the first failed request...
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// ...and the longest pause. Each failure doubles it.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// An alert that waits: its labels, and its JSON.
pub(super) type WaitingAlert = (Labels, Bytes);

/// An Alertmanager, and the alerts that it has not got.
pub(super) type UnsentAlerts = (String, Vec<WaitingAlert>);

/// The alerts that wait, each label set once, with its newest state.
#[derive(Default)]
struct AlertQueue {
    order: VecDeque<Labels>,
    alerts: HashMap<Labels, Bytes>,
    /// The bytes of the JSON of all.
    bytes: usize,
}

impl AlertQueue {
    /// Adds an alert, or replaces its older state.
    fn push(&mut self, (labels, alert): WaitingAlert) {
        self.bytes += alert.len();
        match self.alerts.insert(labels.clone(), alert) {
            Some(older) => self.bytes -= older.len(),
            None => self.order.push_back(labels),
        }
    }

    /// Takes the oldest alerts.
    fn take(&mut self, most: usize) -> Vec<WaitingAlert> {
        let count = most.min(self.order.len());
        let labels = self.order.drain(..count).collect::<Vec<_>>().into_iter();
        let taken: Vec<WaitingAlert> = labels
            .filter_map(|labels| self.alerts.remove(&labels).map(|alert| (labels, alert)))
            .collect();
        self.bytes -= taken.iter().map(|(_, alert)| alert.len()).sum::<usize>();
        taken
    }

    /// Puts alerts back that could not be sent. A newer state of an alert replaces them.
    fn put_back(&mut self, alerts: Vec<WaitingAlert>) {
        for (labels, alert) in alerts.into_iter().rev() {
            if !self.alerts.contains_key(&labels) {
                self.bytes += alert.len();
                self.alerts.insert(labels.clone(), alert);
                self.order.push_front(labels);
            }
        }
    }

    /// Drops the oldest alerts above a number, and above a number of bytes. Returns their number.
    fn shrink(&mut self, most: usize, most_bytes: usize) -> usize {
        let excess = self.order.len().saturating_sub(most);
        let mut dropped = self.take(excess).len();
        while self.bytes > most_bytes {
            dropped += self.take(1).len();
        }
        dropped
    }
}

/// The result of a request.
enum PostResult {
    Sent,
    /// The Alertmanager will never take it.
    Refused(String),
    /// It may take it later.
    Failed(String, Option<Duration>),
}

/// An Alertmanager with its queue.
pub(super) struct Alertmanager {
    /// Its address, for people and metrics.
    shown: String,
    url: Uri,
    http: HttpClient,
    headers: HeaderMap,
    timeout: Duration,
    relabel_configs: Vec<RelabelRule>,
    most: usize,
    queue: Mutex<AlertQueue>,
    /// The alerts of the request that is under way.
    in_flight: Mutex<Vec<WaitingAlert>>,
    wake: Notify,
    metrics: AlertmanagerMetrics,
}

impl Alertmanager {
    /// # Errors
    /// The TLS files or the authenticator can't be used.
    pub(super) fn new(
        config: &AlertmanagerConfig,
        most: usize,
        base: &Context,
    ) -> Result<Self, ComponentError> {
        let options = HttpOptions {
            endpoint: Some(&config.endpoint),
            tls: &config.tls,
            auth: config.auth.as_ref(),
            max_idle_conns: 2,
            idle_conn_timeout: Duration::from_secs(90),
            connections: Connections::default(),
        };
        let mut all = HeaderMap::new();
        all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
        all.extend(headers::build(&config.headers));
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let shown = config.shown();
        Ok(Self {
            http: HttpClient::new(options, base)?,
            url: config.url(),
            headers: all,
            timeout: config.timeout,
            relabel_configs: config.alert_relabel_configs.clone(),
            most,
            queue: Mutex::default(),
            in_flight: Mutex::default(),
            wake: Notify::new(),
            metrics: AlertmanagerMetrics::new(&base.id, &shown),
            shown,
        })
    }

    /// Its address.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Its own rules for the labels of alerts.
    pub(super) fn relabel_configs(&self) -> &[RelabelRule] {
        &self.relabel_configs
    }

    /// Counts alerts that relabelling has dropped.
    pub(super) fn count_relabelled(&self, alerts: usize) {
        self.metrics.count_dropped(AlertLoss::Relabelled, alerts);
    }

    /// Adds alerts to the queue.
    pub(super) fn enqueue(&self, alerts: &[WaitingAlert]) {
        if alerts.is_empty() {
            return;
        }
        let dropped = {
            let mut queue = self.queue.lock();
            alerts.iter().for_each(|alert| queue.push(alert.clone()));
            let dropped = queue.shrink(self.most, MAX_WAITING_BYTES);
            self.metrics.waiting.set(queue.order.len() as f64);
            dropped
        };
        self.metrics.count_dropped(AlertLoss::QueueFull, dropped);
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<WaitingAlert> {
        let batch = self.queue.lock().take(BATCH);
        self.in_flight.lock().clone_from(&batch);
        batch
    }

    /// Posts alerts as they come. After `stopping`, it sends the rest once.
    pub(super) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let (mut pause, mut fails) = (FIRST_PAUSE, false);
        loop {
            let batch = self.take();
            if batch.is_empty() {
                tokio::select! {
                    () = self.wake.notified() => {}
                    () = stopping.cancelled() => return,
                }
                continue;
            }
            let result = self.post(&batch).await;
            self.in_flight.lock().clear();
            if !matches!(result, PostResult::Sent) {
                self.metrics.errors.increment(1);
            }
            match result {
                PostResult::Sent => {
                    self.metrics.sent.increment(batch.len() as u64);
                    if std::mem::take(&mut fails) {
                        tracing::info!(alertmanager = self.shown, "the Alertmanager takes alerts again");
                    }
                    pause = FIRST_PAUSE;
                }
                PostResult::Refused(why) => {
                    tracing::warn!(
                        alertmanager = self.shown,
                        alerts = batch.len(),
                        "the Alertmanager refuses alerts, which are dropped: {why}"
                    );
                    self.metrics.count_dropped(AlertLoss::Refused, batch.len());
                }
                PostResult::Failed(why, after) => {
                    if !std::mem::replace(&mut fails, true) {
                        tracing::warn!(
                            alertmanager = self.shown,
                            "the Alertmanager takes no alerts, they wait: {why}"
                        );
                    }
                    self.put_back(batch);
                    if stopping.is_cancelled() {
                        return;
                    }
                    let rest = after.map_or(pause, |after| after.clamp(pause, LONGEST_PAUSE));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    tokio::select! {
                        () = sleep(rest) => {}
                        () = stopping.cancelled() => {}
                    }
                }
            }
            self.metrics.waiting.set(self.queue.lock().order.len() as f64);
        }
    }

    fn put_back(&self, batch: Vec<WaitingAlert>) {
        let dropped = {
            let mut queue = self.queue.lock();
            queue.put_back(batch);
            let dropped = queue.shrink(self.most, MAX_WAITING_BYTES);
            self.metrics.waiting.set(queue.order.len() as f64);
            dropped
        };
        self.metrics.count_dropped(AlertLoss::QueueFull, dropped);
    }

    async fn post(&self, batch: &[WaitingAlert]) -> PostResult {
        let alerts: Vec<&[u8]> = batch.iter().map(|(_, alert)| &**alert).collect();
        let mut body = vec![b'['];
        body.extend(alerts.join(&b','));
        body.push(b']');
        let posted = self
            .http
            .post(&self.url, self.headers.clone(), Bytes::from(body), None);
        let answer = match timeout(self.timeout, posted).await {
            Err(_) => {
                let why = format!("no answer within {}", humantime::format_duration(self.timeout));
                return PostResult::Failed(why, None);
            }
            Ok(Err(outcome)) => {
                let why = outcome.error().unwrap_or("no answer").to_owned();
                return PostResult::Failed(why, None);
            }
            Ok(Ok(answer)) => answer,
        };
        if answer.status.is_success() {
            return PostResult::Sent;
        }
        let why = quote(&answer.text(), &self.http.with_credentials(&self.headers, None));
        match answer.status.as_u16() {
            400 | 413 | 415 | 422 => PostResult::Refused(why),
            _ => PostResult::Failed(why, answer.after),
        }
    }

    /// Takes the alerts that were not sent, after the task has ended.
    pub(super) fn take_rest(&self) -> Vec<WaitingAlert> {
        let in_flight = std::mem::take(&mut *self.in_flight.lock());
        let mut queue = self.queue.lock();
        queue.put_back(in_flight);
        self.metrics.waiting.set(0.0);
        queue.take(usize::MAX)
    }
}

/// Counts alerts that nobody sends any more.
pub(super) fn count_unsent(component: &Arc<str>, alertmanager: &str, alerts: usize) {
    // An Alertmanager that is gone gets no metrics again without a reason.
    if alerts > 0 {
        AlertmanagerMetrics::new(component, alertmanager).count_dropped(AlertLoss::Shutdown, alerts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(name: &str, json: &'static str) -> WaitingAlert {
        let labels = [("alertname", name)].into_iter().collect();
        (labels, Bytes::from_static(json.as_bytes()))
    }

    fn names(alerts: &[WaitingAlert]) -> Vec<&str> {
        alerts.iter().map(|(labels, _)| labels.get("alertname")).collect()
    }

    #[test]
    fn a_newer_state_replaces_an_alert_that_waits() {
        let mut queue = AlertQueue::default();
        queue.push(alert("a", "firing"));
        queue.push(alert("b", "firing"));
        queue.push(alert("a", "resolved"));
        let taken = queue.take(10);
        assert_eq!(names(&taken), ["a", "b"]);
        assert_eq!(taken[0].1, "resolved");
        assert!(queue.take(10).is_empty());
    }

    #[test]
    fn alerts_that_were_not_sent_keep_their_order_unless_newer_ones_came() {
        let mut queue = AlertQueue::default();
        for name in ["a", "b", "c"] {
            queue.push(alert(name, "firing"));
        }
        let taken = queue.take(2);
        queue.push(alert("b", "resolved"));
        queue.put_back(taken);
        let taken = queue.take(10);
        assert_eq!(names(&taken), ["a", "c", "b"]);
        assert_eq!(taken[2].1, "resolved");
    }

    #[test]
    fn the_oldest_alerts_are_dropped_above_the_limit() {
        let mut queue = AlertQueue::default();
        for name in ["a", "b", "c"] {
            queue.push(alert(name, "firing"));
        }
        assert_eq!(queue.shrink(2, 100), 1);
        queue.push(alert("b", "resolved"));
        assert_eq!(queue.shrink(2, 14), 0);
        assert_eq!(queue.shrink(2, 13), 1);
        assert_eq!(names(&queue.take(10)), ["c"]);
        assert_eq!(queue.bytes, 0);
    }
}
