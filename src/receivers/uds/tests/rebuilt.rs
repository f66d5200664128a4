// SPDX-License-Identifier: Apache-2.0

//! Receivers of datagrams that a reload builds again.

use super::*;

/// A gateway with one receiver after the other.
struct Reloads {
    base: Context,
    sink: Arc<Sink>,
    dir: tempfile::TempDir,
}

impl Reloads {
    fn new() -> Self {
        Self {
            base: context("receivers", "uds"),
            sink: Sink::new(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// A receiver with these options, in which `DIR` is the directory of sockets.
    async fn start(&self, options: &str) -> Arc<dyn Receiver> {
        let yaml = options.replace("DIR", &self.dir.path().display().to_string());
        let cx = ReceiverContext {
            base: self.base.clone(),
            ..self.sink.receiver_context("uds")
        };
        let receiver = (FACTORY.build)(&settings::<UdsConfig>(&yaml), cx).unwrap();
        receiver.start().await.unwrap();
        receiver
    }

    /// Sends lines to the socket of this name, and returns their events.
    async fn send(&self, socket: &str, lines: &str) -> Arc<Events> {
        let before = self.sink.batches().len();
        let socket = sender(&self.dir.path().join(socket));
        socket.send(lines.as_bytes()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(batch) = self.sink.batches().get(before) {
                let Payload::Events(events) = &batch.payload else {
                    panic!("no events")
                };
                return events.clone();
            }
            assert!(Instant::now() < deadline, "no batch of {lines}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn reserved_bytes(&self) -> usize {
        self.base.shared.memory.reserved_bytes()
    }
}

async fn stop(receiver: &Arc<dyn Receiver>) {
    receiver.stop(Instant::now() + Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_rebuilt_receiver_continues_senders_and_their_gauges() {
    let gateway = Reloads::new();
    let old = gateway.start("datagram: {path: DIR/d.sock}").await;
    let first = gateway.send("d.sock", "depth:5|g").await;
    let reserved = gateway.reserved_bytes();
    assert!(reserved > 0);
    stop(&old).await;
    assert!(!first.source.lease.is_ended(), "a gateway that stops needs it");
    assert_eq!(gateway.reserved_bytes(), reserved);
    let options = "datagram: {path: DIR/d.sock, mode: \"0600\", max_datagram_size: 1KiB, max_kinds: 2}";
    let new = gateway.start(options).await;
    drop(old);
    assert_eq!(gateway.reserved_bytes(), reserved);
    let second = gateway.send("d.sock", "depth:+1|g\nother:1|g\nthird:1|g").await;
    assert_eq!(second.values.get(0), Some(6.0));
    assert_eq!(second.len(), 2, "two kinds at most");
    assert!(Arc::ptr_eq(&second.source, &first.source));
    assert_eq!(second.schema.kinds[0], first.schema.kinds[0]);
    assert!(!first.source.lease.is_ended());
    stop(&new).await;
    drop(new);
    assert!(first.source.lease.is_ended(), "nobody has taken it");
    assert_eq!(gateway.reserved_bytes(), 0);
}

#[tokio::test]
async fn another_setting_ends_senders_and_their_gauges() {
    for (socket, options) in [
        ("d.sock", "datagram: {path: DIR/d.sock}\nsource_timeout: 60s"),
        (
            "d.sock",
            "datagram: {path: DIR/d.sock, is_monotonic_counter: false}",
        ),
        ("d.sock", "datagram: {path: DIR/d.sock, peer_credentials: true}"),
        ("d.sock", "datagram: {path: DIR/d.sock, max_kinds: 1}"),
        ("other.sock", "datagram: {path: DIR/other.sock}"),
    ] {
        let gateway = Reloads::new();
        let old = gateway.start("datagram: {path: DIR/d.sock}").await;
        let first = gateway.send("d.sock", "depth:5|g\nrequests:1|c").await;
        stop(&old).await;
        let new = gateway.start(options).await;
        assert!(!first.source.lease.is_ended(), "{options}: the reload may fail");
        drop(old);
        assert!(first.source.lease.is_ended(), "{options}");
        assert_eq!(gateway.reserved_bytes(), 0, "{options}");
        let second = gateway.send(socket, "depth:+1|g").await;
        assert_eq!(second.values.get(0), Some(1.0), "{options}");
        assert_ne!(second.source.id, first.source.id, "{options}");
        assert!(!second.source.lease.is_ended(), "{options}");
        stop(&new).await;
    }
}

/// A reload that fails after the start of a receiver with other settings.
#[tokio::test]
async fn a_restored_receiver_continues_senders_of_the_first() {
    let gateway = Reloads::new();
    let options = "datagram: {path: DIR/d.sock}";
    let old = gateway.start(options).await;
    let first = gateway.send("d.sock", "depth:5|g").await;
    stop(&old).await;
    let failed = gateway
        .start("datagram: {path: DIR/d.sock}\nsource_timeout: 60s")
        .await;
    let second = gateway.send("d.sock", "depth:+1|g").await;
    assert_eq!(second.values.get(0), Some(1.0));
    stop(&failed).await;
    let restored = gateway.start(options).await;
    drop((old, failed));
    assert!(second.source.lease.is_ended());
    let third = gateway.send("d.sock", "depth:+1|g").await;
    assert_eq!(third.values.get(0), Some(6.0));
    assert!(Arc::ptr_eq(&third.source, &first.source));
    assert!(!first.source.lease.is_ended());
    stop(&restored).await;
}

#[tokio::test]
async fn processes_continue_while_they_are_allowed() {
    let uid = rustix::process::getuid().as_raw();
    for (allowed, is_ended) in [(uid, false), (uid + 1, true)] {
        let gateway = Reloads::new();
        let old = gateway
            .start("datagram: {path: DIR/d.sock, peer_credentials: true}")
            .await;
        let first = gateway.send("d.sock", "depth:5|g").await;
        stop(&old).await;
        let options =
            format!("datagram: {{path: DIR/d.sock, peer_credentials: true, allowed_uids: [{allowed}]}}");
        let new = gateway.start(&options).await;
        drop(old);
        assert_eq!(first.source.lease.is_ended(), is_ended, "{options}");
        if !is_ended {
            let second = gateway.send("d.sock", "depth:+1|g").await;
            assert_eq!(second.values.get(0), Some(6.0));
            assert_eq!(second.source.id, first.source.id);
        }
        stop(&new).await;
    }
}

#[tokio::test]
async fn a_receiver_that_can_not_listen_takes_no_senders() {
    let gateway = Reloads::new();
    let options = "datagram: {path: DIR/d.sock}";
    let old = gateway.start(options).await;
    let first = gateway.send("d.sock", "depth:5|g").await;
    stop(&old).await;
    let yaml = "datagram: {path: /nonexistent/d.sock}";
    let cx = ReceiverContext {
        base: gateway.base.clone(),
        ..gateway.sink.receiver_context("uds")
    };
    let fails = (FACTORY.build)(&settings::<UdsConfig>(yaml), cx).unwrap();
    assert!(fails.start().await.is_err());
    let again = gateway.start(options).await;
    let second = gateway.send("d.sock", "depth:+1|g").await;
    assert_eq!(second.values.get(0), Some(6.0));
    assert_eq!(second.source.id, first.source.id);
    stop(&again).await;
}
