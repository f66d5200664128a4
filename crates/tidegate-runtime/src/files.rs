// SPDX-License-Identifier: Apache-2.0

//! Opens files that others may write or replace: passwords, tokens, keys, certificates, targets and stored data.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The largest file of secrets, in bytes.
const MAX_SECRET_BYTES: usize = 1 << 20;

/// The text of a file of secrets.
///
/// # Errors
/// See [`read`]; or the text is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path, MAX_SECRET_BYTES)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

/// The bytes of a file, `most` of them.
///
/// # Errors
/// The file can't be read, has more bytes, or is not a regular file: opening a named pipe would block until a writer comes.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let why = format!("larger than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Opens a file to be read.
///
/// # Errors
/// See [`open_as`].
pub fn open(path: &Path) -> io::Result<File> {
    open_as(OpenOptions::new().read(true), path)
}

/// Opens a file as the options say.
///
/// # Errors
/// The file can't be opened, or is not a regular file. A named pipe is refused at once.
pub fn open_as(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Whether a path names a file that the process got open from its parent, such as `/dev/stdout`.
pub fn is_inherited(path: &Path) -> bool {
    let is_descriptor = |path: &Path| path.starts_with("/proc/self/fd") || path.starts_with("/dev/fd");
    is_descriptor(path) || std::fs::read_link(path).is_ok_and(|target| is_descriptor(&target))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_a_folder_and_a_device_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&*pipe, directory.path(), Path::new("/dev/zero")] {
            let refused = read(path, 100).unwrap_err();
            assert_eq!(refused.to_string(), "not a regular file", "{}", path.display());
        }
        // No reader is there: the system itself refuses a writer.
        assert!(open_as(OpenOptions::new().write(true), &pipe).is_err());
    }

    #[test]
    fn only_descriptors_and_links_to_them_are_inherited() {
        let directory = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink("/dev/fd/1", &link).unwrap();
        for path in [&*link, Path::new("/dev/fd/2"), Path::new("/proc/self/fd/0")] {
            assert!(is_inherited(path), "{}", path.display());
        }
        assert!(!is_inherited(&file) && !is_inherited(Path::new("/dev/null")));
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_also_behind_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        std::fs::write(&file, "12345").unwrap();
        // Kubernetes mounts secrets as links.
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 5).unwrap(), b"12345");
        assert_eq!(read_text(&link).unwrap(), "12345");
        let refused = read(&file, 4).unwrap_err();
        assert_eq!(refused.to_string(), "larger than 4 bytes");
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file).unwrap_err().to_string(), "not UTF-8");
    }
}
