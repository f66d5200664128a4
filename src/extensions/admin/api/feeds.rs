// SPDX-License-Identifier: Apache-2.0

//! `status/stream`: status pages as server-sent events, for readers that stay. One task computes all topics that have readers
//! once a second on one thread, and then wakes all readers. A topic is sent only when it has changed, and its readers share its
//! bytes. A topic that takes long has a task and a thread of its own, so that it delays the others only once.

mod reader;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use self::reader::{FeedReader, publish_until};
use super::routes::Route;
use super::{API, Api, PageContent};
use crate::component::worker::in_background;
use crate::extensions::admin::composites;
use crate::net::pages::{self, Answer, Event, Request};
use crate::watch::backlog;

/// The path of the stream.
pub(super) const PATH: &str = "/api/v1/status/stream";

/// The interval at which topics are computed.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time in which expressions of composites are computed for a page. The page has the last value of a slower one, so that it
/// does not delay other topics.
const MAX_REFRESH: Duration = Duration::from_millis(250);

/// A topic that takes longer is computed separately from the others, until it takes less again.
const SLOW: Duration = Duration::from_millis(250);

/// The largest page that a stream sends, in bytes. Its reader asks for a larger one itself.
const MAX_BYTES: usize = 4 << 20;

/// The topic of readers that name none.
const DEFAULT: &str = "status/graph";

/// The topic with the current values of all composites. It is not a page of Prometheus's API.
const COMPOSITES: &str = "composites";

/// The topics: pages below `/api/v1/` that cost little, and composites.
const TOPICS: [&str; 11] = [
    DEFAULT,
    "status/health",
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
pub(super) struct Feeds {
    topics: [Feed; TOPICS.len()],
    /// Wakes all readers when the topics of a second are computed.
    ticks: Sender<()>,
    /// Wakes the task: a new reader may wait for the first page of a topic.
    arrivals: Notify,
    /// Whether a task computes the topics.
    is_computed: Mutex<bool>,
}

/// A topic with its newest page.
struct Feed {
    topic: &'static str,
    /// The newest page; `None` while nobody reads.
    newest: Sender<Option<Event>>,
    /// Whether the last computation took longer than [`SLOW`].
    is_slow: AtomicBool,
    /// Whether a task of its own computes it.
    is_under_way: AtomicBool,
}

impl Feeds {
    pub(super) fn new() -> Self {
        Self {
            topics: TOPICS.map(|topic| Feed {
                topic,
                newest: Sender::new(None),
                is_slow: AtomicBool::new(false),
                is_under_way: AtomicBool::new(false),
            }),
            ticks: Sender::new(()),
            arrivals: Notify::new(),
            is_computed: Mutex::new(false),
        }
    }

    /// The feeds that a request asks for, each once; or the name that no topic has.
    fn wanted<'a>(&self, request: &'a Request) -> Result<Vec<&Feed>, &'a str> {
        let mut names: Vec<&str> = request.all("topic").collect();
        if names.is_empty() {
            names.push(DEFAULT);
        }
        names.sort_unstable();
        names.dedup();
        let named = |name: &&'a str| self.named(name).ok_or(*name);
        names.iter().map(named).collect()
    }

    fn named(&self, topic: &str) -> Option<&Feed> {
        self.topics.iter().find(|feed| feed.topic == topic)
    }

    /// Reads topics from now on.
    fn subscribe(&self, wanted: &[&Feed]) -> FeedReader {
        let newest = wanted.iter().map(|feed| {
            let mut newest = feed.newest.subscribe();
            newest.mark_changed();
            newest
        });
        FeedReader {
            topics: newest.collect(),
            ticks: self.ticks.subscribe(),
        }
    }

    /// Whether the caller has to start the task, because none runs.
    fn begins(&self) -> bool {
        let mut is_computed = self.is_computed.lock();
        !std::mem::replace(&mut *is_computed, true)
    }

    /// Ends the task if nobody reads any more. A reader that comes later starts another one.
    fn ends(&self) -> bool {
        let mut is_computed = self.is_computed.lock();
        if self.topics.iter().any(Feed::has_readers) {
            return false;
        }
        *is_computed = false;
        self.drop_unread();
        true
    }

    /// Drops the pages that nobody reads.
    fn drop_unread(&self) {
        for feed in self.topics.iter().filter(|feed| !feed.has_readers()) {
            feed.newest.send_replace(None);
        }
    }

    /// The topics that have readers.
    fn with_readers(&self) -> Vec<&Feed> {
        self.topics.iter().filter(|feed| feed.has_readers()).collect()
    }

    /// The topics whose readers have no page yet.
    fn without_page(&self) -> Vec<&Feed> {
        let mut feeds = self.with_readers();
        feeds.retain(|feed| feed.newest.borrow().is_none());
        feeds
    }

    /// Replaces the pages that differ. Then it wakes all readers at once.
    fn publish(&self, feeds: &[&Feed], pages: Vec<Event>) {
        let mut is_new = false;
        for (feed, page) in feeds.iter().zip(pages) {
            is_new |= feed.update(page);
        }
        if is_new {
            self.ticks.send_replace(());
        }
    }
}

impl Feed {
    fn has_readers(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// Replaces the page if it differs. Returns whether it does.
    fn update(&self, page: Event) -> bool {
        self.newest.send_if_modified(|newest| {
            let is_new = newest.as_ref() != Some(&page);
            if is_new {
                *newest = Some(page);
            }
            is_new
        })
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
        let reader = self.feeds.subscribe(&wanted);
        if self.feeds.begins() {
            tokio::spawn(self.clone().compute_topics());
        }
        self.feeds.arrivals.notify_one();
        let stopping = self.stopping.clone();
        tokio::spawn(async move {
            let _until_it_ends = share;
            publish_until(&stopping, reader, to).await;
        });
        pages::events(events)
    }

    /// Computes topics while they have readers.
    async fn compute_topics(self: Arc<Self>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let feeds = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                _ = ticks.tick() => {
                    if self.feeds.ends() {
                        return;
                    }
                    self.feeds.drop_unread();
                    self.feeds.with_readers()
                }
                () = self.feeds.arrivals.notified() => self.feeds.without_page(),
            };
            let (slow, quick): (Vec<&Feed>, Vec<&Feed>) =
                feeds.into_iter().partition(|feed| feed.is_slow.load(Relaxed));
            for feed in slow {
                self.compute_alone(feed.topic);
            }
            if !quick.is_empty() {
                let topics = quick.iter().map(|feed| feed.topic).collect();
                let pages = self.events_of(topics).await;
                self.feeds.publish(&quick, pages);
            }
        }
    }

    /// Computes a slow topic in a task of its own, unless the last one still does.
    fn compute_alone(self: &Arc<Self>, topic: &'static str) {
        let is_idle = |feed: &Feed| !feed.is_under_way.swap(true, Relaxed);
        if !self.feeds.named(topic).is_some_and(is_idle) {
            return;
        }
        let api = self.clone();
        tokio::spawn(async move {
            let pages = api.events_of(vec![topic]).await;
            let Some(feed) = api.feeds.named(topic) else {
                return;
            };
            // The readers may have gone meanwhile.
            if feed.has_readers() {
                api.feeds.publish(&[feed], pages);
            }
            feed.is_under_way.store(false, Relaxed);
        });
    }

    /// The pages of topics, computed on one background thread.
    async fn events_of(self: &Arc<Self>, topics: Vec<&'static str>) -> Vec<Event> {
        if topics.contains(&COMPOSITES) {
            // In time or not: the page has the last values.
            let _ = timeout(MAX_REFRESH, composites::refresh_all(&self.shared)).await;
        }
        let api = self.clone();
        let events = move || {
            let events = topics.into_iter().map(|topic| {
                let began = Instant::now();
                let event = api.event_of(topic);
                if let Some(feed) = api.feeds.named(topic) {
                    feed.is_slow.store(began.elapsed() > SLOW, Relaxed);
                }
                event
            });
            events.collect::<Vec<_>>()
        };
        // It fails only at the end of the process: `event_of` does not panic.
        in_background(events).await.unwrap_or_default()
    }

    /// The page of a topic, in the form of the API. It has no line breaks.
    fn event_of(&self, topic: &'static str) -> Event {
        // A bug in one topic must not end the others.
        let page = catch_unwind(AssertUnwindSafe(|| self.page_at(topic)));
        let page = match page {
            Ok(page) if page.len() <= MAX_BYTES => page,
            Ok(_) => failed("too_large", "the page is too large for a stream"),
            Err(_) => failed(
                "internal",
                "this topic failed because of a bug: report it with the log of the gateway",
            ),
        };
        Event::named(topic, &page)
    }

    fn page_at(&self, topic: &str) -> String {
        if topic == COMPOSITES {
            return composites::current(&self.shared);
        }
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

#[cfg(test)]
mod tests;
