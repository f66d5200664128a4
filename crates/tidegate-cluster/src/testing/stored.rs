// SPDX-License-Identifier: Apache-2.0

//! Messages as stores of clusters have them. `stored/make.py` wrote them, with another encoder than this crate has.

use bytes::Bytes;

use crate::StoreMessage;

/// The messages of version 1 of the format.
const VERSION_1: &str = include_str!("stored/version-1.txt");

/// A stored message of version 1 of the format: `page`, `stream`, `window` or `record`. Another name gives an empty one.
pub fn stored_message(name: &str) -> StoreMessage {
    let mut message = StoreMessage {
        subject: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    for (what, text) in lines(name) {
        match what {
            "subject" => message.subject = text.to_owned(),
            "header" => {
                let header = text.split_once(' ');
                let header = header.map(|(name, value)| (name.to_owned(), value.to_owned()));
                message.headers.extend(header);
            }
            "body" => message.body = bytes_of_hex(text),
            _ => {}
        }
    }
    message
}

/// The body of a stored message as zstd compressed it.
pub fn stored_zstd(name: &str) -> Bytes {
    let mut lines = lines(name);
    let found = lines.find(|(what, _)| *what == "zstd");
    found.map(|(_, digits)| bytes_of_hex(digits)).unwrap_or_default()
}

/// What the lines of a message begin with, and the rest of them.
fn lines(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let first = ("message", name.to_owned());
    let all = VERSION_1.lines().filter_map(|line| line.split_once(' '));
    let from = all.skip_while(move |(what, text)| (*what, *text) != (first.0, first.1.as_str()));
    from.skip(1).take_while(|(what, _)| *what != "message")
}

fn bytes_of_hex(digits: &str) -> Bytes {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).filter_map(byte).collect()
}
