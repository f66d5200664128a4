//! Prometheus's HTTP API over what the gateway holds.

mod json;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_engine::query::{Instant, Labels, Millis, Query, QueryError, Selection};
use tidegate_engine::{Answer as Composed, OnStale, State, UnixNanos};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::composites::{self, COMPOSITES};
use super::explain;
use super::view::{View, millis};
use crate::component::shared::Phase;
use crate::component::worker::in_background;
use crate::component::{Shared, unix_now};
use crate::extensions::server::{self, Answer, Request};
use crate::prom::name::Kind;
use crate::watch::Watched;

/// Queries that are computed at one time; others wait.
const QUERIES: usize = 2;

/// A time this near to the present means the present: clients ask for what their clocks say.
const NOW_MS: Millis = 2000;

/// The pages.
pub(super) struct Api {
    shared: Arc<Shared>,
    view: Arc<View>,
    room: Semaphore,
    /// Cancelled when the gateway stops: streams end.
    stopping: CancellationToken,
}

/// What a query gives an autoscaler.
pub(super) struct Numbers {
    pub(super) values: Vec<f64>,
    /// Why something is missing in them; `None`: they are whole.
    pub(super) partial: Option<String>,
}

/// Why a request has no answer, as Prometheus says it.
struct Failure {
    status: StatusCode,
    kind: &'static str,
    why: String,
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let (status, kind) = match &error {
            QueryError::Syntax(_) | QueryError::Unsupported(_) | QueryError::TooMuch(_) => {
                (StatusCode::BAD_REQUEST, "bad_data")
            }
            QueryError::Execution(_) | QueryError::Samples(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "execution")
            }
            QueryError::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
        };
        Self {
            status,
            kind,
            why: error.to_string(),
        }
    }
}

fn bad(why: impl Into<String>) -> Failure {
    Failure {
        status: StatusCode::BAD_REQUEST,
        kind: "bad_data",
        why: why.into(),
    }
}

impl Api {
    pub(super) fn new(shared: Arc<Shared>, view: Arc<View>, stopping: CancellationToken) -> Self {
        Self {
            shared,
            view,
            room: Semaphore::new(QUERIES),
            stopping,
        }
    }

    /// What the gateway's components share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Cancelled when the gateway stops.
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// The numbers that a query gives now, for an autoscaler: a composite that is stale or absent is an error, whatever
    /// its `on_stale` shows.
    pub(super) async fn numbers(self: Arc<Self>, query: String) -> Result<Numbers, String> {
        // Never closed.
        let _room = self.room.acquire().await;
        let api = self.clone();
        let computed = in_background(move || {
            let query = Query::parse(&query)?;
            let now = unix_now();
            api.view.refresh(now, query.only_names().as_deref());
            let value = query.instant(&*api.view, millis(now))?;
            api.check_composites(&query, now, |_| true)?;
            let values = match value {
                Instant::Scalar(number) => vec![number],
                Instant::Vector(vector) => {
                    let numbers = vector.iter().map(|(_, value)| value.float());
                    let numbers: Option<_> = numbers.collect();
                    numbers.ok_or_else(|| bad("it gives native histograms, which are no numbers"))?
                }
                Instant::String(_) | Instant::Matrix(_) => {
                    return Err(bad("it gives neither a number nor a vector"));
                }
            };
            Ok(Numbers {
                values,
                partial: api.partial(&query, now),
            })
        });
        match computed.await {
            Ok(computed) => computed.map_err(|failure: Failure| failure.why),
            Err(_) => Err("a bug: see the log".to_owned()),
        }
    }

    /// The composites that a query names.
    fn composites_of(&self, query: &Query) -> Vec<Arc<Watched>> {
        let asked = query.names();
        let mut all = self.shared.composites.list();
        all.retain(|composite| {
            let name = &composite.declaration().name;
            let shown = self.view.naming.metric(name, "", Kind::Gauge);
            shown.is_some_and(|shown| asked.contains(&shown))
        });
        all
    }

    /// Why the answer to a query lacks something; `None`: it is whole.
    fn partial(&self, query: &Query, now: UnixNanos) -> Option<String> {
        self.composites_of(query).iter().find_map(|composite| {
            let answers = composite.composite().read(now);
            let partial = answers.iter().find(|answer| answer.state == State::Partial)?;
            Some(format!(
                "the composite `{}` is partial: {} of {} sources report",
                composite.declaration().name,
                partial.sources_reporting,
                partial.sources_expected
            ))
        })
    }

    /// Whether a query asks for composites only whose targets have all left discovery.
    pub(super) fn has_left(&self, query: &str) -> bool {
        let Ok(query) = Query::parse(query) else {
            return false;
        };
        let now = unix_now();
        let composites = self.composites_of(&query);
        let has_left = |watched: &Arc<Watched>| {
            let answers = watched.composite().read(now);
            let is_gone = |answer: &Composed| answer.value.is_none() && answer.has_left;
            let is_absent = |answer: &Composed| answer.state == State::Absent && answer.error.is_none();
            let any = answers.iter().any(is_gone) || !watched.composite().left().is_empty();
            any && answers.iter().all(is_absent)
        };
        !composites.is_empty() && composites.iter().all(has_left)
    }

    /// The page that a request asks for.
    pub(super) async fn answer(self: Arc<Self>, request: Request) -> Answer {
        match &*request.path {
            "/-/healthy" => server::text(StatusCode::OK, "text/plain", "tidegate is healthy.\n".to_owned()),
            "/-/ready" => match self.shared.health.phase() {
                Phase::Ready => server::text(StatusCode::OK, "text/plain", "tidegate is ready.\n".to_owned()),
                _ => server::text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "text/plain",
                    "not ready\n".to_owned(),
                ),
            },
            path if path.starts_with(COMPOSITES) => {
                let list = self.shared.composites.list();
                let page = composites::page(&request, &list, &self.stopping).await;
                page.unwrap_or_else(nothing)
            }
            _ => self.prometheus(request).await,
        }
    }

    async fn prometheus(self: Arc<Self>, request: Request) -> Answer {
        // Never closed.
        let _room = self.room.acquire().await;
        let api = self.clone();
        let computed = in_background(move || api.compute(&request)).await;
        match computed {
            Ok(Some(Ok(data))) => server::json(StatusCode::OK, &json!({"status": "success", "data": data})),
            Ok(Some(Err(Failure { status, kind, why }))) => server::json(
                status,
                &json!({"status": "error", "errorType": kind, "error": why}),
            ),
            Ok(None) => nothing(),
            Err(_) => {
                tracing::error!("a query panicked (a bug)");
                let body = json!({"status": "error", "errorType": "internal", "error": "a bug: see the log"});
                server::json(StatusCode::INTERNAL_SERVER_ERROR, &body)
            }
        }
    }

    /// `None`: there is no such page.
    fn compute(&self, request: &Request) -> Option<Result<Value, Failure>> {
        let path = request.path.strip_prefix("/api/v1/")?;
        let label = path
            .strip_prefix("label/")
            .and_then(|rest| rest.strip_suffix("/values"));
        Some(match (path, label) {
            ("query", _) => self.instant(request),
            ("query_range", _) => self.range(request),
            ("series", _) => self.series(request),
            ("labels", _) => self.names(request),
            (_, Some(label)) => self.values(request, label),
            ("metadata", _) => Ok(self.metadata(request)),
            ("explain", _) => self.explain(request),
            ("status/tsdb", _) => Ok(explain::cardinality_page(
                &self.shared.tables.list(),
                limit(request),
            )),
            ("status/buildinfo", _) => Ok(json!({
                "version": env!("CARGO_PKG_VERSION"),
                "application": "tidegate",
                "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
            })),
            _ => return None,
        })
    }

    fn instant(&self, request: &Request) -> Result<Value, Failure> {
        let query = parse(request)?;
        let now = unix_now();
        let at = match request.get("time") {
            Some(text) => time(text)?,
            None => millis(now),
        };
        let is_now = (at - millis(now)).abs() <= NOW_MS;
        let at = if is_now { millis(now) } else { at };
        if is_now {
            self.view.refresh(now, query.only_names().as_deref());
        }
        let value = match is_now {
            true => self.at_present(&query, now)?,
            false => query.instant(&*self.view, at)?,
        };
        Ok(json::instant(&value, at))
    }

    fn at_present(&self, query: &Query, now: UnixNanos) -> Result<Instant, Failure> {
        let value = query.instant(&*self.view, millis(now))?;
        if matches!(&value, Instant::Vector(vector) if vector.is_empty()) {
            self.check_composites(query, now, |policy| policy == OnStale::Error)?;
        }
        Ok(value)
    }

    /// Nothing where a declared composite has nothing to say is no answer that a scaler may act upon.
    fn check_composites(
        &self,
        query: &Query,
        now: UnixNanos,
        is_error: impl Fn(OnStale) -> bool,
    ) -> Result<(), Failure> {
        if query.handles_absence() {
            return Ok(());
        }
        for composite in self.composites_of(query) {
            let name = &composite.declaration().name;
            let answers = composite.composite().read(now);
            if let Some(error) = answers.iter().find_map(|answer| answer.error.as_deref()) {
                return Err(Failure {
                    status: StatusCode::UNPROCESSABLE_ENTITY,
                    kind: "execution",
                    why: format!("the composite `{name}` has no value: {error}"),
                });
            }
            let states: BTreeSet<&str> = answers.iter().map(|answer| answer.state.name()).collect();
            if is_error(composite.declaration().on_stale)
                && answers.iter().all(|answer| answer.state.says_nothing())
            {
                return Err(Failure {
                    status: StatusCode::UNPROCESSABLE_ENTITY,
                    kind: "execution",
                    why: format!(
                        "the composite `{name}` is {}: there is nothing to decide by (`or` and `absent` say what is to be then)",
                        states.into_iter().collect::<Vec<_>>().join(", ")
                    ),
                });
            }
        }
        Ok(())
    }

    fn range(&self, request: &Request) -> Result<Value, Failure> {
        let query = parse(request)?;
        let wanted = |name: &'static str| {
            request
                .get(name)
                .ok_or_else(|| bad(format!("`{name}` is missing")))
        };
        let (start, end) = (time(wanted("start")?)?, time(wanted("end")?)?);
        let step = step(wanted("step")?)?;
        let now = unix_now();
        if end >= millis(now) - NOW_MS {
            self.view.refresh(now, query.only_names().as_deref());
        }
        Ok(json::matrix(&query.range(&*self.view, start, end, step)?))
    }

    /// The selectors of `match[]`.
    fn selections(request: &Request) -> Result<Vec<Selection>, Failure> {
        let of = |text: &str| {
            Query::parse(text)?
                .selection()
                .ok_or_else(|| bad(format!("`{text}` is no selector")))
        };
        request.all("match[]").map(of).collect()
    }

    /// The labels of what these ask for, as it is now; of everything, where there are none.
    fn labels(&self, selections: &[Selection]) -> Vec<Labels> {
        let names = selections
            .iter()
            .map(|selection| selection.name().map(str::to_owned));
        let names: Option<Vec<String>> = names.collect();
        let names = names.filter(|names| !names.is_empty());
        self.view.refresh(unix_now(), names.as_deref());
        self.view.labels(selections)
    }

    fn series(&self, request: &Request) -> Result<Value, Failure> {
        let selections = Self::selections(request)?;
        if selections.is_empty() {
            return Err(bad("no match[] parameter provided"));
        }
        Ok(self.labels(&selections).iter().map(json::metric).collect())
    }

    fn names(&self, request: &Request) -> Result<Value, Failure> {
        let all = self.labels(&Self::selections(request)?);
        let names: BTreeSet<&str> = all
            .iter()
            .flat_map(|labels| labels.iter().map(|(name, _)| &**name))
            .collect();
        Ok(json!(names))
    }

    fn values(&self, request: &Request, label: &str) -> Result<Value, Failure> {
        let all = self.labels(&Self::selections(request)?);
        let values: BTreeSet<&str> = all
            .iter()
            .map(|labels| labels.get(label))
            .filter(|value| !value.is_empty())
            .collect();
        Ok(json!(values))
    }

    fn explain(&self, request: &Request) -> Result<Value, Failure> {
        let selections = Self::selections(request)?;
        if selections.is_empty() {
            return Err(bad("no match[] parameter provided"));
        }
        let (now, most) = (unix_now(), limit(request));
        Ok(explain::page(
            &self.shared,
            &self.view.naming,
            &selections,
            now,
            most,
        ))
    }

    fn metadata(&self, request: &Request) -> Value {
        self.view.refresh(unix_now(), None);
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for about in self.view.about() {
            let is_wanted = request
                .get("metric")
                .is_none_or(|wanted| wanted.is_empty() || wanted == about.name);
            if is_wanted {
                let said = json!({"type": about.kind, "help": about.help, "unit": about.unit});
                all.entry(about.name).or_default().push(said);
            }
        }
        json!(all)
    }
}

/// How many entries a list may have.
fn limit(request: &Request) -> usize {
    const DEFAULT: usize = 10;
    const MOST: usize = 10_000;
    let asked = request.get("limit").and_then(|limit| limit.parse().ok());
    asked.unwrap_or(DEFAULT).clamp(1, MOST)
}

fn nothing() -> Answer {
    composites::not_found(
        format!("nothing here; composites are at {COMPOSITES}, queries at /api/v1/query"),
        None,
    )
}

fn parse(request: &Request) -> Result<Query, Failure> {
    let text = request.get("query").ok_or_else(|| bad("`query` is missing"))?;
    Ok(Query::parse(text)?)
}

/// Seconds since 1970, or RFC 3339.
fn time(text: &str) -> Result<Millis, Failure> {
    if let Some(seconds) = text.parse::<f64>().ok().filter(|seconds| seconds.abs() < 1e12) {
        return Ok((seconds * 1000.0).round() as Millis);
    }
    let parsed = humantime::parse_rfc3339_weak(&text.replace('T', " ").replace('Z', ""))
        .or_else(|_| humantime::parse_rfc3339(text));
    let since = parsed
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since
        .and_then(|since| Millis::try_from(since.as_millis()).ok())
        .ok_or_else(|| bad(format!("cannot parse {text:?} to a valid timestamp")))
}

/// Seconds, or a duration of the query language.
fn step(text: &str) -> Result<Millis, Failure> {
    if let Some(seconds) = text.parse::<f64>().ok().filter(|seconds| seconds.abs() < 1e12) {
        return Ok((seconds * 1000.0).round() as Millis);
    }
    let parsed = humantime::parse_duration(text).ok();
    parsed
        .and_then(|duration| Millis::try_from(duration.as_millis()).ok())
        .ok_or_else(|| bad(format!("cannot parse {text:?} to a valid duration")))
}
