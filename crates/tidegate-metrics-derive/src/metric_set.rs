// SPDX-License-Identifier: Apache-2.0

//! Metric sets.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Field, Ident};

use crate::attributes::{FieldAttributes, SetAttributes, fields, plain};

pub(crate) fn derive(input: DeriveInput) -> syn::Result<TokenStream> {
    let SetAttributes { prefix, labels } = SetAttributes::parse(&input.attrs)?;
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let members = fields(&input)?
        .into_iter()
        .map(|(ident, field)| member(ident, field))
        .collect::<syn::Result<Vec<_>>>()?;
    Ok(quote! {
        impl #impl_generics ::tidegate_metrics::MetricSet for #name #type_generics #where_clause {
            const PREFIX: &'static str = #prefix;
            const LABELS: &'static [&'static str] = &[#(#labels),*];

            fn register_under(
                registry: &dyn ::tidegate_metrics::MetricsRegistry,
                prefix: &str,
                labels: &[(&str, &str)],
            ) -> ::core::result::Result<Self, ::tidegate_metrics::RegisterError> {
                let prefix = ::tidegate_metrics::join_names(prefix, Self::PREFIX);
                ::core::result::Result::Ok(Self { #(#members),* })
            }
        }
    })
}

fn member(ident: &Ident, field: &Field) -> syn::Result<TokenStream> {
    let attributes = FieldAttributes::parse(&field.attrs)?;
    let ty = &field.ty;
    if attributes.is_nested {
        let under = match &attributes.name {
            Some(name) => quote!(&::tidegate_metrics::join_names(&prefix, #name)),
            None => quote!(&prefix),
        };
        return Ok(quote! {
            #ident: <#ty as ::tidegate_metrics::MetricSet>::register_under(registry, #under, labels)?
        });
    }
    let name = attributes.name.clone().unwrap_or_else(|| plain(ident));
    let description = attributes.description(&quote!(::tidegate_metrics::join_names(&prefix, #name)));
    let by = attributes.by();
    Ok(quote! {
        #ident: <#ty as ::tidegate_metrics::Member>::register(registry, &#description, labels, #by)?
    })
}
