//! KEDA's external scaler. The trigger's metadata says what it asks for (`trigger`). A value that is null, stale or
//! absent is the error FAILED_PRECONDITION, never 0: then KEDA's own `fallback` decides.

mod trigger;

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Answer;
use tokio::sync::mpsc;
use tonic::Status;

use self::trigger::{Trigger, Value};
use super::messages as say;
use super::query::named;
use super::{Replies, replies};
use crate::component::unix_now;
use crate::extensions::admin::api::Api;

/// How often a stream computes a query anew; composites tell by themselves.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// A change of activity is told at most this much later than a composite says it.
const COMPOSITE_INTERVAL: Duration = Duration::from_millis(20);

pub(super) async fn is_active(
    api: Arc<Api>,
    request: say::ScaledObjectRef,
) -> Result<say::IsActiveResponse, Status> {
    let trigger = Trigger::parse(&request.scaler_metadata)?;
    let value = value(&api, &trigger).await?;
    Ok(say::IsActiveResponse {
        result: trigger.is_active(value),
    })
}

pub(super) async fn stream_is_active(
    api: Arc<Api>,
    request: say::ScaledObjectRef,
) -> Result<Replies<say::IsActiveResponse>, Status> {
    let trigger = Trigger::parse(&request.scaler_metadata)?;
    // What is wrong with the trigger is told at once.
    for name in trigger.composites() {
        named(&api, name)?;
    }
    let (to, from) = replies();
    tokio::spawn(tell(api, trigger, to));
    Ok(from)
}

/// Tells at once, and whenever it changes. While the value is not known, what was told last stays.
async fn tell(api: Arc<Api>, trigger: Trigger, to: mpsc::Sender<Result<say::IsActiveResponse, Status>>) {
    let mut told = None;
    let interval = match trigger.has_query() {
        true => QUERY_INTERVAL,
        false => COMPOSITE_INTERVAL,
    };
    loop {
        if let Ok(value) = value(&api, &trigger).await {
            let result = trigger.is_active(value);
            if told != Some(result) {
                told = Some(result);
                if to.send(Ok(say::IsActiveResponse { result })).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = to.closed() => return,
            () = api.stopping().cancelled() => return,
        }
    }
}

fn spec(trigger: &Trigger) -> say::GetMetricSpecResponse {
    say::GetMetricSpecResponse {
        metric_specs: vec![say::MetricSpec {
            metric_name: trigger.metric_name.clone(),
            target_size: whole(trigger.target).max(1),
            target_size_float: trigger.target,
        }],
    }
}

pub(super) async fn metric_spec(
    _api: Arc<Api>,
    request: say::ScaledObjectRef,
) -> Result<say::GetMetricSpecResponse, Status> {
    Ok(spec(&Trigger::parse(&request.scaler_metadata)?))
}

/// The targets stand in the trigger: they are told once, and the stream stays open.
pub(super) async fn stream_metric_spec(
    api: Arc<Api>,
    request: say::ScaledObjectRef,
) -> Result<Replies<say::GetMetricSpecResponse>, Status> {
    let spec = spec(&Trigger::parse(&request.scaler_metadata)?);
    let (to, from) = replies();
    tokio::spawn(async move {
        if to.send(Ok(spec)).await.is_ok() {
            tokio::select! {
                () = to.closed() => {}
                () = api.stopping().cancelled() => {}
            }
        }
    });
    Ok(from)
}

pub(super) async fn metrics(
    api: Arc<Api>,
    request: say::GetMetricsRequest,
) -> Result<say::GetMetricsResponse, Status> {
    let object = request
        .scaled_object_ref
        .ok_or_else(|| Status::invalid_argument("scaledObjectRef is missing"))?;
    let trigger = Trigger::parse(&object.scaler_metadata)?;
    let value = value(&api, &trigger).await?;
    Ok(say::GetMetricsResponse {
        metric_values: vec![say::MetricValue {
            metric_name: match request.metric_name.is_empty() {
                true => trigger.metric_name.clone(),
                false => request.metric_name,
            },
            metric_value: whole(value),
            metric_value_float: value,
        }],
    })
}

/// Rounded up: half a request in a queue is one too many for nobody.
fn whole(value: f64) -> i64 {
    value.ceil() as i64
}

/// The value of a group. Null is never zero, and a stale value is no ground for scaling, whatever `on_stale` shows.
fn known(name: &str, answer: &Answer) -> Result<f64, Status> {
    let value = answer.value.filter(|_| !answer.state.says_nothing());
    value.ok_or_else(|| {
        let group = match answer.attributes.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", answer.attributes),
        };
        let state = answer.state.name();
        Status::failed_precondition(format!(
            "the composite `{name}{group}` is {state} and has no value"
        ))
    })
}

/// The trigger's value now: the largest of its signals, each in proportion to its target.
async fn value(api: &Arc<Api>, trigger: &Trigger) -> Result<f64, Status> {
    let mut largest: Option<f64> = None;
    for signal in &trigger.signals {
        let values = match &signal.value {
            Value::Query(query) => {
                let values = api.clone().numbers(query.clone()).await;
                values.map_err(|why| Status::failed_precondition(format!("{query}: {why}")))?
            }
            Value::Composite(name, wants) => {
                let mut values = Vec::new();
                for watched in named(api, name)? {
                    for shown in watched.read(unix_now()).shown.iter() {
                        if wants.takes(&shown.answer.attributes) {
                            values.push(known(name, &shown.answer)?);
                        }
                    }
                }
                values
            }
        };
        let value = signal.combine(&values)? / signal.divisor;
        largest = Some(largest.map_or(value, |largest| largest.max(value)));
    }
    largest.ok_or_else(|| Status::invalid_argument("the trigger names no signal"))
}
