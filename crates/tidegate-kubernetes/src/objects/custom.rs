// SPDX-License-Identifier: Apache-2.0

//! Custom objects, whose users read the specification themselves.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct WithSpec<'a> {
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

/// The `spec` of an object as JSON. An object without one has an empty `spec`.
///
/// # Errors
/// It is not an object.
pub(super) fn spec(json: &[u8]) -> Result<Box<str>, serde_json::Error> {
    let object: WithSpec<'_> = serde_json::from_slice(json)?;
    Ok(object.spec.map_or("{}", RawValue::get).into())
}
