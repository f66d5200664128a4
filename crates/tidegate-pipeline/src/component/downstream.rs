// SPDX-License-Identifier: Apache-2.0

//! Downstreams: where a component pushes. A reload leads all downstreams of a graph to other consumers at one moment.
//!
//! Every push belongs to one generation of the graph, the current one at its begin. `admit` and `consume` of a push so
//! meet the same consumers, also if the graph changes in between. A component stops after the last push of its
//! generations has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::tap::TapPoint;
use super::{Consumer, Flow, Refused};
use crate::batch::Batch;

/// The retry delay of senders that can't wait while the graph changes.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The interval of looks at pushes that must end.
const POLL: Duration = Duration::from_millis(1);

/// A generation of the graph. Pushes that belong to it hold a clone.
#[derive(Debug, Default)]
pub struct Generation {
    number: u64,
}

/// The wiring of a graph: the generation that pushes begin in.
#[derive(Debug, Default)]
pub struct Wiring {
    current: ArcSwap<Generation>,
    is_paused: AtomicBool,
}

impl Wiring {
    /// The number of the next generation.
    pub fn next_number(&self) -> u64 {
        self.current.load().number + 1
    }

    /// Begins the next generation. Returns the previous one, for [`Self::ended`].
    pub fn advance(&self) -> Arc<Generation> {
        let number = self.next_number();
        self.current.swap(Arc::new(Generation { number }))
    }

    /// Lets no push begin, except from components that stop. Senders that can wait do so. Returns the pushes that have
    /// begun, for [`Self::ended`].
    pub fn pause(&self) -> Arc<Generation> {
        // A push looks at the flag after it has joined a generation. So the old one has all that did not see the flag.
        self.is_paused.store(true, SeqCst);
        let number = self.current.load().number;
        self.current.swap(Arc::new(Generation { number }))
    }

    /// Lets pushes begin again.
    pub fn resume(&self) {
        self.is_paused.store(false, SeqCst);
    }

    /// Waits until all pushes of a past generation have ended. Returns false if some are left at the deadline.
    pub async fn ended(generation: &Arc<Generation>, deadline: Instant) -> bool {
        while Arc::strong_count(generation) > 1 {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }
}

/// Whether pushes may begin at an downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DownstreamState {
    /// The component has started before the consumers: pushes wait.
    Closed,
    /// Pushes begin unless the wiring is paused.
    Open,
    /// The component stops: it hands on what it holds in a pause too.
    Leaving,
}

/// The consumers of an downstream, by generation.
struct Routes {
    /// The generation from which on pushes go to `next`.
    since: u64,
    next: Arc<dyn Consumer>,
    /// The consumer of earlier pushes.
    before: Option<Arc<dyn Consumer>>,
}

/// Where a component pushes.
pub struct Downstream {
    wiring: Arc<Wiring>,
    state: AtomicU8,
    routes: ArcSwap<Routes>,
    /// Copies what leaves the component, for people who debug.
    tap: Option<Arc<TapPoint>>,
}

impl Downstream {
    /// Creates an downstream that leads to `next` in all generations.
    pub fn new(wiring: Arc<Wiring>, next: Arc<dyn Consumer>, state: DownstreamState) -> Self {
        let routes = Routes {
            since: 0,
            next,
            before: None,
        };
        Self {
            wiring,
            state: AtomicU8::new(state as u8),
            routes: ArcSwap::from_pointee(routes),
            tap: None,
        }
    }

    /// Adds the point that copies what leaves the component.
    pub fn tapped(self, tap: Arc<TapPoint>) -> Self {
        Self {
            tap: Some(tap),
            ..self
        }
    }

    /// Leads pushes of the generation `since` and later ones to `next`.
    pub fn connect(&self, since: u64, next: Arc<dyn Consumer>) {
        let before = Some(self.routes.load().next.clone());
        self.routes.store(Arc::new(Routes { since, next, before }));
    }

    /// Releases the consumer of earlier generations, whose pushes have ended.
    pub fn forget_before(&self) {
        let routes = self.routes.load();
        if routes.before.is_some() {
            let (since, next) = (routes.since, routes.next.clone());
            self.routes.store(Arc::new(Routes {
                since,
                next,
                before: None,
            }));
        }
    }

    /// Sets whether pushes may begin here.
    pub fn set(&self, state: DownstreamState) {
        self.state.store(state as u8, SeqCst);
    }

    fn is_open(&self) -> bool {
        let state = self.state.load(SeqCst);
        state == DownstreamState::Leaving as u8
            || state == DownstreamState::Open as u8 && !self.wiring.is_paused.load(SeqCst)
    }

    fn join(&self, flow: &mut Flow) -> u64 {
        let generation = flow
            .generation
            .get_or_insert_with(|| self.wiring.current.load_full());
        generation.number
    }
}

impl Routes {
    fn of(&self, generation: u64) -> &Arc<dyn Consumer> {
        match &self.before {
            Some(before) if generation < self.since => before,
            _ => &self.next,
        }
    }
}

impl Consumer for Downstream {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let begins = flow.generation.is_none();
        let generation = self.join(flow);
        if begins && !self.is_open() {
            flow.generation = None;
            flow.block();
            return Err(Refused::busy(
                "the gateway applies a new configuration",
                RETRY_AFTER,
            ));
        }
        self.routes.load().of(generation).admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let generation = self.join(flow);
        if let Some(tap) = &self.tap {
            tap.pass(&batch);
        }
        self.routes.load().of(generation).consume(batch, flow);
    }

    fn decodes(&self) -> bool {
        self.routes.load().next.decodes()
    }

    fn absorbs(&self) -> bool {
        self.routes.load().next.absorbs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Signal;
    use crate::component::testing::Sink;
    use crate::delivery::testing::opaque;

    struct Rig {
        wiring: Arc<Wiring>,
        downstream: Downstream,
        old: Arc<Sink>,
        new: Arc<Sink>,
    }

    fn rig(state: DownstreamState) -> Rig {
        let (wiring, old) = (Arc::<Wiring>::default(), Sink::new());
        Rig {
            downstream: Downstream::new(wiring.clone(), old.clone(), state),
            wiring,
            old,
            new: Sink::new(),
        }
    }

    fn one() -> Batch {
        opaque(Signal::Logs, b"x", 1)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[tokio::test]
    async fn a_push_meets_the_consumers_of_its_begin() {
        let rig = rig(DownstreamState::Open);
        let mut flow = Flow::default();
        rig.downstream.admit(&one(), &mut flow).unwrap();
        rig.downstream.connect(rig.wiring.next_number(), rig.new.clone());
        // The generation begins after all downstreams lead on.
        rig.downstream.push(one()).unwrap();
        let past = rig.wiring.advance();
        rig.downstream.push(one()).unwrap();
        assert!(!Wiring::ended(&past, soon()).await, "a push is under way");
        rig.downstream.consume(one(), &mut flow);
        assert_eq!((rig.old.items(), rig.new.items()), (2, 1));
        drop(flow);
        assert!(Wiring::ended(&past, Instant::now() + Duration::from_secs(30)).await);
        rig.downstream.forget_before();
        assert_eq!(Arc::strong_count(&rig.old), 1, "nothing leads there");
    }

    #[tokio::test]
    async fn an_answer_that_is_awaited_does_not_hold_a_generation() {
        let rig = rig(DownstreamState::Open);
        let mut flow = Flow::waited_for();
        rig.downstream.admit(&one(), &mut flow).unwrap();
        rig.downstream.consume(one(), &mut flow);
        let (_answer, wait) = tokio::sync::oneshot::channel();
        flow.wait_for(wait);
        let past = rig.wiring.advance();
        let settling = tokio::spawn(flow.settled());
        assert!(Wiring::ended(&past, Instant::now() + Duration::from_secs(30)).await);
        settling.abort();
    }

    #[tokio::test]
    async fn a_pause_lets_only_leaving_components_push() {
        let rig = rig(DownstreamState::Open);
        let mut flow = Flow::default();
        rig.downstream.admit(&one(), &mut flow).unwrap();
        let begun = rig.wiring.pause();
        let mut refused = Flow::default();
        rig.downstream.admit(&one(), &mut refused).unwrap_err();
        assert!(refused.blocks(), "a sender that can wait does so");
        drop(refused);
        assert!(!Wiring::ended(&begun, soon()).await);
        rig.downstream.consume(one(), &mut flow);
        drop(flow);
        assert!(Wiring::ended(&begun, Instant::now() + Duration::from_secs(30)).await);
        rig.downstream.set(DownstreamState::Leaving);
        rig.downstream.push(one()).unwrap();
        rig.downstream.set(DownstreamState::Open);
        rig.downstream.push(one()).unwrap_err();
        rig.wiring.resume();
        rig.downstream.push(one()).unwrap();
        assert_eq!(rig.old.items(), 3);
    }

    #[test]
    fn a_closed_downstream_refuses_until_it_is_opened() {
        let rig = rig(DownstreamState::Closed);
        let refused = rig.downstream.push(one()).unwrap_err();
        assert!(refused.retry_after.is_some(), "{refused}");
        rig.downstream.set(DownstreamState::Open);
        rig.downstream.push(one()).unwrap();
        assert_eq!(rig.old.items(), 1);
    }
}
