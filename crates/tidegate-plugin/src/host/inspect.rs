//! A look into the file of a plugin, without loading it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::{Architecture, Object, ObjectKind, ObjectSymbol, ReadCache};

use super::Refusal;
use crate::abi::ENTRY;

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
    check_owner(path, &metadata)?;
    let folder = path.canonicalize().map_err(unreadable)?;
    if let Some(folder) = folder.parent() {
        check_owner(folder, &folder.metadata().map_err(unreadable)?)?;
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
    let mut defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    match defined.any(|symbol| symbol.name() == Ok(ENTRY)) {
        true => Ok(()),
        false => Err(no_entry(path)),
    }
}

/// Refuses what users other than root and the gateway's can change: its code runs with the gateway's rights.
fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), Refusal> {
    const WRITABLE_BY_OTHERS: u32 = 0o002;
    let ours = rustix::process::geteuid().as_raw();
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    let refused = |found: String, cure: &str| Refusal::Unsafe {
        path: path.to_owned(),
        found,
        cure: format!("{cure} {}", path.display()),
    };
    if owner != 0 && owner != ours {
        let found =
            format!("its owner is the user {owner}, who is neither root nor the gateway's user {ours}");
        return Err(refused(found, "chown root"));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(
            format!("every user may write to it (mode {mode:o})"),
            "chmod o-w",
        ));
    }
    Ok(())
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
