// SPDX-License-Identifier: Apache-2.0

//! `future`: the options for points with a time too far ahead, in components that keep state.

use std::time::Duration;

use tidegate_engine::{Future, FutureAction};

tidegate_config::options! {
    /// Treatment of points whose time lies too far ahead of the gateway's clock.
    pub struct FutureConfig {
        /// The longest time by which a point may lie ahead of the gateway's clock.
        pub tolerance: Duration = Future::default().tolerance,
        /// Treatment of a point that lies further ahead. `refuse` drops it, counts it as `future` and informs its
        /// sender. `arrival` gives it the time of its arrival.
        pub action: FutureChoice = FutureChoice::Refuse,
    }
}

tidegate_config::choices! {
    /// The action on a point from the future.
    pub enum FutureChoice {
        /// The gateway refuses it.
        Refuse = "refuse",
        /// It gets the time of its arrival.
        Arrival = "arrival",
    }
}

impl From<&FutureConfig> for Future {
    fn from(config: &FutureConfig) -> Self {
        Self {
            tolerance: config.tolerance,
            action: match config.action {
                FutureChoice::Refuse => FutureAction::Refuse,
                FutureChoice::Arrival => FutureAction::Arrival,
            },
        }
    }
}
