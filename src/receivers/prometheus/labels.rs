//! Label sets during discovery and relabelling.

pub(super) use crate::prom::model::LabelSet as Labels;
