// SPDX-License-Identifier: Apache-2.0

//! Asks DNS servers: UDP first, TCP after a truncated answer, each server and each search domain in turn.
//!
//! `hickory-net` writes and reads the messages. The pool of servers of `hickory-resolver` does not fit. It has one time limit
//! for all servers, and a failure of one server ends the lookup.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hickory_net::NetError;
use hickory_net::proto::op::{
    DnsRequest, DnsRequestOptions, DnsResponse, Query, ResponseCode, SerialMessage,
};
use hickory_net::proto::rr::{self, DNSClass, Name, RData};
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::tcp::TcpClientStream;
use hickory_net::udp::UdpClientStream;
use hickory_net::xfer::{DnsRequestSender, DnsStreamHandle, FirstAnswer};
use resolv_conf::{Config, ScopedIp};
use tokio_stream::StreamExt;

use crate::config::discovery::RecordType;
use tidegate_pipeline::component::Held;

/// A server that has not answered by then is passed over.
const TIMEOUT: Duration = Duration::from_secs(2);

const PORT: u16 = 53;

/// The most memory that a byte of an answer takes. A record with two compressed names has 14 bytes. The record, its names
/// and their text take 3.5 KiB at most. An answer over UDP has at most 512 bytes. The 128 KiB that it takes are not on
/// the account.
pub(super) const MEMORY_PER_BYTE: usize = 256;

/// The data of one record.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Record {
    /// An address.
    Address(IpAddr),
    /// A host and a port.
    Service {
        /// The host, with a dot at the end.
        target: String,
        /// The port.
        port: u16,
    },
    /// A mail exchanger.
    Exchange(String),
    /// A name server.
    NameServer(String),
}

impl Record {
    /// The data of a record of the wanted type; others are passed over.
    fn read(wanted: RecordType, data: &RData) -> Option<Self> {
        Some(match (wanted, data) {
            (RecordType::A, RData::A(address)) => Self::Address(address.0.into()),
            (RecordType::Aaaa, RData::AAAA(address)) => Self::Address(address.0.into()),
            (RecordType::Srv, RData::SRV(service)) => Self::Service {
                target: service.target.to_ascii(),
                port: service.port,
            },
            (RecordType::Mx, RData::MX(mail)) => Self::Exchange(mail.exchange.to_ascii()),
            (RecordType::Ns, RData::NS(server)) => Self::NameServer(server.0.to_ascii()),
            _ => return None,
        })
    }
}

/// Names the servers and search domains.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    resolv_conf: PathBuf,
    servers: Vec<SocketAddr>,
}

/// The reason why a name has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// The servers can't be found out.
    #[error("{path}: {error}")]
    Config {
        /// The file.
        path: String,
        /// The error.
        error: std::io::Error,
    },
    /// No server knows whether the name exists.
    #[error("can't resolve {name:?}: {last}")]
    NoAnswer {
        /// The name.
        name: String,
        /// The message of the last server.
        last: String,
    },
}

impl Resolver {
    /// Creates a resolver for `servers`, or for those of the file if the list is empty.
    pub(super) fn new(resolv_conf: PathBuf, servers: Vec<SocketAddr>) -> Self {
        Self { resolv_conf, servers }
    }

    /// The records of a name. The list is empty if the servers agree that the name does not exist. `held` reserves memory
    /// for large answers; the caller keeps it as long as the records.
    pub(super) async fn look_up(
        &self,
        name: &str,
        record_type: RecordType,
        held: &mut Held,
    ) -> Result<Vec<Record>, ResolveError> {
        let conf = match tokio::fs::read(&self.resolv_conf).await {
            Ok(text) => Config::parse_with_errors(&text).0,
            Err(_) if !self.servers.is_empty() => Config::new(),
            Err(error) => {
                let path = self.resolv_conf.display().to_string();
                return Err(ResolveError::Config { path, error });
            }
        };
        let mut servers = self.servers.clone();
        if servers.is_empty() {
            servers = servers_of(&conf);
        }
        let mut trouble = None;
        for name in names(&conf, name) {
            match ask_all(&servers, &name, record_type, held).await {
                Ok(Some(records)) => return Ok(records),
                Ok(None) => {}
                Err(last) => trouble = Some(last),
            }
        }
        match trouble {
            None => Ok(Vec::new()),
            Some(last) => Err(ResolveError::NoAnswer {
                name: name.to_owned(),
                last,
            }),
        }
    }
}

fn servers_of(conf: &Config) -> Vec<SocketAddr> {
    // A zone (fe80::1%eth0) is for sockets, which we don't bind to one.
    let has_zone = |ip: &&ScopedIp| matches!(ip, ScopedIp::V6(_, Some(_)));
    let servers = conf.nameservers.iter().filter(|ip| !has_zone(ip));
    servers
        .map(|ip| SocketAddr::new(IpAddr::from(ip), PORT))
        .collect()
}

/// The names to ask for, one after the other.
fn names(conf: &Config, name: &str) -> Vec<String> {
    if name.ends_with('.') {
        return vec![name.to_owned()];
    }
    let with_domains = conf
        .get_last_search_or_domain()
        .map(|domain| format!("{name}.{}.", domain.trim_matches('.')));
    let alone = format!("{name}.");
    if name.matches('.').count() >= conf.ndots as usize {
        [alone].into_iter().chain(with_domains).collect()
    } else {
        with_domains.chain([alone]).collect()
    }
}

/// The records from the first answer that says whether there is such a name. `None`: there is none.
async fn ask_all(
    servers: &[SocketAddr],
    name: &str,
    record_type: RecordType,
    held: &mut Held,
) -> Result<Option<Vec<Record>>, String> {
    let question = question(name, record_type).map_err(|error| error.to_string())?;
    let mut last = "no servers are known".to_owned();
    for server in servers {
        let asked = tokio::time::timeout(TIMEOUT, ask(*server, &question, held)).await;
        last = match asked {
            Ok(Ok(answer)) => match answer.response_code {
                ResponseCode::NoError => return Ok(Some(records(&answer, record_type))),
                ResponseCode::NXDomain => return Ok(None),
                code => format!("{server} answered with code {}", u16::from(code)),
            },
            Ok(Err(error)) => format!("{server}: {error}"),
            Err(_) => format!("{server} did not answer within {TIMEOUT:?}"),
        };
    }
    Err(last)
}

/// A question, with recursion wanted.
pub(super) fn question(name: &str, record_type: RecordType) -> Result<DnsRequest, NetError> {
    let bad_name = || NetError::from("not a name that DNS can have");
    let name = name.trim_end_matches('.');
    let mut asked = Name::from_ascii(name).map_err(|_| bad_name())?;
    if name.is_empty() {
        return Err(bad_name());
    }
    asked.set_fqdn(true);
    let wanted = match record_type {
        RecordType::A => rr::RecordType::A,
        RecordType::Aaaa => rr::RecordType::AAAA,
        RecordType::Srv => rr::RecordType::SRV,
        RecordType::Mx => rr::RecordType::MX,
        RecordType::Ns => rr::RecordType::NS,
    };
    let query = Query::query(asked, wanted);
    let mut options = DnsRequestOptions::default();
    // Old servers refuse questions with EDNS. A long answer comes over TCP.
    options.use_edns = false;
    Ok(DnsRequest::from_query(query, options))
}

/// The records of the type that was asked for.
pub(super) fn records(answer: &DnsResponse, wanted: RecordType) -> Vec<Record> {
    let of_internet = answer
        .answers
        .iter()
        .filter(|record| record.dns_class == DNSClass::IN);
    of_internet
        .filter_map(|record| Record::read(wanted, &record.data))
        .collect()
}

async fn ask(server: SocketAddr, question: &DnsRequest, held: &mut Held) -> Result<DnsResponse, NetError> {
    // The system knows which ports are reserved.
    let mut udp = UdpClientStream::builder(server, TokioRuntimeProvider::new())
        .with_os_port_selection(true)
        .build();
    let answer = udp.send_message(question.clone()).first_answer().await;
    match answer {
        Ok(answer) if !answer.truncation => Ok(answer),
        // A server may cut an answer inside a record. Its error does not say that it was cut.
        Ok(_) | Err(NetError::Proto(_)) => over_tcp(server, question, held).await,
        Err(error) => Err(error),
    }
}

/// Asks over a connection for this question alone. It reads one answer, which has at most 64 KiB. The multiplexer of
/// hickory reads answers ahead.
async fn over_tcp(
    server: SocketAddr,
    question: &DnsRequest,
    held: &mut Held,
) -> Result<DnsResponse, NetError> {
    let (connected, mut questions) = TcpClientStream::new(server, None, None, TokioRuntimeProvider::new());
    let mut answers = connected.await?;
    questions.send(SerialMessage::new(question.to_vec()?, server))?;
    let Some(answer) = answers.next().await else {
        return Err("the server closed the connection".into());
    };
    let (bytes, _) = answer?.into_parts();
    read_over_tcp(question, bytes, held)
}

/// The answer in a message that came over a connection.
///
/// # Errors
/// The message can't be read, is about another question, or has no room.
pub(super) fn read_over_tcp(
    question: &DnsRequest,
    bytes: Vec<u8>,
    held: &mut Held,
) -> Result<DnsResponse, NetError> {
    let other_question = || NetError::from("the answer is to another question");
    // hickory allocates memory for as many questions as the answer claims.
    if !matches!(bytes.get(4..6), Some([0, 1])) {
        return Err(other_question());
    }
    reserve(held, bytes.len().saturating_mul(MEMORY_PER_BYTE))?;
    let answer = DnsResponse::from_buffer(bytes)?;
    if answer.id != question.id || answer.queries != question.queries {
        return Err(other_question());
    }
    Ok(answer)
}

/// Reserves at least `bytes` in all.
fn reserve(held: &mut Held, bytes: usize) -> Result<(), NetError> {
    let more = bytes.saturating_sub(held.bytes());
    // A size that never fits must not make memory short for others.
    if !held.could_ever_grow(more) {
        return Err("the answer never fits into the memory limit: raise it".into());
    }
    let grown = held.try_grow(more);
    grown.map_err(|error| format!("the answer has no room now: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_the_system_reads_it() {
        let text = "# comment\nnameserver 10.0.0.2\nnameserver fe80::1\nnameserver fe80::2%eth0\nnameserver junk\n\
             search a.example b.example.\noptions timeout:1 ndots:3\n";
        let conf = Config::parse_with_errors(text.as_bytes()).0;
        assert_eq!(
            servers_of(&conf),
            [
                "10.0.0.2:53".parse::<SocketAddr>().unwrap(),
                "[fe80::1]:53".parse().unwrap()
            ]
        );
        assert_eq!(names(&conf, "x.y"), ["x.y.a.example.", "x.y.b.example.", "x.y."]);
        assert_eq!(
            names(&conf, "a.b.c.d"),
            ["a.b.c.d.", "a.b.c.d.a.example.", "a.b.c.d.b.example."]
        );
        assert_eq!(names(&conf, "x."), ["x."]);
        assert_eq!(Config::parse_with_errors(b"").0.ndots, 1);
    }
}
