// SPDX-License-Identifier: Apache-2.0

//! How the pod of a resource is identified: by values of the resource and the address of its connection.

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::ops::Range;

use smallvec::SmallVec;

use super::config::{PodAssociation, SourceFrom};
use super::resource::ResourceTexts;

/// A byte between the values of a key. It is in no text.
const SEPARATOR: u8 = 0xFF;

/// A part of a pod that identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodPart {
    /// Its address.
    Ip,
    /// Its name.
    Name,
    /// The name of its namespace.
    Namespace,
    /// Its id.
    Uid,
    /// The id of one of its containers.
    ContainerId,
    /// An attribute that it adds.
    Attribute(Box<str>),
}

impl PodPart {
    fn of_attribute(name: &str) -> Self {
        match name {
            "k8s.pod.ip" | HOST_NAME => Self::Ip,
            "k8s.pod.name" => Self::Name,
            "k8s.namespace.name" => Self::Namespace,
            "k8s.pod.uid" => Self::Uid,
            "container.id" => Self::ContainerId,
            other => Self::Attribute(other.into()),
        }
    }
}

/// This attribute counts only if it is an address.
const HOST_NAME: &str = "host.name";

#[derive(Clone, Debug)]
enum ValueSource {
    Connection,
    Attribute(Box<str>),
}

#[derive(Clone, Debug)]
struct Association {
    /// Its place among the sets of parts.
    parts: u16,
    sources: Box<[ValueSource]>,
}

/// All associations of a processor.
#[derive(Clone, Debug)]
pub(super) struct Associations {
    list: Vec<Association>,
    /// The sets of parts that pods are found by. Associations share equal sets.
    parts: Vec<Box<[PodPart]>>,
    is_default: bool,
}

/// A key of pods, in memory that needs no allocation.
pub(super) type KeyBuffer = SmallVec<[u8; 96]>;

/// The identification of a resource.
pub(super) struct Identification {
    pub(super) key: KeyBuffer,
    /// The address in the key that becomes `k8s.pod.ip`.
    ip: Option<Range<usize>>,
}

impl Identification {
    /// The address of the pod, if the connection or another default source has it.
    pub(super) fn ip(&self) -> Option<&str> {
        let bytes = self.key.get(self.ip.clone()?)?;
        std::str::from_utf8(bytes).ok()
    }
}

impl Associations {
    pub(super) fn new(configured: &[PodAssociation]) -> Self {
        let mut all = Self {
            list: Vec::new(),
            parts: Vec::new(),
            is_default: configured.is_empty(),
        };
        let attribute = |name: &str| ValueSource::Attribute(name.into());
        if configured.is_empty() {
            let connection = ValueSource::Connection;
            for source in [
                attribute("k8s.pod.ip"),
                attribute("ip"),
                connection,
                attribute(HOST_NAME),
            ] {
                all.add(&[PodPart::Ip], vec![source]);
            }
        }
        for association in configured {
            let sources = association.sources.iter().map(|source| match source.from {
                SourceFrom::Connection => (PodPart::Ip, ValueSource::Connection),
                SourceFrom::ResourceAttribute => {
                    (PodPart::of_attribute(&source.name), attribute(&source.name))
                }
            });
            let (parts, sources): (Vec<_>, Vec<_>) = sources.unzip();
            all.add(&parts, sources);
        }
        all
    }

    fn add(&mut self, parts: &[PodPart], sources: Vec<ValueSource>) {
        let known = self.parts.iter().position(|known| **known == *parts);
        let place = known.unwrap_or_else(|| {
            self.parts.push(parts.into());
            self.parts.len() - 1
        });
        self.list.push(Association {
            // A configuration has no room for so many associations.
            parts: u16::try_from(place).unwrap_or(u16::MAX),
            sources: sources.into(),
        });
    }

    /// The sets of parts that pods are found by.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u16, &[PodPart])> {
        (0..).zip(self.parts.iter().map(|parts| &**parts))
    }

    /// Identifies a resource by the first association whose values are all present.
    pub(super) fn identify(
        &self,
        resource: &dyn ResourceTexts,
        peer: Option<IpAddr>,
    ) -> Option<Identification> {
        let mut key = KeyBuffer::new();
        for association in &self.list {
            if let Some(ip) = self.write(association, resource, peer, &mut key) {
                return Some(Identification { key, ip });
            }
        }
        None
    }

    /// Writes the key. Returns the place of the address in it.
    fn write(
        &self,
        association: &Association,
        resource: &dyn ResourceTexts,
        peer: Option<IpAddr>,
        key: &mut KeyBuffer,
    ) -> Option<Option<Range<usize>>> {
        key.clear();
        key.extend_from_slice(&association.parts.to_be_bytes());
        let mut ip = None;
        for source in &association.sources {
            let start = key.len();
            match source {
                ValueSource::Connection => write_ip(peer?, key),
                ValueSource::Attribute(name) => {
                    let text = resource.text(name)?;
                    if **name == *HOST_NAME && text.parse::<IpAddr>().is_err() {
                        return None;
                    }
                    key.extend_from_slice(text.as_bytes());
                }
            }
            if self.is_default || matches!(source, ValueSource::Connection) {
                ip = Some(start..key.len());
            }
            key.push(SEPARATOR);
        }
        Some(ip)
    }
}

/// The key of a pod with these values.
pub(super) fn key_of<'a>(parts: u16, values: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut key = parts.to_be_bytes().to_vec();
    for value in values {
        key.extend_from_slice(value.as_bytes());
        key.push(SEPARATOR);
    }
    key
}

/// An address as keys have it.
pub(super) fn normalised_ip(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => text.to_owned(),
    }
}

fn write_ip(ip: IpAddr, key: &mut KeyBuffer) {
    struct Bytes<'a>(&'a mut KeyBuffer);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // This writer takes everything.
    let _ = write!(Bytes(key), "{ip}");
}
