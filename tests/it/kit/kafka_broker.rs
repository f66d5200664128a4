// SPDX-License-Identifier: Apache-2.0

//! A real Kafka broker, which is also its own controller.

use super::process::Process;
use super::{free_port, wait_until};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The directory in the user's cache. `xtask/src/kafka.rs` has the same name.
const NAME: &str = "kafka-4.3.1";

/// The partitions of a topic that a client creates without a number.
pub(crate) const PARTITIONS: i32 = 4;

/// How long a broker may take to start on a busy machine.
const START: Duration = Duration::from_mins(3);

/// A broker that keeps its port and its data over restarts.
pub(crate) struct KafkaBroker {
    port: u16,
    directory: TempDir,
    process: Option<Process>,
}

impl KafkaBroker {
    pub(crate) fn start() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let [port, controller] = [free_port(), free_port()];
        let settings = format!(
            "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={}
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.cleaner.dedupe.buffer.size=4194304
num.partitions={PARTITIONS}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
",
            directory.path().join("data").display()
        );
        fs::write(directory.path().join("server.properties"), settings).expect("a file in a fresh directory");
        let mut broker = Self {
            port,
            directory,
            process: None,
        };
        let mut format = broker.java("kafka.tools.StorageTool");
        format.args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"]);
        let formatted = format.arg(broker.settings()).output();
        let formatted = formatted.expect("`java` is there: `cargo xtask setup` installs it");
        assert!(formatted.status.success(), "{formatted:?}");
        broker.restart();
        broker
    }

    /// Starts it after [`Self::kill`], and waits until it says that it runs.
    pub(crate) fn restart(&mut self) {
        let mut command = self.java("kafka.Kafka");
        let process = Process::start("kafka", command.arg(self.settings()));
        wait_until(START, "the broker says that it has started", || {
            process.stderr.find("Kafka Server started").is_some()
        });
        self.process = Some(process);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn settings(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }

    fn java(&self, class: &str) -> Command {
        let jars = cache().join(NAME).join("jars");
        assert!(
            jars.is_dir(),
            "{} is missing: run `cargo xtask setup`",
            jars.display()
        );
        let mut java = Command::new("java");
        java.current_dir(self.directory.path());
        java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(jars.join("*"))
            .arg(class);
        java
    }
}

/// The programs that outlive the checkout.
fn cache() -> PathBuf {
    let of_user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let at_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = of_user.filter(|place| place.is_absolute()).or_else(at_home);
    cache.expect("a home").join("tidegate")
}
