// SPDX-License-Identifier: Apache-2.0

use std::net::{Ipv4Addr, SocketAddr};

use hickory_net::proto::op::DnsResponse;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::resolver::{MEMORY_PER_BYTE, question, read_over_tcp, records};
use super::*;
use crate::metrics::ScrapeMetrics;
use tidegate_pipeline::batch::Signal;
use tidegate_pipeline::component::Limit;
use tidegate_pipeline::component::testing::Sink;

const OK: u8 = 0;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;

/// The records that a server has under a name: type and data.
type Zone = fn(&str) -> Option<Vec<(u16, Vec<u8>)>>;

/// `a.example` as DNS writes it.
fn wire_name(name: &str) -> Vec<u8> {
    let labels = name.trim_end_matches('.').split('.');
    let mut wire: Vec<u8> = labels
        .flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat())
        .collect();
    wire.push(0);
    wire
}

fn srv(port: u16, target: &str) -> (u16, Vec<u8>) {
    let mut data = vec![0, 10, 0, 20];
    data.extend(port.to_be_bytes());
    data.extend(wire_name(target));
    (33, data)
}

/// The part of its answers that a server sends over UDP.
#[derive(Clone, Copy, PartialEq)]
enum Udp {
    Whole,
    /// A note that there is more, without records.
    Note,
    /// A note, and records of which the last one lacks its end.
    Part,
}

/// The answer to a question.
fn respond(question: &[u8], zone: Zone, udp: Udp) -> Vec<u8> {
    let cut = udp != Udp::Whole;
    let mut at = 12;
    let mut name = String::new();
    while question[at] != 0 {
        let length = usize::from(question[at]);
        name.push_str(std::str::from_utf8(&question[at + 1..at + 1 + length]).unwrap());
        name.push('.');
        at += 1 + length;
    }
    let records = zone(&name);
    let code = if records.is_some() { OK } else { NO_SUCH_NAME };
    let records = records.filter(|_| udp != Udp::Note).unwrap_or_default();
    let mut message = question[..2].to_vec();
    message.extend([0x81 | u8::from(cut) << 1, 0x80 | code, 0, 1]);
    message.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
    message.extend([0; 4]);
    message.extend(&question[12..at + 5]);
    for (kind, data) in records {
        // The name of each record points to that of the question.
        message.extend([0xc0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 60]);
        message.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        message.extend(data);
    }
    if udp == Udp::Part {
        message.pop();
    }
    message
}

/// A server on one port of UDP and TCP.
async fn serve(zone: Zone, over_udp: Udp) -> SocketAddr {
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, peer)) = udp.recv_from(&mut buffer).await {
            let response = respond(&buffer[..length], zone, over_udp);
            // A foreign answer comes first: with another id, it is not ours.
            let foreign: Vec<u8> = [&[!response[0]], &response[1..]].concat();
            let _ = udp.send_to(&foreign, peer).await;
            let _ = udp.send_to(&response, peer).await;
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; usize::from(length)];
            stream.read_exact(&mut question).await.unwrap();
            let response = respond(&question, zone, Udp::Whole);
            stream
                .write_u16(u16::try_from(response.len()).unwrap())
                .await
                .unwrap();
            stream.write_all(&response).await.unwrap();
        }
    });
    address
}

/// A server that answers each question with a failure.
async fn fail() -> SocketAddr {
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = udp.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, peer)) = udp.recv_from(&mut buffer).await {
            let mut response = respond(&buffer[..length], |_| Some(Vec::new()), Udp::Whole);
            response[3] |= SERVER_FAILURE;
            let _ = udp.send_to(&response, peer).await;
        }
    });
    address
}

fn zone(name: &str) -> Option<Vec<(u16, Vec<u8>)>> {
    match name {
        "_m._tcp.example." => Some(vec![srv(9100, "a.example."), srv(9200, "b.example.")]),
        "hosts.example." => Some(vec![
            (5, wire_name("alias.example")),
            (1, vec![10, 0, 0, 1]),
            (1, vec![10, 0, 0, 2]),
        ]),
        "six.example." => Some(vec![(28, std::net::Ipv6Addr::LOCALHOST.octets().to_vec())]),
        "mail.example." => Some(vec![(15, [&[0, 5][..], &wire_name("mx.example")].concat())]),
        "zone.example." => Some(vec![(2, wire_name("ns.example"))]),
        "empty.example." => Some(Vec::new()),
        _ => None,
    }
}

/// A resolver whose first server fails.
async fn resolver(zone: Zone, over_udp: Udp, search: &str) -> (Resolver, tempfile::NamedTempFile) {
    let conf = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(conf.path(), format!("search {search}\n")).unwrap();
    let servers = vec![fail().await, serve(zone, over_udp).await];
    (Resolver::new(conf.path().to_owned(), servers), conf)
}

fn held() -> Held {
    Held::new(Arc::default())
}

#[tokio::test]
async fn every_type_of_record_becomes_targets() {
    let (resolver, _conf) = resolver(zone, Udp::Whole, "example").await;
    let table = [
        (
            "_m._tcp.example",
            RecordType::Srv,
            vec!["a.example:9100", "b.example:9200"],
        ),
        (
            "_m._tcp",
            RecordType::Srv,
            vec!["a.example:9100", "b.example:9200"],
        ),
        ("hosts.example", RecordType::A, vec!["10.0.0.1:7", "10.0.0.2:7"]),
        ("hosts", RecordType::A, vec!["10.0.0.1:7", "10.0.0.2:7"]),
        ("six.example.", RecordType::Aaaa, vec!["[::1]:7"]),
        ("mail.example", RecordType::Mx, vec!["mx.example:7"]),
        ("zone.example", RecordType::Ns, vec!["ns.example:7"]),
        ("empty.example", RecordType::A, vec![]),
        ("nobody.example", RecordType::A, vec![]),
    ];
    for (name, record_type, expected) in table {
        let found = resolver.look_up(name, record_type, &mut held()).await;
        let records = found.unwrap();
        let addresses: Vec<_> = records
            .into_iter()
            .map(|record| labels(name, 7, &record).get(ADDRESS).to_owned())
            .collect();
        assert_eq!(addresses, expected, "{name}");
    }
    let records = resolver
        .look_up("_m._tcp.example", RecordType::Srv, &mut held())
        .await
        .unwrap();
    let labels = labels("_m._tcp.example", 0, &records[0]);
    assert_eq!(labels.get(META_SRV_TARGET), "a.example.");
    assert_eq!(labels.get(META_SRV_PORT), "9100");
    assert_eq!(labels.get(META_NAME), "_m._tcp.example");
}

/// The memory of a target beside its labels.
const TARGET_BYTES: usize = 8 << 10;

#[tokio::test]
async fn the_targets_of_a_name_are_on_the_account_while_they_are_in_force() {
    let (resolver, _conf) = resolver(zone, Udp::Whole, "").await;
    let discovery = DnsDiscovery {
        names: vec!["hosts.example".to_owned()],
        record_type: RecordType::A,
        port: 7,
        refresh_interval: Duration::from_millis(1),
        resolver,
        found: BTreeMap::new(),
    };
    let memory = Arc::<Account>::default();
    let (found, mut findings) = tokio::sync::mpsc::channel(1);
    let metrics = ScrapeMetrics::new("r".into(), "j".into(), Sink::new().entry(Signal::Metrics));
    let running = tokio::spawn(discovery.run(Reporter {
        source: 0,
        found,
        metrics: Arc::new(metrics),
        memory: memory.clone(),
    }));
    let mut reserved = Vec::new();
    for _ in 0..3 {
        let (_, found) = findings.recv().await.unwrap();
        assert_eq!((found.labels.len(), found.rooms.len()), (2, 1));
        reserved.push(memory.reserved_bytes());
    }
    assert!(reserved[0] > 2 * TARGET_BYTES, "{reserved:?}");
    assert!(
        reserved.iter().all(|bytes| *bytes == reserved[0]),
        "the same targets take no room again: {reserved:?}"
    );
    running.abort();
    assert!(running.await.is_err());
    drop(findings);
    assert_eq!(memory.reserved_bytes(), 0);
}

#[test]
fn the_targets_of_a_name_need_room_before_they_are_made() {
    const TARGETS: u32 = 1_000;
    let memory = Arc::<Account>::default();
    let records = || -> Vec<Record> {
        let address = |number| Record::Address(Ipv4Addr::from_bits(number).into());
        (0..TARGETS).map(address).collect()
    };
    let of =
        |records: Vec<Record>, known: Option<&Listed>| listed("hosts.example", 7, records, known, &memory);
    let found = of(records(), None).unwrap().unwrap();
    assert_eq!(found.labels.len(), TARGETS as usize);
    let reserved = memory.reserved_bytes();
    assert!(reserved > TARGETS as usize * TARGET_BYTES, "{reserved}");
    // In another order, and one of them twice.
    let same = records().into_iter().rev().chain(records().pop()).collect();
    assert!(of(same, Some(&found)).unwrap().is_none());
    assert_eq!(memory.reserved_bytes(), reserved);
    let fewer = of(records().split_off(1), Some(&found)).unwrap().unwrap();
    drop((found, fewer));
    assert_eq!(memory.reserved_bytes(), 0);
    memory.add_limit(Limit::of(4 << 20));
    assert!(matches!(of(records(), None), Err(ListError::NeverFits)));
    memory.hold(4 << 20);
    let one = records().split_off(TARGETS as usize - 1);
    assert!(matches!(of(one, None), Err(ListError::NoRoom(_))));
    memory.release(4 << 20);
    assert_eq!(memory.reserved_bytes(), 0);
}

#[test]
fn no_record_has_labels_of_more_than_its_weight() {
    let target = "a.example.".to_owned();
    let mapped = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".parse::<std::net::Ipv6Addr>();
    let records = [
        Record::Address(mapped.unwrap().into()),
        Record::Address(Ipv4Addr::BROADCAST.into()),
        Record::Service {
            target: target.clone(),
            port: u16::MAX,
        },
        Record::Exchange(target.clone()),
        Record::NameServer(target),
    ];
    for record in records {
        let labels = labels("name.example", u16::MAX, &record);
        let bytes: usize = labels
            .iter()
            .map(|(label, value)| label_bytes(label, value.len()))
            .sum();
        assert!(bytes <= weight("name.example", &record), "{record:?}");
    }
}

#[tokio::test]
async fn what_is_cut_off_is_asked_for_over_tcp_with_room_for_the_answer() {
    for over_udp in [Udp::Note, Udp::Part] {
        let (resolver, _conf) = resolver(zone, over_udp, "").await;
        let mut held = held();
        let found = resolver.look_up("hosts.example", RecordType::A, &mut held).await;
        assert_eq!(found.unwrap().len(), 2);
        let answer = response("hosts.example", RecordType::A);
        assert_eq!(held.bytes(), answer.len() * MEMORY_PER_BYTE);
    }
    let (resolver, _conf) = resolver(zone, Udp::Note, "").await;
    let memory = Arc::<Account>::default();
    memory.add_limit(Limit::of(4 << 10));
    let mut held = Held::new(memory);
    let found = resolver.look_up("hosts.example", RecordType::A, &mut held).await;
    let error = found.unwrap_err().to_string();
    assert!(error.contains("never fits into the memory limit"), "{error}");
}

#[test]
fn an_answer_over_tcp_belongs_to_its_question() {
    let asked = question("hosts.example", RecordType::A).unwrap();
    let whole = respond(&asked.to_vec().unwrap(), zone, Udp::Whole);
    assert!(read_over_tcp(&asked, whole.clone(), &mut held()).is_ok());
    // The identity, the number of questions, and the name in the question.
    for (at, value) in [(0, !whole[0]), (5, 2), (13, b'x')] {
        let mut other = whole.clone();
        other[at] = value;
        let mut held = held();
        let error = read_over_tcp(&asked, other, &mut held).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the answer is to another question",
            "byte {at}"
        );
        // The number of questions is checked before hickory allocates memory for them.
        assert_eq!(held.bytes() == 0, at == 5, "byte {at}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_passed_over() {
    let conf = tempfile::NamedTempFile::new().unwrap();
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let servers = vec![silent.local_addr().unwrap(), serve(zone, Udp::Whole).await];
    let resolver = Resolver::new(conf.path().to_owned(), servers);
    let found = resolver
        .look_up("hosts.example", RecordType::A, &mut held())
        .await;
    assert_eq!(found.unwrap().len(), 2);
}

#[tokio::test]
async fn without_an_answer_nothing_is_known() {
    let conf = tempfile::NamedTempFile::new().unwrap();
    let resolver = Resolver::new(conf.path().to_owned(), Vec::new());
    let found = resolver.look_up("a.example", RecordType::A, &mut held()).await;
    let error = found.unwrap_err();
    assert!(error.to_string().contains("no servers are known"), "{error}");
    let missing = Resolver::new("/nonexistent/resolv.conf".into(), Vec::new());
    let found = missing.look_up("a.example", RecordType::A, &mut held()).await;
    assert!(found.is_err());
}

#[test]
fn names_that_dns_can_not_have_are_not_asked_for() {
    let long = "a".repeat(64);
    let longer = vec!["a"; 130].join(".");
    for name in ["", ".", "a..b", &long, &longer] {
        assert!(question(name, RecordType::A).is_err(), "{name}");
    }
}

/// The answer of a server to a question.
fn response(name: &str, record_type: RecordType) -> Vec<u8> {
    let question = question(name, record_type).unwrap();
    respond(&question.to_vec().unwrap(), zone, Udp::Whole)
}

#[test]
fn a_name_that_points_to_itself_ends() {
    let mut message = response("hosts.example", RecordType::A);
    let at = message.len() - 16;
    message[at..at + 2].copy_from_slice(&[0xc0, u8::try_from(at).unwrap()]);
    assert!(DnsResponse::from_buffer(message).is_err());
}

proptest! {
    #[test]
    fn no_answer_does_harm(noise in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..120, flips in proptest::collection::vec((0usize..120, any::<u8>()), 0..4)) {
        let _ = DnsResponse::from_buffer(noise);
        for (name, record_type) in [("hosts.example", RecordType::A), ("_m._tcp.example", RecordType::Srv)] {
            let mut message = response(name, record_type);
            for (at, byte) in &flips {
                if let Some(place) = message.get_mut(*at) {
                    *place = *byte;
                }
            }
            message.truncate(message.len().saturating_sub(cut));
            if let Ok(answer) = DnsResponse::from_buffer(message) {
                let _ = records(&answer, record_type);
            }
        }
    }
}
