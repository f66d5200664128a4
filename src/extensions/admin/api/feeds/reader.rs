// SPDX-License-Identifier: Apache-2.0

//! The task of one reader of the stream: it sends the topics that have changed.

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::net::pages::Event;
use crate::watch::{Backlog, Ended};

/// A stream on which nothing happens shows with this interval that it is alive.
pub(super) const ALIVE: Duration = Duration::from_secs(10);

/// The topics of one reader.
pub(super) struct FeedReader {
    pub(super) ticks: Receiver<()>,
    pub(super) topics: Vec<Receiver<Option<Event>>>,
}

/// Sends topics to one reader until the gateway stops, also while it waits for the reader.
pub(super) async fn publish_until(stopping: &CancellationToken, reader: FeedReader, to: Backlog<Event>) {
    // The stream has ended already, or ends with this task.
    let _ = stopping.run_until_cancelled(publish(reader, &to)).await;
}

/// Sends the topics that have changed to one reader. It has one task for all of them, so that one write to its connection has
/// all pages of a second. A slow reader gets only the newest.
pub(super) async fn publish(mut reader: FeedReader, to: &Backlog<Event>) -> Result<(), Ended> {
    // These last for many seconds. New ones for each page would cost as much as the page.
    let (ended, alive) = (to.ended(), sleep(ALIVE));
    tokio::pin!(ended, alive);
    let mut alive_at = alive.deadline();
    loop {
        for newest in &mut reader.topics {
            if newest.has_changed().is_ok_and(|is_changed| is_changed) {
                to.ready().await?;
                let page = newest.borrow_and_update().clone();
                if let Some(page) = page {
                    send(to, page).await?;
                    alive_at = Instant::now() + ALIVE;
                }
            }
        }
        tokio::select! {
            biased;
            changed = reader.ticks.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            why = &mut ended => return Err(why),
            () = &mut alive => {
                // Pages since the last time have moved it.
                if alive_at <= Instant::now() {
                    send(to, Event::alive()).await?;
                    alive_at = Instant::now() + ALIVE;
                }
                alive.as_mut().reset(alive_at);
            }
        }
    }
}

async fn send(to: &Backlog<Event>, event: Event) -> Result<(), Ended> {
    let bytes = event.bytes();
    let permit = to.reserve(bytes).await?;
    to.send(permit, event, bytes);
    Ok(())
}
