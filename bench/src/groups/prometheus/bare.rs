// SPDX-License-Identifier: Apache-2.0

//! The least work of any text exposition: each series' name and labels copied, its value formatted behind them. Taken
//! in turn with scrapes, so that both see the machine as it is at that moment.

use std::hint::black_box;

/// The series of a page.
pub(super) struct Bare {
    heads: Vec<u8>,
    /// Where each one's name and labels end.
    ends: Vec<usize>,
    values: Vec<u64>,
    size: usize,
}

impl Bare {
    /// Of a page of whole numbers.
    pub(super) fn of(page: &[u8]) -> Self {
        let mut bare = Self {
            heads: Vec::new(),
            ends: Vec::new(),
            values: Vec::new(),
            size: page.len(),
        };
        let lines = page.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")) {
            let value = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            let text = std::str::from_utf8(value).unwrap_or_default();
            bare.values
                .push(text.parse().expect("counters are whole numbers"));
            bare.heads.extend_from_slice(&line[..line.len() - value.len()]);
            bare.ends.push(bare.heads.len());
        }
        bare
    }

    /// Writes them once more.
    pub(super) fn write(&self) {
        let mut page = Vec::with_capacity(self.size);
        let mut start = 0;
        for (end, value) in self.ends.iter().zip(&self.values) {
            page.extend_from_slice(&self.heads[start..*end]);
            page.extend_from_slice(itoa::Buffer::new().format(*value).as_bytes());
            page.push(b'\n');
            start = *end;
        }
        drop(black_box(page));
    }
}
