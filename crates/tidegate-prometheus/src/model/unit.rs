// SPDX-License-Identifier: Apache-2.0

//! Unit words as UCUM: the reverse of making names.

use std::borrow::Cow;

/// Words and their meanings, the reverse of making names: an incoming word equals the outgoing one.
const WORDS: &[(&str, &str)] = &[
    ("days", "d"),
    ("hours", "h"),
    ("minutes", "min"),
    ("seconds", "s"),
    ("milliseconds", "ms"),
    ("microseconds", "us"),
    ("nanoseconds", "ns"),
    ("bytes", "By"),
    ("kibibytes", "KiBy"),
    ("mebibytes", "MiBy"),
    ("gibibytes", "GiBy"),
    ("tibibytes", "TiBy"),
    ("kilobytes", "KBy"),
    ("megabytes", "MBy"),
    ("gigabytes", "GBy"),
    ("terabytes", "TBy"),
    ("meters", "m"),
    ("volts", "V"),
    ("amperes", "A"),
    ("joules", "J"),
    ("watts", "W"),
    ("grams", "g"),
    ("celsius", "Cel"),
    ("hertz", "Hz"),
    ("percent", "%"),
    ("ratio", "1"),
];

/// Words after `_per_`.
const DIVISORS: &[(&str, &str)] = &[
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "w"),
    ("month", "mo"),
    ("year", "y"),
];

/// Converts `bytes_per_second` to `By/s`. Unknown words stay unchanged.
pub fn ucum(word: &str) -> Cow<'_, str> {
    let of = |table: &[(&str, &'static str)], word: &str| {
        table
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, unit)| *unit)
    };
    match word.split_once("_per_") {
        Some((main, per)) => {
            let main = of(WORDS, main).unwrap_or(main);
            let per = of(DIVISORS, per).unwrap_or(per);
            Cow::Owned(format!("{main}/{per}"))
        }
        None => of(WORDS, word).map_or(Cow::Borrowed(word), Cow::Borrowed),
    }
}
