// SPDX-License-Identifier: Apache-2.0

//! Directories and files that components read or write: permissions, read-only mounts, and free space.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfs};
use rustix::io::Errno;

use super::report::Report;
use super::roles::Role;
use super::sites::Site;
use crate::config::{ByteSize, Node};

/// Most files whose sizes are added up.
const MAX_FILES: usize = 20_000;

/// The default size of `/dev/shm` in a container, in bytes.
const SMALL_SHM: u64 = 64 << 20;

const READ: Access = Access::READ_OK.union(Access::EXEC_OK);
const WRITE: Access = Access::WRITE_OK.union(Access::EXEC_OK);

/// The help for cells that this user may read, but not fold.
const CHANGE_MODE_OR_KEEP: &str =
    "change the owner or the mode, or set `fold: false`; run this command as the user that runs the gateway";

/// The help for missing permissions.
const CHANGE_MODE: &str = "change the owner or the mode; run this command as the user that runs the gateway";

pub(super) fn check(sites: &[Site<'_>], report: &mut Report<'_>) {
    for site in sites {
        match site.role {
            Role::Directory => check_watched(site, false, report),
            Role::CellDirectory => {
                let folds = site.table.get("fold").and_then(Node::as_text) != Some("false");
                check_watched(site, folds, report);
            }
            Role::StorageDirectory => check_storage(site, report),
            Role::OutputFile => check_output(site, report),
            Role::File => check_file(site, report),
            Role::Files => check_files(site, report),
            _ => {}
        }
    }
}

/// Why this user has no such access, as the end of a sentence about the path.
pub(super) fn denied(path: &Path, access: Access) -> Option<String> {
    let error = rustix::fs::access(path, access).err()?;
    Some(match error {
        Errno::ROFS => "is on a file system that is mounted read-only".to_owned(),
        Errno::ACCESS | Errno::PERM => "does not permit it to this user".to_owned(),
        error => format!("is not usable: {}", io::Error::from(error)),
    })
}

/// A directory that others fill, and that may appear later. `folds`: the gateway writes to it too.
fn check_watched(site: &Site<'_>, folds: bool, report: &mut Report<'_>) {
    report.begin_check();
    let (at, shown) = (site.position(), site.shown());
    // The reader reports bad patterns.
    let Ok(found) = glob::glob(&site.text) else {
        return;
    };
    let found: Vec<PathBuf> = found.flatten().take(MAX_FILES).collect();
    if found.is_empty() {
        if let Some(reason) = why_blocked(Path::new(&site.text)) {
            return report.error(&at, format!("{shown}: {reason}"), CHANGE_MODE);
        }
        let help = "make the directory, or start the program that does";
        return report.warning(&at, format!("{shown} does not exist"), help);
    }
    for directory in found {
        if !directory.is_dir() {
            // A glob may match files too. The receiver ignores them.
            if directory == Path::new(&site.text) {
                report.error(
                    &at,
                    format!("{shown} is not a directory"),
                    "name the directory of the files",
                );
            }
            continue;
        }
        let unwritable = denied(&directory, WRITE).filter(|_| folds);
        let finding = access_finding(&name(site, &directory), denied(&directory, READ), unwritable);
        if let Some((message, help)) = finding {
            report.error(&at, message, help);
        }
        check_shm(site, &directory, report);
    }
}

/// The error about a directory and its help, from the reasons why this user may not read it, or not write to it to fold.
fn access_finding(
    shown: &str,
    unreadable: Option<String>,
    unwritable: Option<String>,
) -> Option<(String, &'static str)> {
    if let Some(reason) = unreadable {
        return Some((format!("the directory {shown} {reason}"), CHANGE_MODE));
    }
    let reason = unwritable?;
    let message = format!("the directory {shown} {reason}: `fold` needs to write to it");
    Some((message, CHANGE_MODE_OR_KEEP))
}

/// Why a missing path can't appear or be read: a part of it is a file, or is closed to this user.
fn why_blocked(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Some(error.to_string()),
        _ => None,
    }
}

/// The name of a file for a message, if the option may be shown.
fn name(site: &Site<'_>, path: &Path) -> String {
    if site.shown().starts_with('"') {
        format!("\"{}\"", path.display())
    } else {
        site.shown()
    }
}

fn check_storage(site: &Site<'_>, report: &mut Report<'_>) {
    report.begin_check();
    let (at, shown, path) = (site.position(), site.shown(), Path::new(&site.text));
    let creates = site.table.get("create_directory").and_then(Node::as_text) == Some("true");
    if path.exists() {
        if !path.is_dir() {
            let message = format!("{shown} is not a directory");
            return report.error(&at, message, "move the file away or name another directory");
        }
        if let Some(reason) = denied(path, READ | WRITE) {
            let message = format!("the directory {shown} {reason}");
            return report.error(&at, message, CHANGE_MODE);
        }
    } else if let Some(reason) = why_blocked(path) {
        return report.error(&at, format!("{shown}: {reason}"), CHANGE_MODE);
    } else if !creates {
        let help = "make the directory, or set `create_directory: true`";
        return report.error(&at, format!("the directory {shown} does not exist"), help);
    } else if let Some(reason) = existing(path).and_then(|above| denied(above, WRITE)) {
        let message = format!("can't make the directory {shown}: the directory above it {reason}");
        return report.error(&at, message, CHANGE_MODE);
    }
    check_space(site, path, report);
}

/// The nearest directory above a path that exists.
fn existing(path: &Path) -> Option<&Path> {
    path.ancestors()
        .map(|above| {
            if above.as_os_str().is_empty() {
                Path::new(".")
            } else {
                above
            }
        })
        .find(|above| above.exists())
}

/// Compares the free space with the limit of the storage.
fn check_space(site: &Site<'_>, path: &Path, report: &mut Report<'_>) {
    report.begin_check();
    let limit = site.table.get("max_size").and_then(Node::as_text);
    // The default of `file_storage`.
    let limit = limit.map_or(Ok(ByteSize::mib(10 << 10)), str::parse::<ByteSize>);
    let (Ok(limit), Some(system)) = (limit, file_system(path)) else {
        return;
    };
    let missing = limit.bytes().saturating_sub(used_bytes(path));
    let free = free_bytes(&system);
    if free < missing {
        let message = format!(
            "the disk has {} MiB free, but the storage may take {} MiB more",
            free >> 20,
            missing >> 20
        );
        report.warning(
            &site.position(),
            message,
            "lower `max_size`, or use a larger disk: a full disk refuses data that the storage would accept",
        );
    }
}

fn file_system(path: &Path) -> Option<StatVfs> {
    rustix::fs::statvfs(existing(path)?).ok()
}

fn free_bytes(system: &StatVfs) -> u64 {
    system.f_bavail.saturating_mul(system.f_frsize)
}

/// The bytes of all files below a directory. It follows no links.
fn used_bytes(directory: &Path) -> u64 {
    let mut directories = vec![directory.to_owned()];
    let mut bytes = 0u64;
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            files += 1;
            if files > MAX_FILES {
                return bytes;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) => bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512)),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// A file that the gateway writes. It may be there already.
fn check_output(site: &Site<'_>, report: &mut Report<'_>) {
    report.begin_check();
    let (at, shown, path) = (site.position(), site.shown(), Path::new(&site.text));
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    if path.is_dir() {
        report.error(&at, format!("{shown} is a directory"), "name a file");
    } else if path.exists() {
        if let Some(reason) = denied(path, Access::WRITE_OK) {
            report.error(&at, format!("the file {shown} {reason}"), CHANGE_MODE);
        }
    } else if !directory.is_dir() {
        let message = format!("the directory of {shown} does not exist");
        report.error(&at, message, "make the directory first");
    } else if let Some(reason) = denied(directory, WRITE) {
        let message = format!("can't make {shown}: its directory {reason}");
        report.error(&at, message, CHANGE_MODE);
    }
    check_shm(site, directory, report);
}

/// Warns of the small `/dev/shm` that containers have by default.
fn check_shm(site: &Site<'_>, directory: &Path, report: &mut Report<'_>) {
    let system = directory.starts_with("/dev/shm").then(|| file_system(directory));
    let Some(system) = system.flatten() else {
        return;
    };
    report.begin_check();
    let total = system.f_blocks.saturating_mul(system.f_frsize);
    let free = free_bytes(&system);
    if total <= SMALL_SHM || free < SMALL_SHM / 4 {
        let message = format!("/dev/shm has {} MiB, {} MiB free", total >> 20, free >> 20);
        let help = "give it more: `--shm-size` of the container, or `sizeLimit` of the volume `emptyDir`";
        report.warning(&site.position(), message, help);
    }
}

fn check_file(site: &Site<'_>, report: &mut Report<'_>) {
    report.begin_check();
    let path = Path::new(&site.text);
    if let Err(error) = crate::component::files::open(path) {
        let message = format!("can't read the file {}: {error}", site.shown());
        report.error(&site.position(), message, "name a file that this user can read");
    }
}

fn check_files(site: &Site<'_>, report: &mut Report<'_>) {
    report.begin_check();
    let Ok(found) = glob::glob(&site.text) else {
        return;
    };
    let found: Vec<PathBuf> = found.flatten().take(MAX_FILES).collect();
    if found.is_empty() {
        let message = format!("no file matches {}", site.shown());
        report.warning(
            &site.position(),
            message,
            "write the files; the gateway waits for them",
        );
    }
    for path in found {
        if let Err(error) = crate::component::files::open(&path) {
            let message = format!("can't read the file {}: {error}", name(site, &path));
            report.error(&site.position(), message, CHANGE_MODE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sites::tests::with_sites;
    use super::*;

    /// The messages about a storage, a file and a directory of rings.
    fn messages(storage: &str, file: &str, rings: &Path) -> String {
        let text = format!(
            "
extensions: {{file_storage: {storage}}}
receivers: {{nixl: {{directories: [\"{}\"]}}}}
exporters: {{file: {{path: \"{file}\", sending_queue: {{storage: file_storage}}}}}}
service:
  extensions: [file_storage]
  pipelines: {{metrics: {{receivers: [nixl], exporters: [file]}}}}
",
            rings.display()
        );
        let mut messages = String::new();
        with_sites(&text, |sites, problems| {
            check(sites, &mut Report::new(problems));
            messages = problems.to_string();
        });
        messages
    }

    #[test]
    fn directories_that_are_there_or_can_be_made_are_fine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let storage = format!(
            "{{directory: \"{}/a/b\", create_directory: true, max_size: 64KiB, segment_size: 64KiB}}",
            path.display()
        );
        let file = path.join("out.json");
        assert_eq!(messages(&storage, file.to_str().unwrap(), path), "");
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "nothing is made");
    }

    #[test]
    fn missing_and_wrong_directories_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::write(path.join("file"), "").unwrap();
        let storage = format!("{{directory: \"{}/missing\"}}", path.display());
        let output = path.join("none/out.json");
        let said = messages(&storage, output.to_str().unwrap(), &path.join("file/rings"));
        for part in ["create_directory: true", "the directory of \"", "Not a directory"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = messages(&storage, output.to_str().unwrap(), &path.join("later"));
        assert!(
            said.contains("warning: receivers::nixl::directories[0]: "),
            "{said}"
        );
    }

    #[test]
    fn cells_that_can_not_be_folded_name_the_option() {
        let closed = || Some("does not permit it to this user".to_owned());
        let (message, help) = access_finding("\"cells\"", None, closed()).unwrap();
        assert_eq!(
            message,
            "the directory \"cells\" does not permit it to this user: `fold` needs to write to it"
        );
        assert!(help.contains("or set `fold: false`"), "{help}");
        let (message, help) = access_finding("\"cells\"", closed(), closed()).unwrap();
        assert!(
            !message.contains("fold") && help == CHANGE_MODE,
            "{message}: {help}"
        );
        assert_eq!(access_finding("\"cells\"", None, None), None);
    }

    #[test]
    fn a_storage_larger_than_the_disk_is_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let storage = format!("{{directory: \"{}\", max_size: 1000000TiB}}", path.display());
        let output = path.join("out.json");
        let said = messages(&storage, output.to_str().unwrap(), path);
        assert!(said.contains("the disk has "), "{said}");
    }

    #[test]
    fn bytes_of_all_files_below_a_directory_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(directory.path().join("a/b"), vec![1; 100_000]).unwrap();
        assert!(used_bytes(directory.path()) >= 100_000);
        assert_eq!(used_bytes(&directory.path().join("missing")), 0);
    }
}
