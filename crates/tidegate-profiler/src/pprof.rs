// SPDX-License-Identifier: Apache-2.0

//! pprof's `profile.proto`, as far as a flat profile needs it.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use prost::Message;

use crate::Profile;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Encoded {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
}

/// Indices into the table of strings.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(crate) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PprofSample {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<PprofLine>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PprofLine {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(crate) filename: i64,
}

pub(crate) fn encode(profile: &Profile) -> Vec<u8> {
    let mut table = SymbolTable::default();
    let cpu = table.value_type("cpu", "nanoseconds");
    let period = nanos(profile.period.as_nanos());
    let mut encoded = Encoded {
        sample_type: vec![table.value_type("samples", "count"), cpu],
        time_nanos: nanos(
            profile
                .started
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos(),
        ),
        duration_nanos: nanos(profile.duration.as_nanos()),
        period_type: Some(cpu),
        period,
        ..Encoded::default()
    };
    for (id, (address, count)) in (1..).zip(&profile.samples) {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        encoded.sample.push(PprofSample {
            location_id: vec![id],
            value: vec![count, count.saturating_mul(period)],
        });
        encoded.location.push(Location {
            id,
            address: *address as u64,
            line: table.lines(*address),
        });
    }
    if profile.dropped > 0 {
        let comment = format!(
            "{} samples found no room: take a shorter profile",
            profile.dropped
        );
        encoded.comment.push(table.string(comment));
    }
    encoded.function = table.functions;
    encoded.string_table = table.strings;
    encoded.encode_to_vec()
}

fn nanos(nanos: u128) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Strings and functions, each once.
struct SymbolTable {
    strings: Vec<String>,
    known_strings: HashMap<String, i64>,
    functions: Vec<Function>,
    known_functions: HashMap<(String, String), u64>,
}

impl Default for SymbolTable {
    fn default() -> Self {
        let mut table = Self {
            strings: Vec::new(),
            known_strings: HashMap::new(),
            functions: Vec::new(),
            known_functions: HashMap::new(),
        };
        // The format wants the empty string first.
        table.string(String::new());
        table
    }
}

impl SymbolTable {
    fn string(&mut self, text: String) -> i64 {
        let next = self.strings.len() as i64;
        let index = *self.known_strings.entry(text.clone()).or_insert(next);
        if index == next {
            self.strings.push(text);
        }
        index
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.string(kind.to_owned()),
            unit: self.string(unit.to_owned()),
        }
    }

    /// The function at an address, and before it those that were inlined into it.
    fn lines(&mut self, address: usize) -> Vec<PprofLine> {
        let mut lines = Vec::new();
        backtrace::resolve(address as *mut _, |symbol| {
            let name = symbol.name().map(|name| format!("{name:#}"));
            let file = symbol.filename().map(|path| path.display().to_string());
            if let Some(name) = name {
                lines.push(PprofLine {
                    function_id: self.function(name, file.unwrap_or_default()),
                    line: symbol.lineno().unwrap_or_default().into(),
                });
            }
        });
        lines
    }

    fn function(&mut self, name: String, file: String) -> u64 {
        let key = (name, file);
        if let Some(id) = self.known_functions.get(&key) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        let (name, filename) = (self.string(key.0.clone()), self.string(key.1.clone()));
        self.functions.push(Function {
            id,
            name,
            system_name: name,
            filename,
        });
        self.known_functions.insert(key, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Sampling, StartError};

    #[inline(never)]
    fn burn_the_processor(until: Instant) -> u64 {
        // Without calls, which a build without optimisation would name instead.
        let mut value = 1_u64;
        while Instant::now() < until {
            let mut step = 0;
            while step < 1_000_000 {
                value ^= value << 13;
                value ^= value >> 7;
                value ^= value << 17;
                step += 1;
            }
        }
        value
    }

    #[test]
    fn the_function_that_burns_the_processor_is_found() {
        let sampling = Sampling::start().unwrap();
        assert!(matches!(Sampling::start(), Err(StartError::Busy)));
        black_box(burn_the_processor(Instant::now() + Duration::from_secs(2)));
        let profile = sampling.stop();
        let taken = profile.samples.values().sum::<u64>();
        assert!(taken >= 10, "{taken} samples of 2 s");
        let encoded = Encoded::decode(profile.encode().as_slice()).unwrap();
        let text = |index: i64| encoded.string_table[usize::try_from(index).unwrap()].as_str();
        assert_eq!(text(0), "");
        let kinds = encoded
            .sample_type
            .iter()
            .map(|kind| (text(kind.r#type), text(kind.unit)));
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [("samples", "count"), ("cpu", "nanoseconds")]
        );
        let burns = |sample: &&PprofSample| {
            let location = encoded
                .location
                .iter()
                .find(|location| location.id == sample.location_id[0]);
            location.unwrap().line.iter().any(|line| {
                let function = encoded
                    .function
                    .iter()
                    .find(|function| function.id == line.function_id);
                text(function.unwrap().name).contains("burn_the_processor")
            })
        };
        let burning = encoded
            .sample
            .iter()
            .filter(burns)
            .map(|sample| sample.value[0])
            .sum::<i64>();
        assert!(burning * 2 > taken as i64, "{burning} of {taken}");
        let again = Sampling::start().expect("the first has ended");
        drop(again);
    }
}
