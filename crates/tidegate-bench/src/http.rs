//! A scraper: GETs of one path over one kept connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Error;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a port of this machine.
pub(crate) struct Scraper {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
}

impl Scraper {
    pub(crate) fn connect(port: u16, path: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            request: format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n").into_bytes(),
            body: Vec::new(),
        })
    }

    /// The body of the next answer; an error unless its status is 200.
    pub(crate) fn get(&mut self) -> Result<&str, Error> {
        self.stream.get_mut().write_all(&self.request)?;
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
        self.body.resize(length.ok_or("an answer without a length")?, 0);
        self.stream.read_exact(&mut self.body)?;
        match status.contains(" 200 ") {
            true => Ok(std::str::from_utf8(&self.body)?),
            false => Err(format!("{}: {}", status.trim(), String::from_utf8_lossy(&self.body)).into()),
        }
    }

    /// The sum of the samples whose name is `name` in the next answer.
    pub(crate) fn sum(&mut self, name: &str) -> Result<f64, Error> {
        Ok(sum(self.get()?, name))
    }
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
}
