// SPDX-License-Identifier: Apache-2.0

//! `headers_setter`: headers of our requests, fixed or copied from the request that brought the data.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::batch::ClientMetadata;
use crate::component::auth::Credentials;
use crate::component::services::Services;
use crate::component::{ConfigType, Extension, ExtensionFactory, Factory, Lifecycle, Stability};
use crate::config::{Node, Problems, Secret};

crate::options! {
    /// Options of the `headers_setter` extension.
    pub struct HeadersSetterConfig {
        /// Changes of request headers, in this order.
        pub headers: Vec<HeaderRule> = required,
    }
}

crate::options! {
    /// A change of one header.
    pub struct HeaderRule {
        /// Action on the header.
        pub action: HeaderAction = HeaderAction::Upsert,
        /// Name of the header.
        pub key: String = required,
        /// Value of the header.
        pub value: Option<Secret> = None,
        /// Header of the sender's request that supplies the value. The receiver must keep it
        /// (`include_metadata`).
        pub from_context: Option<String> = None,
        /// Value for requests whose sender gave none.
        pub default_value: Option<Secret> = None,
    }
    check = HeaderRule::check
}

crate::choices! {
    /// The action on a header.
    pub enum HeaderAction {
        /// Sets a header that is missing.
        Insert = "insert",
        /// Replaces a header that exists.
        Update = "update",
        /// Sets or replaces the header.
        Upsert = "upsert",
        /// Removes the header.
        Delete = "delete",
    }
}

impl HeaderRule {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let names = [
            ("key", Some(&self.key)),
            ("from_context", self.from_context.as_ref()),
        ];
        for (option, name) in names {
            if name.is_some_and(|name| HeaderName::try_from(name.as_str()).is_err()) {
                cx.at(at.child(option)).error("this is not a header name");
            }
        }
        for (option, value) in [("value", &self.value), ("default_value", &self.default_value)] {
            let is_bad = |value: &Secret| HeaderValue::try_from(value.expose()).is_err();
            if value.as_ref().is_some_and(is_bad) {
                cx.at(at.child(option))
                    .error("the value has characters that no header may have");
            }
        }
        let sources = usize::from(self.value.is_some()) + usize::from(self.from_context.is_some());
        match (self.action, sources) {
            (HeaderAction::Delete, 0) => {}
            (HeaderAction::Delete, _) => cx.at(at).error("`delete` takes no value"),
            (_, 1) => {}
            _ => cx.at(at).error("one of `value` and `from_context` must be given"),
        }
    }
}

fn secret(value: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(value.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The factory of `headers_setter`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "headers_setter",
    aliases: &[],
    stability: Stability::Beta,
    help: "sets request headers of exporters, to fixed values or values of the sender's request",
    errors: &[],
    config: ConfigType::of::<HeadersSetterConfig>(),
    build: |settings, _| {
        let config = settings.get::<HeadersSetterConfig>();
        // `check` has reported names that are not headers.
        let rules = config.headers.iter().filter_map(Rule::new).collect();
        Ok(Arc::new(HeadersSetter(Arc::new(Rules(rules)))))
    },
};

struct HeadersSetter(Arc<Rules>);

#[async_trait]
impl Lifecycle for HeadersSetter {}

impl Extension for HeadersSetter {
    fn services(&self) -> Services {
        Services {
            authenticator: None,
            credentials: Some(self.0.clone()),
            ..Services::default()
        }
    }
}

struct Rules(Vec<Rule>);

/// A compiled rule.
struct Rule {
    action: HeaderAction,
    name: HeaderName,
    /// The header of the sender's request.
    from: Option<HeaderName>,
    /// The value, or the default of a missing one.
    value: Option<HeaderValue>,
}

impl Rule {
    fn new(rule: &HeaderRule) -> Option<Self> {
        let value = rule.value.as_ref().or(rule.default_value.as_ref());
        Some(Self {
            action: rule.action,
            name: HeaderName::try_from(rule.key.as_str()).ok()?,
            from: rule
                .from_context
                .as_ref()
                .and_then(|name| HeaderName::try_from(name.as_str()).ok()),
            value: value.and_then(secret),
        })
    }

    /// The header value for this sender's data; `None`: the header stays unchanged.
    fn value(&self, client: Option<&ClientMetadata>) -> Option<HeaderValue> {
        let sent = self.from.as_ref().and_then(|name| client?.headers().get(name));
        let mut value = sent.or(self.value.as_ref())?.clone();
        value.set_sensitive(true);
        Some(value)
    }
}

impl Credentials for Rules {
    fn apply(&self, headers: &mut HeaderMap, client: Option<&ClientMetadata>) -> Result<(), String> {
        for rule in &self.0 {
            let is_there = headers.contains_key(&rule.name);
            match (rule.action, rule.value(client)) {
                (HeaderAction::Delete, _) => {
                    headers.remove(&rule.name);
                }
                (HeaderAction::Insert, _) if is_there => {}
                (HeaderAction::Update, _) if !is_there => {}
                (_, Some(value)) => {
                    headers.insert(rule.name.clone(), value);
                }
                (_, None) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::{context, settings};

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn each_action_has_its_effect() {
        let yaml = "{headers: [{key: a, value: new, action: insert}, {key: b, value: new, action: update}, \
            {key: c, value: new}, {key: d, action: delete}, {key: x-scope, from_context: x-tenant, default_value: none}]}";
        let built = (FACTORY.build)(
            &settings::<HeadersSetterConfig>(yaml),
            context("extensions", "headers_setter"),
        )
        .unwrap();
        let credentials = built.services().credentials.unwrap();
        let mut headers = map(&[("a", "old"), ("c", "old"), ("d", "old")]);
        let client = ClientMetadata::new(map(&[("x-tenant", "blue")]));
        credentials.apply(&mut headers, Some(&client)).unwrap();
        assert_eq!(headers, map(&[("a", "old"), ("c", "new"), ("x-scope", "blue")]));
        let mut headers = map(&[]);
        credentials.apply(&mut headers, None).unwrap();
        assert_eq!(headers, map(&[("a", "new"), ("c", "new"), ("x-scope", "none")]));
    }

    #[test]
    fn rules_without_a_value_are_reported() {
        let mut problems = Problems::default();
        let yaml = "{headers: [{key: a}, {key: 'b b', value: v}, {key: c, action: delete, value: v}]}";
        let node = crate::config::parse_text("test.yaml", yaml, &mut problems).unwrap();
        (FACTORY.config.decode)(&node, &mut problems);
        assert_eq!(problems.error_count(), 3, "{problems}");
    }
}
