// SPDX-License-Identifier: Apache-2.0

//! The task of a watch: a list, then events, then events from where they ended. It lists again if events are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rand::Rng;
use tidegate_pipeline::net::client::error_chain;
use tokio::sync::Semaphore;

use crate::client::ApiClient;
use crate::error::WatchError;
use crate::kind::Scope;
use crate::objects::{self, Version};
use crate::pieces::{Lines, PageError, PageReader, Piece};
use crate::store::ObjectStore;

/// The objects of a page of a list.
const PAGE_OBJECTS: &str = "500";

/// A list may take this long.
const LIST_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest pause within a list.
const PAGE_PAUSE: Duration = Duration::from_secs(30);

/// The longest silence of a watch. The server sends bookmarks about once a minute, so a silent connection may be dead.
const SILENCE: Duration = Duration::from_secs(180);

/// The server ends a watch after a random time between these, in seconds.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;

/// The pause after the first error. It doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// A watch that lasted this long was sound: the next pause is the first one again.
const SOUND: Duration = Duration::from_secs(5);

/// The longest token for the next page, in bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The task of a watch.
pub(crate) struct Watcher {
    pub(crate) client: Arc<ApiClient>,
    pub(crate) scope: Scope,
    pub(crate) store: Arc<ObjectStore>,
    /// One list of a kind at a time.
    pub(crate) lists: Arc<Semaphore>,
    pub(crate) pause: Duration,
}

impl Watcher {
    pub(crate) fn new(
        client: Arc<ApiClient>,
        scope: Scope,
        store: Arc<ObjectStore>,
        lists: Arc<Semaphore>,
    ) -> Self {
        Self {
            client,
            scope,
            store,
            lists,
            pause: FIRST_PAUSE,
        }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut version = None;
        loop {
            let begun = Instant::now();
            let result = match version.take() {
                None => self.list().await.map(|listed| version = Some(listed)),
                Some(mut from) => {
                    let result = self.watch(&mut from).await;
                    version = Some(from);
                    result
                }
            };
            let Err(error) = result else { continue };
            self.store.failed(&error);
            if error.loses_events() {
                version = None;
            }
            if begun.elapsed() >= SOUND {
                self.pause = FIRST_PAUSE;
            }
            self.wait().await;
        }
    }

    /// Waits half of the pause at least, so that gateways do not come back together.
    async fn wait(&mut self) {
        let factor = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(self.pause.mul_f64(factor)).await;
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }

    async fn list(&self) -> Result<Version, WatchError> {
        let lists = self.lists.clone();
        let _turn = lists.acquire_owned().await;
        self.store.metrics().list_begun();
        let listed = tokio::time::timeout(LIST_TIMEOUT, self.pages()).await;
        listed.unwrap_or(Err(WatchError::TimedOut(LIST_TIMEOUT)))
    }

    async fn pages(&self) -> Result<Version, WatchError> {
        self.store.begin_list();
        let mut next = String::new();
        loop {
            let head = self.page(&next).await?;
            if head.next.is_empty() {
                self.store.end_list();
                self.store.metrics().current();
                self.store.recovered();
                return Ok(head.version);
            }
            if head.next.len() > MAX_TOKEN_BYTES {
                return Err(WatchError::Body(
                    "the token for the next page is too long".to_owned(),
                ));
            }
            next = head.next;
        }
    }

    async fn page(&self, token: &str) -> Result<objects::ListHead, WatchError> {
        let mut parameters = vec![("limit", PAGE_OBJECTS)];
        if !token.is_empty() {
            parameters.push(("continue", token));
        }
        let mut body = self.client.get(&self.scope.path(&parameters)).await?;
        let mut reader = PageReader::new(self.store.account().clone(), self.store.limits().object_bytes);
        while let Some(chunk) = next_chunk(&mut body, PAGE_PAUSE).await? {
            let mut result = Ok(());
            let fed = reader.feed(&chunk, |piece| {
                let taken = match piece {
                    Piece::Whole(json) => self.store.take_listed(json),
                    Piece::Skipped(why, beginning) => self.store.take_skipped(why, beginning),
                };
                result = std::mem::replace(&mut result, Ok(())).and(taken);
            });
            fed.map_err(|error: PageError| WatchError::Body(error.to_string()))?;
            result?;
        }
        let head = objects::list_head(reader.head());
        head.map_err(|error| WatchError::Body(format!("a list is not as expected: {error}")))
    }

    /// Follows the events after a version, which moves on with them. `Ok`: the server ended the watch.
    async fn watch(&mut self, version: &mut Version) -> Result<(), WatchError> {
        let seconds = rand::rng().random_range(WATCH_SECONDS);
        let deadline = Duration::from_secs(seconds) + PAGE_PAUSE;
        let followed = tokio::time::timeout(deadline, self.follow(seconds, version)).await;
        followed.unwrap_or(Ok(()))
    }

    async fn follow(&mut self, seconds: u64, version: &mut Version) -> Result<(), WatchError> {
        self.store.metrics().watch_begun();
        let path = self.scope.path(&[
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version.as_str()),
            ("timeoutSeconds", &seconds.to_string()),
        ]);
        let mut body = self.client.get(&path).await?;
        self.store.recovered();
        let begun = Instant::now();
        let mut lines = Lines::new(self.store.account().clone(), self.store.limits().object_bytes);
        while let Some(chunk) = next_chunk(&mut body, SILENCE).await? {
            let mut result = Ok(());
            lines.feed(&chunk, |piece| {
                if result.is_ok() {
                    result = self.store.take_piece(piece, version);
                }
            });
            result?;
            self.pause = FIRST_PAUSE;
        }
        // A server that ends each watch at once is not asked without a pause.
        if begun.elapsed() < SOUND {
            self.wait().await;
        }
        Ok(())
    }
}

impl ObjectStore {
    fn take_piece(&self, piece: Piece<'_>, version: &mut Version) -> Result<(), WatchError> {
        match piece {
            Piece::Whole(json) => {
                let next = self.take_event(json)?;
                if !next.is_empty() {
                    *version = next;
                }
                Ok(())
            }
            Piece::Skipped(why, beginning) => self.take_skipped(why, beginning),
        }
    }
}

/// The next bytes of a body. `None`: it has ended.
pub(crate) async fn next_chunk(body: &mut Incoming, pause: Duration) -> Result<Option<Bytes>, WatchError> {
    loop {
        let frame = tokio::time::timeout(pause, body.frame()).await;
        let frame = frame.map_err(|_| WatchError::TimedOut(pause))?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| WatchError::Connection(error_chain(&error)))?;
        if let Ok(chunk) = frame.into_data() {
            return Ok(Some(chunk));
        }
    }
}
