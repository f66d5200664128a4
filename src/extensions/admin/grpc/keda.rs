// SPDX-License-Identifier: Apache-2.0

//! KEDA's external scaler. The metadata of a trigger is the question (`trigger`). A null, stale or absent value is
//! the error FAILED_PRECONDITION, never 0. Then KEDA's own `fallback` decides.

mod trigger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Answer, Freshness};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tonic::Status;

use self::trigger::{Signal, SignalSource, Trigger};
use super::messages;
use super::query::named;
use super::{Caller, Replies, Reply, busy, replies};
use crate::component::unix_now;
use crate::extensions::admin::api::{Api, NoNumbers, Partial};
use crate::extensions::admin::queues::QueryKind;
use crate::watch::{CompositeSnapshot, Filter, Watched, refresh};

/// The interval at which a stream computes its value. Composites report most changes themselves.
const INTERVAL: Duration = Duration::from_secs(1);

/// A change of activity is reported at most this much later than a composite says it.
const COMPOSITE_INTERVAL: Duration = Duration::from_millis(20);

pub(super) async fn is_active(caller: Caller, request: messages::ScaledObjectRef) -> Result<Reply, Status> {
    let trigger = Arc::new(Trigger::parse(&request.scaler_metadata)?);
    let value = value(&caller, &trigger, QueryKind::Scaler).await?;
    let result = trigger.is_active(value);
    Ok(Reply::of(&messages::IsActiveResponse { result }))
}

pub(super) async fn stream_is_active(
    caller: Caller,
    request: messages::ScaledObjectRef,
) -> Result<Replies<messages::IsActiveResponse>, Status> {
    let trigger = Arc::new(checked(&caller.api, &request)?);
    let place = caller.follow(trigger.bytes())?;
    let (to, from) = replies();
    tokio::spawn(async move {
        let _until_it_ends = place;
        publish(caller, trigger, to).await;
    });
    Ok(from)
}

/// A trigger with declared composites. Its errors are reported at once.
fn checked(api: &Api, request: &messages::ScaledObjectRef) -> Result<Trigger, Status> {
    let trigger = Trigger::parse(&request.scaler_metadata)?;
    for name in trigger.composites() {
        named(api, name)?;
    }
    Ok(trigger)
}

/// Sends the value at once and after changes. While it is unknown, or a replica is not ready, the last sent value stays.
async fn publish(
    caller: Caller,
    trigger: Arc<Trigger>,
    to: mpsc::Sender<Result<messages::IsActiveResponse, Status>>,
) {
    let mut sent = None;
    let mut changes = Changes::of(&caller.api, &trigger);
    loop {
        if let Some(result) = activity(&caller, &trigger).await
            && sent != Some(result)
        {
            sent = Some(result);
            if to.send(Ok(messages::IsActiveResponse { result })).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = changes.next() => {}
            () = to.closed() => return,
            () = caller.api.stopping().cancelled() => return,
        }
        if changes.are_outdated() {
            changes = Changes::of(&caller.api, &trigger);
        }
    }
}

/// Whether a trigger is active now; `None`: the value is unknown. The series of a replica that is not ready stand still: a
/// rate of them would fall to 0.
async fn activity(caller: &Caller, trigger: &Arc<Trigger>) -> Option<bool> {
    let health = &caller.api.shared().health;
    let read = health.begin_read().ok()?;
    let value = value(caller, trigger, QueryKind::Stream).await.ok()?;
    health.check_read(read).ok()?;
    Some(trigger.is_active(value))
}

/// The changes of the composites of a trigger. A trigger with a query follows none: its queries cost more.
struct Changes {
    changed: Arc<Notify>,
    /// A task for each composite, however many signals it has. It ends when a reload replaces or removes the composite.
    following: JoinSet<()>,
}

impl Changes {
    fn of(api: &Api, trigger: &Trigger) -> Self {
        let (mut following, changed) = (JoinSet::new(), Arc::new(Notify::new()));
        for watched in trigger
            .followed()
            .into_iter()
            .flat_map(|name| named(api, name).unwrap_or_default())
        {
            let (changed, mut follow) = (changed.clone(), watched.follow().every(COMPOSITE_INTERVAL));
            following.spawn(async move {
                while follow.next().await.is_some() {
                    changed.notify_one();
                }
            });
        }
        Self { changed, following }
    }

    /// Waits for a change, or for the end of a composite.
    async fn next(&mut self) {
        tokio::select! {
            () = self.changed.notified() => {}
            // The composites have to be found again by their names.
            Some(_) = self.following.join_next() => self.following = JoinSet::new(),
        }
    }

    /// Whether composites may be there that it does not follow.
    fn are_outdated(&self) -> bool {
        self.following.is_empty()
    }
}

fn spec(trigger: &Trigger) -> messages::GetMetricSpecResponse {
    messages::GetMetricSpecResponse {
        metric_specs: vec![messages::MetricSpec {
            metric_name: trigger.metric_name.clone(),
            target_size: whole(trigger.target).max(1),
            target_size_float: trigger.target,
        }],
    }
}

pub(super) async fn metric_spec(caller: Caller, request: messages::ScaledObjectRef) -> Result<Reply, Status> {
    Ok(Reply::of(&spec(&checked(&caller.api, &request)?)))
}

/// The trigger has the targets, so they are sent once, and the stream stays open.
pub(super) async fn stream_metric_spec(
    caller: Caller,
    request: messages::ScaledObjectRef,
) -> Result<Replies<messages::GetMetricSpecResponse>, Status> {
    let trigger = checked(&caller.api, &request)?;
    let spec = spec(&trigger);
    let place = caller.follow(trigger.bytes())?;
    let (to, from) = replies();
    tokio::spawn(async move {
        let _until_it_ends = place;
        if to.send(Ok(spec)).await.is_ok() {
            tokio::select! {
                () = to.closed() => {}
                () = caller.api.stopping().cancelled() => {}
            }
        }
    });
    Ok(from)
}

pub(super) async fn metrics(caller: Caller, request: messages::GetMetricsRequest) -> Result<Reply, Status> {
    let object = request
        .scaled_object_ref
        .ok_or_else(|| Status::invalid_argument("scaledObjectRef is missing"))?;
    let trigger = Arc::new(Trigger::parse(&object.scaler_metadata)?);
    let value = value(&caller, &trigger, QueryKind::Scaler).await?;
    Ok(Reply::of(&messages::GetMetricsResponse {
        metric_values: vec![messages::MetricValue {
            metric_name: if request.metric_name.is_empty() {
                trigger.metric_name.clone()
            } else {
                request.metric_name
            },
            metric_value: whole(value),
            metric_value_float: value,
        }],
    }))
}

/// Rounds up, because half a queued request is one request.
fn whole(value: f64) -> i64 {
    value.ceil() as i64
}

/// A composite as it is read for all signals of a trigger.
type ReadComposite = (Arc<Watched>, CompositeSnapshot);

/// The result of a signal.
enum SignalValue {
    /// In proportion to its target.
    Value(f64),
    /// Every target has left discovery, and the trigger wants no replicas then.
    Gone,
}

/// The trigger's value now: the largest of its signals, each in proportion to its target. 0 when all of them are gone.
async fn value(caller: &Caller, trigger: &Arc<Trigger>, kind: QueryKind) -> Result<f64, Status> {
    let mut found = of_composites(caller, trigger, kind).await?;
    for signal in &trigger.signals {
        if let SignalSource::Query(query) = &signal.value {
            found.push(of_query(caller, trigger, signal, query, kind).await?);
        }
    }
    let values = found.into_iter().map(|found| match found {
        // Below every value, so that the others decide.
        SignalValue::Gone => f64::NEG_INFINITY,
        SignalValue::Value(value) => value,
    });
    match values.reduce(f64::max) {
        Some(f64::NEG_INFINITY) => Ok(0.0),
        Some(largest) => Ok(largest),
        None => Err(Status::invalid_argument("the trigger names no signal")),
    }
}

/// The results of all signals with composites. They take one turn of the queue, and each composite is read once.
async fn of_composites(
    caller: &Caller,
    trigger: &Arc<Trigger>,
    kind: QueryKind,
) -> Result<Vec<SignalValue>, Status> {
    let mut composites: BTreeMap<String, Vec<Arc<Watched>>> = BTreeMap::new();
    for name in trigger.composites() {
        composites.insert(name.to_owned(), named(&caller.api, name)?);
    }
    if composites.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<Arc<Watched>> = composites.values().flatten().cloned().collect();
    refresh(&all).await;
    let trigger = trigger.clone();
    let work = move || read_all(composites, &trigger);
    let found = caller.api.queues().compute_in_time(kind, caller.client, work);
    found.await.map_err(busy)?
}

fn read_all(
    composites: BTreeMap<String, Vec<Arc<Watched>>>,
    trigger: &Trigger,
) -> Result<Vec<SignalValue>, Status> {
    let now = unix_now();
    let mut read: BTreeMap<String, Vec<ReadComposite>> = BTreeMap::new();
    for (name, all) in composites {
        let all = all.into_iter().map(|watched| {
            let snapshot = watched.read(now);
            (watched, snapshot)
        });
        read.insert(name, all.collect());
    }
    let mut found = Vec::new();
    for signal in &trigger.signals {
        if let SignalSource::Composite(name, wants) = &signal.value {
            let all = read.get(name).map(Vec::as_slice).unwrap_or_default();
            found.push(of_composite(all, trigger, signal, name, wants)?);
        }
    }
    Ok(found)
}

async fn of_query(
    caller: &Caller,
    trigger: &Trigger,
    signal: &Signal,
    query: &str,
    kind: QueryKind,
) -> Result<SignalValue, Status> {
    let Caller { api, client } = caller;
    let numbers = api.clone().numbers(query.to_owned(), *client, kind).await;
    let says_nothing = match &numbers {
        Ok(numbers) => numbers.values.is_empty(),
        Err(why) => matches!(why, NoNumbers::Missing(_)),
    };
    if says_nothing && trigger.ends_when_gone {
        let (of, asked) = (api.clone(), query.to_owned());
        let has_left = api
            .queues()
            .compute_in_time(kind, *client, move || of.has_left(&asked));
        if has_left.await.map_err(busy)? {
            return Ok(SignalValue::Gone);
        }
    }
    let numbers = numbers.map_err(|why| Status::failed_precondition(format!("{query}: {why}")))?;
    if let Some(partial) = &numbers.partial {
        let refused = trigger.refusal(partial);
        refused.map_or(Ok(()), |why| {
            Err(Status::failed_precondition(format!("{query}: {why}")))
        })?;
    }
    if numbers.values.is_empty() {
        return Err(Status::failed_precondition(format!(
            "{query}: the query has no value now; check that its sources run and reach the gateway; a composite with this \
             query as its `expr` says whether they report"
        )));
    }
    signal.combine(&numbers.values).map(SignalValue::Value)
}

fn of_composite(
    all: &[ReadComposite],
    trigger: &Trigger,
    signal: &Signal,
    name: &str,
    wants: &Filter,
) -> Result<SignalValue, Status> {
    let (mut values, mut has_left) = (Vec::new(), false);
    for (watched, snapshot) in all {
        let answers = snapshot.answers.iter().map(|group| &group.answer);
        let answers: Vec<&Answer> = answers.filter(|answer| wants.takes(&answer.attributes)).collect();
        // Groups whose targets have left do not count.
        let (gone, there): (Vec<&Answer>, Vec<&Answer>) = answers
            .into_iter()
            .partition(|answer| answer.value.is_none() && answer.has_left);
        let left = watched.composite().left();
        let left = !gone.is_empty() || left.iter().any(|attributes| wants.takes(attributes));
        let is_absent = |answer: &&Answer| answer.state == Freshness::Absent && answer.error.is_none();
        if left && there.iter().all(is_absent) {
            has_left = true;
            continue;
        }
        for answer in there {
            values.push(known(name, answer, trigger)?);
        }
    }
    if values.is_empty() && !has_left {
        let why = wants.no_match(groups(all));
        return Err(Status::failed_precondition(format!(
            "the composite `{name}` has no value: {why}"
        )));
    }
    match (values.is_empty(), trigger.ends_when_gone) {
        (true, true) => Ok(SignalValue::Gone),
        (true, false) => Err(Status::failed_precondition(format!(
            "the composite `{name}` has no value: every target has left discovery (`whenGone: inactive` allows scale \
             to zero then)"
        ))),
        (false, _) => signal.combine(&values).map(SignalValue::Value),
    }
}

/// The groups of composites, for messages.
fn groups(all: &[ReadComposite]) -> Vec<String> {
    let groups = all.iter().flat_map(|(_, snapshot)| snapshot.answers.iter());
    let answers = groups.map(|group| &group.answer);
    // A composite without groups has an answer too.
    answers
        .filter(|answer| !answer.attributes.is_empty())
        .map(shown)
        .collect()
}

/// The attributes of a group.
fn shown(answer: &Answer) -> String {
    format!("{{{}}}", answer.attributes)
}

/// The value of a group. Null is never zero, and nothing is scaled by a stale value, whatever `on_stale` shows.
fn known(name: &str, answer: &Answer, trigger: &Trigger) -> Result<f64, Status> {
    if let Some(error) = &answer.error {
        let why = format!("the composite `{name}` has no value: {error}");
        return Err(Status::failed_precondition(why));
    }
    let group = if answer.attributes.is_empty() {
        String::new()
    } else {
        shown(answer)
    };
    let state = answer.state.name();
    let partial = Partial::of(&format!("{name}{group}"), answer);
    if let Some(why) = partial.as_ref().and_then(|partial| trigger.refusal(partial)) {
        return Err(Status::failed_precondition(why));
    }
    let value = answer.value.filter(|_| !answer.state.is_unusable());
    value.ok_or_else(|| {
        Status::failed_precondition(format!(
            "the composite `{name}{group}` is {state} and has no value"
        ))
    })
}

#[cfg(test)]
mod tests;
