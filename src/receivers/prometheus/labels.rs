// SPDX-License-Identifier: Apache-2.0

//! Label sets during discovery and relabelling.

pub(super) use crate::prom::model::LabelSet as Labels;
