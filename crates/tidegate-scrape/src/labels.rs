// SPDX-License-Identifier: Apache-2.0

//! Label sets during discovery and relabelling.

pub(super) use tidegate_prometheus::model::LabelSet as Labels;
