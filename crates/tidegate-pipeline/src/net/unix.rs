// SPDX-License-Identifier: Apache-2.0

//! Socket files: mode, owner, stale files of earlier processes, and the identity of peers.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::listener::ListenError;
use super::stream::Credentials;
use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

tidegate_config::options! {
    /// Permissions of a socket file.
    pub struct SocketFileConfig {
        /// Permission bits. A client needs the write bit to connect and to send.
        pub mode: FileMode = FileMode(0o660),
        /// Owner as `user`, `user:group` or `:group`, by name or number. Unset: the user that runs the gateway.
        pub owner: Option<Owner> = None,
        /// Users whose processes may connect if `mode` lets them. This list and `allowed_gids` empty: all users.
        pub allowed_uids: Vec<u32> = Vec::new(),
        /// Groups whose processes may connect if `mode` lets them, in addition to the users in `allowed_uids`.
        pub allowed_gids: Vec<u32> = Vec::new(),
    }
}

impl SocketFileConfig {
    /// Whether the process may connect. If there are restrictions, a process that the kernel does not identify may
    /// not.
    pub fn allows(&self, peer: Option<Credentials>) -> bool {
        if self.allowed_uids.is_empty() && self.allowed_gids.is_empty() {
            return true;
        }
        peer.is_some_and(|peer| {
            self.allowed_uids.contains(&peer.uid) || self.allowed_gids.contains(&peer.gid)
        })
    }
}

/// Permission bits of a file, written in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Decode for FileMode {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let text = node.scalar().map(|scalar| scalar.text.trim_start_matches("0o"));
        let mode = text.and_then(|text| u32::from_str_radix(text, 8).ok());
        match mode.filter(|mode| *mode <= 0o777) {
            Some(mode) => Some(Self(mode)),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("file mode in octal", "\"0660\"").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        format!("\"{:04o}\"", self.0)
    }
}

/// The owner of a file: names or numbers, resolved when the file is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    user: Option<String>,
    group: Option<String>,
}

impl FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let part = |part: &str| (!part.is_empty()).then(|| part.to_owned());
        let owner = Self {
            user: part(user),
            group: part(group),
        };
        let sound = !group.contains(':') && (owner.user.is_some() || owner.group.is_some());
        sound.then_some(owner).ok_or(())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.user.as_deref().unwrap_or_default())?;
        match &self.group {
            Some(group) => write!(f, ":{group}"),
            None => Ok(()),
        }
    }
}

impl Decode for Owner {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let text = node.scalar().map(|scalar| scalar.text.as_str());
        match text.and_then(|text| text.parse().ok()) {
            Some(owner) => Some(owner),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("owner", "tidegate:metrics or 1000:1000").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Owner {
    fn apply(&self, path: &Path) -> io::Result<()> {
        let user = self.user.as_deref().map(|name| id_of("/etc/passwd", name));
        let group = self.group.as_deref().map(|name| id_of("/etc/group", name));
        std::os::unix::fs::chown(path, user.transpose()?, group.transpose()?)
    }
}

/// The number of a user or group: given as a number, or the third field of the line that begins with its name.
fn id_of(table: &str, name: &str) -> io::Result<u32> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let unknown = || io::Error::other(format!("{name:?} is not in {table}"));
    std::fs::read_to_string(table)?
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
        .ok_or_else(unknown)
}

/// A socket file of this process. The drop removes it, if it still belongs to this process.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Creates the socket file: binds a private name, sets mode and owner, then renames it to `path`. So no client
    /// can connect before the permissions are right.
    ///
    /// A socket without a listener is replaced.
    ///
    /// # Errors
    /// `InUse`: another process listens on the socket. `NotASocket`: another kind of file has the path.
    /// `SocketFile`: `bind` fails, or the mode, the owner or the name can't be set.
    pub fn create<T>(
        path: &Path,
        config: &SocketFileConfig,
        socket_type: SocketType,
        bind: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<(T, Self), ListenError> {
        let fail = |action, source| ListenError::SocketFile {
            path: path.to_owned(),
            action,
            source,
        };
        check_vacant(path, socket_type)?;
        let temporary = temporary_name(path);
        let socket = bind(&temporary).map_err(|error| fail("bind", error))?;
        let placed = Self::dress(&temporary, path, config, &fail);
        if placed.is_err() {
            // Report the first error.
            let _ = std::fs::remove_file(&temporary);
        }
        Ok((socket, placed?))
    }

    fn dress(
        temporary: &Path,
        path: &Path,
        config: &SocketFileConfig,
        fail: &impl Fn(&'static str, io::Error) -> ListenError,
    ) -> Result<Self, ListenError> {
        if let Some(owner) = &config.owner {
            owner
                .apply(temporary)
                .map_err(|error| fail("set the owner of", error))?;
        }
        std::fs::set_permissions(temporary, std::fs::Permissions::from_mode(config.mode.0))
            .map_err(|error| fail("set the mode of", error))?;
        let identity = identity(temporary).map_err(|error| fail("look at", error))?;
        std::fs::rename(temporary, path).map_err(|error| fail("rename", error))?;
        Ok(Self {
            path: path.to_owned(),
            identity,
        })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // Another process may have removed it at this moment, which is fine.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A short name, because the path of a socket is limited to 107 bytes.
fn temporary_name(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{:08x}", rand::random::<u32>()))
}

/// Checks that a socket file can take the path. It may replace a socket without a listener.
///
/// # Errors
/// `InUse`: a process listens on the socket. `NotASocket`: another kind of file has the path.
pub fn check_vacant(path: &Path, socket_type: SocketType) -> Result<(), ListenError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    if is_live(path, socket_type) {
        Err(ListenError::InUse(path.to_owned()))
    } else {
        Ok(())
    }
}

/// Whether a process holds the socket. The kernel refuses connections to a socket file without a process.
fn is_live(path: &Path, socket_type: SocketType) -> bool {
    let probe = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, socket_type, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    !matches!(
        probe(),
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT)
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    fn bind(path: &Path, config: &SocketFileConfig) -> Result<(UnixListener, SocketFile), ListenError> {
        SocketFile::create(path, config, SocketType::STREAM, |path| UnixListener::bind(path))
    }

    #[test]
    fn a_socket_gets_its_mode_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let config = SocketFileConfig {
            mode: FileMode(0o622),
            owner: Some(format!("{}", rustix::process::getuid().as_raw()).parse().unwrap()),
            ..SocketFileConfig::default()
        };
        let (_listener, file) = bind(&path, &config).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o622);
        drop(file);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing stays behind"
        );
    }

    #[test]
    fn a_process_needs_an_allowed_user_or_an_allowed_group() {
        let peer = Credentials {
            pid: None,
            uid: 1,
            gid: 2,
        };
        let allows = |uids: &[u32], gids: &[u32], peer| {
            let config = SocketFileConfig {
                allowed_uids: uids.to_vec(),
                allowed_gids: gids.to_vec(),
                ..SocketFileConfig::default()
            };
            config.allows(peer)
        };
        let table: [(&[u32], &[u32], bool); 5] = [
            (&[], &[], true),
            (&[1], &[], true),
            (&[], &[2], true),
            (&[9], &[8, 2], true),
            (&[2], &[1], false),
        ];
        for (uids, gids, expected) in table {
            assert_eq!(allows(uids, gids, Some(peer)), expected, "{uids:?} {gids:?}");
        }
        assert!(!allows(&[], &[2], None), "the kernel does not identify it");
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, _file) = bind(&path, &SocketFileConfig::default()).unwrap();
        let second = bind(&path, &SocketFileConfig::default());
        assert!(matches!(second, Err(ListenError::InUse(_))));
    }

    #[test]
    fn a_stale_datagram_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        let place = || {
            SocketFile::create(&path, &SocketFileConfig::default(), SocketType::DGRAM, |path| {
                UnixDatagram::bind(path)
            })
        };
        drop(UnixDatagram::bind(&path).unwrap());
        let _kept = place().unwrap();
        assert!(matches!(place(), Err(ListenError::InUse(_))));
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        let refused = bind(&path, &SocketFileConfig::default());
        assert!(matches!(refused, Err(ListenError::NotASocket(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn a_successor_s_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let (listener, file) = bind(&path, &SocketFileConfig::default()).unwrap();
        drop(listener);
        let (_listener, _successor) = bind(&path, &SocketFileConfig::default()).unwrap();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn owners_are_named_or_numbered() {
        assert_eq!(id_of("/etc/passwd", "root").unwrap(), 0);
        assert_eq!(id_of("/etc/group", "12345").unwrap(), 12345);
        assert!(id_of("/etc/passwd", "no such user").is_err());
        assert!("".parse::<Owner>().is_err() && "a:b:c".parse::<Owner>().is_err());
        assert_eq!(":metrics".parse::<Owner>().unwrap().to_string(), ":metrics");
    }
}
