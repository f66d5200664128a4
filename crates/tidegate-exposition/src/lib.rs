// SPDX-License-Identifier: Apache-2.0

//! A streaming parser of the pages of Prometheus scrape targets: text 0.0.4 and 1.0.0, OpenMetrics 0.0.1 and 1.0.0,
//! delimited protobuf.
//!
//! ```
//! use tidegate_exposition::{Event, Format, Labels, Options, Parser};
//!
//! let page = b"# TYPE a counter\na{b=\"c\"} 1\n";
//! let mut parser = Parser::new(Format::Text, page, Options::default());
//! let mut labels = Labels::default();
//! while let Some(event) = parser.next(b"").unwrap() {
//!     if let Event::Sample(sample) = event {
//!         sample.series.labels(&mut labels).unwrap();
//!         let labels: Vec<_> = labels.iter().collect();
//!         assert_eq!(labels, [("__name__", "a"), ("b", "c")]);
//!         assert_eq!(sample.value, 1.0);
//!     }
//! }
//! ```
//!
//! The parser reads a page as Prometheus does. It accepts and refuses by the same rules, oddities included, and an
//! error anywhere means that nothing of the page counts. `docs/scraping.md` of the gateway lists the differences.
//!
//! A line costs little when its series has been seen before. The bytes of its name and labels
//! ([`ExposedSeries::raw`]) are its identity; the parser reads and checks the labels only when the caller asks for
//! them. So a caller asks only for the labels of series whose bytes it does not know. Pages list their series in the
//! same order each time: if the caller names the series to [expect](Parser::next), the parser compares instead of
//! searching for the end.
//!
//! For those who write such pages there are numbers ([`mod@write`]), parts of lines ([`mod@lines`]), and names with
//! their units ([`mod@unit`]).
//!
//! No I/O, nothing of the gateway.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(feature = "parser")]
mod error;
#[cfg(feature = "parser")]
mod event;
#[cfg(feature = "parser")]
mod labels;
pub mod lines;
#[cfg(feature = "parser")]
mod native;
#[cfg(feature = "parser")]
mod number;
#[cfg(feature = "parser")]
mod openmetrics;
#[cfg(feature = "parser")]
mod parser;
#[cfg(feature = "parser")]
mod protobuf;
#[cfg(feature = "parser")]
mod scan;
#[cfg(all(test, feature = "parser"))]
mod tests;
#[cfg(feature = "parser")]
mod text;
pub mod unit;
pub mod write;

#[cfg(feature = "parser")]
pub use error::{ParseError, Problem};
#[cfg(feature = "parser")]
pub use event::{Event, Exemplar, ExposedSample, ExposedSeries, Histogram, MetricType, Text};
#[cfg(feature = "parser")]
pub use labels::Labels;
#[cfg(feature = "parser")]
pub use native::{BadHistogram, BucketSpan, Counts, NativeHistogram, Side};
#[cfg(feature = "parser")]
pub use number::parse_float;
#[cfg(feature = "parser")]
pub use parser::{Format, NativeHistograms, Options, Parser};

/// The label that holds a metric's name.
pub const NAME: &str = "__name__";
