// SPDX-License-Identifier: Apache-2.0

//! Label sets.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{DeriveInput, Field, Ident};

use crate::attributes::{each, fields, plain, text};

pub(crate) fn derive(input: DeriveInput) -> syn::Result<TokenStream> {
    let fields = fields(&input)?;
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let names = fields
        .iter()
        .map(|(ident, field)| label(ident, field))
        .collect::<syn::Result<Vec<_>>>()?;
    let idents: Vec<&Ident> = fields.iter().map(|(ident, _)| *ident).collect();
    let rooms: Vec<Ident> = (0..idents.len()).map(|at| format_ident!("room_{at}")).collect();
    Ok(quote! {
        impl #impl_generics ::tidegate_metrics::LabelSet for #name #type_generics #where_clause {
            const NAMES: &'static [&'static str] = &[#(#names),*];

            fn with_values<R>(&self, use_values: impl ::core::ops::FnOnce(&[&str]) -> R) -> R {
                #(let mut #rooms = ::tidegate_metrics::Scratch::default();)*
                use_values(&[#(::tidegate_metrics::LabelValue::text(&self.#idents, &mut #rooms)),*])
            }
        }
    })
}

fn label(ident: &Ident, field: &Field) -> syn::Result<String> {
    let mut name = plain(ident);
    each(&field.attrs, "label", |meta| {
        if meta.path.is_ident("name") {
            name = text(meta)?;
            Ok(())
        } else {
            Err(meta.error("known here: name"))
        }
    })?;
    Ok(name)
}
