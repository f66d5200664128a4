// SPDX-License-Identifier: Apache-2.0

//! A real Kafka broker, which is also its own controller.

use super::process::Process;
use super::{Authority, free_port, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The directory in the user's cache. `xtask/src/kafka.rs` has the same name.
const NAME: &str = "kafka-4.3.1";

/// The partitions of a topic that a client creates without a number.
pub(crate) const PARTITIONS: i32 = 4;

/// The file with the authority, in the directory of the broker.
const AUTHORITY: &str = "ca.pem";

/// How long a broker may take to start on a busy machine.
const START: Duration = Duration::from_mins(3);

/// The user of the listener with TLS and SCRAM.
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "alice-secret";

/// A broker that keeps its port and its data over restarts.
pub(crate) struct KafkaBroker {
    port: u16,
    secure_port: Option<u16>,
    directory: TempDir,
    process: Option<Process>,
}

impl KafkaBroker {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// A broker that has [`Self::secure_address`] too, a listener with TLS and SCRAM.
    pub(crate) fn start_secure() -> Self {
        Self::start_with(Some(free_port()))
    }

    fn start_with(secure_port: Option<u16>) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let [port, controller] = [free_port(), free_port()];
        let secure =
            |host: &str| secure_port.map_or_else(String::new, |port| format!(",SECURE://{host}:{port}"));
        let security = secure_port.map_or_else(String::new, |_| secure_settings(directory.path()));
        let settings = format!(
            "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{}
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
{security}",
            secure("127.0.0.1"),
            secure("localhost"),
            directory.path().join("data").display()
        );
        fs::write(directory.path().join("server.properties"), settings).expect("a file in a fresh directory");
        let mut broker = Self {
            port,
            secure_port,
            directory,
            process: None,
        };
        let mut format = broker.java("kafka.tools.StorageTool");
        format.args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"]);
        format.arg(broker.settings());
        if secure_port.is_some() {
            let user = format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]");
            format.args(["--add-scram", &user]);
        }
        let formatted = format.output();
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

    /// The listener with TLS and SCRAM.
    pub(crate) fn secure_address(&self) -> String {
        format!("localhost:{}", self.secure_port.expect("a secure listener"))
    }

    /// The file with the authority of that listener.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join(AUTHORITY)
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

/// The settings of the listener with TLS and SCRAM. Writes its certificate and its authority.
fn secure_settings(directory: &Path) -> String {
    let [certificate, key, both] =
        ["server.crt", "server.key", "server.pem"].map(|name| directory.join(name));
    let authority = Authority::new();
    authority.write(&directory.join(AUTHORITY));
    authority.write_signed(&certificate, &key);
    let parts = [&key, &certificate].map(|file| fs::read_to_string(file).expect("a file of the test"));
    fs::write(&both, parts.concat()).expect("a file in a fresh directory");
    format!(
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={}
",
        both.display()
    )
}

/// The programs that outlive the checkout.
fn cache() -> PathBuf {
    let of_user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let at_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = of_user.filter(|place| place.is_absolute()).or_else(at_home);
    cache.expect("a home").join("tidegate")
}
