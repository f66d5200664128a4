// SPDX-License-Identifier: Apache-2.0

//! Series for the tests of this crate.

use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Metric, Series, Temporality};

/// The data of a counter.
pub(crate) const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};

/// A series without attributes.
pub(crate) fn series(name: &str, data: Data) -> Series {
    Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    }
}
