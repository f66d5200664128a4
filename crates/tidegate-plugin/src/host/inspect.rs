//! A look into the file of a plugin, without loading it.

use std::fs::File;
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
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(Refusal::unfit(path, "a shared object", "no regular file"));
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
