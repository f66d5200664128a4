// SPDX-License-Identifier: Apache-2.0

//! `#[derive(MetricSet)]` and `#[derive(LabelSet)]` of `tidegate-metrics`, where they are documented.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod attributes;
mod label_set;
mod metric_set;

use proc_macro::TokenStream;

/// Makes a metric set of a struct: every field an instrument, a family of them, or another set.
///
/// On the struct, `#[metrics(...)]`:
///
/// - `prefix = "service"` stands before the names of all fields;
/// - `labels(model, role)` are labels that all of them have; their values are given to `register`.
///
/// On a field, `#[metric(...)]`; its documentation is the description of the metric:
///
/// - `name = "..."`: another name than the field's;
/// - `help = "..."`: another description than the documentation;
/// - `unit = "s"`: a UCUM unit;
/// - `buckets = "latency"`: bounds of a histogram by name (see the module `buckets`), or an expression that has them;
/// - `exponential`: an exponential histogram;
/// - `mode = LiveMax`: how the values of several processes become one;
/// - `exemplars`: observations remember the span that they were made in;
/// - `labels(code, method)`, or `labels = Outcome` with a `LabelSet`: the labels of a family;
/// - `nested`: the field is a metric set itself, whose names stand behind this one's prefix.
#[proc_macro_derive(MetricSet, attributes(metrics, metric))]
pub fn metric_set(input: TokenStream) -> TokenStream {
    expand(input, metric_set::derive)
}

/// Makes a label set of a struct: the fields are the labels; `#[label(name = "...")]` names one differently.
#[proc_macro_derive(LabelSet, attributes(label))]
pub fn label_set(input: TokenStream) -> TokenStream {
    expand(input, label_set::derive)
}

fn expand(
    input: TokenStream,
    derive: fn(syn::DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    syn::parse(input)
        .and_then(derive)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
