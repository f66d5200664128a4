// SPDX-License-Identifier: Apache-2.0

//! The settings of a page, and the text of labels.

use tidegate_engine::Resource;

use super::protobuf;
use crate::format::Format;
use crate::labels::{LabelSources, PrometheusLabels};
use crate::name::{Naming, Spelling};

/// The settings that are equal for every series.
#[derive(Clone, Debug)]
pub struct Style {
    /// The rules for making names.
    pub naming: Naming,
    /// The sources of labels.
    pub labels: LabelSources,
    /// Write timestamps.
    pub timestamps: bool,
    /// Whether to write the start of counters, histograms and summaries, if it is a separate sample (OpenMetrics).
    pub created: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            naming: Naming::default(),
            labels: LabelSources::default(),
            timestamps: false,
            created: true,
        }
    }
}

impl Style {
    /// Labels of `target_info`: the attributes of the resource beyond its identity.
    pub(crate) fn labels_of_target(
        &self,
        resource: &Resource,
        spelling: Spelling,
    ) -> Option<PrometheusLabels> {
        const IDENTITY: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
        let mut labels = PrometheusLabels::new(&self.naming, spelling);
        let all = resource.attributes.iter();
        let mut others = all.filter(|(key, _)| !IDENTITY.contains(key)).peekable();
        others.peek()?;
        others.for_each(|(key, value)| labels.add(key, value));
        labels.identify(resource);
        Some(labels)
    }

    /// Their text.
    pub(super) fn text_of_target(&self, resource: &Resource, spelling: Spelling, format: Format) -> Vec<u8> {
        let labels = self.labels_of_target(resource, spelling);
        labels.map(|labels| encode(labels, format)).unwrap_or_default()
    }
}

/// The text of labels.
pub(super) fn encode(labels: PrometheusLabels, format: Format) -> Vec<u8> {
    match format {
        Format::Protobuf => protobuf::labels(&labels.into_pairs()),
        Format::Text | Format::OpenMetrics => labels.render().into_bytes(),
    }
}
