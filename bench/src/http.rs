// SPDX-License-Identifier: Apache-2.0

//! A client: requests for one path over one kept connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::BenchError;

/// A page of millions of series takes some programs this long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a port of this machine.
pub(crate) struct Scraper {
    port: u16,
    timeout: Duration,
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
}

impl Scraper {
    pub(crate) fn connect(port: u16, path: &str) -> Result<Self, BenchError> {
        Self::connect_within(port, path, TIMEOUT)
    }

    /// The same with another timeout of each read.
    pub(crate) fn connect_within(port: u16, path: &str, timeout: Duration) -> Result<Self, BenchError> {
        let mut scraper = Self {
            port,
            timeout,
            stream: connect(port, timeout)?,
            request: Vec::new(),
            body: Vec::new(),
        };
        scraper.ask_for(path);
        Ok(scraper)
    }

    /// Asks for another path from now on.
    pub(crate) fn ask_for(&mut self, path: &str) {
        let port = self.port;
        self.request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n").into_bytes();
    }

    /// The body of the next answer; an error unless its status is 200.
    pub(crate) fn get(&mut self) -> Result<&str, BenchError> {
        let written = self.stream.get_mut().write_all(&self.request);
        let got = written.map_err(BenchError::from).and_then(|()| self.receive());
        if let Err(error) = got {
            // The rest of that answer is not the beginning of the next one.
            self.stream = connect(self.port, self.timeout)?;
            return Err(error);
        }
        Ok(std::str::from_utf8(&self.body)?)
    }

    /// The answer to this body, sent to `path` instead.
    pub(crate) fn post(&mut self, path: &str, content_type: &str, body: &[u8]) -> Result<&str, BenchError> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
        );
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.stream.get_mut().write_all(body)?;
        self.receive()?;
        Ok(std::str::from_utf8(&self.body)?)
    }

    /// Reads an answer into `body`; an error unless its status is 200.
    fn receive(&mut self) -> Result<(), BenchError> {
        let mut status = String::new();
        self.stream.read_line(&mut status)?;
        let mut length = None;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? <= 2 {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse()?);
            }
        }
        self.body.clear();
        if status.contains(" 204 ") {
            return Ok(());
        }
        match length {
            Some(length) => self.read(length)?,
            // A server that does not know the length of its page sends it in chunks.
            None => while self.chunk()? {},
        }
        if status.contains(" 200 ") {
            Ok(())
        } else {
            Err(format!("{}: {}", status.trim(), String::from_utf8_lossy(&self.body)).into())
        }
    }

    /// So many bytes more of the body.
    fn read(&mut self, length: usize) -> Result<(), BenchError> {
        let read = self.body.len();
        self.body.resize(read + length, 0);
        Ok(self.stream.read_exact(&mut self.body[read..])?)
    }

    /// A chunk more of the body, and whether others follow.
    fn chunk(&mut self) -> Result<bool, BenchError> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end().split(';').next().unwrap_or_default(), 16)?;
        self.read(length)?;
        line.clear();
        self.stream.read_line(&mut line)?;
        Ok(length > 0)
    }

    /// The sum of the samples whose name is `name` in the next answer.
    pub(crate) fn sum(&mut self, name: &str) -> Result<f64, BenchError> {
        Ok(sum(self.get()?, name))
    }
}

fn connect(port: u16, timeout: Duration) -> Result<BufReader<TcpStream>, BenchError> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// The sum of the samples of an exposition whose name is `name`, whatever their labels.
pub(crate) fn sum(exposition: &str, name: &str) -> f64 {
    let samples = exposition.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next())??;
        value.parse::<f64>().ok()
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_are_added() {
        let text = "# TYPE a counter\na 1\na{x=\"y z\"} 2.5\nab 4\n";
        assert_eq!(sum(text, "a"), 3.5);
        assert_eq!(sum(text, "b"), 0.0);
    }

    #[test]
    fn a_page_in_chunks_is_one_page() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in [
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\na 1\n\r\nC;x=y\r\nb 2\nb{c=\"\"} \r\n2\r\n3\n\r\n0\r\n\r\n",
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nb 7\n",
            ] {
                let _ = stream.read(&mut [0; 256]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut scraper = Scraper::connect(port, "/").unwrap();
        assert_eq!(scraper.sum("b").unwrap(), 5.0);
        assert_eq!(scraper.sum("b").unwrap(), 7.0);
        server.join().unwrap();
    }
}
