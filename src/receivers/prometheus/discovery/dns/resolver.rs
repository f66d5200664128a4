//! Asks DNS servers: UDP first, TCP after a truncated answer, each server and each search domain in turn.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::message::{self, Answer, Malformed, NO_SUCH_NAME, OK, Record};
use crate::receivers::prometheus::config::discovery::RecordType;

/// A server that has not answered by then is passed over.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Answers that are not ours (late ones, forged ones) before a server is passed over.
const MAX_STRAY_ANSWERS: usize = 16;

/// Largest answer over UDP without extensions is 512 bytes; some servers send more.
const DATAGRAM_BYTES: usize = 4096;

const PORT: u16 = 53;

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

/// The parts of resolv.conf that matter here.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ResolvConf {
    pub(super) servers: Vec<IpAddr>,
    pub(super) search: Vec<String>,
    pub(super) ndots: usize,
}

impl ResolvConf {
    pub(super) fn parse(text: &str) -> Self {
        let mut conf = Self {
            ndots: 1,
            ..Self::default()
        };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                // A zone (fe80::1%eth0) is for sockets, which we don't bind to one.
                Some("nameserver") => conf
                    .servers
                    .extend(words.next().and_then(|word| word.parse::<IpAddr>().ok())),
                Some("search" | "domain") => conf.search = words.map(str::to_owned).collect(),
                Some("options") => {
                    let ndots = words
                        .rev()
                        .find_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    conf.ndots = ndots.unwrap_or(conf.ndots);
                }
                _ => {}
            }
        }
        conf
    }

    /// The names to ask for, one after the other.
    fn names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let with_domains = self
            .search
            .iter()
            .map(|domain| format!("{name}.{}.", domain.trim_matches('.')));
        let alone = format!("{name}.");
        if name.matches('.').count() >= self.ndots {
            [alone].into_iter().chain(with_domains).collect()
        } else {
            with_domains.chain([alone]).collect()
        }
    }
}

impl Resolver {
    /// Creates a resolver for `servers`, or for those of the file if the list is empty.
    pub(super) fn new(resolv_conf: PathBuf, servers: Vec<SocketAddr>) -> Self {
        Self { resolv_conf, servers }
    }

    /// The records of a name. The list is empty if the servers agree that the name does not exist.
    pub(super) async fn look_up(
        &self,
        name: &str,
        record_type: RecordType,
    ) -> Result<Vec<Record>, ResolveError> {
        let conf = match tokio::fs::read_to_string(&self.resolv_conf).await {
            Ok(text) => ResolvConf::parse(&text),
            Err(_) if !self.servers.is_empty() => ResolvConf::parse(""),
            Err(error) => {
                let path = self.resolv_conf.display().to_string();
                return Err(ResolveError::Config { path, error });
            }
        };
        let mut servers = self.servers.clone();
        if servers.is_empty() {
            servers.extend(conf.servers.iter().map(|ip| SocketAddr::new(*ip, PORT)));
        }
        let mut trouble = None;
        for name in conf.names(name) {
            match ask_all(&servers, &name, record_type).await {
                Ok(answer) if answer.code == OK => return Ok(answer.records),
                Ok(_) => {}
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

/// The first answer that says whether there is such a name.
async fn ask_all(servers: &[SocketAddr], name: &str, record_type: RecordType) -> Result<Answer, String> {
    let mut last = "no servers are known".to_owned();
    for server in servers {
        let asked = tokio::time::timeout(TIMEOUT, ask(*server, name, record_type)).await;
        match asked {
            Ok(Ok(answer)) if matches!(answer.code, OK | NO_SUCH_NAME) => return Ok(answer),
            Ok(Ok(answer)) => last = format!("{server} answered with code {}", answer.code),
            Ok(Err(error)) => last = format!("{server}: {error}"),
            Err(_) => last = format!("{server} did not answer within {TIMEOUT:?}"),
        }
    }
    Err(last)
}

async fn ask(server: SocketAddr, name: &str, record_type: RecordType) -> std::io::Result<Answer> {
    let id = rand::random();
    let question = message::question(id, name, record_type).map_err(invalid)?;
    let read = |bytes: &[u8]| message::answer(bytes, id, name, record_type);
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES];
    for _ in 0..MAX_STRAY_ANSWERS {
        let received = socket.recv(&mut buffer).await?;
        match read(buffer.get(..received).unwrap_or_default()) {
            Ok(answer) if answer.truncated => {
                return read(&over_tcp(server, &question).await?).map_err(invalid);
            }
            Ok(answer) => return Ok(answer),
            Err(Malformed::OtherQuestion) => {}
            Err(error) => return Err(invalid(error)),
        }
    }
    Err(invalid(Malformed::OtherQuestion))
}

/// RFC 1035, 4.2.2: the length in two bytes before each message.
async fn over_tcp(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(invalid)?;
    stream.write_u16(length).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_the_system_reads_it() {
        let conf = ResolvConf::parse(
            "# comment\nnameserver 10.0.0.2\nnameserver fe80::1\nnameserver junk\nsearch a.example b.example.\n\
             options timeout:1 ndots:3\n",
        );
        assert_eq!(
            conf.servers,
            ["10.0.0.2".parse::<IpAddr>().unwrap(), "fe80::1".parse().unwrap()]
        );
        assert_eq!(conf.names("x.y"), ["x.y.a.example.", "x.y.b.example.", "x.y."]);
        assert_eq!(
            conf.names("a.b.c.d"),
            ["a.b.c.d.", "a.b.c.d.a.example.", "a.b.c.d.b.example."]
        );
        assert_eq!(conf.names("x."), ["x."]);
        assert_eq!(ResolvConf::parse("").ndots, 1);
    }
}
