// SPDX-License-Identifier: Apache-2.0

//! A Kafka broker, which is also its own controller.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BenchError;

/// The id of its files.
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// The names of the clusters' topics begin with this.
const TOPICS: &str = "tidegate.";

/// Writes its settings and prepares its files. Each replica has a listener, which the broker announces as its proxy.
pub(super) fn configure(
    jars: &Path,
    data: &Path,
    [port, controller]: [u16; 2],
    upstreams: &[u16],
    proxies: &[u16],
) -> Result<(), BenchError> {
    let files = data.join("data");
    let text = properties(&files, [port, controller], upstreams, proxies)?;
    std::fs::write(settings(data), text)?;
    let mut format = java(jars, data);
    let formatted = format
        .args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"])
        .arg(settings(data))
        .output()?;
    if formatted.status.success() {
        Ok(())
    } else {
        let printed = String::from_utf8_lossy(&formatted.stderr).into_owned();
        Err(format!("Kafka's StorageTool: {}: {printed}", formatted.status).into())
    }
}

/// The command that runs it.
pub(super) fn server(jars: &Path, data: &Path) -> Command {
    let mut command = java(jars, data);
    command.arg("kafka.Kafka").arg(settings(data));
    command
}

/// The compressed bytes of all records of the cluster since the start. The cleaner keeps segments that are as young as a
/// run.
pub(super) fn stored_bytes(data: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for partition in std::fs::read_dir(data.join("data"))? {
        let partition = partition?;
        if !partition.file_name().to_string_lossy().starts_with(TOPICS) {
            continue;
        }
        for file in std::fs::read_dir(partition.path())? {
            let file = file?;
            if file
                .path()
                .extension()
                .is_some_and(|extension| extension == "log")
            {
                bytes += file.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}

fn settings(data: &Path) -> PathBuf {
    data.join("server.properties")
}

fn java(jars: &Path, data: &Path) -> Command {
    let mut java = Command::new("java");
    java.current_dir(data)
        .args(["-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(jars.join("*"));
    java
}

fn properties(
    files: &Path,
    [port, controller]: [u16; 2],
    upstreams: &[u16],
    proxies: &[u16],
) -> Result<String, BenchError> {
    let mut listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}");
    let mut advertised = format!("PLAINTEXT://127.0.0.1:{port}");
    let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
    for (number, (upstream, proxy)) in upstreams.iter().zip(proxies).enumerate() {
        write!(listeners, ",REPLICA{number}://127.0.0.1:{upstream}")?;
        write!(advertised, ",REPLICA{number}://127.0.0.1:{proxy}")?;
        write!(protocols, ",REPLICA{number}:PLAINTEXT")?;
    }
    Ok(format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map={protocols}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={}
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.cleaner.dedupe.buffer.size=4194304
",
        files.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_segments_of_the_cluster_are_counted() {
        let data = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("tidegate.c-0/00.log", 5),
            ("tidegate.c-1/00.log", 7),
            ("tidegate.c-1/00.index", 100),
            ("__transaction_state-0/00.log", 100),
        ] {
            let path = data.path().join("data").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; bytes]).unwrap();
        }
        assert_eq!(stored_bytes(data.path()).unwrap(), 12);
    }

    #[test]
    fn each_replica_has_a_listener_with_the_address_of_its_proxy() {
        let text = properties(Path::new("/data"), [1, 2], &[3, 4], &[5, 6]).unwrap();
        assert!(text.contains("REPLICA1://127.0.0.1:4\n"), "{text}");
        assert!(
            text.contains(
                "advertised.listeners=PLAINTEXT://127.0.0.1:1,REPLICA0://127.0.0.1:5,REPLICA1://127.0.0.1:6\n"
            ),
            "{text}"
        );
    }
}
