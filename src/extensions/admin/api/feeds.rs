// SPDX-License-Identifier: Apache-2.0

//! `status/stream`: status pages as server-sent events, for readers that stay. Each topic is computed once a second for all
//! its readers together, only while it has readers, and sent only when it has changed.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::routes::Route;
use super::{API, Api, PageContent};
use crate::component::worker::in_background;
use crate::extensions::admin::composites;
use crate::net::pages::{self, Answer, Event, Request};
use crate::watch::{Backlog, Ended, backlog};

/// The path of the stream.
pub(super) const PATH: &str = "/api/v1/status/stream";

/// The interval at which a topic is computed.
const INTERVAL: Duration = Duration::from_secs(1);

/// A stream on which nothing happens shows with this interval that it is alive.
const ALIVE: Duration = Duration::from_secs(10);

/// The largest page that a stream sends, in bytes. Its reader asks for a larger one itself.
const MAX_BYTES: usize = 4 << 20;

/// The topic of readers that name none.
const DEFAULT: &str = "status/graph";

/// The topic with the current values of all composites. It is not a page of Prometheus's API.
const COMPOSITES: &str = "composites";

/// The topics: pages below `/api/v1/` that cost little, and composites.
const TOPICS: [&str; 10] = [
    DEFAULT,
    "status/config",
    "status/notices",
    "status/cluster",
    "status/durations",
    "status/sources",
    "targets",
    "rules",
    "alerts",
    COMPOSITES,
];

/// All topics.
pub(super) struct Feeds([Arc<Feed>; TOPICS.len()]);

/// A topic with its newest page.
struct Feed {
    topic: &'static str,
    /// The newest page; empty while nobody reads.
    newest: Sender<Arc<str>>,
    /// Whether a task computes it.
    is_computed: Mutex<bool>,
}

impl Feeds {
    pub(super) fn new() -> Self {
        Self(TOPICS.map(|topic| {
            Arc::new(Feed {
                topic,
                newest: Sender::new("".into()),
                is_computed: Mutex::new(false),
            })
        }))
    }

    /// The feeds that a request asks for, each once; or the name that no topic has.
    fn wanted<'a>(&self, request: &'a Request) -> Result<Vec<Arc<Feed>>, &'a str> {
        let mut names: Vec<&str> = request.all("topic").collect();
        if names.is_empty() {
            names.push(DEFAULT);
        }
        names.sort_unstable();
        names.dedup();
        let named = |name: &&'a str| {
            let found = self.0.iter().find(|feed| feed.topic == *name);
            found.cloned().ok_or(*name)
        };
        names.iter().map(named).collect()
    }
}

impl Feed {
    /// Ends the computation if nobody reads any more. A reader that comes later starts another one.
    fn ends(&self) -> bool {
        let mut is_computed = self.is_computed.lock();
        if self.newest.receiver_count() > 0 {
            return false;
        }
        *is_computed = false;
        self.newest.send_replace("".into());
        true
    }

    /// Replaces the page if it differs.
    fn update(&self, page: Arc<str>) {
        self.newest.send_if_modified(|newest| {
            let is_new = **newest != *page;
            *newest = page;
            is_new
        });
    }
}

impl Api {
    /// The stream that a request asks for by `topic=`, which it may repeat.
    pub(super) fn stream(self: &Arc<Self>, request: &Request) -> Answer {
        let wanted = match self.feeds.wanted(request) {
            Ok(wanted) => wanted,
            Err(name) => {
                let why = format!("no topic is named {name:?}; topics are {}", TOPICS.join(", "));
                return pages::error(StatusCode::BAD_REQUEST, "bad_data", &why);
            }
        };
        let share = match self.queues.watch(request.client) {
            Ok(share) => share,
            Err(why) => return pages::busy(&why.to_string()),
        };
        let (to, events) = backlog(&self.shared, composites::last_word);
        for feed in wanted {
            let newest = self.subscribe(&feed);
            let (share, to, stopping) = (share.clone(), to.clone(), self.stopping.clone());
            tokio::spawn(async move {
                let _until_it_ends = share;
                publish_until(&stopping, feed.topic, newest, to).await;
            });
        }
        pages::events(events)
    }

    /// Reads a topic from now on. The first reader starts its computation.
    fn subscribe(self: &Arc<Self>, feed: &Arc<Feed>) -> Receiver<Arc<str>> {
        let mut newest = feed.newest.subscribe();
        newest.mark_changed();
        let mut is_computed = feed.is_computed.lock();
        if !*is_computed {
            *is_computed = true;
            tokio::spawn(self.clone().compute_topic(feed.clone()));
        }
        newest
    }

    /// Computes a topic while it has readers.
    async fn compute_topic(self: Arc<Self>, feed: Arc<Feed>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stopping.cancelled() => return,
            }
            if feed.ends() {
                return;
            }
            feed.update(self.page_of(feed.topic).await.into());
        }
    }

    /// The page of a topic, in the form of the API. It has no line breaks.
    async fn page_of(self: &Arc<Self>, topic: &'static str) -> String {
        let page = if topic == COMPOSITES {
            composites::current(&self.shared).await
        } else {
            let api = self.clone();
            in_background(move || api.page_at(topic)).await.ok()
        };
        match page {
            Some(page) if page.len() <= MAX_BYTES => page,
            Some(_) => failed("too_large", "the page is too large for a stream"),
            None => failed("internal", "a bug: see the log"),
        }
    }

    /// The page of a topic that has a route.
    fn page_at(&self, topic: &str) -> String {
        let path = format!("{API}{topic}");
        let Some(route) = Route::at(&path) else {
            return failed("not_found", "nothing here");
        };
        match (route.page)(self, &Request::of(&path, Vec::new())) {
            Ok(PageContent::Data(data)) => String::from_utf8_lossy(&data.page()).into_owned(),
            Ok(_) => failed("internal", "the page is not JSON"),
            Err(failure) => failed(failure.kind, &failure.why),
        }
    }
}

fn failed(kind: &str, why: &str) -> String {
    json!({"status": "error", "errorType": kind, "error": why}).to_string()
}

/// Sends the pages of a topic to one reader until the gateway stops, also while it waits for the reader.
async fn publish_until(
    stopping: &CancellationToken,
    topic: &'static str,
    newest: Receiver<Arc<str>>,
    to: Backlog<Event>,
) {
    // The stream has ended already, or ends with this task.
    let _ = stopping.run_until_cancelled(publish(topic, newest, &to)).await;
}

/// Sends the pages of a topic to one reader. A slow one gets only the newest.
async fn publish(
    topic: &'static str,
    mut newest: Receiver<Arc<str>>,
    to: &Backlog<Event>,
) -> Result<(), Ended> {
    loop {
        to.ready().await?;
        let is_changed = tokio::select! {
            changed = newest.changed() => match changed {
                Ok(()) => true,
                Err(_) => return Ok(()),
            },
            () = tokio::time::sleep(ALIVE) => false,
            ended = to.ended() => return Err(ended),
        };
        let page = if is_changed {
            newest.borrow_and_update().clone()
        } else {
            "".into()
        };
        if is_changed && page.is_empty() {
            continue;
        }
        let permit = to.reserve(page.len()).await?;
        let event = match &*page {
            "" => Event::Alive,
            page => Event::Named(topic, page.to_owned()),
        };
        to.send(permit, event, page.len());
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;
    use crate::component::Shared;

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_stream_of_a_reader_that_reads_nothing() {
        let (shared, stopping) = (Shared::default(), CancellationToken::new());
        let (to, mut events) = backlog(&shared, composites::last_word);
        let (_page, mut newest) = tokio::sync::watch::channel::<Arc<str>>("x".repeat(MAX_BYTES).into());
        newest.mark_changed();
        let stop = stopping.clone();
        let mut publishing = tokio::spawn(async move { publish_until(&stop, DEFAULT, newest, to).await });
        // The page fills the backlog, so that the task waits for the reader.
        let waits = tokio::time::timeout(INTERVAL, &mut publishing).await;
        assert!(waits.is_err());
        stopping.cancel();
        tokio::time::timeout(INTERVAL, publishing).await.unwrap().unwrap();
        assert!(events.next().await.is_some());
        assert!(events.next().await.is_none());
    }

    #[test]
    fn a_page_is_new_only_if_it_differs_and_is_kept_only_for_readers() {
        let feeds = Feeds::new();
        let feed = &feeds.0[0];
        let mut newest = feed.newest.subscribe();
        for (page, is_new) in [("a", true), ("a", false), ("b", true)] {
            feed.update(page.into());
            assert_eq!(newest.has_changed().unwrap(), is_new, "{page}");
            assert_eq!(&**newest.borrow_and_update(), page);
        }
        assert!(!feed.ends());
        drop(newest);
        assert!(feed.ends());
        assert!(feed.newest.borrow().is_empty());
    }
}
