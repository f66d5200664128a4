// SPDX-License-Identifier: Apache-2.0

//! Content negotiation: the members of `Accept` and `Accept-Encoding`, best first (RFC 9110, 12.4.2).

use http::{HeaderMap, HeaderName};

use super::compression::Coding;

/// Joins all values of a list header.
pub fn joined(headers: &HeaderMap, name: HeaderName) -> String {
    let values = headers.get_all(name).iter();
    let texts: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
    texts.join(",")
}

/// One member: a media range or a coding, with its parameters and quality.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish<'a> {
    /// `text/plain`, `gzip`, `*`.
    pub value: &'a str,
    /// The quality from 0 (not acceptable) to 1.
    pub quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Wish<'a> {
    /// The value of a parameter without quotes. Its name is compared without case.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut all = self.parameters.iter();
        all.find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    /// Whether it is this media range or coding, compared without case.
    pub fn is(&self, value: &str) -> bool {
        self.value.eq_ignore_ascii_case(value)
    }

    fn parse(member: &'a str) -> Self {
        let mut parts = parts(member, ';').map(str::trim);
        let value = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let mut wish = Self {
            value,
            quality: 1.0,
            parameters: parameters
                .into_iter()
                .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
                .collect(),
        };
        if let Some(quality) = wish.parameter("q") {
            let quality: f64 = quality.parse().unwrap_or(0.0);
            wish.quality = if quality >= 0.0 { quality.min(1.0) } else { 0.0 };
        }
        wish
    }
}

/// The members of a header, best first. Equal members keep their order.
pub fn wishes(header: &str) -> Vec<Wish<'_>> {
    let members = parts(header, ',').filter(|member| !member.trim().is_empty());
    let mut wishes: Vec<_> = members.map(Wish::parse).collect();
    // A quality is never NaN, and sorting keeps the order of equals.
    wishes.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    wishes
}

/// The coding of an answer: the one from `ours` with the highest quality in `header`. `ours` breaks ties.
pub fn coding(header: &str, ours: &[Coding]) -> Coding {
    let wishes = wishes(header);
    let quality = |coding: Coding| {
        let named = wishes
            .iter()
            .find(|wish| Coding::named(wish.value) == Some(coding));
        let any = || wishes.iter().find(|wish| wish.is("*"));
        let found = named.or_else(any).map(|wish| wish.quality);
        // Without a request for a coding, a client may not support one.
        found.unwrap_or(if coding == Coding::Identity {
            f64::MIN_POSITIVE
        } else {
            0.0
        })
    };
    let mut best = (Coding::Identity, quality(Coding::Identity));
    for coding in ours.iter().rev().copied() {
        let quality = quality(coding);
        if quality > 0.0 && quality >= best.1 {
            best = (coding, quality);
        }
    }
    best.0
}

/// Splits the text outside of quotes.
fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn members_are_ranked_by_their_quality() {
        let wishes = wishes("a;q=0.5, b ; Version=\"1,0\" , c;q=0,,d;q=x, e;q=2, f;q=-1");
        let ranked: Vec<_> = wishes.iter().map(|wish| (wish.value, wish.quality)).collect();
        assert_eq!(
            ranked,
            [
                ("b", 1.0),
                ("e", 1.0),
                ("a", 0.5),
                ("c", 0.0),
                ("d", 0.0),
                ("f", 0.0)
            ]
        );
        assert_eq!(wishes[0].parameter("version"), Some("1,0"));
        assert_eq!(wishes[0].parameter("charset"), None);
    }

    #[test]
    fn codings_are_chosen_by_quality_then_by_our_preference() {
        const OURS: [Coding; 2] = [Coding::Zstd, Coding::Gzip];
        for (header, expected) in [
            ("", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("gzip, zstd", Coding::Zstd),
            ("GZIP;q=0.8, zstd;q=0.5", Coding::Gzip),
            ("br, deflate", Coding::Identity),
            ("gzip;q=0", Coding::Identity),
            ("*", Coding::Zstd),
            ("zstd;q=0, *;q=0.1", Coding::Gzip),
            ("identity, gzip;q=0.5", Coding::Identity),
            ("identity;q=0, gzip;q=0.1", Coding::Gzip),
            ("identity;q=0", Coding::Identity),
        ] {
            assert_eq!(coding(header, &OURS), expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read(header in ".{0,64}") {
            let wishes = wishes(&header);
            prop_assert!(wishes.iter().all(|wish| (0.0..=1.0).contains(&wish.quality)));
            prop_assert!(wishes.is_sorted_by(|a, b| a.quality >= b.quality));
        }
    }
}
