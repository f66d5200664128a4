// SPDX-License-Identifier: Apache-2.0

//! A Kafka broker in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tidegate_runtime::testing::free_port;

/// The directory in the user's cache. `xtask/src/kafka.rs` has the same name.
const NAME: &str = "kafka-4.3.1";

/// How long a broker may take to start on a busy machine.
const START: Duration = Duration::from_mins(3);

/// A user of the secure listener.
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "alice-secret";

/// The shell that starts a broker kills it when its input ends. So no broker outlives the tests.
const GUARD: &str = r#""$@" & echo $! > "$0"; cat > /dev/null; kill -9 "$(cat "$0")"; wait"#;

pub(crate) struct Broker {
    directory: TempDir,
    port: u16,
    secure_port: u16,
    tls_port: u16,
    guard: Option<Child>,
}

impl Broker {
    /// The broker of all tests that leave it alone.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(|| {
            let mut broker = Broker::new();
            broker.start();
            broker
        })
    }

    /// A broker that does not run yet.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [port, secure_port, tls_port, controller] = [(); 4].map(|()| free_port());
        certificates(directory.path());
        let path = directory.path().display();
        let settings = format!(
            "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port},TLS://127.0.0.1:{tls_port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://localhost:{secure_port},TLS://localhost:{tls_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,TLS:SSL,CONTROLLER:PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";
listener.name.secure.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={path}/server.pem
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={path}/server.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={path}/ca.pem
listener.name.tls.ssl.client.auth=required
log.dirs={path}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=200
"
        );
        fs::write(directory.path().join("server.properties"), settings).unwrap();
        let broker = Self {
            directory,
            port,
            secure_port,
            tls_port,
            guard: None,
        };
        let scram = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
            .map(|mechanism| format!("{mechanism}=[name={USER},password={PASSWORD}]"));
        let formatted = java()
            .args([
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qg",
                "-c",
            ])
            .arg(broker.path("server.properties"))
            .args(["--add-scram", &scram[0], "--add-scram", &scram[1]])
            .output()
            .expect("`java` is there: `cargo xtask setup` installs it");
        assert!(formatted.status.success(), "{formatted:?}");
        broker
    }

    /// Starts it, again on the same ports, and waits until it listens.
    pub(crate) fn start(&mut self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let java = java();
        let mut guard = Command::new("sh");
        guard
            .args(["-c", GUARD])
            .arg(self.path("pid"))
            .arg(java.get_program())
            .args(java.get_args())
            .arg("kafka.Kafka")
            .arg(self.path("server.properties"))
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.guard = Some(guard.spawn().unwrap());
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            if log.contains("Kafka Server started") {
                return;
            }
            assert!(start.elapsed() < START, "the broker does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            guard.wait().unwrap();
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The listener with TLS and SASL.
    pub(crate) fn secure_address(&self) -> String {
        format!("localhost:{}", self.secure_port)
    }

    /// The listener that wants a certificate of each client.
    pub(crate) fn tls_address(&self) -> String {
        format!("localhost:{}", self.tls_port)
    }

    /// A file of its directory: `ca.pem`, the authority, or `client.pem` and `client.key`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn java() -> Command {
    let jars = jars();
    assert!(
        jars.is_dir(),
        "Kafka is not in {}: run `cargo xtask setup` once, which installs it and Java",
        jars.display()
    );
    let mut java = Command::new("java");
    java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(jars.join("*"));
    java
}

fn jars() -> PathBuf {
    let of_user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let at_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = of_user.filter(|place| place.is_absolute()).or_else(at_home);
    cache.unwrap().join("tidegate").join(NAME).join("jars")
}

/// An authority in `ca.pem`; its certificate of `localhost` with the key in `server.pem`; one of a client with its key.
fn certificates(directory: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let [(server_key, server), (client_key, client)] = ["localhost", USER].map(|name| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (key.serialize_pem(), certificate.pem())
    });
    let files = [
        ("ca.pem", authority.pem()),
        ("server.pem", server_key + &server),
        ("client.pem", client),
        ("client.key", client_key),
    ];
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}
