// SPDX-License-Identifier: Apache-2.0

//! Posts an HTTP request when a threshold is crossed. It has the queue, retries and drain of every exporter.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use bytes::{BufMut, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;
use parking_lot::Mutex;
use tidegate_runtime::USER_AGENT;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::batch::{Batch, Encoded, Signal};
use crate::component::{
    Account, ComponentError, Consumer, Context, ExporterContext, Flow, Held, Ledger, Lifecycle, Reason,
};
use crate::config::{Node, Problems};
use crate::delivery::response::{MAX_ANSWER_BYTES, address, of_http, quote};
use crate::delivery::{
    Attempt, Delivery, Destination, ExportRequest, Outcome, QueueConfig, RetryConfig, Shape, Speaks,
    TemporalityChoice,
};
use crate::net::client::{Connector, UseTls, http_client};
use crate::net::headers::{self, Headers};
use crate::net::tls::ALPN_HTTP;
use crate::net::url::Url;
use crate::net::{TlsClientConfig, read_answer, retry_after};
use crate::watch::{Crossing, Watched, json};

crate::options! {
    /// The receiver of crossings, as JSON.
    pub struct WebhookConfig {
        /// Complete URL. `unix:/path` is allowed.
        pub endpoint: Url = required,
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// TLS of an `https` URL.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Longest duration of one attempt. The processor retries an attempt that takes longer. 0: no limit.
        pub timeout: Duration = Duration::from_secs(5),
        /// Retries of failed requests.
        pub retry_on_failure: RetryConfig = RetryConfig { initial_interval: Duration::from_millis(500), ..RetryConfig::default() },
        /// Queue of crossings that wait for delivery.
        pub sending_queue: QueueConfig = QueueConfig { num_consumers: std::num::NonZeroUsize::MIN, ..QueueConfig::default() },
    }
    check = WebhookConfig::check
}

impl WebhookConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        self.retry_on_failure.check_statuses(Speaks::Http, at, cx);
    }

    fn delivery(&self) -> Delivery {
        Delivery {
            queue: self.sending_queue.clone(),
            retry: self.retry_on_failure.clone(),
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            temporality: TemporalityChoice::Preserve,
            refuses_falling: false,
            shape: Shape::NONE,
            in_order: false,
            together: None,
        }
    }
}

type Http = hyper_util::client::legacy::Client<Connector, Full<bytes::Bytes>>;

struct Post {
    http: Http,
    url: Uri,
    headers: HeaderMap,
    retry: RetryConfig,
    /// The address for logs, without secrets.
    shown: String,
    labels: [(&'static str, String); 2],
    /// The account for the memory of answers.
    memory: Arc<Account>,
}

impl Post {
    fn new(
        config: &WebhookConfig,
        cx: &Context,
        labels: [(&'static str, String); 2],
    ) -> Result<Self, ComponentError> {
        let socket = config.endpoint.unix_path();
        let connector = Connector::new(socket, UseTls::ByScheme, &config.tls, ALPN_HTTP);
        let connector = connector.map_err(|error| cx.error(error.to_string()))?;
        let mut all = HeaderMap::new();
        all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
        all.extend(headers::build(&config.headers));
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self {
            http: http_client().build(connector),
            url: config.endpoint.exact(),
            headers: all,
            retry: config.retry_on_failure.clone(),
            shown: match config.endpoint.unix_path() {
                Some(path) => format!("unix:{}", path.display()),
                None => address(&config.endpoint.exact()),
            },
            labels,
            memory: cx.shared.memory.clone(),
        })
    }

    async fn attempt(&self, body: bytes::Bytes) -> Outcome {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(error) => return Outcome::retry(format!("{error}: {:?}", std::error::Error::source(&error))),
        };
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Outcome::Done;
        }
        let after = retry_after::parse(&head.headers, SystemTime::now());
        let mut held = Held::ours(self.memory.clone());
        let said = read_answer(body, MAX_ANSWER_BYTES, &mut held).await;
        let said = said.unwrap_or_default();
        let said = String::from_utf8_lossy(said.get(..said.len().min(4096)).unwrap_or_default());
        let outcome = self
            .retry
            .of_http(head.status, of_http(head.status, after, &said));
        outcome.reworded(|why| quote(why, &self.headers))
    }
}

#[async_trait]
impl Attempt for Post {
    fn endpoint(&self) -> String {
        self.shown.clone()
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let mut body = BytesMut::new();
        export
            .encoded()
            .parts
            .iter()
            .for_each(|part| body.put_slice(&part.bytes));
        let outcome = self.attempt(body.freeze()).await;
        if matches!(outcome, Outcome::Done) {
            metrics::counter!("tidegate_webhook_delivered_total", &self.labels).increment(1);
        }
        outcome
    }
}

/// The webhook of one threshold.
pub(super) struct Webhook {
    destination: Arc<Destination<Post>>,
    ledger: Arc<Ledger>,
    watched: Arc<Watched>,
    threshold: Arc<str>,
    labels: [(&'static str, String); 2],
    /// The task that queues crossings.
    task: Mutex<Option<JoinHandle<()>>>,
    stopping: CancellationToken,
}

impl Webhook {
    pub(super) fn new(
        config: &WebhookConfig,
        base: &Context,
        watched: Arc<Watched>,
        threshold: Arc<str>,
    ) -> Result<Self, ComponentError> {
        let composite = watched.declaration().name.clone();
        let labels = [
            ("composite", composite.to_string()),
            ("threshold", threshold.to_string()),
        ];
        let base = Context {
            path: format!("{}::{composite}/{threshold}", base.path).into(),
            ..base.clone()
        };
        let post = Post::new(config, &base, labels.clone())?;
        let ledger = Arc::new(Ledger::default());
        let mut ledgers = [None, None, None];
        ledgers[Signal::Logs as usize] = Some(ledger.clone());
        let cx = ExporterContext {
            base,
            ledgers,
            replaced: Vec::new(),
        };
        Ok(Self {
            destination: Arc::new(Destination::new(cx, &config.delivery(), post)),
            ledger,
            watched,
            threshold,
            labels,
            task: Mutex::default(),
            stopping: CancellationToken::new(),
        })
    }

    pub(super) async fn start(&self) -> Result<(), ComponentError> {
        self.destination.start().await?;
        let crossings = self.watched.crossings();
        let (destination, ledger) = (self.destination.clone(), self.ledger.clone());
        let (threshold, labels) = (self.threshold.clone(), self.labels.clone());
        let stopping = self.stopping.clone();
        *self.task.lock() = Some(tokio::spawn(async move {
            hand_on(crossings, &stopping, &threshold, &destination, &ledger, &labels).await;
        }));
        Ok(())
    }

    /// Queues the crossings of before, and no further ones. The composite must hold those: it may outlive the webhook.
    pub(super) fn begin_stop(&self) {
        self.stopping.cancel();
    }

    /// Sends the crossings of before.
    pub(super) async fn stop(&self, deadline: Instant) {
        self.begin_stop();
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout_at(deadline.into(), &mut task).await.is_err()
        {
            task.abort();
        }
        self.destination.stop(deadline).await;
    }

    /// Whether its queue is on disk.
    pub(super) fn opens_log(&self) -> bool {
        self.destination.opens_log()
    }
}

/// Queues every crossing of this threshold until it is `stopping`.
async fn hand_on(
    mut crossings: Receiver<Arc<Crossing>>,
    stopping: &CancellationToken,
    threshold: &str,
    to: &Destination<Post>,
    ledger: &Ledger,
    labels: &[(&'static str, String); 2],
) {
    let lost = |items: u64| metrics::counter!("tidegate_webhook_dropped_total", labels).increment(items);
    loop {
        let received = tokio::select! {
            biased;
            received = crossings.recv() => received,
            () = stopping.cancelled() => return,
        };
        match received {
            Ok(crossing) if &*crossing.threshold.name == threshold => {
                let batch = batch(&crossing);
                let mut flow = Flow::default();
                ledger.enter(1);
                match to.admit(&batch, &mut flow) {
                    Ok(()) => to.consume(batch, &mut flow),
                    Err(refused) => {
                        ledger.drop_items(Reason::QueueFull, 1);
                        lost(1);
                        tracing::warn!(threshold, %refused, "a crossing was not sent");
                    }
                }
            }
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => lost(missed),
            Err(RecvError::Closed) => return,
        }
    }
}

fn batch(crossing: &Crossing) -> Batch {
    let body = json::crossing(crossing).to_string();
    Batch::new(Encoded::one(Signal::Logs, body.into(), 1))
}
