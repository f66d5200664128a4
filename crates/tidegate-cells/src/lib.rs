// SPDX-License-Identifier: Apache-2.0

//! Metric values in memory-mapped files. Each process writes its own file with one atomic addition a value. Any reader
//! can expose the values, and they stay when the process dies.
//!
//! - [`Store`] is the writer: families ([`FamilySpec`]), series, and cells that record. [`Store::in_memory`] is the
//!   same without a file.
//! - [`Directory`] is the reader: [`Directory::scan`] gives the values of all processes, merged as in
//!   `prometheus_client`. [`Directory::fold`] puts the counts of dead processes into one file.
//!   [`Follower`] suits callers that read a hundred times a second: it reports the changes. The feature `reader`, on by
//!   default, has all of these.
//! - [`default_directory`] is the default for both.
//! - [`layout`] has the bytes; `docs/cells.md` has them as tables. It also has the guarantees when a process is killed,
//!   forks or runs out of room.
//!
//! ```
//! use tidegate_cells::{Directory, FamilySpec, Kind, Limits, Options, Store, Value};
//!
//! # let temporary = tempfile::tempdir()?;
//! # let directory = temporary.path();
//! let store = Store::create(directory, Options::default())?;
//! let requests = store.family(&FamilySpec::new("requests", Kind::Counter).labels(["model"]))?;
//! requests.with(&["llama"]).counter()?.add(3);
//!
//! let scan = Directory::open(directory, Limits::default())?.scan();
//! assert_eq!(scan.merged.value("requests", &[("model", "llama")]), Some(&Value::Counter(3)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_os = "linux")))]
compile_error!("cells are little-endian, and reserving their memory needs Linux");

mod arena;
mod cells;
mod default_directory;
mod error;
mod exponential;
mod family;
mod file;
mod fork;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
#[cfg_attr(
    not(feature = "reader"),
    expect(dead_code, reason = "only readers write the file of dead processes")
)]
pub mod layout;
#[cfg(feature = "reader")]
mod reader;
#[cfg_attr(
    not(feature = "reader"),
    expect(dead_code, reason = "only readers write the file of dead processes")
)]
mod record;
mod spec;
mod store;
mod table;
mod value;

pub use cells::{CounterCell, ExponentialCell, FloatCell, HistogramCell, SummaryCell, UpDownCell};
pub use default_directory::{DIRECTORY_VARIABLE, default_directory};
pub use error::{Error, SpecError};
pub use exponential::bucket_of;
pub use family::{Family, Series};
pub use layout::{Identity, Reject};
#[cfg(feature = "reader")]
pub use reader::{
    Changes, Directory, Folded, Follower, Limits, Problem, Process, Room, Scan, SharedDirectory,
    limit_open_files,
};
pub use spec::{FamilySpec, GaugeMode, Kind};
pub use store::{Options, Refused, Store};
pub use tidegate_model::{Buckets, ExponentialHistogram};
pub use value::{FamilyValues, Labels, OVERFLOW_LABEL, SeriesValue, Snapshot, Value};
