// SPDX-License-Identifier: Apache-2.0

//! Files of Prometheus and vmagent: the file becomes the `config` of a `prometheus` receiver, without `remote_write` and rules.
//!
//! The receiver knows which sections and options of Prometheus it can't take. So their removal is left to the check.

use super::alerting;
use super::map_of;
use super::remote_write::Outputs;
use super::report::Report;
use crate::config::{Node, without_references};

/// The address of the page that shows the metrics if the file names no other destination.
const PAGE: &str = "127.0.0.1:9464";

/// The remark about labels that series of Prometheus lack.
const SCOPE_LABELS: &str = "the exporters omit labels `otel_scope_*`, as Prometheus has none: if targets expose such labels \
themselves, remove `without_scope_info` and `disable_scope_info`";

/// The configuration with a pipeline of metrics, and one of recorded series if there are rules. `urls` are further
/// destinations.
pub(super) fn draft(mut root: Node, urls: &[String], is_vmagent: bool, report: &mut Report) -> Node {
    report.omit_prefix("receivers::prometheus::config::");
    if is_vmagent {
        root.change_strings(&with_variables);
    } else {
        root.change_strings(&without_references);
    }
    let span = root.span();
    let mut outputs = Outputs::new(span);
    if let Some(list) = root.take("remote_write") {
        match list.as_list() {
            Some(writes) => writes.iter().for_each(|write| outputs.add(write, report)),
            None if list.is_null() => {}
            None => report.add(&list, "not a list: write `remote_write: [{url: ...}]`"),
        }
    }
    urls.iter().for_each(|url| outputs.add_url(url));
    let has_rules = !is_vmagent && alerting::take(&mut root, &mut outputs, report);
    // vmagent has these labels on all that it scrapes, and Prometheus only on what leaves it.
    if !is_vmagent {
        move_external_labels(&mut root, &mut outputs, has_rules, report);
    }
    if let Some(interval) = root
        .get_mut("global")
        .and_then(|global| global.take("evaluation_interval"))
    {
        report.add(
            &interval,
            "the receiver evaluates no rules: set `interval` of the `rules` extension",
        );
    }
    if outputs.is_empty() {
        report.note(format!(
            "the file has no `remote_write`: the exporter `prometheus` shows the metrics on http://{PAGE}/metrics"
        ));
        outputs.add_page(PAGE);
    } else if has_rules {
        report.note(format!(
            "rules read the metrics of the exporter `prometheus`, which shows them on http://{PAGE}/metrics"
        ));
        outputs.add_page(PAGE);
    }
    report.note(SCOPE_LABELS);
    let receiver = map_of(span, [("config", root)]);
    let mut receivers = map_of(span, [("prometheus", receiver)]);
    let mut pipelines = vec![("metrics", "prometheus")];
    if has_rules {
        receivers.set("rules", Node::empty_map(span));
        pipelines.push(("metrics/rules", "rules"));
    }
    let mut document = map_of(span, [("receivers", receivers)]);
    outputs.finish(&mut document, &pipelines);
    document
}

/// Moves `external_labels` to the exporters. The rules have them already: alerts get them on their way.
fn move_external_labels(root: &mut Node, outputs: &mut Outputs, has_rules: bool, report: &mut Report) {
    let global = root.get_mut("global");
    let Some(labels) = global.and_then(|global| global.take("external_labels")) else {
        return;
    };
    if labels.is_null() || labels.as_map().is_some_and(<[_]>::is_empty) {
        return;
    }
    let is_written = outputs.add_external_labels(&labels);
    if !is_written && !has_rules {
        report.add(
            &labels,
            "only remote writes and alerts have these labels: for the page, set `const_labels` of the exporter `prometheus`",
        );
    }
}

/// A text of vmagent: `%{NAME}` is a variable there, and `${NAME}` is not.
fn with_variables(text: &str) -> String {
    let text = without_references(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("%{") {
        out.push_str(before);
        match after.split_once('}').filter(|(name, _)| is_variable(name)) {
            Some((name, after)) => {
                // A literal `$` before the reference.
                if before.ends_with('$') {
                    out.push('$');
                }
                out.push_str(&format!("${{env:{name}}}"));
                rest = after;
            }
            None => {
                out.push_str("%{");
                rest = after;
            }
        }
    }
    out + rest
}

fn is_variable(name: &str) -> bool {
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins_well && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_vmagent_become_references_and_dollars_stay_dollars() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a%{B}c%{D_1}", "a${env:B}c${env:D_1}"),
            ("$1 ${2}", "$1 $${2}"),
            ("$%{A}", "$$${env:A}"),
            ("%{not a name} %{", "%{not a name} %{"),
        ] {
            assert_eq!(with_variables(text), expected, "{text}");
        }
    }
}
