// SPDX-License-Identifier: Apache-2.0

//! Options of a threshold of a composite.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Direction, Threshold};

use super::webhook::WebhookConfig;
use crate::config::{Node, Problems};

crate::options! {
    /// A threshold. Watchers of the composite get a message when its value crosses it, and when the crossing
    /// ends.
    pub struct ThresholdConfig {
        /// Name of the threshold. Unset: made of its value, for example `above 100`.
        pub name: Option<String> = None,
        /// Upper threshold. Values greater than this are beyond it.
        pub above: Option<f64> = None,
        /// Lower threshold. Values less than this are beyond it.
        pub below: Option<f64> = None,
        /// Value at which a crossing ends. Unset: the threshold itself.
        pub clear: Option<f64> = None,
        /// Shortest time between two changes of one group.
        pub min_interval: Duration = Duration::ZERO,
        /// HTTP request for each change.
        pub webhook: Option<WebhookConfig> = None,
    }
    check = ThresholdConfig::check
}

impl ThresholdConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let Some((direction, limit)) = self.direction() else {
            cx.at(at).error("set either `above` or `below`");
            return;
        };
        let clear = self.clear.unwrap_or(limit);
        let is_before = match direction {
            Direction::Above => clear <= limit,
            Direction::Below => clear >= limit,
        };
        if !limit.is_finite() || !is_before {
            cx.at(at.child("clear")).error(format!(
                "must be on the near side of {} {limit}",
                direction.name()
            ));
        }
    }

    fn direction(&self) -> Option<(Direction, f64)> {
        match (self.above, self.below) {
            (Some(at), None) => Some((Direction::Above, at)),
            (None, Some(at)) => Some((Direction::Below, at)),
            _ => None,
        }
    }

    /// The threshold in the form of the engine. `None`: it is invalid and reported.
    pub fn threshold(&self) -> Option<Threshold> {
        let (direction, at) = self.direction()?;
        let name = || format!("{} {at}", direction.name());
        Some(Threshold {
            name: Arc::from(self.name.clone().unwrap_or_else(name)),
            direction,
            at,
            clear: self.clear.unwrap_or(at),
            min_interval: self.min_interval,
        })
    }
}
