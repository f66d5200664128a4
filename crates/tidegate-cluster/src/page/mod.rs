// SPDX-License-Identifier: Apache-2.0

//! Pages: up to 256 series of one run in one partition, as an OTLP request.
//!
//! Any OTLP reader can read a page. It has cumulative values with the start times of their series. The resource attribute
//! `tidegate.producer` tells producers apart, and the metadata `tidegate.merge` of a metric says how their values merge.

mod decode;
mod encode;
mod headers;
mod record;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use decode::{DecodedPage, PageLimits, PageReport, WindowReport, decode_page};
pub use encode::PageWriter;
pub(crate) use encode::window_series;
pub use headers::{PageHeaders, PageKind};
pub use record::{RecordDigest, RetainedSeries, decode_record, encode_record};
use tidegate_engine::{Attributes, Data, MergeMode, Metric, Resource, Series};

/// The resource attribute with the name of the producer.
pub const PRODUCER_KEY: &str = "tidegate.producer";

/// The key in the metadata of a metric that says how values merge.
pub const MERGE_KEY: &str = "tidegate.merge";

/// The value of [`MERGE_KEY`] for the window of a composite.
const WINDOW: &str = "window";

/// The value of [`MERGE_KEY`] for the total of a stream, which other producers may report too.
const STREAM: &str = "stream";

/// The most series of a page.
pub const MAX_PAGE_SERIES: usize = 256;

/// Why a message is not a page or a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The subject is not one of this cluster.
    #[error("the subject is not one of this cluster")]
    Subject,
    /// A header is not there.
    #[error("the header `{0}` is missing")]
    MissingHeader(&'static str),
    /// A header has a wrong value.
    #[error("the header `{0}` has a value that is not valid")]
    Header(&'static str),
    /// A later version of tidegate has written it.
    #[error("the message has version `{0}`: upgrade this gateway")]
    Version(String),
    /// Subject and headers do not fit together.
    #[error("the subject and the headers contradict each other")]
    Contradiction,
    /// The body is too large.
    #[error("the body has {bytes} bytes: the limit is {most} bytes")]
    TooLarge {
        /// The bytes of the body.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The decoded body would be too large.
    #[error("the decoded body needs more than {0} bytes")]
    TooHeavy(usize),
    /// There are too many series.
    #[error("the page has more than {MAX_PAGE_SERIES} series")]
    TooManySeries,
    /// The body is not an OTLP request.
    #[error("{0}")]
    Otlp(String),
    /// A resource names another producer, or none.
    #[error("a resource does not have the producer of the subject")]
    Producer,
    /// A merge mode that this version does not know.
    #[error("the merge mode `{0}` is not known: upgrade this gateway")]
    MergeMode(String),
    /// A value is a delta. Pages have cumulative values only.
    #[error("a value is a delta: send cumulative values")]
    Delta,
    /// A stream of values that may fall or are deltas.
    #[error("a stream does not have totals that only grow")]
    Stream,
    /// A window is not an exponential histogram of deltas.
    #[error("a window of a composite is not a delta exponential histogram")]
    Window,
    /// A record whose attributes of runs are not valid.
    #[error("a retained total does not say what it contains")]
    Retained,
}

impl PageError {
    /// Whether a later version of tidegate may have written the message: a reader skips it.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Version(_) | Self::MergeMode(_))
    }
}

/// How values of this kind merge if nothing says otherwise; `None`: they are deltas.
fn default_mode(data: Data) -> Option<MergeMode> {
    use tidegate_engine::Temporality::Delta;
    match data {
        Data::Gauge => Some(MergeMode::Last),
        Data::Sum {
            temporality: Delta, ..
        }
        | Data::Histogram { temporality: Delta }
        | Data::ExponentialHistogram { temporality: Delta } => None,
        Data::Sum { monotonic: false, .. } => Some(MergeMode::Level),
        _ => Some(MergeMode::Add),
    }
}

/// Changes the resources and metrics of series. Series that follow each other share them, before and after.
struct Retagger<R, M> {
    resource: R,
    metric: M,
    last_resource: Option<(Arc<Resource>, Arc<Resource>)>,
    last_metric: Option<(Arc<Metric>, Attributes, Arc<Metric>)>,
}

impl<R: Fn(&Attributes) -> Attributes, M: Fn(&Attributes) -> Attributes> Retagger<R, M> {
    /// `resource` changes the attributes of resources, and `metric` the metadata of metrics.
    fn new(resource: R, metric: M) -> Self {
        Self {
            resource,
            metric,
            last_resource: None,
            last_metric: None,
        }
    }

    /// The changed series. `more` are further metadata.
    fn series(&mut self, series: &Series, more: &Attributes) -> Series {
        Series {
            resource: self.resource(&series.resource),
            scope: series.scope.clone(),
            metric: self.metric(&series.metric, more),
            attributes: series.attributes.clone(),
        }
    }

    fn resource(&mut self, from: &Arc<Resource>) -> Arc<Resource> {
        if let Some((last, to)) = &self.last_resource
            && Arc::ptr_eq(last, from)
        {
            return to.clone();
        }
        let to = Arc::new(Resource {
            attributes: (self.resource)(&from.attributes),
            schema_url: from.schema_url.clone(),
        });
        self.last_resource = Some((from.clone(), to.clone()));
        to
    }

    fn metric(&mut self, from: &Arc<Metric>, more: &Attributes) -> Arc<Metric> {
        if let Some((last, last_more, to)) = &self.last_metric
            && Arc::ptr_eq(last, from)
            && last_more == more
        {
            return to.clone();
        }
        let to = Arc::new(Metric {
            metadata: (self.metric)(&from.metadata).merge(more),
            ..Metric::clone(from)
        });
        self.last_metric = Some((from.clone(), more.clone(), to.clone()));
        to
    }
}
