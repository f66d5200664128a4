// SPDX-License-Identifier: Apache-2.0

//! JSON of the API to objects, events and heads of lists.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::core::{KubeNode, Pod, Service};
use super::network::{EndpointSlice, Endpoints, Ingress};
use super::{Body, Controller, KubeObject, Metadata, TextMap};
use crate::ObjectKind;

/// The version of an object or list. The server alone knows its meaning.
pub(crate) type Version = String;

/// A value, or the default for null.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
struct OwnerReference {
    #[serde(default, deserialize_with = "or_default")]
    kind: Box<str>,
    #[serde(default, deserialize_with = "or_default")]
    name: Box<str>,
    #[serde(default, deserialize_with = "or_default")]
    uid: Box<str>,
    #[serde(default, deserialize_with = "or_default")]
    controller: bool,
}

/// The controller among the owners.
pub(super) fn controller_of<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Controller>, D::Error> {
    let owners: Vec<OwnerReference> = or_default(deserializer)?;
    let controller = owners.into_iter().find(|owner| owner.controller);
    Ok(controller.map(|OwnerReference { kind, name, uid, .. }| Controller { kind, name, uid }))
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextMapVisitor)
    }
}

struct TextMapVisitor;

impl<'de> Visitor<'de> for TextMapVisitor {
    type Value = TextMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextMap, A::Error> {
        let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        // Of equal names, the last one counts.
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|next, kept| next.0 == kept.0);
        Ok(TextMap(pairs.into()))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VersionOnly {
    #[serde(rename = "resourceVersion", deserialize_with = "or_default")]
    version: Version,
}

/// An object whose metadata is not read yet: only a part of it is of use.
#[derive(Deserialize)]
struct RawMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
struct WithMetadata<M> {
    metadata: M,
}

/// Reads an object and its version.
///
/// # Errors
/// It is not an object of this kind, or has no name.
pub(crate) fn object(kind: ObjectKind, json: &[u8]) -> Result<(KubeObject, Version), serde_json::Error> {
    let raw = serde_json::from_slice::<RawMetadata<'_>>(json)?.metadata.get();
    let mut metadata: Metadata = serde_json::from_str(raw)?;
    metadata.trim(kind);
    if metadata.name.is_empty() {
        return Err(serde::de::Error::custom("an object without a name"));
    }
    let VersionOnly { version } = serde_json::from_str(raw)?;
    let body = body(kind, json)?;
    Ok((KubeObject { metadata, body }, version))
}

fn body(kind: ObjectKind, json: &[u8]) -> Result<Body, serde_json::Error> {
    fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
        serde_json::from_slice(json)
    }
    Ok(match kind {
        ObjectKind::Pod => Body::Pod(read::<Box<Pod>>(json)?),
        ObjectKind::Service => Body::Service(read::<Box<Service>>(json)?),
        ObjectKind::Endpoints => Body::Endpoints(read::<Endpoints>(json)?),
        ObjectKind::EndpointSlice => Body::EndpointSlice(read::<EndpointSlice>(json)?),
        ObjectKind::Node => Body::Node(read::<Box<KubeNode>>(json)?),
        ObjectKind::Ingress => Body::Ingress(read::<Ingress>(json)?),
        ObjectKind::Namespace => Body::Namespace,
        ObjectKind::ReplicaSet
        | ObjectKind::Deployment
        | ObjectKind::StatefulSet
        | ObjectKind::DaemonSet
        | ObjectKind::Job => Body::Workload,
        ObjectKind::PodMonitor | ObjectKind::ServiceMonitor | ObjectKind::ScrapeConfig => {
            Body::Custom(super::custom::spec(json)?)
        }
    })
}

fn version(json: &[u8]) -> Result<Version, serde_json::Error> {
    let found: WithMetadata<VersionOnly> = serde_json::from_slice(json)?;
    Ok(found.metadata.version)
}

/// A page of a list without its objects.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ListHead {
    /// The version of the list.
    #[serde(rename = "resourceVersion", deserialize_with = "or_default")]
    pub(crate) version: Version,
    /// The token for the next page. Empty: this is the last one.
    #[serde(rename = "continue", deserialize_with = "or_default")]
    pub(crate) next: String,
}

/// Reads a page without its objects.
///
/// # Errors
/// The JSON is not a page of a list.
pub(crate) fn list_head(json: &[u8]) -> Result<ListHead, serde_json::Error> {
    serde_json::from_slice::<WithMetadata<_>>(json).map(|page| page.metadata)
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum ReadEvent {
    /// An object is new or has changed.
    Applied(&'static str, KubeObject, Version),
    /// An object is gone.
    Deleted(KubeObject, Version),
    /// No event before this version is to come.
    Bookmark(Version),
    /// The watch ends with this code.
    Failed(u16, String),
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    code: u16,
    #[serde(deserialize_with = "or_default")]
    message: String,
}

/// Reads an event of a watch of a kind.
///
/// # Errors
/// The JSON is not an event.
pub(crate) fn watch_event(kind: ObjectKind, json: &[u8]) -> Result<ReadEvent, serde_json::Error> {
    let event: RawEvent<'_> = serde_json::from_slice(json)?;
    let of = event.object.get().as_bytes();
    let applied = |name| object(kind, of).map(|(object, version)| ReadEvent::Applied(name, object, version));
    match &*event.kind {
        "ADDED" => applied("added"),
        "MODIFIED" => applied("modified"),
        "DELETED" => object(kind, of).map(|(object, version)| ReadEvent::Deleted(object, version)),
        "BOOKMARK" => version(of).map(ReadEvent::Bookmark),
        "ERROR" => {
            let status: Status = serde_json::from_slice(of)?;
            Ok(ReadEvent::Failed(status.code, status.message))
        }
        _ => Err(serde::de::Error::custom("an unknown type of event")),
    }
}

/// The message of a refusal, if the body has one.
pub(crate) fn status_message(json: &[u8]) -> String {
    serde_json::from_slice::<Status>(json).unwrap_or_default().message
}

/// The name of an object, as far as a piece of JSON has it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Identity {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

/// Reads the name of the object of an event or page from the beginning of its JSON. The server writes the name first.
pub(crate) fn identity(beginning: &[u8]) -> Identity {
    let mut found = Identity::default();
    let mut deserializer = serde_json::Deserializer::from_slice(beginning);
    // The JSON ends early, so this fails after the name.
    let _ = (&mut deserializer).deserialize_map(IdentityVisitor {
        found: &mut found,
        is_metadata: false,
    });
    found
}

/// Visits an event, its object or the metadata of it.
struct IdentityVisitor<'a> {
    found: &'a mut Identity,
    is_metadata: bool,
}

impl<'de> Visitor<'de> for IdentityVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match (self.is_metadata, key.as_str()) {
                (true, "name") => self.found.name = Some(map.next_value()?),
                (true, "namespace") => self.found.namespace = Some(map.next_value()?),
                (false, "object" | "metadata") => map.next_value_seed(IdentityVisitor {
                    found: self.found,
                    is_metadata: key == "metadata",
                })?,
                _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for IdentityVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}
