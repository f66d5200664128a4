// SPDX-License-Identifier: Apache-2.0

//! Parses the attributes.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{
    AngleBracketedGenericArguments, Attribute, DeriveInput, Expr, ExprPath, Field, Fields, Ident, Lit,
    LitStr, Path, Token,
};

/// `#[metrics(...)]` of the struct.
#[derive(Default)]
pub(crate) struct SetAttributes {
    pub(crate) prefix: String,
    pub(crate) labels: Vec<String>,
}

impl SetAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut all = Self::default();
        each(attributes, "metrics", |meta| {
            if meta.path.is_ident("prefix") {
                all.prefix = text(meta)?;
            } else if meta.path.is_ident("labels") {
                all.labels = idents(meta)?;
            } else {
                return Err(meta.error("known here: prefix, labels"));
            }
            Ok(())
        })?;
        Ok(all)
    }
}

/// `#[metric(...)]` of a field, and its documentation.
#[derive(Default)]
pub(crate) struct FieldAttributes {
    pub(crate) name: Option<String>,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
    pub(crate) buckets: Option<TokenStream>,
    pub(crate) is_exponential: bool,
    pub(crate) has_exemplars: bool,
    pub(crate) is_nested: bool,
    pub(crate) mode: Option<Ident>,
    pub(crate) labels: FieldLabels,
}

/// The labels of a family.
#[derive(Default)]
pub(crate) enum FieldLabels {
    #[default]
    None,
    Names(Vec<String>),
    Type(Path),
}

impl FieldAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut all = Self {
            help: documentation(attributes),
            ..Self::default()
        };
        each(attributes, "metric", |meta| all.take(meta))?;
        Ok(all)
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let Some(key) = meta.path.get_ident() else {
            return Err(meta.error("expected a single word"));
        };
        match key.to_string().as_str() {
            "name" => self.name = Some(text(meta)?),
            "help" => self.help = text(meta)?,
            "unit" => self.unit = Some(text(meta)?),
            "buckets" => self.buckets = Some(expression(meta.value()?)?),
            "exponential" => self.is_exponential = true,
            "exemplars" => self.has_exemplars = true,
            "nested" => self.is_nested = true,
            "mode" => self.mode = Some(meta.value()?.parse()?),
            "labels" if meta.input.peek(Token![=]) => {
                self.labels = FieldLabels::Type(meta.value()?.parse()?);
            }
            "labels" => self.labels = FieldLabels::Names(idents(meta)?),
            _ => {
                return Err(meta.error(
                    "known here: name, help, unit, buckets, exponential, exemplars, nested, mode, labels",
                ));
            }
        }
        Ok(())
    }

    /// The field as the library describes it.
    pub(crate) fn description(&self, name: &TokenStream) -> TokenStream {
        let help = &self.help;
        let unit = self.unit.iter();
        let mode = self.mode.iter();
        let bounds = self.buckets.iter().map(|buckets| {
            let name: syn::Result<LitStr> = syn::parse2(buckets.clone());
            name.map_or_else(
                |_| buckets.clone(),
                |name| quote!(::tidegate_metrics::buckets::named(#name)?),
            )
        });
        let exponential = self.is_exponential.then(|| quote!(.exponential()));
        let exemplars = self.has_exemplars.then(|| quote!(.exemplars()));
        quote! {
            ::tidegate_metrics::Description::new(#name, #help)
                #(.unit(#unit))*
                #(.bounds(#bounds))*
                #(.mode(::tidegate_metrics::GaugeMode::#mode))*
                #exponential
                #exemplars
        }
    }

    /// The names of the family's labels.
    pub(crate) fn by(&self) -> TokenStream {
        match &self.labels {
            FieldLabels::None => quote!(&[]),
            FieldLabels::Names(names) => quote!(&[#(#names),*]),
            FieldLabels::Type(path) => quote!(<#path as ::tidegate_metrics::LabelSet>::NAMES),
        }
    }
}

/// The named fields of a struct.
pub(crate) fn fields(input: &DeriveInput) -> syn::Result<Vec<(&Ident, &Field)>> {
    let named = match &input.data {
        syn::Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => Some(&fields.named),
            _ => None,
        },
        _ => None,
    };
    let named =
        named.ok_or_else(|| syn::Error::new_spanned(&input.ident, "expected a struct with named fields"))?;
    Ok(named
        .iter()
        .filter_map(|field| Some((field.ident.as_ref()?, field)))
        .collect())
}

/// A field's name without the `r#` that a keyword needs.
pub(crate) fn plain(ident: &Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

/// Shows `take` everything inside the attributes of this name.
pub(crate) fn each(
    attributes: &[Attribute],
    name: &str,
    mut take: impl FnMut(&ParseNestedMeta<'_>) -> syn::Result<()>,
) -> syn::Result<()> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(name))
        .try_for_each(|attribute| attribute.parse_nested_meta(|meta| take(&meta)))
}

pub(crate) fn text(meta: &ParseNestedMeta<'_>) -> syn::Result<String> {
    Ok(meta.value()?.parse::<LitStr>()?.value())
}

/// An expression, up to the next comma. syn parses expressions only with its feature `full`, which doubles its build.
fn expression(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    // Commas between `<` and `>` end no expression. But `<` can also compare: after an operand without `::`.
    let mut expects_operand = true;
    while !input.is_empty() && !input.peek(Token![,]) {
        if expects_operand && input.peek(Token![<]) {
            input.parse::<ExprPath>()?.to_tokens(&mut tokens);
            expects_operand = false;
        } else if input.peek(Token![::]) {
            input.parse::<Token![::]>()?.to_tokens(&mut tokens);
            if input.peek(Token![<]) {
                let generics: AngleBracketedGenericArguments = input.parse()?;
                generics.to_tokens(&mut tokens);
            }
            expects_operand = false;
        } else {
            let token: TokenTree = input.parse()?;
            expects_operand = is_operator(&token);
            token.to_tokens(&mut tokens);
        }
    }
    if tokens.is_empty() {
        return Err(input.error("expected an expression"));
    }
    Ok(tokens)
}

/// Whether an operand follows. It does not after the first half of `<<`: the second half would begin a path.
fn is_operator(token: &TokenTree) -> bool {
    let TokenTree::Punct(punct) = token else {
        return false;
    };
    match punct.as_char() {
        '?' => false,
        '<' => punct.spacing() == Spacing::Alone,
        _ => true,
    }
}

/// `(a, b, c)`
fn idents(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<String>> {
    let content;
    syn::parenthesized!(content in meta.input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
    Ok(names.iter().map(plain).collect())
}

/// The lines of `///`, as one.
fn documentation(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| {
        let value = &attribute.meta.require_name_value().ok()?.value;
        match value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        }
    };
    let docs = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"));
    // The first paragraph.
    let lines: Vec<String> = docs
        .filter_map(line)
        .take_while(|line| !line.is_empty())
        .collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;

    /// An expression and the rest behind it, without spaces.
    fn split(input: TokenStream) -> Option<(String, String)> {
        let parse = |input: ParseStream<'_>| {
            let found = expression(input)?;
            Ok((found, input.parse::<TokenStream>()?))
        };
        let (found, rest) = parse.parse2(input).ok()?;
        Some((spelled(&found), spelled(&rest)))
    }

    fn spelled(tokens: &TokenStream) -> String {
        tokens.to_string().replace(' ', "")
    }

    #[test]
    fn an_expression_ends_at_the_next_comma_outside_of_it() {
        let whole = [
            quote!("latency"),
            quote!([0.1, 1.0]),
            quote!(a::powers::<f64, 3>(1, 2)),
            quote!(<A<B, C>>::X),
            quote!(<A<B, C> as D<E, F>>::powers::<G, H>(1, 2)),
            quote!(&<A<B, C>>::X),
            quote!(*x? + <A<B, C>>::X.min(y)),
            quote!(1 << 3),
            quote!(a < b),
            quote!(f(a)? < b),
        ];
        for expression in whole {
            let expected = spelled(&expression);
            assert_eq!(
                split(quote!(#expression)),
                Some((expected.clone(), String::new()))
            );
            assert_eq!(split(quote!(#expression, x)), Some((expected, ",x".to_owned())));
        }
    }

    #[test]
    fn an_expression_that_is_missing_or_has_no_end_is_refused() {
        assert_eq!(split(quote!(, x)), None);
        assert_eq!(split(quote!(<A<B, C>)), None);
    }
}
