// SPDX-License-Identifier: Apache-2.0

//! Exporters of vendors whose services take OTLP: `otlphttp` with the preset of the vendor.
//!
//! Their own options do not contain the OTLP endpoint of the account, so a variable stands for it.

use std::collections::HashSet;
use std::mem::replace as exchange;

use super::references::rename_exporters;
use super::report::Report;
use crate::config::{Entry, Node, NodeValue};
use crate::exporters::vendor::VendorName;

/// An exporter of the Collector.
struct VendorExporter {
    kind: &'static str,
    vendor: VendorName,
    /// The path of the option with the API key.
    key: &'static [&'static str],
}

const EXPORTERS: &[VendorExporter] = &[
    VendorExporter {
        kind: "datadog",
        vendor: VendorName::Datadog,
        key: &["api", "key"],
    },
    VendorExporter {
        kind: "dynatrace",
        vendor: VendorName::Dynatrace,
        key: &["api_token"],
    },
    VendorExporter {
        kind: "newrelic",
        vendor: VendorName::NewRelic,
        key: &["apikey"],
    },
    VendorExporter {
        kind: "sapm",
        vendor: VendorName::Splunk,
        key: &["access_token"],
    },
    VendorExporter {
        kind: "signalfx",
        vendor: VendorName::Splunk,
        key: &["access_token"],
    },
];

/// The site of accounts of Datadog whose options name none.
const DATADOG_SITE: &str = "datadoghq.com";

/// Options that `otlphttp` has too.
const CARRIED: &[&str] = &["proxy_url", "retry_on_failure", "sending_queue", "timeout", "tls"];

/// Options that say where the account is.
const LOCATIONS: &[&str] = &[
    "api_url",
    "endpoint",
    "host_override",
    "ingest_url",
    "metrics_host_override",
    "realm",
    "site",
    "spans_host_override",
];

/// Replaces the exporters of vendors, here and in pipelines.
pub(super) fn replace(root: &mut Node, report: &mut Report) {
    let section = root.get_mut("exporters").map(Node::value_mut);
    let Some(NodeValue::Map(entries)) = section else {
        return;
    };
    let mut ids: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let mut renamed = Vec::new();
    for entry in entries {
        let kind = entry.key.split('/').next().unwrap_or_default().trim();
        let Some(exporter) = EXPORTERS.iter().find(|exporter| exporter.kind == kind) else {
            continue;
        };
        let id = free_id(&entry.key, &ids);
        ids.insert(id.clone());
        entry.value = exporter.converted(entry, &id, report);
        renamed.push((exchange(&mut entry.key, id.clone()), id));
    }
    rename_exporters(root, &renamed);
}

/// `otlphttp/datadog-eu` for `datadog/eu`, or the next free name.
fn free_id(old: &str, ids: &HashSet<String>) -> String {
    let first = format!("otlphttp/{}", old.replace('/', "-"));
    let further = (2..=ids.len() + 2).map(|number| format!("{first}-{number}"));
    let mut free = std::iter::once(first.clone())
        .chain(further)
        .filter(|id| !ids.contains(id));
    free.next().unwrap_or_else(|| first.clone())
}

/// `DATADOG_EU_OTLP_ENDPOINT` for `datadog/eu`.
fn variable(id: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let begin: String = id.chars().map(letter).collect();
    format!("{begin}_OTLP_ENDPOINT")
}

impl VendorExporter {
    /// The options of the `otlphttp` exporter `id`, in place of those of an entry.
    fn converted(&self, entry: &Entry, id: &str, report: &mut Report) -> Node {
        let Entry { key, value: options } = entry;
        let span = options.key_span().unwrap_or(options.span());
        let variable = variable(key);
        let vendor = self.vendor.as_str();
        let mut node = Node::empty_map(span);
        node.set("endpoint", Node::of_text(&format!("${{env:{variable}}}"), span));
        node.set("vendor", Node::of_text(vendor, span));
        let key = self.key.iter().try_fold(options, |node, key| node.get(key));
        if let Some(key) = key {
            node.set("api_key", key.clone());
        }
        for Entry { key, value } in options.as_map().unwrap_or_default() {
            match key.as_str() {
                carried if CARRIED.contains(&carried) => node.set(carried, value.clone()),
                first if self.key.first() == Some(&first) => self.report_beside_key(value, &variable, report),
                name => report_option(name, value, &variable, report),
            }
        }
        let mut message = format!(
            "converted to `{id}` with `vendor: {vendor}`: set the variable {variable} to the OTLP endpoint of the account"
        );
        if let Some(endpoint) = self.usual_endpoint(options) {
            message += &format!(", for example {endpoint}");
        }
        if self.vendor == VendorName::NewRelic {
            message += "; that endpoint needs a license key, not an insert key";
        }
        report.add_change(options, message);
        node
    }

    /// The OTLP endpoint of the site that the options name, or those of the vendor. `None`: nothing tells it.
    fn usual_endpoint(&self, options: &Node) -> Option<String> {
        match self.vendor {
            VendorName::Datadog => {
                let site = options.get("api").and_then(|api| api.get("site"));
                let site = site.map_or(Some(DATADOG_SITE), Node::as_str)?;
                (!site.contains('$')).then(|| format!("https://otlp.{site}"))
            }
            VendorName::NewRelic => {
                Some("https://otlp.nr-data.net, or https://otlp.eu01.nr-data.net in the EU".to_owned())
            }
            _ => None,
        }
    }

    /// Reports the options of the map that has the key.
    fn report_beside_key(&self, map: &Node, variable: &str, report: &mut Report) {
        let entries = map.as_map().unwrap_or_default().iter();
        for Entry { key, value } in entries.filter(|entry| self.key.last() != Some(&entry.key.as_str())) {
            report_option(key, value, variable, report);
        }
    }
}

/// Reports an option that `otlphttp` has not.
fn report_option(name: &str, value: &Node, variable: &str, report: &mut Report) {
    if LOCATIONS.contains(&name) {
        report.add_change(value, format!("converted: the variable {variable} stands for it"));
    } else {
        report.add(value, "not in tidegate: use the options of `otlphttp`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Class, foreign_components, instead};
    use crate::exporters::vendor::VENDORS;

    /// The vendor that a text names.
    fn named_vendor(text: &str) -> Option<&str> {
        let (_, rest) = text.split_once("`vendor: ")?;
        rest.split('`').next()
    }

    #[test]
    fn replacements_name_presets_that_exist() {
        let is_known = |name: &str| VENDORS.iter().any(|vendor| vendor.name.as_str() == name);
        for (kind, text) in Class::ALL.into_iter().flat_map(foreign_components) {
            let vendor = named_vendor(text);
            assert_eq!(text.contains("vendor:"), vendor.is_some(), "{kind}: {text}");
            assert!(vendor.is_none_or(is_known), "{kind}: {text}");
        }
    }

    #[test]
    fn replacements_of_exporters_are_of_the_same_product() {
        for (kind, expected) in [
            ("awscloudwatchlogs", Some("aws")),
            ("awsemf", Some("aws")),
            ("awsxray", Some("aws")),
            ("azuremonitor", Some("azure")),
            ("coralogix", None),
            ("googlecloud", Some("google_cloud")),
            ("loki", None),
            ("splunk_hec", None),
        ] {
            let text = instead(Class::Exporter, kind).unwrap();
            assert_eq!(named_vendor(text), expected, "{kind}: {text}");
        }
        for exporter in EXPORTERS {
            let text = instead(Class::Exporter, exporter.kind).unwrap();
            assert_eq!(named_vendor(text), Some(exporter.vendor.as_str()), "{text}");
        }
    }
}
