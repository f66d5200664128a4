// SPDX-License-Identifier: Apache-2.0

//! Prometheus's HTTP API over the data of the gateway.

mod exemplars;
mod failure;
mod federate;
mod feeds;
mod graph;
mod history;
mod json;
mod numbers;
mod params;
mod queries;
mod routes;
mod rules;
mod series;
mod status;
mod targets;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use serde_json::Value;
use tidegate_engine::{OnStale, UnixNanos};
use tidegate_promql::{Instant, Patience, Query, QueryError};
use tokio_util::sync::CancellationToken;

use self::failure::ApiFailure;
use self::feeds::Feeds;
pub(super) use self::numbers::{NoNumbers, Partial};
pub(super) use self::routes::takes;
pub use self::routes::{ApiPage, api_pages};
use self::routes::{Cost, Route};
use super::composites::{self, COMPOSITES};
use super::memory::{QueryMemory, SAMPLE_BYTES};
use super::queues::{NotComputed, QueryKind, QueryQueues};
use super::{QueryConfig, explain, page};
use crate::component::{Ceiling, Shared};
use crate::net::pages::{self, Answer, Request};
use crate::prom::catalog::View;
use crate::watch::Watched;

/// The most series or samples of an instant query in the light queue. Larger ones go to the heavy queue.
const MAX_LIGHT: usize = 100_000;

/// The prefix of the API's paths.
const API: &str = "/api/v1/";

/// The pages.
pub(super) struct Api {
    shared: Arc<Shared>,
    view: Arc<View>,
    limits: QueryConfig,
    queues: QueryQueues,
    /// The topics of the status stream.
    feeds: Feeds,
    /// The memory of heavy queries.
    memory: QueryMemory,
    /// Cancelled when the gateway stops: streams end.
    stopping: CancellationToken,
    started: SystemTime,
    /// The random name of this process.
    instance: String,
}

/// The content of a page.
enum PageContent {
    /// Data, and what is to be said beside them.
    Data(AnnotatedData),
    /// Text for a scraper.
    Text(Vec<u8>),
    /// An answer in another format.
    Other(Answer),
    /// An empty answer, which is not an error.
    Empty,
}

/// Data with warnings and notes.
#[derive(Default)]
struct AnnotatedData {
    /// JSON.
    data: Vec<u8>,
    warnings: Vec<String>,
    infos: Vec<String>,
}

impl From<Value> for PageContent {
    fn from(data: Value) -> Self {
        Self::Data(AnnotatedData {
            data: data.to_string().into_bytes(),
            ..AnnotatedData::default()
        })
    }
}

impl AnnotatedData {
    /// Says that a list is shorter than what was found.
    fn truncated(&mut self) {
        self.warnings.push("results truncated due to limit".to_owned());
    }

    /// JSON.
    fn page(self) -> Vec<u8> {
        let mut page = self.data;
        page.splice(..0, *b"{\"status\":\"success\",\"data\":");
        for (name, notes) in [("warnings", self.warnings), ("infos", self.infos)] {
            if !notes.is_empty() {
                let notes = format!(",\"{name}\":{}", Value::from(notes));
                page.extend_from_slice(notes.as_bytes());
            }
        }
        page.push(b'}');
        page
    }
}

impl Api {
    /// The most samples of a query.
    fn max_samples(&self) -> usize {
        self.limits.max_samples(self.shared.memory.limit())
    }

    /// The most samples of the query in a request.
    fn max_samples_of(&self, request: &Request) -> usize {
        self.max_samples().min(request.max_bytes / SAMPLE_BYTES)
    }

    /// The most bytes of a heavy query.
    fn max_bytes(&self) -> usize {
        self.max_samples().saturating_mul(SAMPLE_BYTES)
    }

    pub(super) fn new(
        component: &Arc<str>,
        shared: Arc<Shared>,
        view: Arc<View>,
        limits: QueryConfig,
        stopping: CancellationToken,
        instance: String,
    ) -> Self {
        Self {
            memory: QueryMemory::of(shared.memory.clone()),
            shared,
            view,
            queues: QueryQueues::of(component, limits.timeout),
            feeds: Feeds::new(),
            limits,
            stopping,
            started: SystemTime::now(),
            instance,
        }
    }

    /// The state that the gateway's components share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The queues that compute queries.
    pub(super) fn queues(&self) -> &QueryQueues {
        &self.queues
    }

    /// Cancelled when the gateway stops.
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// The composites that a query names.
    fn composites_of(&self, query: &Query) -> Vec<Arc<Watched>> {
        self.composites_named(&query.names())
    }

    fn composites_named(&self, names: &[String]) -> Vec<Arc<Watched>> {
        let all = self.view.names_of_composites().into_iter();
        let named = all.filter(|(_, name)| names.contains(name));
        named.map(|(composite, _)| composite).collect()
    }

    /// The page that a request asks for.
    pub(super) async fn answer(self: Arc<Self>, request: Request) -> Answer {
        match &*request.path {
            "/-/healthy" => pages::text(StatusCode::OK, "text/plain", "tidegate is healthy.\n".to_owned()),
            "/-/ready" => self.ready(),
            path if path.starts_with(COMPOSITES) => {
                // Each page begins its own read: a request may wait long for a change before it.
                if let Err(why) = self.shared.health.begin_confirmed_read().await {
                    return pages::busy(&why);
                }
                let page = composites::page(&request, &self.shared, &self.queues, &self.stopping).await;
                page.unwrap_or_else(nothing)
            }
            feeds::PATH => self.stream(&request),
            path if page::is_here(path) => page::answer(&request).unwrap_or_else(nothing),
            _ => self.prometheus(request).await,
        }
    }

    fn ready(&self) -> Answer {
        let health = &self.shared.health;
        if health.is_ready() {
            return pages::text(StatusCode::OK, "text/plain", "tidegate is ready.\n".to_owned());
        }
        let why = health
            .unready()
            .map_or_else(String::new, |why| format!(": {why}"));
        pages::text(
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain",
            format!("not ready{why}\n"),
        )
    }

    async fn prometheus(self: Arc<Self>, mut request: Request) -> Answer {
        let Some(route) = Route::at(&request.path) else {
            return nothing();
        };
        let deadline = request.came + self.time_for(&request);
        let (health, mut read) = (&self.shared.health, None);
        if route.reads_data() {
            match tokio::time::timeout_at(deadline.into(), health.begin_confirmed_read()).await {
                Ok(Ok(begun)) => read = Some(begun),
                Ok(Err(why)) => return pages::busy(&why),
                Err(_) => return self.refusal(&QueryError::Timeout.into()),
            }
        }
        request.patience = Patience::until(deadline);
        let kind = route.kind(&request);
        let is_refusable = kind == QueryKind::Heavy && route.cost != Cost::Diagnosis;
        if is_refusable && self.shared.memory.is_over(Ceiling::Soft) {
            return pages::busy(&self.queues.refused(NotComputed::Memory).to_string());
        }
        let (api, client, patience) = (self.clone(), request.client, request.patience.clone());
        let computed = async move {
            let most = match kind {
                QueryKind::Heavy => usize::MAX,
                QueryKind::Light | QueryKind::Scaler | QueryKind::Stream => MAX_LIGHT,
            };
            let (light, queues) = (api.clone(), &api.queues);
            let request = Arc::new(request);
            let asked = request.clone();
            let work = move || light.page(route, &asked, most);
            match queues.compute(kind, client, patience, work).await? {
                Some(page) => Ok(page),
                None if api.shared.memory.is_over(Ceiling::Soft) => Err(queues.refused(NotComputed::Memory)),
                None => {
                    let heavy = api.clone();
                    // The patience of the first attempt has ended with it.
                    let patience = Patience::until(deadline);
                    let again = Request {
                        patience: patience.clone(),
                        ..(*request).clone()
                    };
                    let work = move || heavy.page(route, &again, usize::MAX);
                    let page = queues.compute(QueryKind::Heavy, client, patience, work).await?;
                    page.ok_or(NotComputed::Bug)
                }
            }
        };
        let answer = match tokio::time::timeout_at(deadline.into(), computed).await {
            Ok(Ok(page)) => page.unwrap_or_else(|failure| self.refusal(&failure)),
            Ok(Err(why @ NotComputed::Bug)) => {
                tracing::error!("a query panicked (a bug)");
                pages::error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &why.to_string())
            }
            Ok(Err(why)) => pages::busy(&why.to_string()),
            Err(_) => self.refusal(&QueryError::Timeout.into()),
        };
        // A query may have waited for its turn, and the values have become too old.
        match read.map(|read| health.check_read(read)) {
            Some(Err(why)) => pages::busy(&why),
            _ => answer,
        }
    }

    /// The time limit of an answer: that of the request, at most the configured one. The page refuses a bad
    /// `timeout`.
    fn time_for(&self, request: &Request) -> Duration {
        let most = self.limits.timeout;
        let asked = params::optional_duration(request, "timeout").ok().flatten();
        let asked = asked.and_then(|millis| u64::try_from(millis).ok());
        asked.map_or(most, |millis| Duration::from_millis(millis).min(most))
    }

    /// The answer that says why the page was refused. It counts a query that took too long or has no memory; it is called once
    /// for each request, on the side of the client.
    fn refusal(&self, failure: &ApiFailure) -> Answer {
        if failure.is_memory() {
            return pages::busy(&self.queues.refused(NotComputed::Memory).to_string());
        }
        if failure.is_timeout() {
            self.queues.refused(NotComputed::Timeout);
        }
        pages::error(failure.status, failure.kind, &failure.why)
    }

    /// The patience of a heavy query, which ends while the gateway is over its hard limit.
    fn while_memory_lasts(&self, patience: Patience) -> Patience {
        let memory = self.shared.memory.clone();
        patience.unless(move || memory.is_over(Ceiling::Hard))
    }

    /// The page; `None`: it is a query that looks at `most` series or samples, or more.
    fn page(&self, route: &Route, request: &Request, most: usize) -> Option<Result<Answer, ApiFailure>> {
        let is_heavy = most == usize::MAX && route.cost != Cost::Diagnosis;
        let wanted = if is_heavy { self.max_bytes() } else { 0 };
        let Some(grant) = self.memory.take(wanted) else {
            return Some(Err(ApiFailure::memory()));
        };
        let is_limited = grant.bytes() < wanted;
        let max_bytes = if is_limited {
            grant.bytes()
        } else {
            request.max_bytes
        };
        let bounded = is_heavy.then(|| Request {
            max_bytes,
            patience: self.while_memory_lasts(request.patience.clone()),
            ..request.clone()
        });
        let request = bounded.as_ref().unwrap_or(request);
        // While it waited for its place its client may have gone.
        let page = match (request.patience.check(), route.cost) {
            (Err(why), _) => Err(why.into()),
            (Ok(()), Cost::Query) => self.instant(request, most).transpose()?,
            (Ok(()), Cost::Much | Cost::Diagnosis | Cost::Little) => (route.page)(self, request),
        };
        let page = match page {
            Err(failure) if failure.is_too_much && is_limited => Err(ApiFailure::memory()),
            page => page,
        };
        Some(page.map(|page| match page {
            PageContent::Data(said) => pages::bytes("application/json", said.page().into()),
            PageContent::Text(text) => pages::bytes("text/plain; version=0.0.4; charset=utf-8", text.into()),
            PageContent::Other(answer) => answer,
            PageContent::Empty => pages::empty(),
        }))
    }

    /// An empty answer for a time near `now` is an error if a composite has no value.
    fn check_presence(&self, query: &Query, value: &Instant, now: UnixNanos) -> Result<(), ApiFailure> {
        match value {
            Instant::Vector(vector) if vector.is_empty() => self.check_composites(query, now),
            _ => Ok(()),
        }
    }

    /// An empty answer about a composite without a value is an error, because no program may act on it.
    fn check_composites(&self, query: &Query, now: UnixNanos) -> Result<(), ApiFailure> {
        if query.handles_absence() {
            return Ok(());
        }
        for composite in self.composites_of(query) {
            let name = &composite.declaration().name;
            let answers = composite.composite().read(now);
            if let Some(error) = answers.iter().find_map(|answer| answer.error.as_deref()) {
                let why = format!("the composite `{name}` has no value: {error}");
                return Err(ApiFailure::execution(why));
            }
            let states: BTreeSet<&str> = answers.iter().map(|answer| answer.state.name()).collect();
            if composite.declaration().on_stale == OnStale::Error
                && answers.iter().all(|answer| answer.state.is_unusable())
            {
                return Err(ApiFailure::execution(format!(
                    "the composite `{name}` is {} and has no value, so the query has no value now; check that its sources \
                     run and reach the gateway (`tidegate explain` lists those that do not report)",
                    states.into_iter().collect::<Vec<_>>().join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// The texts of `match[]`, each once.
fn selectors(request: &Request) -> Result<impl Iterator<Item = &str>, ApiFailure> {
    /// Each of them looks through series.
    const MOST: usize = 200;
    match request.all("match[]").count() {
        count if count > MOST => Err(ApiFailure::bad(format!(
            "{count} parameters match[]: {MOST} are allowed"
        ))),
        _ => Ok(request.all("match[]").collect::<BTreeSet<_>>().into_iter()),
    }
}

/// The selector that a text is.
fn parse_selector(text: &str) -> Result<Query, ApiFailure> {
    let query = Query::parse(text)?;
    match query.selection() {
        Some(_) => Ok(query),
        None => Err(ApiFailure::bad(format!(
            "{text:?} is an expression, not a selector of series"
        ))),
    }
}

fn nothing() -> Answer {
    let why = format!(
        "nothing here; the page for people is at /, composites are at {COMPOSITES}, queries at {API}query"
    );
    pages::error(StatusCode::NOT_FOUND, "not_found", &why)
}
