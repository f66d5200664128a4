//! Prometheus's HTTP API over what the gateway holds.

mod exemplars;
mod federate;
mod json;
mod numbers;
mod params;
mod queries;
mod series;
mod status;
mod targets;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_engine::query::{Instant, Query, QueryError};
use tidegate_engine::{OnStale, UnixNanos};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(super) use self::numbers::{NoNumbers, Partial};
use super::composites::{self, COMPOSITES};
use super::explain;
use crate::component::Shared;
use crate::component::shared::Phase;
use crate::component::worker::in_background;
use crate::extensions::server::{self, Answer, Request, Takes};
use crate::prom::catalog::View;
use crate::watch::Watched;

/// Queries that are computed at one time; others wait.
const QUERIES: usize = 2;

/// How long an answer may take, unless the request says less: as in Prometheus.
const MAX_PATIENCE: Duration = Duration::from_secs(120);

/// What stands in front of the paths of the API.
const API: &str = "/api/v1/";

/// The pages.
pub(super) struct Api {
    shared: Arc<Shared>,
    view: Arc<View>,
    room: Arc<Semaphore>,
    /// One at a time for autoscalers: dashboards don't hold them up.
    scalers: Arc<Semaphore>,
    /// Cancelled when the gateway stops: streams end.
    stopping: CancellationToken,
    started: SystemTime,
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
            QueryError::Syntax(_) | QueryError::Unsupported(_) => (StatusCode::BAD_REQUEST, "bad_data"),
            QueryError::Execution(_) | QueryError::Samples(_) | QueryError::TooMuch(_) => {
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

impl Failure {
    /// The request is wrong.
    fn bad(why: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "bad_data",
            why: why.into(),
        }
    }

    /// The same, said of a parameter.
    fn of(self, parameter: &str) -> Self {
        Self {
            why: format!("invalid parameter {parameter:?}: {}", self.why),
            ..self
        }
    }
}

/// What a page says.
enum Page {
    /// Data, and what is to be said beside them.
    Data(Said),
    /// Data that are JSON already.
    Json(String),
    /// Text for a scraper.
    Text(String),
    /// Nothing: an empty answer, not an error.
    Empty,
}

/// Data with warnings and notes.
#[derive(Default)]
struct Said {
    data: Value,
    warnings: Vec<String>,
    infos: Vec<String>,
}

impl From<Value> for Page {
    fn from(data: Value) -> Self {
        Self::Data(Said {
            data,
            ..Said::default()
        })
    }
}

impl Said {
    /// Says that a list is shorter than what was found.
    fn truncated(&mut self) {
        self.warnings.push("results truncated due to limit".to_owned());
    }

    fn page(self) -> Value {
        let mut page = json!({"status": "success", "data": self.data});
        for (name, notes) in [("warnings", self.warnings), ("infos", self.infos)] {
            if !notes.is_empty() {
                page[name] = notes.into();
            }
        }
        page
    }
}

/// A page of the API.
struct Route {
    /// Below `/api/v1/`; `*` stands for one name.
    path: &'static str,
    takes: Takes,
    page: fn(&Api, &Request) -> Result<Page, Failure>,
}

const fn get(path: &'static str, page: fn(&Api, &Request) -> Result<Page, Failure>) -> Route {
    let takes = Takes::Get;
    Route { path, takes, page }
}

const fn form(path: &'static str, page: fn(&Api, &Request) -> Result<Page, Failure>) -> Route {
    let takes = Takes::GetOrForm;
    Route { path, takes, page }
}

const ROUTES: &[Route] = &[
    form("query", Api::instant),
    form("query_range", Api::range),
    form("format_query", Api::format),
    form("parse_query", Api::tree),
    form("query_exemplars", Api::exemplars),
    form("series", Api::series),
    form("labels", Api::names),
    get("label/*/values", Api::values),
    get("metadata", Api::metadata),
    form("explain", Api::explain),
    get("rules", Api::rules),
    get("alerts", |_, _| Ok(json!({"alerts": []}).into())),
    get("targets", Api::targets),
    get("targets/metadata", Api::metadata_of_targets),
    get("scrape_pools", Api::pools),
    get("alertmanagers", |_, _| {
        Ok(json!({"activeAlertmanagers": [], "droppedAlertmanagers": []}).into())
    }),
    get("notifications", |_, _| Ok(json!([]).into())),
    get("status/tsdb", Api::cardinality),
    get("status/buildinfo", Api::build),
    get("status/config", Api::config),
    get("status/notices", |api, _| {
        Ok(json!(api.shared.notices.list()).into())
    }),
    get("status/flags", Api::flags),
    get("status/runtimeinfo", Api::runtime),
    get("status/walreplay", |_, _| {
        Ok(json!({"min": 0, "max": 0, "current": 0}).into())
    }),
];

/// The one page of Prometheus that is not below its API.
const FEDERATE: &Route = &get("/federate", Api::federate);

impl Route {
    fn at(path: &str) -> Option<&'static Self> {
        if path == FEDERATE.path {
            return Some(FEDERATE);
        }
        let path = path.strip_prefix(API)?;
        ROUTES.iter().find(|route| match route.path.split_once('*') {
            None => route.path == path,
            Some((before, behind)) => path
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(behind))
                .is_some_and(|name| !name.is_empty() && !name.contains('/')),
        })
    }
}

/// How a client may ask for a page.
pub(super) fn takes(path: &str) -> Takes {
    match Route::at(path) {
        Some(route) => route.takes,
        None if path.starts_with("/-/") => Takes::Paths,
        None => Takes::Forms,
    }
}

impl Api {
    pub(super) fn new(shared: Arc<Shared>, view: Arc<View>, stopping: CancellationToken) -> Self {
        Self {
            shared,
            view,
            room: Arc::new(Semaphore::new(QUERIES)),
            scalers: Arc::new(Semaphore::new(1)),
            stopping,
            started: SystemTime::now(),
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

    /// The composites that a query names.
    fn composites_of(&self, query: &Query) -> Vec<Arc<Watched>> {
        self.composites_named(&query.names())
    }

    fn composites_named(&self, names: &[String]) -> Vec<Arc<Watched>> {
        let all = self.view.names_of_composites().into_iter();
        let named = all.filter(|(_, name)| names.contains(name));
        named.map(|(composite, _)| composite).collect()
    }

    /// What the readers of an answer must know of the composites that it names.
    fn collisions(&self, query: &Query, now: UnixNanos) -> Vec<String> {
        let composites = self.composites_of(query);
        let collisions = composites.iter().filter_map(|composite| {
            let name = &composite.declaration().name;
            let answers = composite.composite().answers(now).into_iter();
            let collision = answers.filter_map(|answer| answer.collision).next()?;
            Some(format!("composite \"{name}\": {collision}"))
        });
        collisions.collect()
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
        let Some(route) = Route::at(&request.path) else {
            return nothing();
        };
        let deadline = tokio::time::Instant::from_std(request.came + patience(&request));
        let late = |at: &str| {
            let why = format!("query timed out in {at}");
            server::error(StatusCode::SERVICE_UNAVAILABLE, "timeout", &why)
        };
        let room = match tokio::time::timeout_at(deadline, self.room.clone().acquire_owned()).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return nothing(), // Never: nobody closes it.
            Err(_) => return late("query queue"),
        };
        let api = self.clone();
        let computed = in_background(move || {
            // Held until the work is done, even when nobody waits for it any more.
            let _room = room;
            api.page(route, &request)
        });
        let Ok(computed) = tokio::time::timeout_at(deadline, computed).await else {
            return late("expression evaluation");
        };
        computed.unwrap_or_else(|_| {
            tracing::error!("a query panicked (a bug)");
            server::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "a bug: see the log",
            )
        })
    }

    fn page(&self, route: &Route, request: &Request) -> Answer {
        match (route.page)(self, request) {
            Ok(Page::Data(said)) => server::json(StatusCode::OK, &said.page()),
            Ok(Page::Json(data)) => {
                let page = format!("{{\"status\":\"success\",\"data\":{data}}}");
                server::text(StatusCode::OK, "application/json", page)
            }
            Ok(Page::Text(text)) => {
                server::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
            }
            Ok(Page::Empty) => server::empty(),
            Err(Failure { status, kind, why }) => server::error(status, kind, &why),
        }
    }

    /// An empty answer at a time near `now` is an error where a composite has nothing to say.
    fn check_presence(&self, query: &Query, value: &Instant, now: UnixNanos) -> Result<(), Failure> {
        match value {
            Instant::Vector(vector) if vector.is_empty() => self.check_composites(query, now),
            _ => Ok(()),
        }
    }

    /// An empty answer about a composite without a value is an error: nobody may act by it.
    fn check_composites(&self, query: &Query, now: UnixNanos) -> Result<(), Failure> {
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
            if composite.declaration().on_stale == OnStale::Error
                && answers.iter().all(|answer| answer.state.says_nothing())
            {
                return Err(Failure {
                    status: StatusCode::UNPROCESSABLE_ENTITY,
                    kind: "execution",
                    why: format!(
                        "the composite `{name}` is {} and has no value; use `or` or `absent` to give one",
                        states.into_iter().collect::<Vec<_>>().join(", ")
                    ),
                });
            }
        }
        Ok(())
    }
}

/// How long an answer may take: what the request says, at most what it may say. A bad `timeout` is refused by the page.
fn patience(request: &Request) -> Duration {
    let asked = params::optional_duration(request, "timeout").ok().flatten();
    let asked = asked.and_then(|millis| u64::try_from(millis).ok());
    asked.map_or(MAX_PATIENCE, |millis| {
        Duration::from_millis(millis).min(MAX_PATIENCE)
    })
}

/// The selector that a text is.
fn parse_selector(text: &str) -> Result<Query, Failure> {
    let query = Query::parse(text)?;
    match query.selection() {
        Some(_) => Ok(query),
        None => Err(Failure::bad(format!(
            "{text:?} is an expression, not a selector of series"
        ))),
    }
}

fn nothing() -> Answer {
    let why = format!("nothing here; composites are at {COMPOSITES}, queries at {API}query");
    server::error(StatusCode::NOT_FOUND, "not_found", &why)
}
