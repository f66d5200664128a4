// SPDX-License-Identifier: Apache-2.0

//! Composites as JSON: their current values, their next change (`?wait=5s&seq=N`), and all changes (`/watch`).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_engine::{Direction, Threshold};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::queues::{QueryKind, QueryQueues};
use crate::component::shared::Health;
use crate::component::{ReadToken, Shared, unix_now};
use crate::config::nearest;
use crate::net::pages::{self, Answer, Event, Request};
use crate::watch::{Backlog, Ended, Filter, Follow, WatchEvent, Watched, backlog, json as shape, refresh};

/// The list of composites; below it, one by name.
pub(super) const COMPOSITES: &str = "/api/v1/composites";

/// The longest wait for one answer, because proxies give up after a minute.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The default interval between two changes of a stream.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// A stream on which nothing happens says so.
const ALIVE: Duration = Duration::from_secs(10);

/// The page below [`COMPOSITES`]; `None`: this path has no page.
pub(super) async fn page(
    request: &Request,
    shared: &Arc<Shared>,
    queues: &QueryQueues,
    stopping: &CancellationToken,
) -> Option<Answer> {
    let health = &shared.health;
    let composites = &*shared.composites.list();
    let rest = match request.path.strip_prefix(COMPOSITES)? {
        "" | "/" => {
            return Some(label_sets(composites, Filter::default(), request, queues, health).await);
        }
        rest => rest.strip_prefix('/')?,
    };
    let (name, is_watch) = match rest.strip_suffix("/watch") {
        Some(name) => (name, true),
        None => (rest, false),
    };
    // Pipelines may each have a composite of the same name.
    let named: Vec<_> = composites
        .iter()
        .filter(|one| &*one.declaration().name == name)
        .cloned()
        .collect();
    if named.is_empty() {
        let names = composites.iter().map(|one| &*one.declaration().name);
        return Some(not_found(
            format!("no composite is named {name:?}"),
            nearest(name, names),
        ));
    }
    let answered = if is_watch {
        watch(request, named, shared, queues, stopping)
    } else {
        one(request, &named, queues, stopping, health).await
    };
    Some(answered.unwrap_or_else(|why| pages::error(StatusCode::BAD_REQUEST, "bad_data", &why)))
}

pub(super) fn not_found(error: String, near: Option<&str>) -> Answer {
    let mut body = json!({"status": "error", "errorType": "not_found", "error": error});
    if let Some(near) = near {
        body["did_you_mean"] = json!(near);
    }
    pages::json(StatusCode::NOT_FOUND, &body)
}

/// The current values of composites. The light queue writes them, because there may be thousands of groups.
async fn label_sets(
    composites: &[Arc<Watched>],
    wants: Filter,
    request: &Request,
    queues: &QueryQueues,
    health: &Health,
) -> Answer {
    let read = match health.begin_read() {
        Ok(read) => read,
        Err(why) => return pages::busy(&why),
    };
    refresh(composites).await;
    let composites = composites.to_vec();
    let write = move || pages::bytes("application/json", written(&composites, &wants).into());
    let written = queues.compute_in_time(QueryKind::Light, request.client, write);
    match (written.await, health.check_read(read)) {
        (Ok(answer), Ok(())) => answer,
        (_, Err(why)) => pages::busy(&why),
        (Err(why), _) => pages::busy(&why.to_string()),
    }
}

/// The current values of composites as a JSON list.
fn written(composites: &[Arc<Watched>], wants: &Filter) -> String {
    let now = unix_now();
    // Group by group: as values, all of them take ten times their text.
    let mut body = "[".to_owned();
    for one in composites {
        let snapshot = one.read(now);
        let answers = snapshot.answers.iter();
        for group in answers.filter(|group| wants.takes(&group.answer.attributes)) {
            if body.len() > 1 {
                body.push(',');
            }
            body.push_str(&shape::label_set(one, group).to_string());
        }
    }
    body.push(']');
    body
}

/// Computes the expressions that are due, before [`current`] reads them.
pub(super) async fn refresh_all(shared: &Shared) {
    if shared.health.begin_read().is_ok() {
        refresh(&shared.composites.list()).await;
    }
}

/// The last values of all composites, in the form of Prometheus's API.
pub(super) fn current(shared: &Shared) -> String {
    let health = &shared.health;
    let values = health.begin_read().and_then(|read| {
        let values = written(&shared.composites.list(), &Filter::default());
        health.check_read(read).map(|()| values)
    });
    match values {
        Ok(values) => format!("{{\"status\":\"success\",\"data\":{values}}}"),
        Err(why) => json!({"status": "error", "errorType": "unavailable", "error": why}).to_string(),
    }
}

fn duration(request: &Request, name: &str) -> Result<Option<Duration>, String> {
    let text = request.get(name);
    let read = |text| humantime::parse_duration(text).map_err(|error| format!("{name}: {error}"));
    text.map(read).transpose()
}

fn number(request: &Request, name: &str) -> Result<Option<f64>, String> {
    let read = |text: &str| {
        text.parse()
            .map_err(|_| format!("{name}: `{text}` is not a number"))
    };
    request.get(name).map(read).transpose()
}

/// One composite; with `wait`, when it has changed since `seq`.
async fn one(
    request: &Request,
    named: &[Arc<Watched>],
    queues: &QueryQueues,
    stopping: &CancellationToken,
    health: &Health,
) -> Result<Answer, String> {
    let wants = Filter::parse(request.all("label"))?;
    if let Some(wait) = duration(request, "wait")? {
        let seq = request.get("seq").unwrap_or("0");
        let seq = seq.parse().map_err(|_| format!("seq: `{seq}` is not a number"))?;
        let _place = match queues.watch(request.client) {
            Ok(place) => place,
            Err(why) => return Ok(pages::busy(&why.to_string())),
        };
        let mut news = JoinSet::new();
        for watched in named {
            let mut follow = watched.follow().after(seq).only(wants.clone());
            // The end of the composite ends the wait too.
            news.spawn(async move { follow.next().await });
        }
        tokio::select! {
            _ = news.join_next() => {}
            () = tokio::time::sleep(wait.min(MAX_WAIT)) => {}
            () = stopping.cancelled() => {}
        }
    }
    Ok(label_sets(named, wants, request, queues, health).await)
}

/// The threshold that a watcher names: `above` or `below`, `clear`, `min_interval`.
fn threshold(request: &Request, min_interval: Option<Duration>) -> Result<Option<Threshold>, String> {
    let (above, below) = (number(request, "above")?, number(request, "below")?);
    let (direction, at) = match (above, below) {
        (None, None) => return Ok(None),
        (Some(at), None) => (Direction::Above, at),
        (None, Some(at)) => (Direction::Below, at),
        (Some(_), Some(_)) => return Err("either `above` or `below`".to_owned()),
    };
    Ok(Some(Threshold {
        name: format!("{} {at}", direction.name()).into(),
        direction,
        at,
        clear: number(request, "clear")?.unwrap_or(at),
        min_interval: min_interval.unwrap_or_default(),
    }))
}

/// A composite as it changes.
fn watch(
    request: &Request,
    named: Vec<Arc<Watched>>,
    shared: &Arc<Shared>,
    queues: &QueryQueues,
    stopping: &CancellationToken,
) -> Result<Answer, String> {
    let wants = Filter::parse(request.all("label"))?;
    let min_interval = duration(request, "min_interval")?;
    let threshold = threshold(request, min_interval)?;
    let place = match queues.watch(request.client) {
        Ok(place) => place,
        Err(why) => return Ok(pages::busy(&why.to_string())),
    };
    let read = match shared.health.begin_read() {
        Ok(read) => read,
        Err(why) => return Ok(pages::busy(&why)),
    };
    let (to, events) = backlog(shared, last_word);
    for watched in named {
        let follow = watched.follow().only(wants.clone());
        let follow = match &threshold {
            Some(threshold) => follow.across(threshold.clone()),
            None => follow.every(min_interval.unwrap_or(MIN_INTERVAL)),
        };
        let (place, to, stopping) = (place.clone(), to.clone(), stopping.clone());
        let shared = shared.clone();
        tokio::spawn(async move {
            let _until_it_ends = place;
            publish((&shared.health, read), &stopping, &watched, follow, &to).await;
        });
    }
    Ok(pages::events(events))
}

async fn publish(
    ready: (&Health, ReadToken),
    stopping: &CancellationToken,
    watched: &Watched,
    mut follow: Follow,
    to: &Backlog<Event>,
) {
    let send = publish_all(watched, &mut follow, to, ready);
    to.send_while_ready(ready, stopping, send).await;
}

/// The last message to a reader whose stream ends.
pub(super) fn last_word(why: Ended) -> Option<Event> {
    match why {
        Ended::Gone | Ended::Stopping => None,
        Ended::Replaced | Ended::Unready | Ended::Slow | Ended::Memory => Some(Event::named(
            "ended",
            &json!({"error": why.to_string()}).to_string(),
        )),
    }
}

async fn publish_all(
    watched: &Watched,
    follow: &mut Follow,
    to: &Backlog<Event>,
    (health, read): (&Health, ReadToken),
) -> Result<(), Ended> {
    loop {
        to.ready().await?;
        let event = tokio::select! {
            biased;
            ended = to.ended() => return Err(ended),
            event = follow.next() => Some(event.ok_or(Ended::Replaced)?),
            () = tokio::time::sleep(ALIVE) => None,
        };
        let place = to.reserve(event.as_ref().map_or(0, WatchEvent::weight)).await?;
        let event = match event {
            Some(WatchEvent::Changed(groups)) => {
                let sets: Value = groups
                    .iter()
                    .map(|group| shape::label_set(watched, group))
                    .collect();
                Event::named("change", &sets.to_string())
            }
            Some(WatchEvent::Crossed(crossing)) => {
                Event::named("threshold", &shape::crossing(&crossing).to_string())
            }
            Some(WatchEvent::Missed(crossings)) => {
                Event::named("missed", &json!({"crossings": crossings}).to_string())
            }
            None => Event::alive(),
        };
        // The values may be of any moment since the last event.
        health.check_read(read).map_err(|_| Ended::Unready)?;
        let bytes = event.bytes();
        to.send(place, event, bytes);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::watch::testing::Bench;

    /// A watch ends within a second after a lapse.
    const IN_TIME: Duration = Duration::from_secs(2);

    /// The task of a watch that begins now.
    fn publishing(
        shared: &Arc<Shared>,
        bench: &Bench,
        to: Backlog<Event>,
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
            let (to, mut events) = backlog(&shared, last_word);
            publishing(&shared, &bench, to, &CancellationToken::new());
            let first = events.next().await;
            assert!(first.is_some() && first != last_word(Ended::Unready));
            shared.health.hold("receivers::partials", Some("stale"));
            if is_ready_again {
                shared.health.hold("receivers::partials", None);
            }
            if has_news {
                bench.observe("m", 5.0);
                bench.watched.read(unix_now());
            }
            let case = format!("news: {has_news}, ready again: {is_ready_again}");
            let last = timeout(IN_TIME, events.next()).await.expect(&case);
            assert_eq!(last, last_word(Ended::Unready), "{case}");
            assert_eq!(events.next().await, None, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_watch_of_a_reader_that_reads_nothing() {
        /// More than a backlog holds.
        const FULL: usize = 1 << 20;
        const SECOND: Duration = Duration::from_secs(1);
        let (shared, stopping) = (Arc::<Shared>::default(), CancellationToken::new());
        let (to, mut events) = backlog(&shared, last_word);
        // The task waits until the reader has taken this.
        let place = to.reserve(FULL).await.unwrap();
        to.send(place, Event::alive(), FULL);
        let bench = Bench::new("queue_depth", Vec::new());
        let mut publishing = publishing(&shared, &bench, to, &stopping);
        assert!(timeout(SECOND, &mut publishing).await.is_err());
        stopping.cancel();
        timeout(SECOND, publishing).await.unwrap().unwrap();
        assert!(events.next().await.is_some());
        assert!(events.next().await.is_none());
    }
}
