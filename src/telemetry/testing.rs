// SPDX-License-Identifier: Apache-2.0

//! For tests: what readers of the gateway's own metrics see.

use metrics::Recorder;

use super::config::{Detail, Listen};
use super::recorder::{Renaming, Rendering, fan_out};
use super::views::{View, Views};
use crate::config::{Decode, Problems, parse_text};

/// Values by what stands between the braces of their series.
pub(crate) type Values = Vec<(String, f64)>;

/// A page of the gateway's own metrics.
pub(crate) struct Page(Rendering);

impl Page {
    pub(crate) fn text(&self) -> String {
        self.0.text()
    }

    /// The values of the series of this name.
    pub(crate) fn series(&self, name: &str) -> Values {
        let page = self.text();
        let of_name = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.trim_end_matches('}').to_owned();
            (found == name).then(|| (labels, value.parse().expect("a number")))
        };
        page.lines().filter_map(of_name).collect()
    }
}

/// A recorder of all levels with these views, and its page.
pub(crate) fn recorder(views: &str) -> (impl Recorder + Sync + 'static, Page) {
    let mut problems = Problems::default();
    let node = parse_text("views.yaml", views, &mut problems).expect("YAML");
    let views = Vec::<View>::decode(&node, &mut problems).expect("views");
    let (page, rendering) = Renaming::new(&Listen::default(), &[]);
    let recorder = fan_out(Detail::Detailed, Views::new(&views), vec![page], Vec::new());
    (recorder, Page(rendering))
}
