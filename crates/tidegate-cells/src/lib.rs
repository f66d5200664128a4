//! Metric values in memory-mapped files: one file a process, written with one atomic addition, read by anyone who
//! wants to expose them, and kept when the process dies.
//!
//! - [`Store`] is the writer: families ([`FamilySpec`]), series, and cells that record. [`Store::in_memory`] is the
//!   same without a file.
//! - [`Directory`] is the reader: [`Directory::scan`] gives the values of all processes, merged as
//!   `prometheus_client` merges them; [`Directory::fold`] puts what dead processes counted into one file.
//!   [`Follower`] is for who looks a hundred times a second: it tells what has changed.
//! - [`default_directory`] is where both look when nobody says where.
//! - [`layout`] has the bytes; `docs/cells.md` has them as tables, and what holds when a process is killed, forks
//!   or runs out of room.
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

#![deny(missing_docs, unsafe_code)]

#[cfg(not(all(target_endian = "little", target_os = "linux")))]
compile_error!("cells are little-endian, and reserving their memory needs Linux");

mod arena;
mod cells;
mod error;
mod exponential;
mod family;
mod file;
mod fork;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
pub mod layout;
mod map;
mod place;
mod reader;
mod record;
mod spec;
mod store;
mod table;
mod value;

pub use cells::{CounterCell, ExponentialCell, FloatCell, HistogramCell, SummaryCell, UpDownCell};
pub use error::{Error, SpecError};
pub use exponential::bucket_of;
pub use family::{Family, Series};
pub use layout::{Identity, Reject};
pub use place::{DIRECTORY_VARIABLE, default_directory};
pub use reader::{
    Changes, Directory, Folded, Follower, Limits, Problem, Process, Room, Scan, SharedDirectory,
};
pub use spec::{FamilySpec, GaugeMode, Kind};
pub use store::{Options, Refused, Store};
pub use value::{
    Buckets, ExponentialValue, FamilyValues, Labels, OVERFLOW_LABEL, SeriesValue, Snapshot, Value,
};
