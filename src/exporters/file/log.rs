// SPDX-License-Identifier: Apache-2.0

//! The file: it is appended in whole pieces, rotated, and never left with a torn line.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tidegate_shm::{LockHolder, try_lock};

use super::config::{Compression, FileExporterConfig, FileFormat, Rotation};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The target of writes: a file, or in tests one that becomes full.
pub(super) trait Disk: Send {
    /// Appends all of it, or fails having appended some.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Disk for LockHolder {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file: &File = self;
        file.write_all(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// The options for opening the file. It may contain logs and traces, and its folder may belong to others.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    mode: u32,
    follow_links: bool,
}

impl Opening {
    pub(super) fn of(config: &FileExporterConfig) -> Self {
        Self {
            mode: config.mode.0,
            follow_links: config.follow_links,
        }
    }

    pub(super) fn open(self, path: &Path) -> io::Result<LockHolder> {
        // Without `NONBLOCK`, opening a named pipe blocks until it has a reader.
        let mut flags = OFlags::NONBLOCK;
        if !self.follow_links && !is_ours(path)? {
            flags |= OFlags::NOFOLLOW;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(self.mode)
            .custom_flags(flags.bits().cast_signed())
            .open(path);
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => {
                let why = "a symbolic link of another user; set `follow_links: true` to write through it";
                io::Error::other(why)
            }
            Some(Errno::NXIO) => {
                io::Error::other("a named pipe that no process reads; start its reader first")
            }
            _ => error,
        })?;
        // Writes wait for a slow reader, on the thread of this exporter alone.
        rustix::io::ioctl_fionbio(&file, false)?;
        Ok(LockHolder::new(file))
    }
}

/// Whether a path is a symbolic link of root or of our user, such as `/dev/stdout`. Users who can replace it in
/// its folder can replace any file there.
fn is_ours(path: &Path) -> io::Result<bool> {
    let link = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    let user = rustix::process::geteuid().as_raw();
    Ok(link.is_symlink() && [0, user].contains(&link.uid()))
}

/// Takes the lock of a file. Two processes that write one file would cut and rename what the other writes.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match try_lock(file) {
        Ok(false) => {
            let why = "another process writes this file: choose another path, or stop that process";
            Err(io::Error::other(why))
        }
        // Some file systems have no locks.
        Ok(true) | Err(_) => Ok(()),
    }
}

/// The device and the number of a file, which a new name does not change.
pub(super) type FileId = (u64, u64);

pub(super) fn id_of(about: &Metadata) -> FileId {
    (about.dev(), about.ino())
}

/// How the requests of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    format: FileFormat,
    compression: Compression,
}

impl Form {
    pub(super) fn of(config: &FileExporterConfig) -> Self {
        Self {
            format: config.format,
            compression: config.compression,
        }
    }
}

/// The form of what this process has written to a file. Empty: it has written nothing.
pub(super) type Written = Arc<OnceLock<Form>>;

/// An open file.
pub(super) struct Log {
    path: PathBuf,
    opening: Opening,
    header: &'static str,
    rotation: Option<Rotation>,
    disk: Box<dyn Disk>,
    /// `None`: a pipe or a device.
    id: Option<FileId>,
    form: Form,
    written: Written,
    /// Whether the first write removes what an earlier process wrote.
    truncates: bool,
    /// Bytes on disk, all of whole pieces.
    length: u64,
    /// Whether a failed write left bytes after `length`.
    torn: bool,
    begun: Instant,
}

impl Log {
    pub(super) fn new(
        config: &FileExporterConfig,
        header: &'static str,
        disk: Box<dyn Disk>,
        length: u64,
    ) -> Self {
        Self {
            path: config.path.clone(),
            header,
            opening: Opening::of(config),
            rotation: config.rotation.clone(),
            disk,
            id: None,
            form: Form::of(config),
            written: Written::default(),
            truncates: false,
            length,
            torn: false,
            begun: Instant::now(),
        }
    }

    /// A regular file, which the caller has locked. Call [`Self::go_on`] before the first write.
    pub(super) fn of_file(
        config: &FileExporterConfig,
        header: &'static str,
        file: LockHolder,
        about: &Metadata,
    ) -> Self {
        let mut log = Self::new(config, header, Box::new(file), about.len());
        log.id = Some(id_of(about));
        log
    }

    /// Whether it is this file.
    pub(super) fn is(&self, id: FileId) -> bool {
        self.id == Some(id)
    }

    pub(super) fn written(&self) -> Written {
        self.written.clone()
    }

    /// Applies the options of an exporter that writes the file from now on.
    pub(super) fn go_on(&mut self, config: &FileExporterConfig, header: &'static str, written: Written) {
        self.path.clone_from(&config.path);
        self.opening = Opening::of(config);
        self.header = header;
        self.rotation.clone_from(&config.rotation);
        self.form = Form::of(config);
        self.truncates = !config.append && written.get().is_none();
        self.written = written;
    }

    /// Removes what an earlier process wrote, and writes the header of an empty file.
    fn begin(&mut self) -> io::Result<()> {
        if self.truncates {
            self.disk.cut(0)?;
            if self.length > 0 {
                let path = self.path.display();
                tracing::info!(%path, bytes = self.length, "removed the content of an earlier run");
            }
            (self.length, self.truncates) = (0, false);
        }
        // The first form stays: other forms are refused while the file has content.
        let _ = self.written.set(self.form);
        match self.length {
            0 => self.append(self.header.as_bytes()),
            _ => Ok(()),
        }
    }

    /// Writes a piece completely or not at all. A partial write is cut off again.
    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.begin()?;
        if self.is_full(piece.len() as u64) {
            self.rotate()?;
        }
        self.append(piece)
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        if std::mem::take(&mut self.torn) {
            self.cut()?;
        }
        match self.disk.append(piece) {
            Ok(()) => {
                self.length += piece.len() as u64;
                Ok(())
            }
            Err(error) => self.cut().and(Err(error)),
        }
    }

    fn cut(&mut self) -> io::Result<()> {
        self.disk.cut(self.length).inspect_err(|_| self.torn = true)
    }

    fn is_full(&self, more: u64) -> bool {
        let Some(rotation) = &self.rotation else {
            return false;
        };
        let size = self.length + more > rotation.max_megabytes.saturating_mul(1 << 20);
        let age = rotation.max_days > 0
            && self.begun.elapsed()
                >= DAY.saturating_mul(u32::try_from(rotation.max_days).unwrap_or(u32::MAX));
        (size || age) && self.length > self.header.len() as u64
    }

    /// Renames the file by the time and begins a new one; the oldest beyond `max_backups` go.
    fn rotate(&mut self) -> io::Result<()> {
        let (stem, end) = self.name_parts();
        let now = humantime::format_rfc3339_nanos(SystemTime::now())
            .to_string()
            .replace(':', "-");
        fs::rename(&self.path, self.path.with_file_name(format!("{stem}-{now}{end}")))?;
        let file = self.opening.open(&self.path)?;
        lock(&file)?;
        self.id = Some(id_of(&file.metadata()?));
        (self.disk, self.length, self.begun) = (Box::new(file), 0, Instant::now());
        self.begin()?;
        self.remove_oldest()
    }

    fn name_parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let end = part(self.path.extension());
        (
            part(self.path.file_stem()),
            if end.is_empty() { end } else { format!(".{end}") },
        )
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let keep = self.rotation.as_ref().map_or(0, |rotation| rotation.max_backups);
        if keep == 0 {
            return Ok(());
        }
        let (stem, end) = self.name_parts();
        let directory = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let is_backup = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix(&format!("{stem}-"))
                .is_some_and(|rest| rest.starts_with('2') && rest.ends_with(&end))
        };
        let mut backups: Vec<PathBuf> = fs::read_dir(directory)?
            .flatten()
            .map(|entry| entry.path())
            .filter(is_backup)
            .collect();
        // Names end with the time, so their order is that of age.
        backups.sort();
        let surplus = backups.len().saturating_sub(keep);
        backups.iter().take(surplus).try_for_each(fs::remove_file)
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Files;
    use super::*;
    use crate::component::testing::options;

    /// The options of a file in a directory that is rotated after two days.
    fn rotated_in(directory: &Path) -> FileExporterConfig {
        let path = directory.join("out.txt");
        let yaml = format!("{{path: {}, rotation: {{max_days: 2}}}}", path.display());
        options::<FileExporterConfig>(&yaml).unwrap()
    }

    #[test]
    fn files_are_free_while_copies_of_their_descriptors_are_open() {
        let directory = tempfile::tempdir().unwrap();
        let config = rotated_in(directory.path());
        let open = || Opening::of(&config).open(&config.path).unwrap();
        // The copies are as in a child that has not executed its program yet.
        let log = || {
            let (file, other) = (open(), open());
            lock(&file).unwrap();
            let (copy, about) = (file.try_clone().unwrap(), file.metadata().unwrap());
            assert!(lock(&other).is_err());
            (Log::of_file(&config, "", file, &about), other, copy)
        };
        let (closed, other, _copy) = log();
        drop(closed);
        lock(&other).unwrap();
        drop(other);

        let (mut rotated, other, _copy) = log();
        rotated.write(b"x").unwrap();
        rotated.begun = Instant::now().checked_sub(DAY * 2).unwrap();
        rotated.write(b"x").unwrap();
        lock(&other).unwrap();
        assert!(lock(&open()).is_err(), "the new file is locked");
    }

    #[test]
    fn a_file_is_rotated_when_it_has_its_age_in_days() {
        let directory = tempfile::tempdir().unwrap();
        let config = rotated_in(directory.path());
        let log = Files::default().open(&config, "").unwrap();
        let mut log = log.lock();
        log.write(b"x").unwrap();
        for (days, files) in [(1, 1), (2, 2)] {
            log.begun = Instant::now().checked_sub(DAY * days).unwrap();
            log.write(b"x").unwrap();
            let found = fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(found, files, "after {days} days");
        }
        assert!(log.begun.elapsed() < DAY, "the age of the new file begins at 0");
    }
}
