// SPDX-License-Identifier: Apache-2.0

//! Targets from DNS, whose answers come over real sockets.

use super::into_sink;
use crate::kit::{OtlpSink, SOON, Target, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

const A: u16 = 1;
const SRV: u16 = 33;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;

/// The answer of a server for one name: a code, and its records as type and data.
#[derive(Clone, Default)]
struct DnsAnswer {
    code: u8,
    records: Vec<(u16, Vec<u8>)>,
    /// Over UDP only that there is more.
    cut: bool,
}

/// A server of one name on one port of UDP and TCP, in threads that end with the process.
struct Dns {
    port: u16,
    said: Arc<Mutex<DnsAnswer>>,
}

impl Dns {
    fn start() -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("an address")) {
                break (udp, tcp);
            }
        };
        let port = udp.local_addr().expect("an address").port();
        let said = Arc::<Mutex<DnsAnswer>>::default();
        let over_udp = said.clone();
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut question) {
                let said = over_udp.lock().expect("no panic inside").clone();
                let _ = udp.send_to(&answer(&question[..length], &said, said.cut), from);
            }
        });
        let over_tcp = said.clone();
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut length = [0; 2];
                stream.read_exact(&mut length).expect("a length");
                let mut question = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut question).expect("a question");
                let said = over_tcp.lock().expect("no panic inside").clone();
                let answer = answer(&question, &said, false);
                let length = (answer.len() as u16).to_be_bytes();
                stream
                    .write_all(&[&length[..], &answer].concat())
                    .expect("it reads");
            }
        });
        Self { port, said }
    }

    /// From now on this is what it says.
    fn set_answer(&self, code: u8, cut: bool, records: Vec<(u16, Vec<u8>)>) {
        *self.said.lock().expect("no panic inside") = DnsAnswer { code, records, cut };
    }
}

/// RFC 1035: the question again, and the records of its type, whose names point back to it.
fn answer(question: &[u8], said: &DnsAnswer, cut: bool) -> Vec<u8> {
    let name = question[12..]
        .iter()
        .position(|byte| *byte == 0)
        .expect("an end of the name");
    let end = 12 + name + 5;
    let asked = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let records = said.records.iter().filter(|(kind, _)| *kind == asked && !cut);
    let records: Vec<_> = records.collect();
    let mut message = question[..2].to_vec();
    message.extend([
        0x81 | (u8::from(cut) << 1),
        0x80 | said.code,
        0,
        1,
        0,
        records.len() as u8,
        0,
        0,
        0,
        0,
    ]);
    message.extend(&question[12..end]);
    for (kind, data) in records {
        message.extend([0xc0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 1]);
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    }
    message
}

/// A service on this port of `localhost`.
fn service(port: u16) -> (u16, Vec<u8>) {
    let mut data = vec![0, 1, 0, 1];
    data.extend(port.to_be_bytes());
    data.extend(b"\x09localhost\0");
    (SRV, data)
}

#[test]
fn targets_come_and_go_by_what_dns_answers() {
    let targets = ["x 1\n", "x 2\n", "x 3\n"].map(Target::showing);
    let [one, two, host] = &targets;
    let (services, hosts, sink) = (Dns::start(), Dns::start(), OtlpSink::start());
    services.set_answer(0, false, vec![service(one.port()), service(two.port())]);
    hosts.set_answer(0, true, vec![(A, vec![127, 0, 0, 1])]);
    let gateway = into_sink(
        &format!(
            "  - job_name: app
    scrape_interval: 500ms
    scrape_timeout: 500ms
    dns_sd_configs:
      - {{names: [_metrics._tcp.app.example], refresh_interval: 200ms, servers: ['127.0.0.1:{}']}}
      - {{names: [app.example], type: A, port: {}, refresh_interval: 200ms, servers: ['127.0.0.1:{}']}}
    relabel_configs:
      - {{source_labels: [__meta_dns_name], target_label: asked}}
      - {{source_labels: [__meta_dns_srv_record_target], target_label: service}}
",
            services.port,
            host.port(),
            hosts.port
        ),
        &sink,
    );
    let found = |value: f64| {
        let points = sink.points_of("x");
        points.into_iter().find(|point| point.number() == value)
    };
    for (value, target, asked, service) in [
        (
            1.0,
            format!("localhost:{}", one.port()),
            "_metrics._tcp.app.example",
            "localhost.",
        ),
        (
            2.0,
            format!("localhost:{}", two.port()),
            "_metrics._tcp.app.example",
            "localhost.",
        ),
        (3.0, host.address(), "app.example", ""),
    ] {
        sink.wait_until("every target is scraped", |_| found(value).is_some());
        let point = found(value).expect("it was there");
        let labels = ["service.instance.id", "asked", "service"].map(|name| point.attribute(name));
        assert_eq!(labels, [&target, asked, service]);
    }
    let up = || gateway.own_metric("tidegate_scrape_targets", &["state=\"up\""]);
    wait_until(SOON, "three targets", || up() == 3.0);
    // A server that does not know says nothing about its targets. One that says that the name does not exist does.
    services.set_answer(SERVER_FAILURE, false, Vec::new());
    let failures = || gateway.own_metric("tidegate_scrape_discovery_failures_total", &["reason=\"dns\""]);
    wait_until(SOON, "failures are counted", || failures() >= 2.0);
    let asked = one.asked();
    wait_until(SOON, "what was known is still scraped", || {
        one.asked() > asked + 2
    });
    wait_until(SOON, "three targets still", || up() == 3.0);
    hosts.set_answer(NO_SUCH_NAME, false, Vec::new());
    wait_until(SOON, "the host is gone", || up() == 2.0);
    services.set_answer(0, false, vec![service(two.port())]);
    wait_until(SOON, "a service is gone", || up() == 1.0);
    // A scrape may have been on its way.
    let stays = two.asked();
    wait_until(SOON, "the other one is scraped", || two.asked() > stays + 1);
    let (gone, stays) = (one.asked() + host.asked(), two.asked());
    wait_until(SOON, "the other one is still scraped", || two.asked() > stays + 2);
    assert_eq!(one.asked() + host.asked(), gone, "no scraper asks any more");
}
