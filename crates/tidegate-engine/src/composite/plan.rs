// SPDX-License-Identifier: Apache-2.0

//! How a series feeds its group.

use std::sync::Arc;

use super::member::MemberKind;
use super::window::Window;
use super::{Composite, Function};
use crate::{Attributes, Resource, Series};

/// The way in which a series feeds its group.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Observations for the window of the group.
    Pooled { is_steady: bool },
    /// Observations for a window of its own.
    Own { is_steady: bool },
    /// A level.
    Level(Option<Arc<Series>>),
}

impl Composite {
    /// The contribution of a series to its group.
    pub(super) fn kind(&self, plan: &Plan, is_first: bool) -> MemberKind {
        let declaration = &self.declaration;
        let window = |has_sketches| Box::new(Window::new(self.cut, has_sketches));
        let is_quantile = matches!(declaration.function, Function::Quantile(_));
        match plan {
            Plan::Pooled { is_steady } => MemberKind::Pooled {
                is_steady: *is_steady,
            },
            Plan::Own { is_steady } => MemberKind::Own {
                window: window(is_quantile),
                is_steady: *is_steady,
            },
            Plan::Level(series) => MemberKind::Level {
                window: match (declaration.is_by_series(), declaration.function) {
                    (true, Function::Last) => None,
                    (true, _) => Some(window(is_quantile)),
                    // A group with several gauges has no value anyway.
                    (false, _) => is_first.then(|| window(declaration.is_sketched())),
                },
                series: series.clone(),
            },
        }
    }

    pub(super) fn group_attributes(&self, resource: &Arc<Resource>, attributes: &Attributes) -> Attributes {
        self.match_tracker.note_match(resource, &[attributes]);
        let (resource, attributes) = self.declaration.grouping.apply(resource, attributes);
        resource.attributes.merge(&attributes)
    }
}
