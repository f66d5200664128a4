// SPDX-License-Identifier: Apache-2.0

//! PromQL at an instant and over a range.

use std::time::{Duration, Instant as Clock, UNIX_EPOCH};

use serde_json::{Value, json as object};
use tidegate_engine::{UnixNanos, clock};
use tidegate_promql::{
    Instant, LOOK_BACK_MS, MAX_STEPS, Millis, Notes, Options, Patience, Query, QueryError, Work,
};

use super::{AnnotatedData, Api, ApiFailure, PageContent, json, params};
use crate::component::unix_now;
use crate::net::pages::Request;
use crate::prom::catalog::{Asked, BeforeHistory, millis};

/// A time up to this far back is answered with current values that existed at that time. In milliseconds.
const NOW_MS: Millis = 2000;

impl Api {
    pub(super) fn whole_instant(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let page = self.instant(request, usize::MAX)?;
        Ok(page.unwrap_or(PageContent::Empty))
    }

    /// `None`: it looks at `most` series or samples, or more.
    pub(super) fn instant(&self, request: &Request, most: usize) -> Result<Option<PageContent>, ApiFailure> {
        let began = Clock::now();
        let limit = params::limit(request)?;
        let time = params::optional_time(request, "time")?;
        let max_samples = self.max_samples_of(request);
        let options = options(request, max_samples.min(most))?;
        let query = parse(request)?;
        let selections = query.selections();
        if most < usize::MAX && self.view.cost(&selections, most) >= most {
            return Ok(None);
        }
        let now = unix_now();
        let at = time.unwrap_or(millis(clock::wall(now)));
        let is_recent = at >= millis(clock::wall(now)) - NOW_MS;
        let asked = if is_recent {
            self.view.ask(now, &selections)
        } else {
            self.view.recall()
        };
        let (mut value, notes) = match query.instant_with(&asked, at, &options) {
            Err(QueryError::TooMuch(_)) if most < max_samples => return Ok(None),
            computed => computed?,
        };
        if is_recent {
            self.check_presence(&query, &value, now)?;
        }
        let is_cut = limit > 0
            && match &mut value {
                Instant::Vector(vector) => cut(vector, limit),
                Instant::Matrix(series) => cut(series, limit),
                Instant::Scalar(_) | Instant::String(_) => false,
            };
        let mut data = self.text(request);
        data.instant(&value, at)?;
        let data = data.end(stats(request, began, &notes.work));
        let partial = self.partial(&query, now, is_recent, &request.patience);
        Ok(Some(annotated(data, notes, &asked, partial, is_cut)))
    }

    pub(super) fn range(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let began = Clock::now();
        let limit = params::limit(request)?;
        let (start, end) = (params::time(request, "start")?, params::time(request, "end")?);
        if end < start {
            return Err(params::invalid(
                "end",
                "end timestamp must not be before start time",
            ));
        }
        let step = step(request, (start, end))?;
        let options = options(request, self.max_samples_of(request))?;
        let query = parse(request)?;
        let now = unix_now();
        let is_recent = end >= millis(clock::wall(now)) - NOW_MS;
        let asked = if is_recent {
            self.view.ask(now, &query.selections())
        } else {
            self.view.recall()
        };
        let (mut series, notes) = query
            .range_with(&asked, (start, end, step), &options)
            .map_err(of_range)?;
        let is_cut = limit > 0 && cut(&mut series, limit);
        let mut data = self.text(request);
        data.matrix(&series)?;
        let data = data.end(stats(request, began, &notes.work));
        let partial = self.partial(&query, now, is_recent, &request.patience);
        Ok(annotated(data, notes, &asked, partial, is_cut))
    }

    /// `format_query`: the query as the language writes it, on one line.
    pub(super) fn format(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        Ok(Value::from(parse(request)?.to_string()).into())
    }

    /// `parse_query`: the parts of the query.
    pub(super) fn tree(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        Ok(PageContent::Data(AnnotatedData {
            data: parse(request)?.tree().into_bytes(),
            ..AnnotatedData::default()
        }))
    }

    /// Why the values of a query may be incomplete: a composite that it names is partial, the cluster of a replica is, or
    /// scrapes fail. The latter is known of a recent time only.
    fn partial(&self, query: &Query, now: UnixNanos, is_recent: bool, patience: &Patience) -> Vec<String> {
        let clusters = self.shared.services.clusters().into_iter();
        let composites = self.partial_composites(query, now, patience).into_iter();
        let levels = is_recent.then(|| self.partial_levels(query, now));
        composites
            .chain(levels.into_iter().flatten())
            .chain(clusters.flat_map(|(_, cluster)| cluster.warnings()))
            .collect()
    }

    /// An answer that is to be written.
    pub(super) fn text<'r>(&self, request: &'r Request) -> json::JsonText<'r> {
        let most = self.limits.max_answer_bytes(self.shared.memory.limit());
        json::JsonText::new(most, &request.patience)
    }
}

/// The statistics of the query, if the request has `stats` with any value.
fn stats(request: &Request, began: Clock, work: &Work) -> Option<(&'static str, Value)> {
    request.get("stats").filter(|stats| !stats.is_empty())?;
    let evaluated = work.preparation + work.evaluation + work.sorting;
    let seconds = |time: Duration| time.as_secs_f64();
    let stats = object!({
        "timings": {
            "evalTotalTime": seconds(evaluated),
            "resultSortTime": seconds(work.sorting),
            "queryPreparationTime": seconds(work.preparation),
            "innerEvalTime": seconds(work.evaluation),
            "execQueueTime": seconds(began - request.came),
            "execTotalTime": seconds(began.elapsed()),
        },
        "samples": {"totalQueryableSamples": work.seen, "peakSamples": work.counted},
    });
    Some(("stats", stats))
}

/// `timeout` and `lookback_delta`; 0 means the default look-back.
fn options(request: &Request, max_samples: usize) -> Result<Options, ApiFailure> {
    params::optional_duration(request, "timeout").map_err(|why| params::invalid("timeout", why))?;
    let look_back = params::optional_duration(request, "lookback_delta")
        .map_err(|why| ApiFailure::bad(format!("error parsing lookback delta duration: {why}")))?;
    Ok(Options {
        look_back: look_back.filter(|by| *by > 0).unwrap_or(LOOK_BACK_MS),
        patience: request.patience.clone(),
        max_samples,
    })
}

/// The step of a range, which has not too many.
fn step(request: &Request, (start, end): (Millis, Millis)) -> Result<Millis, ApiFailure> {
    let step = params::parse_duration(request.get("step").unwrap_or_default());
    let step = step.map_err(|why| params::invalid("step", why))?;
    if step <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        return Err(params::invalid("step", why));
    }
    if end.saturating_sub(start) / step > MAX_STEPS {
        Err(ApiFailure::bad(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ))
    } else {
        Ok(step)
    }
}

fn parse(request: &Request) -> Result<Query, ApiFailure> {
    let text = request.get("query").unwrap_or_default();
    Query::parse(text).map_err(|error| params::invalid("query", error))
}

/// Cuts a list to a length, and says whether it was longer.
pub(super) fn cut<T>(list: &mut Vec<T>, limit: usize) -> bool {
    let is_longer = list.len() > limit;
    list.truncate(limit);
    is_longer
}

fn annotated(
    data: Vec<u8>,
    notes: Notes,
    asked: &Asked<'_>,
    partial: Vec<String>,
    is_cut: bool,
) -> PageContent {
    let mut said = AnnotatedData {
        data,
        warnings: notes.warnings,
        infos: notes.infos,
    };
    let met = asked.query_warnings();
    said.warnings.extend(met.warnings());
    said.warnings.extend(met.before_history().map(history_warning));
    said.warnings.extend(partial);
    if is_cut {
        said.truncated();
    }
    PageContent::Data(said)
}

fn history_warning(before: BeforeHistory) -> String {
    let [begins, since] = [before.begins, before.since].map(|time| {
        let time = Duration::from_millis(u64::try_from(time).unwrap_or_default());
        humantime::format_rfc3339_seconds(UNIX_EPOCH + time)
    });
    format!("the history of this gateway begins at {begins}: the query needs samples from {since}")
}

/// A failure of `query_range`: an expression of the wrong type is a fault of the parameter `query`.
fn of_range(error: QueryError) -> ApiFailure {
    let is_type = matches!(&error, QueryError::Syntax(why) if why.starts_with("invalid expression type"));
    let failure = ApiFailure::from(error);
    if is_type { failure.of("query") } else { failure }
}
