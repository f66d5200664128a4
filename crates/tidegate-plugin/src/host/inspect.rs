// SPDX-License-Identifier: Apache-2.0

//! A look into the file of a plugin, without loading it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::{Architecture, Object, ObjectKind, ObjectSymbol, ReadCache};

use super::Refusal;
use crate::abi::ENTRY;

/// The bit of a folder's mode by which users can replace only their own files, as in `/tmp`.
const STICKY: u32 = 0o1000;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const PERMISSIONS: u32 = 0o7777;

pub(super) fn inspect(path: &Path) -> Result<(), Refusal> {
    let unreadable = |error| Refusal::Unreadable {
        path: path.to_owned(),
        error,
    };
    // Before it is opened: opening a pipe would wait for a writer.
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Refusal::unfit(path, "a shared object", "no regular file"));
    }
    check(path, &metadata)?;
    let real = path.canonicalize().map_err(unreadable)?;
    // Where the file is, and where a link to it is.
    for named in [real.as_path(), path] {
        let folder = named.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize();
        check_folder(&folder.map_err(unreadable)?)?;
    }
    let cache = ReadCache::new(File::open(path).map_err(unreadable)?);
    let file = object::File::parse(&cache)
        .map_err(|error| Refusal::unfit(path, "a shared object (ELF)", format!("something else: {error}")))?;
    if file.kind() != ObjectKind::Dynamic {
        let found = format!("an ELF file of another kind ({:?})", file.kind());
        return Err(Refusal::unfit(path, "a shared object", found));
    }
    if ours().is_some_and(|ours| ours != file.architecture()) {
        let found = format!("one for {:?}", file.architecture());
        return Err(Refusal::unfit(
            path,
            format!("a shared object for {}", std::env::consts::ARCH),
            found,
        ));
    }
    let mut defined = file.dynamic_symbols().filter(object::ObjectSymbol::is_definition);
    if defined.any(|symbol| symbol.name() == Ok(ENTRY)) {
        Ok(())
    } else {
        Err(no_entry(path))
    }
}

/// Refuses a folder in which others can replace a file, or which they can replace itself.
fn check_folder(folder: &Path) -> Result<(), Refusal> {
    let metadata = |folder: &Path| {
        folder.metadata().map_err(|error| Refusal::Unreadable {
            path: folder.to_owned(),
            error,
        })
    };
    check(folder, &metadata(folder)?)?;
    // Owners are not judged further up: in a container, those of mounted folders may be unknown to it.
    for above in folder.ancestors().skip(1) {
        let mode = metadata(above)?.mode();
        if mode & STICKY == 0 {
            check_mode(above, mode)?;
        }
    }
    Ok(())
}

/// Refuses what users other than root and the gateway's can change: its code runs with the gateway's rights.
fn check(path: &Path, metadata: &Metadata) -> Result<(), Refusal> {
    let (ours, our_group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
    if owner != 0 && owner != ours {
        let found =
            format!("its owner is the user {owner}, who is neither root nor the gateway's user {ours}");
        return Err(refused(path, found, "chown root"));
    }
    if mode & WRITABLE_BY_GROUP != 0 && group != 0 && group != our_group {
        let mode = mode & PERMISSIONS;
        let found =
            format!("the group {group}, neither root's nor the gateway's, may write to it (mode {mode:o})");
        return Err(refused(path, found, "chmod g-w"));
    }
    check_mode(path, mode)
}

/// Refuses what every user may write to.
fn check_mode(path: &Path, mode: u32) -> Result<(), Refusal> {
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let found = format!("every user may write to it (mode {:o})", mode & PERMISSIONS);
    Err(refused(path, found, "chmod o-w"))
}

fn refused(path: &Path, found: String, cure: &str) -> Refusal {
    Refusal::Unsafe {
        path: path.to_owned(),
        found,
        cure: format!("{cure} {}", path.display()),
    }
}

pub(super) fn no_entry(path: &Path) -> Refusal {
    let expected = format!("an exporter plugin, which exports `{ENTRY}`");
    Refusal::unfit(path, expected, "a shared object without that symbol")
}

/// Where we don't know our own, the loader will tell.
fn ours() -> Option<Architecture> {
    match std::env::consts::ARCH {
        "x86_64" => Some(Architecture::X86_64),
        "aarch64" => Some(Architecture::Aarch64),
        _ => None,
    }
}
