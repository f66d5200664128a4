// SPDX-License-Identifier: Apache-2.0

//! `GET /api/v1/tap`: a copy of what enters or leaves a component, as server-sent events.
//!
//! The events are `item` (OTLP/JSON of one item with its resource and scope), `skipped`, `unreadable` and `end`. Background
//! threads decode and filter, so that a tap takes no time from the pipelines.

mod filter;
mod items;
mod target;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tidegate_runtime::Every;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::filter::TapFilter;
use self::items::{TapPiece, UnreadBatch, Unshown};
use self::target::NoTarget;
use super::{AdminConfig, composites};
use crate::component::Shared;
use crate::component::tap::{TapReader, TappedBatch};
use crate::component::worker::Turns;
use crate::net::pages::{self, Answer, Event, Request};
use crate::watch::{Backlog, Ended, backlog};

/// The path of the stream.
pub(super) const PATH: &str = "/api/v1/tap";

/// The interval between two reports of batches that are not shown, and of signs of life without items.
const TICK: Duration = Duration::from_secs(1);

/// The interval between two lines of the log about batches of a tap that can't be decoded.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The longest time for one batch. The items that it has not shown by then are skipped.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The period in which the items of a tap are counted.
const SECOND: Duration = Duration::from_secs(1);

/// The limit of concurrent readings, for all taps together.
static READING: Turns = Turns::of(1);

/// Who may tap, and the limits of all taps.
pub(super) struct TapAccess {
    is_allowed: bool,
    max_taps: NonZeroUsize,
    /// Most items of a tap in a second.
    max_items: NonZeroUsize,
}

impl TapAccess {
    pub(super) fn of(config: &AdminConfig) -> Self {
        Self {
            is_allowed: config.auth.is_some() || config.tap,
            max_taps: config.max_taps,
            max_items: config.max_tap_items_per_second,
        }
    }
}

/// Opens a tap, and answers with its events.
pub(super) async fn page(
    request: &Request,
    access: &TapAccess,
    shared: &Shared,
    stopping: &CancellationToken,
) -> Answer {
    if !access.is_allowed {
        let why = "a tap shows the contents of data: set `auth` of the `admin` extension, or `tap: true` if it \
                   listens on a loopback address";
        return pages::error(StatusCode::FORBIDDEN, "forbidden", why);
    }
    let Some(overview) = shared.overview.get() else {
        return pages::busy("the gateway is starting");
    };
    let target = match target::resolve(&overview, request) {
        Ok(target) => target,
        Err(NoTarget::Unknown(why, near)) => return composites::not_found(why, near.as_deref()),
        Err(NoTarget::Wrong(why)) => return bad(&why),
    };
    let (filter, left) = match (filter(request).await, limit(request)) {
        (Ok(filter), Ok(left)) => (filter, left),
        (Err(why), _) | (_, Err(why)) => return bad(&why),
    };
    let max_taps = access.max_taps.get();
    let component = format!("{}::{}", target.component.class.section(), target.component.id);
    let Some(reader) = shared.taps.open(target, max_taps, &shared.memory) else {
        return pages::busy(&format!(
            "{max_taps} taps are open: close one, or set `max_taps` of the `admin` extension"
        ));
    };
    let (to, events) = backlog(shared, last_event);
    let stream = TapStream {
        reader,
        component,
        unreadable: None,
        unreadable_log: Every::new(LOG_INTERVAL),
        filter: Arc::new(filter),
        rate: ItemRate::of(access.max_items),
        left,
        reported: Instant::now(),
        to,
        stopping: stopping.clone(),
    };
    tokio::spawn(stream.run());
    pages::events(events)
}

fn bad(why: &str) -> Answer {
    pages::error(StatusCode::BAD_REQUEST, "bad_data", why)
}

/// The conditions of all parameters `where`. Background threads parse them, because expressions take time to compile.
async fn filter(request: &Request) -> Result<TapFilter, String> {
    let texts: Vec<String> = request.all("where").map(str::to_owned).collect();
    let parsed = READING.in_background(move || TapFilter::parse(&texts)).await;
    let bug =
        "where: the conditions could not be read because of a bug: report it with the log of the gateway";
    parsed.unwrap_or_else(|| Err(bug.to_owned()))
}

/// The most items of the whole stream.
fn limit(request: &Request) -> Result<Option<u64>, String> {
    let given = request.get("limit").filter(|text| !text.is_empty());
    let read = |text: &str| match text.parse::<u64>() {
        Ok(items) if items > 0 => Ok(items),
        _ => Err(format!("limit: `{text}` is not a number above 0")),
    };
    given.map(read).transpose()
}

fn end(reason: &str) -> Event {
    Event::named("end", &json!({"reason": reason}).to_string())
}

/// The last event of a stream that the gateway ends.
fn last_event(why: Ended) -> Option<Event> {
    match why {
        Ended::Gone | Ended::Replaced | Ended::Unready => None,
        Ended::Stopping => Some(end("stopping")),
        Ended::Slow => Some(end("slow")),
        Ended::Memory => Some(end("memory")),
    }
}

/// The items of a tap in the current second.
struct ItemRate {
    most: usize,
    since: Instant,
    shown: usize,
}

impl ItemRate {
    fn of(most: NonZeroUsize) -> Self {
        Self {
            most: most.get(),
            since: Instant::now(),
            shown: 0,
        }
    }

    /// The items that may follow in this second.
    fn left(&mut self) -> usize {
        if self.since.elapsed() >= SECOND {
            (self.since, self.shown) = (Instant::now(), 0);
        }
        self.most.saturating_sub(self.shown)
    }

    fn rest_of_second(&self) -> Duration {
        SECOND.saturating_sub(self.since.elapsed())
    }
}

/// Whether a stream goes on.
#[derive(PartialEq, Eq)]
enum TapState {
    Open,
    /// It has shown as many items as its client wants.
    Complete,
}

/// Batches that can't be decoded.
struct UnreadableBatches {
    count: usize,
    /// The reason of the newest one.
    why: String,
}

/// A tap with its client.
struct TapStream {
    reader: TapReader,
    /// The path of the component, for the log.
    component: String,
    /// Those since the last report.
    unreadable: Option<UnreadableBatches>,
    unreadable_log: Every,
    filter: Arc<TapFilter>,
    rate: ItemRate,
    /// Items that the client still wants. `None`: all.
    left: Option<u64>,
    /// The last report of batches that are not shown.
    reported: Instant,
    to: Backlog<Event>,
    stopping: CancellationToken,
}

impl TapStream {
    async fn run(mut self) {
        // The stream has ended already, or ends with this task.
        let _ = self.publish().await;
    }

    async fn publish(&mut self) -> Result<(), Ended> {
        // The client gets the head of the answer now.
        self.send(Event::alive()).await?;
        loop {
            self.report_regularly().await?;
            let tapped = tokio::select! {
                tapped = self.reader.next() => tapped,
                () = sleep(TICK) => None,
                ended = self.to.ended() => return Err(ended),
                () = self.stopping.cancelled() => return Err(self.stop()),
            };
            match tapped {
                None => self.send(Event::alive()).await?,
                Some(tapped) => {
                    if self.show(tapped).await? == TapState::Complete {
                        self.report().await?;
                        return self.send(end("limit")).await;
                    }
                }
            }
        }
    }

    async fn send(&self, event: Event) -> Result<(), Ended> {
        let bytes = event.bytes();
        let permit = tokio::select! {
            permit = self.to.reserve(bytes) => permit?,
            () = self.stopping.cancelled() => return Err(self.stop()),
        };
        self.to.send(permit, event, bytes);
        Ok(())
    }

    /// Ends the stream because the gateway stops.
    fn stop(&self) -> Ended {
        self.to.end(Ended::Stopping);
        Ended::Stopping
    }

    async fn report_regularly(&mut self) -> Result<(), Ended> {
        if self.reported.elapsed() < TICK {
            return Ok(());
        }
        self.reported = Instant::now();
        self.report().await
    }

    /// Reports the batches that were not shown since the last report.
    async fn report(&mut self) -> Result<(), Ended> {
        let skipped = self.reader.take_skipped();
        if skipped > 0 {
            let event = Event::named("skipped", &json!({"batches": skipped}).to_string());
            self.send(event).await?;
        }
        let Some(UnreadableBatches { count, why }) = self.unreadable.take() else {
            return Ok(());
        };
        if let Some(batches) = self.unreadable_log.note(LOG_INTERVAL, count, Instant::now()) {
            tracing::warn!(component = %self.component, batches, error = %why, "a tap can't decode batches");
        }
        let event = Event::named("unreadable", &json!({"batches": count, "error": why}).to_string());
        self.send(event).await
    }

    /// Counts a batch that can't be decoded.
    fn add_unreadable(&mut self, why: String) {
        let before = self.unreadable.take().map_or(0, |unreadable| unreadable.count);
        let count = before + 1;
        self.unreadable = Some(UnreadableBatches { count, why });
    }

    /// The items that may follow now, by the rate and by the wish of the client.
    fn room(&mut self) -> usize {
        let left = self.left.and_then(|left| usize::try_from(left).ok());
        self.rate.left().min(left.unwrap_or(usize::MAX))
    }

    /// Shows the items of a batch that the filter accepts, as many as the rate allows.
    async fn show(&mut self, tapped: TappedBatch) -> Result<TapState, Ended> {
        let begun = Instant::now();
        let mut rest = Some(UnreadBatch::of(tapped));
        while let Some(unread) = rest.take() {
            if begun.elapsed() >= MAX_TIME {
                self.reader.skip();
                break;
            }
            let most = self.room();
            if most == 0 {
                self.pause();
                break;
            }
            let filter = self.filter.clone();
            let read = READING.in_background(move || items::read(unread, &filter, most));
            let read = tokio::select! {
                biased;
                ended = self.to.ended() => return Err(ended),
                () = self.stopping.cancelled() => return Err(self.stop()),
                read = read => read,
            };
            let piece = match read {
                Some(Ok(piece)) => piece,
                // There was no memory for the JSON.
                Some(Err(Unshown::NoRoom(_))) => {
                    self.reader.skip();
                    break;
                }
                Some(Err(Unshown::Invalid(why))) => {
                    self.add_unreadable(why);
                    break;
                }
                None => {
                    let bug =
                        "a batch could not be shown because of a bug: report it with the log of the gateway";
                    self.add_unreadable(bug.to_owned());
                    break;
                }
            };
            let TapPiece {
                lines,
                is_cut,
                rest: more,
                held: _until_sent,
            } = piece;
            for line in lines {
                self.send(Event::named("item", &line)).await?;
                self.rate.shown += 1;
                self.left = self.left.map(|left| left.saturating_sub(1));
            }
            if self.left == Some(0) {
                return Ok(TapState::Complete);
            }
            if is_cut {
                self.pause();
                break;
            }
            rest = more;
        }
        Ok(TapState::Open)
    }

    /// Shows nothing more in this second.
    fn pause(&self) {
        self.reader.skip();
        self.reader.pause(self.rate.rest_of_second());
    }
}

#[cfg(test)]
mod tests;
