// SPDX-License-Identifier: Apache-2.0

//! The registries.

mod fanout;
mod foreign;
mod null;
#[cfg(feature = "otel")]
pub(crate) mod otel;
mod prometheus;
#[cfg(feature = "shm")]
mod shm;

pub use fanout::Fanout;
pub use foreign::{Foreign, ForeignSpec, ForeignText, ForeignVtable};
pub use null::Null;
pub use prometheus::Prometheus;
#[cfg(feature = "shm")]
pub use shm::Shm;

use std::sync::Arc;
use std::time::Duration;

use crate::description::FamilySpec;
use crate::value::{FamilyDescription, FamilyValues};
use crate::{AnyFamily, ExportError, RegisterError};
use crate::{MetricsRegistry, Tracer};

/// Passes on to the registry within.
macro_rules! forward {
    ($type:ty) => {
        impl<R: MetricsRegistry + ?Sized> MetricsRegistry for $type {
            fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
                (**self).register(spec)
            }

            fn gather(&self) -> Vec<FamilyValues> {
                (**self).gather()
            }

            fn flush(&self, within: Duration) -> Result<(), ExportError> {
                (**self).flush(within)
            }

            fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
                (**self).shutdown(within)
            }

            fn tracer(&self) -> Tracer {
                (**self).tracer()
            }

            fn prometheus_format_str(&self) -> String {
                (**self).prometheus_format_str()
            }

            fn describe(&self) -> Vec<FamilyDescription> {
                (**self).describe()
            }
        }
    };
}

forward!(Arc<R>);
forward!(Box<R>);
forward!(&R);

/// How the stores of registries are made.
fn options(resource: Vec<(String, String)>) -> tidegate_cells::Options {
    tidegate_cells::Options {
        resource,
        ..tidegate_cells::Options::default()
    }
}
