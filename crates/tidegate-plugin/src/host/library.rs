// SPDX-License-Identifier: Apache-2.0

//! Loading a plugin and checking its table. The one place where a shared object is loaded.

use std::error::Error;
use std::ffi::{CStr, c_char};
use std::path::Path;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use semver::Version;

use super::inspect::no_entry;
use super::{Description, Refusal, Wanted};
use crate::abi::{self, ABI_VERSION, ENTRY, Table};
use crate::plugin::Takes;

/// A plugin that is loaded and has been found to be what was wanted. It stays loaded as long as the process lives: threads
/// and exit handlers that it has left behind must not lose their code.
#[derive(Clone, Debug)]
pub struct Library {
    pub(super) functions: Functions,
    description: Description,
}

/// The functions of a table that has been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) create: abi::Create,
    pub(super) export: abi::Export,
    pub(super) flush: Option<abi::Flush>,
    pub(super) destroy: abi::Destroy,
}

impl Library {
    /// Loads and checks it. Runs code of the plugin: the constructors of its shared object, and its entry.
    ///
    /// # Errors
    /// It can't be loaded, or is not what was wanted.
    pub fn open(wanted: &Wanted) -> Result<Self, Refusal> {
        let path = wanted.absolute();
        super::inspect::inspect(&path)?;
        let table = table_of(&path, entry_of(&path)?)?;
        let description = describe(&path, &table)?;
        check(&path, wanted, &description)?;
        let functions = functions(&path, &table)?;
        Ok(Self {
            functions,
            description,
        })
    }

    /// The plugin's description of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }
}

fn entry_of(path: &Path) -> Result<abi::Entry, Refusal> {
    let not_loaded = |error: libloading::Error| Refusal::NotLoaded {
        path: path.to_owned(),
        // The loader's own words are the cause.
        why: error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string),
    };
    // SAFETY: loading runs the constructors of the file. That they keep to the rules of any shared object is what
    // the user that configures a plugin vouches for; the documentation says so. `RTLD_LOCAL` keeps the symbols of two plugins
    // apart, `RTLD_NOW` finds what is missing here and not in the middle of a call.
    let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(not_loaded)?;
    // SAFETY: the symbol's name is the contract of the header: a library that exports it exports a function of this type.
    let entry = unsafe { loaded.get::<abi::Entry>(ENTRY) }.map(|entry| *entry);
    // Never unloaded, so that `entry` and all it gives out stay where they are.
    let _ = loaded.into_raw();
    entry.map_err(|_| no_entry(path))
}

fn table_of(path: &Path, entry: abi::Entry) -> Result<Table, Refusal> {
    // SAFETY: by the header a function without arguments that gives the address of a table.
    let table = unsafe { entry() };
    if table.is_null() || !table.is_aligned() {
        return Err(Refusal::unfit(path, "a table of functions", "none"));
    }
    // SAFETY: the version is the first member of every table there will ever be; nothing else is read before it fits.
    let version = unsafe { (&raw const (*table).abi_version).read() };
    if version != ABI_VERSION {
        return Err(Refusal::unfit(
            path,
            format!("plugin ABI version {ABI_VERSION}"),
            format!("version {version}"),
        ));
    }
    // SAFETY: tables of this version have this member, at this place.
    let size = unsafe { (&raw const (*table).struct_size).read() };
    if size < size_of::<Table>() {
        return Err(Refusal::unfit(
            path,
            format!("a table of at least {} bytes", size_of::<Table>()),
            format!("one of {size}"),
        ));
    }
    // SAFETY: it is as large as that, and by the header lives as long as the shared object, which is never unloaded.
    Ok(unsafe { table.read() })
}

fn describe(path: &Path, table: &Table) -> Result<Description, Refusal> {
    let text = |data: *const c_char, what: &str| {
        if data.is_null() {
            return Err(Refusal::unfit(path, format!("a {what}"), "none"));
        }
        // SAFETY: by the header terminated, and lives as long as the shared object.
        let text = unsafe { CStr::from_ptr(data) };
        let found = || format!("{text:?}, which is not UTF-8");
        text.to_str()
            .map(str::to_owned)
            .map_err(|_| Refusal::unfit(path, format!("a {what}"), found()))
    };
    Ok(Description {
        name: text(table.name, "name")?,
        version: text(table.version, "version")?,
        takes: Takes(table.takes).known(),
    })
}

/// Whether it is what was wanted.
fn check(path: &Path, wanted: &Wanted, found: &Description) -> Result<(), Refusal> {
    if !Wanted::is_name(&found.name) {
        let name = format!("{:?}", found.name);
        return Err(Refusal::unfit(
            path,
            "a name of letters, digits, `_` and `-`",
            name,
        ));
    }
    if let Some(name) = wanted.name.as_ref().filter(|name| **name != found.name) {
        return Err(Refusal::unfit(
            path,
            format!("the plugin `{name}`"),
            format!("the plugin `{}`", found.name),
        ));
    }
    let Ok(version) = Version::parse(&found.version) else {
        let version = format!("{:?}", found.version);
        return Err(Refusal::unfit(path, "a version such as 1.0.0", version));
    };
    if let Some(required) = wanted
        .version
        .as_ref()
        .filter(|required| !required.matches(&version))
    {
        return Err(Refusal::unfit(
            path,
            format!("version {required} of the plugin `{}`", found.name),
            format!("version {version}"),
        ));
    }
    if found.takes == Takes(0) {
        return Err(Refusal::unfit(
            path,
            "a plugin that takes something",
            "one that takes nothing",
        ));
    }
    Ok(())
}

fn functions(path: &Path, table: &Table) -> Result<Functions, Refusal> {
    let missing = |name: &str| Refusal::unfit(path, format!("a function `{name}`"), "none");
    Ok(Functions {
        create: table.create.ok_or_else(|| missing("create"))?,
        export: table.export_batch.ok_or_else(|| missing("export_batch"))?,
        flush: table.flush,
        destroy: table.destroy.ok_or_else(|| missing("destroy"))?,
    })
}
