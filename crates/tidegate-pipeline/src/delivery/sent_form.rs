// SPDX-License-Identifier: Apache-2.0

//! The form of data that a destination sends, without its queue. Tests of configurations compare it.

use std::sync::Arc;

use tidegate_engine::Bounds;

use super::config::Delivery;
use super::shape::Shape;
use super::temporality::Conversion;
use crate::batch::Batch;
use crate::component::{Flow, Ledger};

/// The conversions of a destination.
pub struct SentForm {
    conversion: Option<Conversion>,
    shape: Shape,
}

impl SentForm {
    /// The conversions that these options ask for. `ledger` counts the metrics that they drop, `bounds` limits the memory of
    /// streams.
    pub fn of(delivery: &Delivery, ledger: Option<&Arc<Ledger>>, bounds: Arc<Bounds>) -> Self {
        Self {
            conversion: Conversion::new(delivery, ledger, bounds),
            shape: delivery.shape,
        }
    }

    /// A batch as the destination sends it. It may have no items left.
    pub fn apply(&self, batch: Batch, flow: &mut Flow) -> Batch {
        let batch = match &self.conversion {
            Some(conversion) => conversion.convert(batch, None, flow),
            None => batch,
        };
        self.shape.apply(batch)
    }
}
