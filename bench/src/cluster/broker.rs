// SPDX-License-Identifier: Apache-2.0

//! A real broker, which keeps its ports and its data over restarts. NATS may have several.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::member::Member;
use super::namespaces::Disk;
use super::options::Options;
use super::{kafka, nats};
use crate::BenchError;
use crate::gateway::free_port;

/// The longest time of a start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// Between two checks of a start.
const PAUSE: Duration = Duration::from_millis(20);

/// The writes of [`write_time`], and the bytes of each.
const WRITES: usize = 50;
const PAGE_BYTES: usize = 4096;

/// The bytes of a disk of its own without agents, and for each of them: those of a run of some minutes.
const DISK_BYTES: usize = 512 << 20;
const AGENT_DISK_BYTES: usize = 512 << 10;

/// The program.
enum Program {
    Nats(PathBuf),
    /// The directory of the jars.
    Kafka(PathBuf),
}

/// The server.
pub(super) struct Broker {
    pub(super) member: Member,
    program: Program,
    /// Where agents connect to.
    pub(super) port: u16,
    data: TempDir,
    /// The file system of its data, if it is its own.
    disk: Option<Disk>,
    /// Whether this is full. The server may end then, or refuse all writes until it starts again.
    is_full: bool,
    /// When it started, until it is ready.
    starts_since: Option<Instant>,
}

/// A directory for data, and its disk if the run has namespaces.
fn data_directory(
    logs: &Path,
    agents: usize,
    options: &Options,
) -> Result<(TempDir, Option<Disk>), BenchError> {
    let data = TempDir::new_in(logs)?;
    let bytes = DISK_BYTES + agents * options.gpus * AGENT_DISK_BYTES;
    let disk = options.namespaces.then(|| Disk::mount(data.path(), bytes));
    Ok((data, disk.transpose()?))
}

impl Broker {
    /// NATS servers that are not started.
    pub(super) fn nats(
        binary: &Path,
        agents: usize,
        options: &Options,
        logs: &Path,
    ) -> Result<Vec<Self>, BenchError> {
        let servers = options.servers;
        let routes = (0..servers).map(|_| free_port());
        let routes = routes.collect::<Result<Vec<_>, BenchError>>()?;
        let server = |number| {
            let (port, (data, disk)) = (free_port()?, data_directory(logs, agents, options)?);
            // Only the disk limits a server that has one.
            let store_bytes = match disk {
                Some(_) => usize::MAX >> 1,
                None => nats::store_bytes(agents * options.gpus),
            };
            nats::configure(data.path(), port, (number, &routes), store_bytes, options.syncs)?;
            let name = match servers {
                1 => "nats-server".to_owned(),
                _ => format!("nats-server-{number}"),
            };
            Ok(Self {
                member: Member::new(name, logs),
                program: Program::Nats(binary.to_owned()),
                port,
                data,
                disk,
                is_full: false,
                starts_since: None,
            })
        };
        (0..servers).map(server).collect()
    }

    /// A Kafka broker that is not started, and where the proxy of each replica forwards to. A client connects to the address
    /// that the broker names, so each replica has a listener of its own, whose address is that of its proxy.
    pub(super) fn kafka(
        jars: &Path,
        proxies: &[u16],
        agents: usize,
        options: &Options,
        logs: &Path,
    ) -> Result<(Self, Vec<u16>), BenchError> {
        let (port, controller) = (free_port()?, free_port()?);
        let (data, disk) = data_directory(logs, agents, options)?;
        let upstreams = proxies.iter().map(|_| free_port());
        let upstreams = upstreams.collect::<Result<Vec<_>, BenchError>>()?;
        kafka::configure(jars, data.path(), [port, controller], &upstreams, proxies)?;
        let broker = Self {
            member: Member::new("kafka".to_owned(), logs),
            program: Program::Kafka(jars.to_owned()),
            port,
            data,
            disk,
            is_full: false,
            starts_since: None,
        };
        Ok((broker, upstreams))
    }

    /// The compressed bytes of all records since the start. `None`: the server compresses nothing, agents do.
    pub(super) fn stored_bytes(&self) -> Option<u64> {
        match self.program {
            Program::Nats(_) => None,
            // A file that goes in this moment has a successor.
            Program::Kafka(_) => kafka::stored_bytes(self.data.path()).ok(),
        }
    }

    /// Starts it.
    pub(super) fn start(&mut self) -> Result<(), BenchError> {
        let command = match &self.program {
            Program::Nats(binary) => {
                let mut command = Command::new(binary);
                command.arg("--config").arg(nats::config(self.data.path()));
                command
            }
            Program::Kafka(jars) => kafka::server(jars, self.data.path()),
        };
        self.member.start(|_| Ok(command))?;
        self.starts_since = Some(Instant::now());
        Ok(())
    }

    /// Waits until it is ready.
    pub(super) fn wait(&mut self) -> Result<(), BenchError> {
        while !self.is_ready() {
            std::thread::sleep(PAUSE);
            self.look()?;
        }
        Ok(())
    }

    /// Whether it has become ready since the last look.
    pub(super) fn look(&mut self) -> Result<bool, BenchError> {
        let Some(since) = self.starts_since else {
            return Ok(false);
        };
        let is_ready = match self.program {
            Program::Nats(_) => nats::greets(self.port),
            Program::Kafka(_) => self.member.printed().contains("Kafka Server started"),
        };
        if is_ready {
            self.starts_since = None;
        } else if since.elapsed() > PATIENCE {
            return Err(format!("{} did not start in time", self.member.name).into());
        }
        Ok(is_ready)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.member.runs() && self.starts_since.is_none()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.member.kill();
        self.starts_since = None;
    }

    /// Fills its disk, or its store without one.
    pub(super) fn fill(&mut self) -> Result<(), BenchError> {
        match &self.disk {
            Some(disk) => disk.fill()?,
            None => nats::fill(self.port)?,
        }
        self.is_full = true;
        Ok(())
    }

    /// Removes what filled it. After a full disk, it starts again: until then, a NATS server refuses all writes, and a Kafka broker
    /// has ended.
    pub(super) fn empty(&mut self) -> Result<(), BenchError> {
        if let Some(disk) = &self.disk {
            disk.empty()?;
            self.kill();
            self.start()?;
        } else {
            nats::empty(self.port)?;
        }
        self.is_full = false;
        Ok(())
    }

    /// Notes that it has ended because its disk is full.
    pub(super) fn note_end_by_its_disk(&mut self) -> Result<(), BenchError> {
        if self.is_full && self.disk.is_some() && self.member.has_ended()? {
            self.kill();
        }
        Ok(())
    }

    /// Copies its files of one moment.
    pub(super) fn keep_state(&mut self) -> Result<TempDir, BenchError> {
        let copy = TempDir::new()?;
        self.member.pause(true)?;
        let copied = copy_directory(&nats::files(self.data.path()), copy.path());
        self.member.pause(false)?;
        copied?;
        Ok(copy)
    }

    /// Kills it, and starts it with earlier files.
    pub(super) fn put_back(&mut self, earlier: &Path) -> Result<(), BenchError> {
        self.kill();
        let files = nats::files(self.data.path());
        std::fs::remove_dir_all(&files)?;
        copy_directory(earlier, &files)?;
        self.start()
    }
}

/// The median time of a write of a page to the disk of this directory. It limits a server that syncs.
pub(super) fn write_time(directory: &Path) -> Result<Duration, BenchError> {
    let mut file = tempfile::tempfile_in(directory)?;
    let mut times = Vec::new();
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&[0; PAGE_BYTES])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[WRITES / 2])
}

/// Copies a directory with all that is in it.
fn copy_directory(from: &Path, to: &Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_directory(&source, &target)?;
        } else {
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_to_the_disk_takes_time() {
        let directory = TempDir::new().unwrap();
        assert!(write_time(directory.path()).unwrap() > Duration::ZERO);
        assert!(write_time(&directory.path().join("none")).is_err());
    }

    #[test]
    fn a_copy_of_a_directory_has_its_folders_and_files() {
        let directories = [(); 2].map(|()| TempDir::new().unwrap());
        let [from, to] = directories.each_ref().map(TempDir::path);
        std::fs::create_dir(from.join("folder")).unwrap();
        std::fs::write(from.join("folder/file"), "text").unwrap();
        copy_directory(from, to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("folder/file")).unwrap(), "text");
    }
}
