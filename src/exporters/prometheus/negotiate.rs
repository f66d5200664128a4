// SPDX-License-Identifier: Apache-2.0

//! Content negotiation of a scrape: the supported format that its `Accept` header prefers.

use crate::net::accept::{Wish, wishes};
use crate::prom::{Escaping, Format};

/// A media range that we can answer.
struct Offer {
    media: &'static str,
    /// Parameters that a range must have; `None`: a range without it will do too.
    wants: &'static [(&'static str, &'static [Option<&'static str>])],
    format: Format,
    /// The media type as answered.
    content_type: &'static str,
}

/// The supported formats. A text range without a version means 0.0.4, an OpenMetrics range 0.0.1
/// (prometheus/common).
const OFFERS: [Offer; 5] = [
    Offer {
        media: "application/vnd.google.protobuf",
        wants: &[
            ("proto", &[Some("io.prometheus.client.MetricFamily")]),
            ("encoding", &[Some("delimited")]),
        ],
        format: Format::Protobuf,
        content_type: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    },
    Offer {
        media: "application/openmetrics-text",
        wants: &[("version", &[Some("1.0.0")])],
        format: Format::OpenMetrics,
        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    },
    Offer {
        media: "application/openmetrics-text",
        wants: &[("version", &[Some("0.0.1"), None])],
        format: Format::OpenMetrics,
        content_type: "application/openmetrics-text; version=0.0.1; charset=utf-8",
    },
    Offer {
        media: "text/plain",
        wants: &[("version", &[Some("1.0.0")])],
        format: Format::Text,
        content_type: "text/plain; version=1.0.0; charset=utf-8",
    },
    Offer {
        media: "text/plain",
        wants: &[("version", &[Some("0.0.4"), None])],
        format: Format::Text,
        content_type: "text/plain; version=0.0.4; charset=utf-8",
    },
];

/// The agreed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) format: Format,
    media_type: &'static str,
    /// The escaping that the scraper asked for, if any.
    asked: Option<Escaping>,
}

impl Agreed {
    /// Text 0.0.4, which every scraper takes: for requests without a usable preference.
    const FALLBACK: Self = Self {
        format: Format::Text,
        media_type: "text/plain; version=0.0.4; charset=utf-8",
        asked: None,
    };

    /// The best of what an `Accept` header wants.
    pub(super) fn on(accept: &str, with_openmetrics: bool) -> Self {
        let has = |offer: &&Offer| with_openmetrics || offer.format != Format::OpenMetrics;
        let wishes = wishes(accept);
        let wanted = wishes.iter().filter(|wish| wish.quality > 0.0);
        let mut agreed = wanted.filter_map(|wish| {
            let offer = OFFERS.iter().filter(has).find(|offer| offer.meets(wish))?;
            Some(Self {
                format: offer.format,
                media_type: offer.content_type,
                asked: wish.parameter("escaping").and_then(Escaping::named),
            })
        });
        agreed.next().unwrap_or(Self::FALLBACK)
    }

    /// The escaping of names: underscores unless the scraper asks for another one.
    pub(super) fn escaping(self) -> Escaping {
        self.asked.unwrap_or_default()
    }

    /// The `Content-Type` of the answer, which repeats how names are escaped.
    pub(super) fn content_type(self) -> String {
        match self.asked {
            Some(escaping) => format!("{}; escaping={}", self.media_type, escaping.name()),
            None => self.media_type.to_owned(),
        }
    }
}

impl Offer {
    fn meets(&self, wish: &Wish<'_>) -> bool {
        let mut wants = self.wants.iter();
        wish.is(self.media) && wants.all(|(name, values)| values.contains(&wish.parameter(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of scrapers, and their formats with and without OpenMetrics.
    const SCRAPERS: [(&str, &str, &str, &str); 7] = [
        ("nothing", "", TEXT, TEXT),
        ("curl", "*/*", TEXT, TEXT),
        (
            "Prometheus 2.42",
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TEXT,
        ),
        (
            "Prometheus 2.53",
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TEXT,
        ),
        (
            "Prometheus 3",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
        (
            "Prometheus 3 with text first",
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,\
             application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.3",
            "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
        (
            "client_golang's tests",
            "text/plain;version=0.0.4;q=0.3;escaping=values, */*;q=0.1",
            "text/plain; version=0.0.4; charset=utf-8; escaping=values",
            "text/plain; version=0.0.4; charset=utf-8; escaping=values",
        ),
    ];

    const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

    #[test]
    fn every_scraper_gets_the_best_that_both_have() {
        for (scraper, accept, with, without) in SCRAPERS {
            assert_eq!(Agreed::on(accept, true).content_type(), with, "{scraper}");
            assert_eq!(Agreed::on(accept, false).content_type(), without, "{scraper}");
        }
    }

    #[test]
    fn versions_and_qualities_decide_on_the_format() {
        let openmetrics =
            |version: &str| format!("application/openmetrics-text; version={version}; charset=utf-8");
        for (accept, expected) in [
            ("application/openmetrics-text", openmetrics("0.0.1")),
            (
                "APPLICATION/OpenMetrics-Text; Version=\"1.0.0\"",
                openmetrics("1.0.0"),
            ),
            ("application/openmetrics-text;version=2.0.0", TEXT.to_owned()),
            ("application/openmetrics-text;q=0.1,text/plain", TEXT.to_owned()),
            ("application/openmetrics-text;q=0", TEXT.to_owned()),
            ("application/openmetrics-text;q=no", TEXT.to_owned()),
            ("text/plain;q=0", TEXT.to_owned()),
            ("text/plain;version=9, text/html", TEXT.to_owned()),
            (
                "text/plain, application/openmetrics-text;version=1.0.0",
                TEXT.to_owned(),
            ),
        ] {
            assert_eq!(Agreed::on(accept, true).content_type(), expected, "{accept}");
        }
    }

    #[test]
    fn names_are_escaped_as_asked_for_and_the_answer_says_so() {
        for (parameter, escaping, said) in [
            ("", Escaping::Underscores, ""),
            (
                ";escaping=allow-utf-8",
                Escaping::AllowUtf8,
                "; escaping=allow-utf-8",
            ),
            (
                ";escaping=underscores",
                Escaping::Underscores,
                "; escaping=underscores",
            ),
            (";escaping=dots", Escaping::Dots, "; escaping=dots"),
            (";escaping=values", Escaping::Values, "; escaping=values"),
            (";escaping=sparks", Escaping::Underscores, ""),
        ] {
            let agreed = Agreed::on(&format!("text/plain;version=1.0.0{parameter}"), false);
            assert_eq!(agreed.escaping(), escaping, "{parameter}");
            assert_eq!(
                agreed.content_type(),
                format!("text/plain; version=1.0.0; charset=utf-8{said}")
            );
        }
    }
}
