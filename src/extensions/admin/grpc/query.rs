// SPDX-License-Identifier: Apache-2.0

//! `tidegate.v1.Query`.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tidegate_engine::{Direction, Freshness, Threshold};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Caller, Reply, busy, messages};
use crate::component::shared::Health;
use crate::component::{ReadToken, unix_now};
use crate::config::nearest;
use crate::extensions::admin::api::Api;
use crate::extensions::admin::queues::QueryKind;
use crate::watch::{
    Backlog, Crossing, Ended, Filter, Follow, GroupAnswer, Unread, WatchEvent, Watched, backlog, refresh,
};

/// The default interval between two changes of a stream.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The most bytes of the name of a threshold. Each of its crossings has it.
const MAX_NAME: usize = 1 << 10;

/// A message to a watcher.
type WatchResult = Result<messages::WatchResponse, Status>;

pub(super) async fn get(caller: Caller, request: messages::GetRequest) -> Result<Reply, Status> {
    let wants = Filter::of(request.labels).map_err(Status::invalid_argument)?;
    let all = named(&caller.api, &request.name)?;
    reply(&caller, all, wants, |values| {
        Reply::of(&messages::GetResponse { values })
    })
    .await
}

pub(super) async fn list(caller: Caller, _request: messages::ListRequest) -> Result<Reply, Status> {
    let all = caller.api.shared().composites.list().clone();
    let wants = Filter::default();
    reply(&caller, all, wants, |values| {
        Reply::of(&messages::ListResponse { values })
    })
    .await
}

/// The current values of composites. The light queue makes them, because there may be thousands of groups.
async fn reply(
    caller: &Caller,
    all: Vec<Arc<Watched>>,
    wants: Filter,
    of: fn(Vec<messages::Value>) -> Reply,
) -> Result<Reply, Status> {
    refresh(&all).await;
    let made = caller
        .api
        .queues()
        .compute_in_time(QueryKind::Light, caller.client, move || {
            of(values_of(&all, &wants))
        });
    made.await.map_err(busy)
}

pub(super) async fn watch(
    caller: Caller,
    request: messages::WatchRequest,
) -> Result<Unread<WatchResult>, Status> {
    let threshold = request.threshold.map(threshold).transpose()?;
    let wants = Filter::of(request.labels).map_err(Status::invalid_argument)?;
    let place = caller.follow(wants.bytes())?;
    let api = caller.api;
    let read = api.shared().health.begin_read().map_err(Status::unavailable)?;
    let (to, from) = backlog(api.shared(), last_word);
    let min_interval = request.min_interval_ns.map_or(MIN_INTERVAL, Duration::from_nanos);
    for watched in named(&api, &request.name)? {
        let follow = watched.follow().only(wants.clone()).after(request.seq);
        let follow = match &threshold {
            Some(threshold) => follow.across(threshold.clone()),
            None => follow.every(min_interval),
        };
        let (api, place, to) = (api.clone(), place.clone(), to.clone());
        tokio::spawn(async move {
            let _until_it_ends = place;
            let ready = (&api.shared().health, read);
            publish(ready, api.stopping(), &watched, follow, &to).await;
        });
    }
    Ok(from)
}

/// The last message to a watcher whose stream ends.
fn last_word(why: Ended) -> Option<WatchResult> {
    Some(Err(Status::unavailable(why.to_string())))
}

async fn publish(
    ready: (&Health, ReadToken),
    stopping: &CancellationToken,
    watched: &Watched,
    mut follow: Follow,
    to: &Backlog<WatchResult>,
) {
    let send = publish_all(watched, &mut follow, to, ready);
    to.send_while_ready(ready, stopping, send).await;
}

async fn publish_all(
    watched: &Watched,
    follow: &mut Follow,
    to: &Backlog<WatchResult>,
    (health, read): (&Health, ReadToken),
) -> Result<(), Ended> {
    loop {
        to.ready().await?;
        let event = tokio::select! {
            biased;
            ended = to.ended() => return Err(ended),
            event = follow.next() => event.ok_or(Ended::Replaced)?,
        };
        let place = to.reserve(event.weight()).await?;
        let response = match event {
            WatchEvent::Changed(groups) => messages::WatchResponse {
                values: groups.iter().map(|group| value(watched, group)).collect(),
                ..messages::WatchResponse::default()
            },
            WatchEvent::Crossed(crossed) => messages::WatchResponse {
                crossing: Some(crossing(watched, &crossed)),
                ..messages::WatchResponse::default()
            },
            WatchEvent::Missed(missed) => messages::WatchResponse {
                missed,
                ..messages::WatchResponse::default()
            },
        };
        // The values may be of any moment since the last message.
        health.check_read(read).map_err(|_| Ended::Unready)?;
        // Its encoded form is made during the write.
        let bytes = 2 * response.encoded_len();
        to.send(place, Ok(response), bytes);
    }
}

/// The composites of a name: pipelines may each have one.
pub(super) fn named(api: &Api, name: &str) -> Result<Vec<Arc<Watched>>, Status> {
    let all = api.shared().composites.list();
    let is_named = |watched: &&Arc<Watched>| &*watched.declaration().name == name;
    let found: Vec<_> = all.iter().filter(is_named).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = all.iter().map(|watched| &*watched.declaration().name);
    Err(Status::not_found(match nearest(name, names) {
        Some(near) => format!("no composite is named `{name}`; did you mean `{near}`?"),
        None => format!("no composite is named `{name}`"),
    }))
}

fn values_of(all: &[Arc<Watched>], wants: &Filter) -> Vec<messages::Value> {
    let mut values = Vec::new();
    for watched in all {
        let snapshot = watched.read(unix_now());
        let answers = snapshot.answers.iter();
        let wanted = answers.filter(|group| wants.takes(&group.answer.attributes));
        values.extend(wanted.map(|group| value(watched, group)));
    }
    values
}

fn threshold(asked: messages::Threshold) -> Result<Threshold, Status> {
    if asked.name.len() > MAX_NAME {
        let why = format!(
            "threshold.name has {} bytes; at most {MAX_NAME} are allowed",
            asked.name.len()
        );
        return Err(Status::invalid_argument(why));
    }
    let direction = match asked.side() {
        messages::Side::Above => Direction::Above,
        messages::Side::Below => Direction::Below,
        messages::Side::Unspecified => return Err(Status::invalid_argument("threshold.side is not set")),
    };
    Ok(Threshold {
        name: asked.name.into(),
        direction,
        at: asked.at,
        clear: asked.clear.unwrap_or(asked.at),
        min_interval: Duration::from_nanos(asked.min_interval_ns),
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn count(sources: usize) -> u32 {
    u32::try_from(sources).unwrap_or(u32::MAX)
}

fn value(watched: &Watched, group: &GroupAnswer) -> messages::Value {
    let answer = &group.answer;
    let labels = answer.attributes.iter();
    let quantiles = answer.quantiles.iter();
    messages::Value {
        name: watched.declaration().name.to_string(),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        value: answer.value,
        min: answer.min,
        avg: answer.avg,
        max: answer.max,
        last: answer.last,
        sum: answer.known(answer.sum),
        count: answer.known(answer.count),
        quantiles: quantiles
            .map(|ranked| messages::Quantile {
                quantile: ranked.quantile,
                value: ranked.value,
            })
            .collect(),
        window_ns: nanos(answer.window),
        state: state(answer.state).into(),
        age_ns: answer.age.map(nanos),
        sources_expected: count(answer.sources_expected),
        sources_reporting: count(answer.sources_reporting),
        seq: group.seq,
        error: answer.error.as_deref().map(str::to_owned),
        collision: answer.collision.as_deref().map(str::to_owned),
    }
}

fn state(state: Freshness) -> messages::State {
    match state {
        Freshness::Fresh => messages::State::Fresh,
        Freshness::Idle => messages::State::Idle,
        Freshness::Stale => messages::State::Stale,
        Freshness::Partial => messages::State::Partial,
        Freshness::Absent => messages::State::Absent,
    }
}

fn crossing(watched: &Watched, crossing: &Crossing) -> messages::Crossing {
    let threshold = &crossing.threshold;
    let side = match threshold.direction {
        Direction::Above => messages::Side::Above,
        Direction::Below => messages::Side::Below,
    };
    messages::Crossing {
        threshold: Some(messages::Threshold {
            name: threshold.name.to_string(),
            side: side.into(),
            at: threshold.at,
            clear: Some(threshold.clear),
            min_interval_ns: nanos(threshold.min_interval),
        }),
        crossed: crossing.is_crossed,
        value: Some(value(watched, &crossing.group)),
        time_unix_nano: tidegate_engine::clock::wall(crossing.at),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;
    use crate::component::Shared;
    use crate::watch::testing::Bench;

    /// A watch ends within a second after a lapse.
    const IN_TIME: Duration = Duration::from_secs(2);

    /// The task of a watch that begins now.
    fn publishing(
        shared: &Arc<Shared>,
        bench: &Bench,
        to: Backlog<WatchResult>,
        stopping: &CancellationToken,
    ) -> JoinHandle<()> {
        let (shared, stopping) = (shared.clone(), stopping.clone());
        let read = shared.health.begin_read().unwrap();
        let (watched, follow) = (bench.watched.clone(), bench.watched.follow());
        tokio::spawn(async move {
            publish((&shared.health, read), &stopping, &watched, follow, &to).await;
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_if_the_replica_was_not_ready_with_and_without_news() {
        for (has_news, is_ready_again) in [(true, false), (true, true), (false, false), (false, true)] {
            let shared = Arc::<Shared>::default();
            let mut bench = Bench::new("queue_depth", Vec::new());
            bench.observe("m", 4.0);
            let (to, mut results) = backlog(&shared, last_word);
            publishing(&shared, &bench, to, &CancellationToken::new());
            let first = results.next().await.unwrap().unwrap();
            assert_eq!(first.values[0].value, Some(4.0));
            shared.health.hold("receivers::partials", Some("stale"));
            if is_ready_again {
                shared.health.hold("receivers::partials", None);
            }
            if has_news {
                bench.observe("m", 5.0);
                bench.watched.read(unix_now());
            }
            let case = format!("news: {has_news}, ready again: {is_ready_again}");
            let last = timeout(IN_TIME, results.next()).await.expect(&case);
            let last = last.unwrap().expect_err(&case);
            assert_eq!(last.code(), Code::Unavailable, "{case}: {last}");
            assert!(last.message().contains("not ready"), "{case}: {last}");
            assert!(results.next().await.is_none(), "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_watch_of_a_client_that_reads_nothing() {
        /// More than a backlog holds.
        const FULL: usize = 1 << 20;
        const SECOND: Duration = Duration::from_secs(1);
        let (shared, stopping) = (Arc::<Shared>::default(), CancellationToken::new());
        let (to, mut results) = backlog(&shared, last_word);
        // The task waits until the client has taken this.
        let place = to.reserve(FULL).await.unwrap();
        to.send(place, Ok(messages::WatchResponse::default()), FULL);
        let bench = Bench::new("queue_depth", Vec::new());
        let mut publishing = publishing(&shared, &bench, to, &stopping);
        assert!(timeout(SECOND, &mut publishing).await.is_err());
        stopping.cancel();
        timeout(SECOND, publishing).await.unwrap().unwrap();
        assert!(results.next().await.is_some_and(|result| result.is_ok()));
        let last = results.next().await.unwrap().unwrap_err();
        assert_eq!(last.message(), "the gateway is stopping");
        assert!(results.next().await.is_none());
    }
}
