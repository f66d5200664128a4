// SPDX-License-Identifier: Apache-2.0

//! The gateway's side: finding, checking, loading and calling plugins.
//!
//! [`Wanted::find`] and [`Wanted::inspect`] run no code of the plugin. [`Library::open`] does (a shared object has
//! constructors), [`Instance`] is called; both on the thread of a [`Worker`], which bounds every call. [`Process`] is
//! the same by way of a Unix socket and [`serve`], which runs in a process of its own.

mod batch;
mod frame;
#[cfg(fuzzing)]
pub mod fuzz;
mod inspect;
#[allow(unsafe_code)]
mod instance;
#[allow(unsafe_code)]
mod library;
mod process;
mod search;
mod serve;
mod view;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

pub use batch::{EventKind, Events, ExportBatch, Values};
pub use instance::Instance;
pub use library::Library;
pub use process::Process;
pub use search::{Wanted, file_name};
pub use semver::VersionReq;
pub use serve::{serve, serve_stdin};
pub use worker::{Backend, Call, Note, Notes, Reply, Trouble, Worker};

use crate::plugin::Takes;

/// A plugin's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The payloads that it takes.
    pub takes: Takes,
}

/// The arguments of the creation of an instance.
#[derive(Clone)]
pub struct Setup {
    /// The exporter as configured.
    pub id: String,
    /// Its configuration; may hold secrets.
    pub config: String,
}

/// Why a plugin can't be used, for people: names the file, what was expected and what was found.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No directory has it.
    #[error("there is no plugin `{name}`: looked for {}", tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    NotFound {
        /// The name that was looked for.
        name: String,
        /// Where.
        tried: Vec<PathBuf>,
    },
    /// The file can't be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// It is something else than was expected.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The expected property.
        expected: String,
        /// The actual property.
        found: String,
    },
    /// Other users could put their own code in its place.
    #[error("{}: {found}; a plugin runs with the gateway's rights, so run `{cure}`", path.display())]
    Unsafe {
        /// The file or its folder.
        path: PathBuf,
        /// The users that can change it.
        found: String,
        /// The command that mends it.
        cure: String,
    },
    /// The dynamic loader refused it.
    #[error("{}: can't be loaded: {why}", path.display())]
    NotLoaded {
        /// The file.
        path: PathBuf,
        /// The error of the loader.
        why: String,
    },
    /// It does not want to be created with this configuration.
    #[error("the plugin `{name}` {version} refuses its configuration: {why}")]
    Create {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
        /// The reason that it gave.
        why: String,
    },
    /// Loading or creating took too long.
    #[error("the plugin was not created within {within:?}")]
    Slow {
        /// The limit.
        within: Duration,
    },
    /// A process for it can't be started, or ended before the plugin was created.
    #[error("the plugin's process {0}")]
    Process(String),
    /// The plugin's process refused, and gave this reason.
    #[error("{0}")]
    Reported(String),
}

impl Refusal {
    fn unfit(path: &std::path::Path, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Unfit {
            path: path.to_owned(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}
