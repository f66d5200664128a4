// SPDX-License-Identifier: Apache-2.0

//! Single values of Secrets and ConfigMaps, which are read when an object names them. Nothing watches them: the account of
//! the gateway needs the verb `get` only.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use serde::Deserialize;
use tidegate_config::Secret;
use tidegate_runtime::Held;

use crate::cluster::Cluster;
use crate::error::WatchError;
use crate::kind::escaped;
use crate::watcher::next_chunk;

/// The longest pause within an answer.
const PAUSE: Duration = Duration::from_secs(30);

/// The most bytes of an answer. The API server stores at most 1.5 MiB.
const MAX_BYTES: usize = 2 << 20;

/// The factor between JSON and the memory to read it: `"":"",` is an entry of a table of 64 bytes.
const READ_FACTOR: usize = 32;

/// A kind of objects with named values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataKind {
    /// Secrets, whose values are in base64.
    Secret,
    /// Maps of texts.
    ConfigMap,
}

impl DataKind {
    /// The name of the resource.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        }
    }
}

/// A value with its reservation.
#[derive(Debug)]
pub struct NamedValue {
    /// The value.
    pub text: Secret,
    _held: Held,
}

#[derive(Deserialize)]
struct WithData<'a> {
    #[serde(borrow, default)]
    data: Option<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl Cluster {
    /// The value of a key of an object. `None`: the object has no such key.
    ///
    /// # Errors
    /// The server refuses the request, or memory is short, or a name is invalid, or the value is not text.
    pub async fn named_value(
        &self,
        kind: DataKind,
        (namespace, name): (&str, &str),
        key: &str,
    ) -> Result<Option<NamedValue>, WatchError> {
        if let Some(wrong) = [namespace, name].into_iter().find(|part| !is_name(part)) {
            return Err(WatchError::Body(format!("{wrong:?} is not a name")));
        }
        let (namespace, name) = (escaped(namespace), escaped(name));
        let path = format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.resource());
        let mut body = self.client.get(&path).await?;
        let mut held = Held::new(self.account.clone());
        let mut json = Vec::new();
        while let Some(chunk) = next_chunk(&mut body, PAUSE).await? {
            let length = json.len() + chunk.len();
            if length > MAX_BYTES {
                return Err(WatchError::Body(format!("more than {MAX_BYTES} bytes")));
            }
            held.try_grow_to(length.saturating_mul(READ_FACTOR))?;
            json.extend_from_slice(&chunk);
        }
        let Some(text) = value_of(kind, &json, key)? else {
            return Ok(None);
        };
        held.keep(text.expose().len());
        Ok(Some(NamedValue { text, _held: held }))
    }
}

/// Whether a text is one segment of a path. Servers and proxies read other texts as another path.
fn is_name(text: &str) -> bool {
    !["", ".", ".."].contains(&text) && !text.contains(['/', '%'])
}

fn value_of(kind: DataKind, json: &[u8], key: &str) -> Result<Option<Secret>, WatchError> {
    let wrong = |why: &dyn std::fmt::Display| WatchError::Body(why.to_string());
    let object: WithData<'_> = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
    let Some(value) = object.data.and_then(|mut data| data.remove(key)) else {
        return Ok(None);
    };
    if kind == DataKind::ConfigMap {
        return Ok(Some(Secret::new(value)));
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(&*value);
    let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| wrong(&"the value is not text in base64"))?;
    Ok(Some(Secret::new(text)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::client::ApiClient;
    use crate::testing::FakeApiServer;

    #[tokio::test]
    async fn a_value_is_read_by_object_and_key() {
        let server = FakeApiServer::start().await;
        let metadata = json!({"name": "n", "namespace": "x"});
        server.apply_quietly(
            "secrets",
            &json!({"metadata": metadata, "data": {"a": "c2VjcmV0", "bad": "!"}}),
        );
        server.apply_quietly(
            "configmaps",
            &json!({"metadata": metadata, "data": {"a": "plain"}}),
        );
        let account = Arc::<tidegate_runtime::Account>::default();
        let cluster = Cluster::shared(ApiClient::new(server.server()).unwrap(), &account);
        let read = async |kind, name: &str, key: &str| {
            let value = cluster.named_value(kind, ("x", name), key).await;
            value.map(|value| value.map(|value| value.text.expose().to_owned()))
        };
        assert_eq!(
            read(DataKind::Secret, "n", "a").await.unwrap().as_deref(),
            Some("secret")
        );
        assert_eq!(
            read(DataKind::ConfigMap, "n", "a").await.unwrap().as_deref(),
            Some("plain")
        );
        assert_eq!(read(DataKind::Secret, "n", "other").await.unwrap(), None);
        let error = read(DataKind::Secret, "n", "bad").await.unwrap_err().to_string();
        assert!(error.contains("not text in base64"), "{error}");
        let error = read(DataKind::Secret, "gone", "a").await.unwrap_err().to_string();
        assert!(error.contains("404"), "{error}");
        for name in ["", ".", "..", "../n", "n/x", "%2e"] {
            let error = read(DataKind::Secret, name, "a").await.unwrap_err().to_string();
            assert!(error.contains("is not a name"), "{error}");
        }
        assert_eq!(account.reserved_bytes(), 0);
    }
}
