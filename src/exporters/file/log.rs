// SPDX-License-Identifier: Apache-2.0

//! The file: it is appended in whole pieces, rotated, and never left with a torn line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::config::{FileExporterConfig, Rotation};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The target of writes: a file, or in tests one that becomes full.
pub(super) trait Disk: Send {
    /// Appends all of it, or fails having appended some.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Disk for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
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

    pub(super) fn open(self, path: &Path) -> io::Result<File> {
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
        Ok(file)
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

/// An open file.
pub(super) struct Log {
    path: PathBuf,
    opening: Opening,
    header: &'static str,
    rotation: Option<Rotation>,
    disk: Box<dyn Disk>,
    /// Bytes on disk, all of whole pieces.
    length: u64,
    /// Whether a failed write left bytes after `length`.
    torn: bool,
    begun: Instant,
}

impl Log {
    pub(super) fn open(config: &FileExporterConfig, header: &'static str) -> io::Result<Self> {
        let opening = Opening::of(config);
        let file = opening.open(&config.path)?;
        if !config.append && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let length = file.metadata()?.len();
        let mut log = Self::new(config, header, Box::new(file), length);
        log.begin()?;
        Ok(log)
    }

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
            length,
            torn: false,
            begun: Instant::now(),
        }
    }

    /// The header of a file that is empty.
    fn begin(&mut self) -> io::Result<()> {
        match self.length {
            0 => self.append(self.header.as_bytes()),
            _ => Ok(()),
        }
    }

    /// Writes a piece completely or not at all. A partial write is cut off again.
    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
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
    use super::*;
    use crate::component::testing::options;

    #[test]
    fn a_file_is_rotated_when_it_has_its_age_in_days() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.txt");
        let yaml = format!("{{path: {}, rotation: {{max_days: 2}}}}", path.display());
        let mut log = Log::open(&options::<FileExporterConfig>(&yaml).unwrap(), "").unwrap();
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
